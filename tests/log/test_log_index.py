"""The offset and the time index (LOG-7 in part, LOG-39 to LOG-49, LOG-51)."""

from __future__ import annotations

import errno
import struct
from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_place import Place, TalliedDisk, TalliedFile, Tally

from kraftpy.log.errors import (
    CorruptIndexError,
    IndexFullError,
    IndexOffsetOverflowError,
    IndexTimestampError,
    InvalidIndexOffsetError,
)
from kraftpy.log.handles import HandlePool
from kraftpy.log.index import (
    OffsetIndex,
    OffsetPosition,
    SegmentIndex,
    TimeIndex,
    TimestampOffset,
)
from kraftpy.protocol.errors import ErrorCode
from kraftpy.world import InternalInvariant
from kraftpy.world.memory_disk import MemoryDisk, Recording
from kraftpy.world.memory_disk_effects import Sync
from kraftpy.world.memory_disk_faults import WriteError

MIB_10 = 10 * 1024 * 1024
INT32_MAX = 2**31 - 1


def offset_index(place: Place, *, base: int = 0, size: int = 8000, name: str = "a") -> OffsetIndex:
    index = OffsetIndex(place.pool.file(place.path(name), write=True, create=True), base, size)
    index.create()
    return index


def time_index(place: Place, *, base: int = 0, size: int = 8000, name: str = "t") -> TimeIndex:
    index = TimeIndex(place.pool.file(place.path(name), write=True, create=True), base, size)
    index.create()
    return index


def reopened_offset_index(place: Place, *, base: int = 0, name: str = "a") -> OffsetIndex:
    return OffsetIndex(place.pool.file(place.path(name), write=True), base, 8000)


# Sizes.


@pytest.mark.parametrize(("asked", "offset_size", "time_size"), [
    (67, 64, 60), (1234567, 1234560, 1234560), (MIB_10, 10485760, 10485756), (12, 8, 12),
])  # fmt: skip
async def test_preallocated_size(
    place: Place, asked: int, offset_size: int, time_size: int
) -> None:
    """LOG-39, LOG-7: rounded down to whole entries."""
    offsets, times = offset_index(place, size=asked), time_index(place, size=asked)
    assert (offsets.length_bytes, (await place.disk.stat(place.path("a"))).size) == (
        offset_size, offset_size,
    )  # fmt: skip
    assert (times.length_bytes, (await place.disk.stat(place.path("t"))).size) == (
        time_size, time_size,
    )  # fmt: skip
    assert (offsets.entry_count, offsets.max_entries) == (0, offset_size // 8)
    assert (times.entry_count, times.max_entries) == (0, time_size // 12)


async def test_too_small_for_an_entry(place: Place) -> None:
    """LOG-39."""
    with pytest.raises(ValueError, match="7 bytes"):
        offset_index(place, size=7)
    with pytest.raises(ValueError, match="11 bytes"):
        time_index(place, size=11)


async def test_a_closed_index_is_trimmed(place: Place) -> None:
    """LOG-7: 50 entries are 400 and 600 bytes."""
    offsets, times = offset_index(place), time_index(place)
    for number in range(50):
        offsets.append(number, number)
        times.maybe_append(number, number)
    offsets.trim_to_valid_size()
    times.close()
    assert (len(place.get("a")), len(place.get("t"))) == (400, 600)
    assert offsets.is_full
    assert offsets.lookup(20) == (20, 20)
    # LOG-51: the active segment's index gets its room back.
    assert offsets.resize()
    assert not offsets.resize()
    assert (offsets.length_bytes, offsets.entry_count, offsets.is_full) == (8000, 50, False)
    offsets.append(50, 50)
    assert offsets.lookup(99) == (50, 50)


async def test_reopening_puts_the_position_behind_whole_entries(place: Place) -> None:
    """LOG-40."""
    index = offset_index(place)
    for number in range(10):
        index.append(number, number)
    index.close()
    place.put("a", place.get("a") + b"\1\2\3")
    again = reopened_offset_index(place)
    assert again.entry_count == 10
    assert again.last_entry == (9, 9)
    # The remainder is what a sanity check is for; writing goes over it.
    with pytest.raises(CorruptIndexError, match="83 bytes are no whole entries"):
        again.sanity_check()
    again.resize()
    again.append(10, 10)
    assert again.entry(10) == (10, 10)


async def test_a_read_only_index(place: Place) -> None:
    """LOG-40: opened without the right to write, all lookups work and nothing is changed."""
    index = offset_index(place)
    for number in range(10):
        index.append(number * 2, number)
    await index.sync()
    before = place.get("a")
    reader = OffsetIndex(place.pool.file(place.path("a")), 0, 8000)
    assert reader.entry_count == 1000
    reader.truncate_to_entries(10)
    assert reader.lookup(7) == (6, 3)
    reader.append(100, 100)
    with pytest.raises(OSError):  # noqa: PT011 (which errno is the system's business)
        await reader.sync()
    reader.close_untouched()
    assert place.get("a") == before


async def test_an_index_that_is_not_used_costs_nothing(place: Place) -> None:
    """A clean start: no handle, no read, and closing touches nothing."""
    disk = TalliedDisk(place.disk)
    pool = HandlePool(disk, limit=1)
    place.put("a", bytes(80))
    indexes: list[SegmentIndex[tuple[int, int]]] = []
    for number in range(1000):
        indexes.append(OffsetIndex(pool.file(place.path("a")), number, 80))
        indexes.append(TimeIndex(pool.file(place.path("a")), number, 80))
    for index in indexes:
        index.close()
    assert (disk.tally.opens, disk.tally.reads) == ([], [])


async def test_making_the_active_index_reads_nothing(place: Place) -> None:
    """LOG-51: the length tells all that is wanted."""
    index = offset_index(place)
    for number in range(10):
        index.append(number, number)
    index.close()
    disk = TalliedDisk(place.disk)
    again = OffsetIndex(HandlePool(disk, limit=1).file(place.path("a"), write=True), 0, 8000)
    again.resize()
    assert not again.is_full
    assert disk.tally.reads == []
    again.append(10, 10)
    assert disk.tally.reads == [(72, 8)]


async def test_an_index_is_synced_only_if_its_file_has_changed() -> None:
    """Whatever has changed it, and once if nobody knows."""
    disk = MemoryDisk()
    place = Place(disk, "/", HandlePool(disk, limit=2))
    index = offset_index(place)

    async def syncs() -> int:
        recording = Recording(disk)
        await index.sync()
        await index.sync()
        return sum(isinstance(each, Sync) for each in recording.effects)

    assert (await syncs(), await syncs()) == (1, 0)
    index.append(1, 1)
    assert (await syncs(), await syncs()) == (1, 0)
    index.resize(4000)
    assert (await syncs(), await syncs()) == (1, 0)
    index.replace_entries(index.pack(OffsetPosition(2, 2)))
    assert (await syncs(), await syncs()) == (1, 0)
    index.replace_entries(index.pack(OffsetPosition(3, 3)))
    assert (await syncs(), await syncs()) == (1, 0)
    index.create()
    assert (await syncs(), await syncs()) == (1, 0)
    index = reopened_offset_index(place)
    assert (await syncs(), await syncs()) == (1, 0)


async def test_what_is_appended_during_a_sync_is_in_the_next_one() -> None:
    class SlowFile(TalliedFile):
        """A sync after which something comes before the caller hears of it."""

        async def sync(self) -> None:
            await super().sync()
            index.append(index.entry_count + 1, 1)
            index.write_out()

    disk = MemoryDisk()
    index = OffsetIndex(SlowFile(disk.open("/a", write=True, create=True), Tally()), 0, 8000)
    index.create()
    recording = Recording(disk)
    await index.sync()
    await index.sync()
    assert sum(isinstance(each, Sync) for each in recording.effects) == 2


# Appending.


async def test_a_full_offset_index(place: Place) -> None:
    """LOG-41: eight entries in 64 bytes, the ninth fails."""
    index = offset_index(place, size=67)
    for number in range(8):
        assert not index.is_full
        index.append(number, number)
    assert index.is_full
    with pytest.raises(IndexFullError):
        index.append(8, 8)
    assert len(place.get("a")) == 64


async def test_a_full_time_index_has_one_slot_left(place: Place) -> None:
    """LOG-41, LOG-34: five slots, four for appends, the last for the roll."""
    index = time_index(place, size=67)
    for number in range(4):
        assert not index.is_full
        index.maybe_append(number, number)
    assert index.is_full
    with pytest.raises(IndexFullError):
        index.maybe_append(4, 4)
    index.maybe_append(4, 4, skip_full_check=True)
    assert index.last_entry == (4, 4)
    assert len(place.get("t")) == 60


async def test_offsets_must_grow(place: Place) -> None:
    """LOG-42."""
    index = offset_index(place, base=100)
    index.append(150, 7)
    for offset in (149, 150):
        with pytest.raises(InvalidIndexOffsetError) as caught:
            index.append(offset, 8)
        assert caught.value.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    index.append(151, 8)
    assert index.entry_count == 2


async def test_relative_offsets(place: Place) -> None:
    """LOG-44: from 0 to Int.MAX, both inclusive."""
    offsets, times = offset_index(place, base=100), time_index(place, base=100)
    for offset in (99, 100 + INT32_MAX + 1):
        with pytest.raises(IndexOffsetOverflowError):
            offsets.append(offset, 0)
        with pytest.raises(IndexOffsetOverflowError):
            times.maybe_append(1, offset)
    offsets.append(100, 0)
    offsets.append(100 + INT32_MAX, 1)
    times.maybe_append(1, 100)
    times.maybe_append(2, 100 + INT32_MAX)
    assert offsets.lookup(2**62) == (100 + INT32_MAX, 1)
    assert times.lookup(2**62) == (2, 100 + INT32_MAX)


async def test_time_index_appends(place: Place) -> None:
    """LOG-48: only an advancing time is written, and nothing may go back."""
    index = time_index(place)
    index.maybe_append(-1, 5)
    assert index.entry_count == 0
    index.maybe_append(10, 5)
    index.maybe_append(10, 9)
    assert index.entry_count == 1
    index.maybe_append(11, 9)
    with pytest.raises(InvalidIndexOffsetError):
        index.maybe_append(12, 8)
    with pytest.raises(IndexTimestampError):
        index.maybe_append(10, 9)
    assert index.entry_count == 2
    assert index.last_entry == (11, 9)


async def test_sample_time_index(place: Place) -> None:
    """LOG-49."""
    place.put("t", bytes.fromhex("00000163639e5a35 0000000600000163639e65fa 0000000f"))
    index = TimeIndex(place.pool.file(place.path("t")), 0, 8000)
    assert [index.entry(slot) for slot in range(2)] == [
        (1526384712245, 6), (1526384715258, 15),
    ]  # fmt: skip
    written = time_index(place, name="w")
    for entry in (
        (1526384712245, 6), (1526384715258, 15), (1526384718268, 22), (1526384718283, 28),
    ):  # fmt: skip
        written.maybe_append(*entry)
    written.close()
    assert place.get("w")[:24] == place.get("t")


async def test_sample_offset_index(place: Place) -> None:
    """LOG-43: the entries of the specification, as bytes and as lookups."""
    index = offset_index(place, base=251)
    entries = [(6, 156), (14, 459), (22, 656), (26, 838), (31, 1050)]
    for relative, position in entries:
        index.append(251 + relative, position)
    await index.sync()
    assert place.get("a")[:40] == b"".join(struct.pack(">ii", *entry) for entry in entries)
    assert index.lookup(251 + 23) == OffsetPosition(251 + 22, 656)
    assert index.lookup(251 + 31) == OffsetPosition(251 + 31, 1050)


async def test_a_failed_append_changes_nothing() -> None:
    disk = MemoryDisk()
    await disk.make_directory("/data")
    place = Place(disk, "/data", HandlePool(disk, limit=5))
    offsets, times = offset_index(place), time_index(place)
    fault = disk.inject(WriteError(error=errno.EIO))
    # Entries are written many at a time; the one that finds out is not appended.
    with pytest.raises(OSError, match="Input/output"):
        [offsets.append(number, number) for number in range(1, 100)]
    with pytest.raises(OSError, match="Input/output"):
        [times.maybe_append(number, number) for number in range(1, 100)]
    offset_count, time_count = offsets.entry_count, times.entry_count
    assert 1 < time_count < offset_count < 99
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            offsets.append(500, 500)
        with pytest.raises(OSError, match="Input/output"):
            times.maybe_append(500, 500)
        assert (offsets.entry_count, offsets.lookup(900)) == (offset_count, (offset_count,) * 2)
        assert (times.entry_count, times.lookup(900)) == (time_count, (time_count,) * 2)
    disk.heal(fault)
    offsets.append(500, 600)
    offsets.close()
    expected = [*((number, number) for number in range(1, offset_count + 1)), (500, 600)]
    assert list(struct.iter_unpack(">ii", place.get("a"))) == expected


async def test_entries_that_are_not_written_yet(place: Place) -> None:
    """They are found, truncated and trimmed like the others."""
    index = offset_index(place)
    for number in range(150):
        index.append(number * 2, number)
    for count in (149, 130, 100, 64, 63, 10, 0):
        index.truncate_to_entries(count)
        assert [index.entry(slot) for slot in range(count)] == [(n * 2, n) for n in range(count)]
        index.append(count * 2, count)
        assert index.lookup(10**6) == (count * 2, count)
        index.trim_to_valid_size()
        assert len(place.get("a")) == (count + 1) * 8
        index.resize()


# Truncating.


@pytest.mark.parametrize(
    ("offset", "left"), [(99, 0), (100, 0), (102, 1), (103, 2), (104, 2), (118, 9), (119, 10)]
)
async def test_truncate_to(place: Place, offset: int, left: int) -> None:
    """Entries at or above the offset go, in both."""
    offsets, times = offset_index(place, base=100), time_index(place, base=100)
    for number in range(10):
        offsets.append(100 + number * 2, number)
        times.maybe_append(1000 + number, 100 + number * 2)
    offsets.truncate_to(offset)
    times.truncate_to(offset)
    assert offsets.entry_count == times.entry_count == left
    assert offsets.length_bytes == 8000
    assert offsets.last_entry == ((100 + left * 2 - 2, left - 1) if left else (100, 0))
    assert times.last_entry == ((999 + left, 100 + left * 2 - 2) if left else (-1, 100))


async def test_truncate_to_entries(place: Place) -> None:
    """LOG-45."""
    index = offset_index(place)
    for number in range(10):
        index.append(number, number)
    index.lookup(9)
    index.truncate_to_entries(4)
    assert (index.entry_count, index.last_entry) == (4, (3, 3))
    assert index.lookup(9) == (3, 3)
    index.append(4, 40)
    assert index.lookup(9) == (4, 40)
    for count in (-1, 6):
        with pytest.raises(ValueError, match="has 5 entries"):
            index.truncate_to_entries(count)


async def test_reset(place: Place) -> None:
    index = offset_index(place)
    for number in range(10):
        index.append(number, number)
    index.trim_to_valid_size()
    index.reset()
    assert (index.entry_count, index.length_bytes) == (0, 8000)
    assert index.lookup(5) == (0, 0)
    index.append(3, 30)
    assert index.lookup(5) == (3, 30)


async def test_a_crashed_index_is_repaired_by_a_reset(place: Place) -> None:
    """Its padding counts as entries, as it does for Kafka, until it is rebuilt."""
    index = offset_index(place, base=5)
    index.append(7, 70)
    again = reopened_offset_index(place, base=5)
    assert again.entry_count == 1000
    assert again.is_full
    again.reset()
    again.append(7, 70)
    assert again.lookup(9) == (7, 70)


async def test_resizing_below_the_entries_is_our_mistake(place: Place) -> None:
    index = offset_index(place)
    for number in range(10):
        index.append(number, number)
    with pytest.raises(InternalInvariant, match="index-resized-below-entries"):
        index.resize(72)
    assert index.resize(80)


# Corruption.


async def test_offset_index_sanity(place: Place) -> None:
    index = offset_index(place, base=100)
    index.sanity_check()
    index.append(100, 61)
    index.close()
    reopened_offset_index(place, base=100).sanity_check()
    place.put("a", struct.pack(">iiii", 0, 61, 0, 0))
    with pytest.raises(CorruptIndexError, match="ends with an empty entry"):
        reopened_offset_index(place, base=100).sanity_check()
    place.put("a", struct.pack(">ii", -1, 0))
    with pytest.raises(CorruptIndexError, match="99 lies before its base 100"):
        reopened_offset_index(place, base=100).sanity_check()


async def test_time_index_sanity(place: Place) -> None:
    def checked(content: bytes) -> None:
        place.put("t", content)
        TimeIndex(place.pool.file(place.path("t")), 100, 8000).sanity_check()

    checked(b"")
    checked(struct.pack(">qiqi", 5, 0, 6, 1))
    for last in (4, 5):
        with pytest.raises(CorruptIndexError, match="no later than its first"):
            checked(struct.pack(">qiqi", 5, 0, last, 1))
    with pytest.raises(CorruptIndexError, match="ends with an empty entry"):
        checked(bytes(12))
    with pytest.raises(CorruptIndexError, match="98 lies before"):
        checked(struct.pack(">qiqi", 5, 0, 6, -2))
    with pytest.raises(CorruptIndexError, match="25 bytes"):
        checked(struct.pack(">qiqix", 5, 0, 6, 1))


async def test_a_file_that_shrank_is_noticed(place: Place) -> None:
    index = offset_index(place)
    for number in range(10):
        index.append(number, number)
    index.trim_to_valid_size()
    place.put("a", place.get("a")[:30])
    with pytest.raises(CorruptIndexError, match="ends before"):
        index.lookup(5)


# Searching.


async def test_slot_range(place: Place) -> None:
    """LOG-46: empty, below the first, exact, between, beyond the last."""
    index = offset_index(place)
    assert index.slot_range(5) == (-1, -1)
    for number in range(3):
        index.append(10 + number * 10, number)
    assert [index.slot_range(target) for target in (9, 10, 15, 20, 30, 31)] == [
        (-1, 0), (0, 0), (0, 1), (1, 1), (2, 2), (2, -1),
    ]  # fmt: skip


async def test_floor_lookup(place: Place) -> None:
    """LOG-43: below the first entry, or without any, the base offset and position 0."""
    offsets, times = offset_index(place, base=100), time_index(place, base=100)
    assert offsets.lookup(150) == (100, 0)
    assert times.lookup(150) == TimestampOffset(-1, 100)
    offsets.append(120, 7)
    times.maybe_append(50, 120)
    assert offsets.lookup(119) == (100, 0)
    assert offsets.lookup(120) == offsets.lookup(10**6) == (120, 7)
    assert times.lookup(49) == (-1, 100)
    assert times.lookup(50) == (50, 120)


async def test_slot_from_position(place: Place) -> None:
    index = offset_index(place)
    assert index.slot_from_position(0) == 0
    for number in range(5):
        index.append(number, number * 100)
    assert index.entry(index.slot_from_position(0)) == (0, 0)
    assert index.entry(index.slot_from_position(1)) == (1, 100)
    assert index.entry(index.slot_from_position(400)) == (4, 400)
    assert index.slot_from_position(401) == index.entry_count


@pytest.mark.parametrize("kind", ["offset", "time"])
async def test_a_warm_lookup_stays_in_the_tail(place: Place, kind: str) -> None:
    """LOG-47: 8192 bytes' worth of entries and the one before, 1024 or 682; then none at all."""
    disk = TalliedDisk(place.disk)
    file = HandlePool(disk, limit=1).file(place.path("x"), write=True, create=True)
    entry_bytes, warm = (8, 1024) if kind == "offset" else (12, 682)
    index: OffsetIndex | TimeIndex
    count = 10_000
    if isinstance(index := _empty(kind, file), OffsetIndex):
        for number in range(count):
            index.append(number * 3, number)
    else:
        for number in range(count):
            index.maybe_append(number * 3, number)
    await index.sync()
    first_hot = count - 1 - warm
    assert index.slot_range(first_hot * 3) == (first_hot, first_hot)
    assert disk.tally.reads == [(first_hot * entry_bytes, (warm + 1) * entry_bytes)]
    disk.tally.reads.clear()
    for slot in (first_hot, first_hot + 1, count - 600, count - 1):
        assert index.slot_range(slot * 3) == (slot, slot)
    # The tail moves along with what is appended.
    for number in range(count, count + 2000):
        if isinstance(index, OffsetIndex):
            index.append(number * 3, number)
        else:
            index.maybe_append(number * 3, number)
        assert index.slot_range(number * 3 - 1) == (number - 1, number)
    assert index.slot_range((first_hot + 2000) * 3) == (first_hot + 2000, first_hot + 2000)
    assert disk.tally.reads == []
    # One before the tail is cold.
    assert index.slot_range((first_hot + 1999) * 3) == (first_hot + 1999, first_hot + 1999)
    assert disk.tally.reads != []


def _empty(kind: str, file: object) -> OffsetIndex | TimeIndex:
    index = (OffsetIndex if kind == "offset" else TimeIndex)(file, 0, MIB_10)  # type: ignore[arg-type]
    index.create()
    return index


async def test_a_closed_index_keeps_nothing_in_memory(place: Place) -> None:
    """Else every segment that was ever read would keep its tail."""
    disk = TalliedDisk(place.disk)
    file = HandlePool(disk, limit=1).file(place.path("x"), write=True, create=True)
    index = OffsetIndex(file, 0, 8000)
    index.create()
    for number in range(100):
        index.append(number, number)
    index.lookup(50)
    reads = len(disk.tally.reads)
    index.lookup(50)
    assert len(disk.tally.reads) == reads
    index.trim_to_valid_size()
    for _ in range(2):
        assert index.lookup(50) == (50, 50)
        assert len(disk.tally.reads) > reads
        reads = len(disk.tally.reads)


async def test_a_cold_lookup_reads_few_pages(place: Place) -> None:
    """At most a page for each halving of the number of pages, wherever it looks."""
    disk = TalliedDisk(place.disk)
    file = HandlePool(disk, limit=1).file(place.path("x"), write=True, create=True)
    count = MIB_10 // 8
    place.put("x", b"".join(struct.pack(">ii", slot * 2, slot) for slot in range(count)))
    index = OffsetIndex(file, 0, MIB_10)
    pages = count * 8 // 4096
    for slot in range(0, count, count // 50):
        disk.tally.reads.clear()
        assert index.lookup(slot * 2 + 1) == (slot * 2, slot)
        assert len(disk.tally.reads) <= pages.bit_length() + 3
        assert max(length for _, length in disk.tally.reads) <= 8200


@st.composite
def keys(draw: st.DrawFn) -> list[int]:
    """Growing keys, often more than the warm tail holds, from a few random steps."""
    count = draw(st.one_of(st.integers(0, 20), st.integers(600, 4000)))
    steps = draw(st.lists(st.integers(1, 7), min_size=1, max_size=9))
    result, key = [], draw(st.integers(0, 5))
    for number in range(count):
        result.append(key)
        key += steps[number % len(steps)]
    return result


@given(keys(), st.data(), st.sampled_from(["offset", "time"]), st.booleans())
def test_warm_and_cold_search_is_a_plain_one(
    numbers: list[int], data: st.DataObject, kind: str, is_active: bool
) -> None:
    """LOG-46: for any size and target, active or closed, before and after more is appended."""
    base = 1000
    entry = struct.Struct(">ii" if kind == "offset" else ">qi")
    disk = MemoryDisk()
    file = HandlePool(disk, limit=1).file("/x", write=True, create=True)
    split = data.draw(st.integers(0, len(numbers)), label="appended later")
    written = numbers[:split]
    file.pwrite([b"".join(entry.pack(key, slot) for slot, key in enumerate(written))], 0)
    index: OffsetIndex | TimeIndex
    index = (OffsetIndex if kind == "offset" else TimeIndex)(file, base, 8000 * entry.size)
    shift = base if kind == "offset" else 0
    if is_active:
        index.resize()
    for _ in range(2):
        last = written[-1] if written else 0
        targets = data.draw(st.lists(st.integers(-1, last + 9), min_size=1, max_size=8))
        for target in targets:
            lower = bisect_right(written, target) - 1
            exact = lower >= 0 and written[lower] == target
            upper = lower if exact else lower + 1 if lower + 1 < len(written) else -1
            assert index.slot_range(target + shift) == (lower, upper)
        index.resize()
        for slot, key in enumerate(numbers[len(written) :], start=len(written)):
            if isinstance(index, OffsetIndex):
                index.append(key + base, slot)
            else:
                index.maybe_append(key, slot + base)
        written = numbers


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 400)),
            st.tuples(st.just("truncate"), st.integers(0, 3000)),
            st.tuples(st.just("lookup"), st.integers(0, 3000)),
            st.tuples(st.just("trim"), st.just(0)),
            st.tuples(st.just("reopen"), st.just(0)),
        ),
        max_size=30,
    )
)
def test_an_index_is_a_list(steps: list[tuple[str, int]]) -> None:
    """LOG-43, LOG-45, LOG-48: appends, truncations, trims and restarts against a list."""
    disk = MemoryDisk()
    pool = HandlePool(disk, limit=2)

    def opened() -> tuple[OffsetIndex, TimeIndex]:
        return (
            OffsetIndex(pool.file("/a", write=True, create=True), 7, 8 * 12_000),
            TimeIndex(pool.file("/t", write=True, create=True), 7, 12 * 12_000),
        )

    offsets, times = opened()
    offsets.create()
    times.create()
    model: list[int] = []
    for what, number in steps:
        if what == "append":
            offsets.resize()
            times.resize()
            start = model[-1] + 1 if model else 7
            for offset in range(start, start + number):
                offsets.append(offset, offset * 2)
                times.maybe_append(offset * 3, offset)
                model.append(offset)
        elif what == "truncate":
            offsets.truncate_to(number)
            times.truncate_to(number)
            model = [offset for offset in model if offset < number]
        elif what == "lookup":
            below = [offset for offset in model if offset <= number]
            assert offsets.lookup(number) == ((below[-1], below[-1] * 2) if below else (7, 0))
            assert times.lookup(number * 3) == ((below[-1] * 3, below[-1]) if below else (-1, 7))
        elif what == "trim":
            offsets.trim_to_valid_size()
            times.trim_to_valid_size()
            assert offsets.length_bytes == len(model) * 8
        else:
            offsets.close()
            times.close()
            offsets, times = opened()
        assert offsets.entry_count == times.entry_count == len(model)
    assert [offsets.entry(slot).offset for slot in range(len(model))] == model
    assert [times.entry(slot).offset for slot in range(len(model))] == model
