"""One segment: append, read, index entries, truncation, timestamps (LOG-2, 23 to 31, 36 to 38)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from log_place import Place
from log_rig import NOW_MS, TINY, batch, batch_set, data_of, legacy

from kraftpy.log import batch_headers
from kraftpy.log.errors import SegmentOffsetOverflowError
from kraftpy.log.index import OffsetPosition, TimestampOffset
from kraftpy.log.index_rebuilding import rebuild_indexes
from kraftpy.log.log_config import LogConfig
from kraftpy.log.offsets import OffsetMetadata
from kraftpy.log.pacing import Pace
from kraftpy.log.segment import RELATIVE_OFFSET_MAX, Segment
from kraftpy.records.batch import RecordBatch
from kraftpy.records.errors import CorruptRecord
from kraftpy.world.memory_clock import MemoryClock


def make(place: Place, base_offset: int = 0, config: LogConfig = TINY) -> Segment:
    return Segment.create(place.pool, place.directory, base_offset, config, now_ms=NOW_MS)


def append(segment: Segment, offset: int, *values: bytes, timestamp_ms: int = NOW_MS) -> int:
    """Append one batch at `offset`; its size."""
    data = batch(*(values or (b"v",)), base_offset=offset, timestamp_ms=timestamp_ms)
    segment.append(batch_set(data))
    return len(data)


async def test_files_of_a_segment(place: Place) -> None:
    """LOG-2: no transaction index before a transaction is aborted; LOG-7: preallocated indexes."""
    config = replace(TINY, segment_index_bytes=67)
    make(place, 12345, config)
    assert await place.disk.list_directory(place.directory) == [
        "00000000000000012345.index",
        "00000000000000012345.log",
        "00000000000000012345.timeindex",
    ]
    assert len(place.get("00000000000000012345.index")) == 64
    assert len(place.get("00000000000000012345.timeindex")) == 60


async def test_nothing_appended_changes_nothing(place: Place) -> None:
    """LOG-23."""
    segment = make(place)
    segment.append(batch_set())
    assert segment.size_bytes == 0
    assert segment.largest.timestamp_ms == -1
    assert segment.first_timestamp_ms == -1


async def test_the_first_append_starts_the_countdown_to_a_roll(place: Place) -> None:
    """LOG-24."""
    segment = make(place)
    append(segment, 0, timestamp_ms=500)
    append(segment, 1, timestamp_ms=900)
    assert segment.first_timestamp_ms == 500


@pytest.mark.parametrize(
    ("offset", "fits"),
    [
        (99, False),
        (100, True),
        (100 + RELATIVE_OFFSET_MAX, True),
        (101 + RELATIVE_OFFSET_MAX, False),
    ],
)
async def test_offsets_within_31_bits_of_the_base(place: Place, offset: int, fits: bool) -> None:
    """LOG-25."""
    segment = make(place, 100)
    if fits:
        append(segment, offset)
        return
    with pytest.raises(SegmentOffsetOverflowError):
        append(segment, offset)
    assert place.get("00000000000000000100.log") == b""
    assert segment.size_bytes == 0


async def test_index_entries_come_after_the_interval(place: Place) -> None:
    """LOG-26, LOG-27: strictly more bytes than the interval before an append make an entry for it,
    from its last offset to its first byte."""
    size = len(batch(b"v"))
    segment = make(place, config=replace(TINY, index_interval_bytes=2 * size))
    for offset in range(10):
        append(segment, offset)
    # Before offset 3 there are three batches, more than two; then the count begins again.
    entries = [segment.offset_index.entry(slot) for slot in range(segment.offset_index.entry_count)]
    assert entries == [OffsetPosition(offset, offset * size) for offset in (3, 6, 9)]


async def test_an_index_entry_has_the_last_offset_of_its_append(place: Place) -> None:
    """LOG-27."""
    segment = make(place)
    size = append(segment, 0)
    append(segment, 1, b"a", b"b", b"c")
    assert segment.offset_index.last_entry == OffsetPosition(3, size)


async def test_the_largest_timestamp_is_the_first_of_its_size(place: Place) -> None:
    """LOG-28."""
    segment = make(place)
    for offset, timestamp_ms in enumerate([5, 9, 9, 7]):
        append(segment, offset, timestamp_ms=timestamp_ms)
    assert segment.largest == TimestampOffset(9, 1)


async def test_reads_with_odd_limits(place: Place) -> None:
    """LOG-29."""
    segment = make(place)
    append(segment, 0)
    with pytest.raises(ValueError, match="at most -1"):
        segment.read(0, -1)
    assert segment.read(1, 100) is None
    empty = segment.read(0, 0)
    assert empty is not None
    assert empty.records is None
    assert (empty.fetch_offset.segment_base_offset, empty.fetch_offset.position) == (0, 0)


async def test_a_read_ends_at_the_position_bound(place: Place) -> None:
    """LOG-30: 100 bytes at 250 up to 300 are 50."""
    segment = make(place)
    offset = position = 0
    while position < 250:
        position += append(segment, offset)
        offset += 1
    found = segment.read(offset - 1, 100, max_position=position)
    assert found is not None
    start = found.fetch_offset.position
    bounded = segment.read(offset - 1, 100, max_position=start + 50)
    assert bounded is not None
    assert bounded.size_bytes == 50
    beyond = segment.read(offset - 1, 100, max_position=start - 1)
    assert beyond is not None
    assert beyond.size_bytes == 0


async def test_at_least_one_batch(place: Place) -> None:
    """LOG-31."""
    segment = make(place)
    size = append(segment, 0, b"long" * 30)
    append(segment, 1)
    whole = segment.read(0, 10, min_one_batch=True)
    assert whole is not None
    assert whole.size_bytes == size
    assert not whole.first_entry_incomplete
    part = segment.read(0, 10)
    assert part is not None
    assert part.size_bytes == 10
    assert part.first_entry_incomplete
    exact = segment.read(0, size)
    assert exact is not None
    assert not exact.first_entry_incomplete


async def test_a_read_begins_with_the_batch_of_its_offset(place: Place) -> None:
    segment = make(place)
    first = append(segment, 0, b"a", b"b")
    append(segment, 2, b"c", b"d")
    for offset, position in [(0, 0), (1, 0), (2, first), (3, first)]:
        found = segment.read(offset, 1 << 20)
        assert found is not None
        assert found.fetch_offset.position == position
        assert RecordBatch(data_of(found)).last_offset >= offset


async def test_who_has_all_but_the_newest_appends_finds_them_at_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower asks for what was appended last: not for a walk from the index entry before it."""
    segment = make(place, config=replace(TINY, index_interval_bytes=1 << 20))
    [size] = {append(segment, offset) for offset in range(40)}
    seen = []
    inner = batch_headers.header_at

    def header_at(data: bytes, index: int, position: int) -> batch_headers.BatchHeader:
        seen.append(position)
        return inner(data, index, position)

    monkeypatch.setattr(batch_headers, "header_at", header_at)
    for offset in (39, 38, 37, 36):
        found = segment.read(offset, 1 << 20, end_offset=40)
        assert found is not None
        assert found.fetch_offset == OffsetMetadata(offset, 0, offset * size)
        assert found.size_bytes == (40 - offset) * size
        assert seen == [offset * size]
        seen.clear()
    # Older ones are found by the way from the index; no more than a few are remembered.
    assert segment.read(35, 1 << 20, end_offset=40) is not None
    assert len(seen) == 36


@pytest.mark.parametrize("damage", ["offset", "length", "magic", "last"])
async def test_a_remembered_place_is_looked_at_before_it_is_believed(
    place: Place, damage: str
) -> None:
    """LOG-58: what is found is what a segment finds that remembers nothing."""
    segment = make(place)
    [size] = {append(segment, offset) for offset in range(8)}
    at, what = {
        "offset": (7, b"\x63"),
        "length": (8, b"\0\0\0\x01"),
        "magic": (16, b"\x07"),
        "last": (23, b"\0\0\0\x05"),
    }[damage]
    segment.log_file.pwrite([what], 7 * size + at)
    with pytest.raises(CorruptRecord):
        segment.read(7, 1 << 20, end_offset=8)


async def test_what_is_truncated_is_not_remembered(place: Place) -> None:
    """Where an append began before, anything may lie afterwards: here the bytes of a batch with
    that very offset, in the middle of another."""
    segment = make(place)
    first = append(segment, 0)
    second = append(segment, 1, b"a" * 100, b"b")
    append(segment, 3)
    segment.truncate_to(1)
    assert segment.read(3, 1 << 20, end_offset=4) is None
    lying = bytes(batch(b"x", base_offset=3))
    values = next(
        values
        for padding in range(second)
        if bytes(batch(*(values := (b"." * padding + lying, b"2", b"3", b"4")))).find(lying)
        == second
    )
    append(segment, 1, *values)
    found = segment.read(3, 1 << 20, end_offset=5)
    assert found is not None
    assert found.fetch_offset.position == first


async def test_truncation_beyond_the_end_removes_nothing(place: Place) -> None:
    """LOG-36."""
    segment = make(place)
    size = append(segment, 0) + append(segment, 1)
    assert segment.truncate_to(2) == 0
    assert segment.truncate_to(100) == 0
    assert segment.size_bytes == size
    assert len(place.get("00000000000000000000.log")) == size


async def test_truncation_cuts_log_and_indexes(place: Place) -> None:
    segment = make(place)
    sizes = [append(segment, offset, timestamp_ms=NOW_MS + offset) for offset in range(6)]
    assert segment.truncate_to(3) == sum(sizes[3:])
    assert len(place.get("00000000000000000000.log")) == sum(sizes[:3])
    assert segment.offset_index.last_entry.offset < 3
    assert segment.time_index.last_entry.offset < 3
    assert segment.largest == TimestampOffset(NOW_MS + 2, 2)
    assert segment.next_offset() == 3
    # It goes on as if nothing had been.
    append(segment, 3, timestamp_ms=NOW_MS + 50)
    assert segment.next_offset() == 4


async def test_truncation_to_nothing_forgets_the_first_timestamp(place: Place) -> None:
    segment = make(place)
    append(segment, 0, timestamp_ms=5)
    segment.truncate_to(0)
    assert segment.size_bytes == 0
    append(segment, 0, timestamp_ms=70)
    assert segment.first_timestamp_ms == 70


async def test_truncation_within_a_batch_removes_it_whole(place: Place) -> None:
    segment = make(place)
    size = append(segment, 0)
    append(segment, 1, b"a", b"b", b"c")
    segment.truncate_to(2)
    assert segment.size_bytes == size
    assert segment.next_offset() == 1


async def test_the_largest_timestamp_or_when_the_file_changed(place: Place) -> None:
    """LOG-37."""
    segment = make(place)
    data = legacy(0, magic=0)
    segment.append(batch_set(data))
    modified_ms = (await place.disk.stat(segment.log_file.path)).modified_ms
    assert await segment.largest_timestamp_ms(place.disk) == modified_ms
    append(segment, 1, timestamp_ms=700)
    assert await segment.largest_timestamp_ms(place.disk) == 700


async def test_an_inactive_segment_has_trimmed_files(place: Place) -> None:
    """LOG-38: the final time index entry, and no room left in any file."""
    segment = Segment.create(
        place.pool, place.directory, 0, replace(TINY, preallocate=True), preallocate=True
    )
    assert len(place.get("00000000000000000000.log")) == TINY.segment_bytes
    size = append(segment, 0, timestamp_ms=5) + append(segment, 1, timestamp_ms=3)
    segment.make_inactive()
    assert segment.time_index.last_entry == TimestampOffset(5, 0)
    assert len(place.get("00000000000000000000.timeindex")) == 12
    assert len(place.get("00000000000000000000.index")) == 8
    assert len(place.get("00000000000000000000.log")) == size


async def test_a_full_time_index_takes_the_final_entry(place: Place) -> None:
    """LOG-34, LOG-38: its last slot is kept for that."""
    segment = make(place, config=replace(TINY, segment_index_bytes=24))
    append(segment, 0, timestamp_ms=1)
    append(segment, 1, timestamp_ms=2)
    assert segment.time_index.is_full
    segment._largest = TimestampOffset(9, 1)
    segment.make_inactive()
    assert segment.time_index.entry_count == 2
    assert segment.time_index.last_entry == TimestampOffset(9, 1)


async def test_a_segment_keeps_nothing_but_its_files(place: Place) -> None:
    """What is known of a segment is found again in its files."""
    segment = make(place, 10)
    for offset in range(10, 18):
        append(segment, offset, timestamp_ms=NOW_MS - offset)
    segment.make_inactive()
    again = Segment(
        place.pool,
        place.directory,
        10,
        TINY,
        size_bytes=segment.size_bytes,
        has_transaction_index=False,
    )
    assert again.largest == segment.largest == TimestampOffset(NOW_MS - 10, 10)
    assert again.first_timestamp_ms == NOW_MS - 10
    assert again.next_offset() == 18
    for offset in range(10, 18):
        assert again.find(offset) == segment.find(offset)


async def test_a_rename_does_not_disturb_readers(place: Place) -> None:
    """LOG-106: those under way read on from the renamed file."""
    segment = make(place)
    append(segment, 0, b"still here")
    found = segment.read(0, 1 << 20)
    assert found is not None
    await segment.rename(place.disk, place.directory, ".deleted")
    # Even when the handle was closed meanwhile.
    segment.log_file._pool.release(segment.log_file)
    assert b"still here" in data_of(found)
    assert await place.disk.list_directory(place.directory) == [
        "00000000000000000000.index.deleted",
        "00000000000000000000.log.deleted",
        "00000000000000000000.timeindex.deleted",
    ]


@pytest.mark.parametrize("bit", [0, 7, 31, 36, 50, 63])
async def test_an_index_that_lies_is_rebuilt(place: Place, bit: int) -> None:
    """LOG-58: a read finds the right batch whatever one flipped bit in the index says."""
    segment = make(place)
    for offset in range(8):
        append(segment, offset)
    segment.make_inactive()
    name = "00000000000000000000.index"
    index = bytearray(place.get(name))
    sound = bytes(index)
    index[3 * 8 + bit // 8] ^= 0x80 >> bit % 8
    place.put(name, bytes(index))
    damaged = Segment(
        place.pool,
        place.directory,
        0,
        TINY,
        size_bytes=segment.size_bytes,
        has_transaction_index=False,
    )
    for offset in range(8):
        header = damaged.find(offset)
        assert header is not None
        assert header.base_offset == offset
    assert place.get(name) in (sound, bytes(index))


async def test_a_damaged_header_is_corrupt_not_skipped(place: Place) -> None:
    """A flipped bit in data: CORRUPT_MESSAGE where it is met, other offsets as before."""
    segment = make(place)
    size = append(segment, 0)
    append(segment, 1)
    append(segment, 2)
    segment.make_inactive()
    segment.log_file.pwrite([b"\x07"], size + 16)
    assert segment.read(0, size) is not None
    with pytest.raises(CorruptRecord):
        segment.read(1, 100)
    sound = segment.find(2)
    # That it is the data, and not the index, shows when the index is rebuilt: it stays.
    assert segment.has_damaged_index
    await rebuild_indexes(segment, Pace(MemoryClock()))
    assert not segment.has_damaged_index
    with pytest.raises(CorruptRecord):
        segment.read(1, 100)
    assert segment.find(2) == sound
    assert sound is not None
    assert sound.base_offset == 2
    # And is not taken for damaged again.
    assert not segment.has_damaged_index
