"""Reading by offset and by time (LOG-86 to LOG-92, LOG-120)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from log_place import Place, TalliedDisk
from log_rig import (
    NOW_MS,
    TINY,
    Rig,
    batch,
    batches_in,
    by_time,
    data_of,
    legacy,
    marker,
    values_in,
)

from kraftpy.log.errors import OffsetOutOfRangeError
from kraftpy.log.offsets import FoundOffset, Isolation, OffsetMetadata
from kraftpy.log.partition_log import PartitionLog
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.compression import Codec
from kraftpy.records.errors import CorruptRecord
from kraftpy.records.validation import AppendOrigin
from kraftpy.records.walker import walk_batches
from kraftpy.world import FileSlice

LOG_END, HIGH_WATERMARK, COMMITTED = (
    Isolation.LOG_END,
    Isolation.HIGH_WATERMARK,
    Isolation.COMMITTED,
)


def fill(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        log.append_as_leader(batch(b"%d" % log.log_end_offset), 0)


def offsets_of(log: PartitionLog, offset: int, isolation: Isolation) -> list[int]:
    read = log.read(offset, 1 << 20, isolation)
    return [batch.last_offset for batch in walk_batches(data_of(read))]


async def test_the_ends_of_a_log(rig: Rig) -> None:
    """LOG-86."""
    log = await rig.load()
    fill(log, 10)
    log.update_high_watermark(6)
    log.raise_log_start(2)
    for offset in (0, 1, 11, 10**12, -1):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset, 100)
    at_end = log.read(10, 100, LOG_END)
    assert at_end.records is None
    assert at_end.fetch_offset == log.log_end
    for offset in (6, 7, 10):
        above = log.read(offset, 100, HIGH_WATERMARK)
        assert above.records is None
        assert above.fetch_offset.offset == offset
    assert log.read(2, 100).records is not None


async def test_a_read_is_a_slice_of_a_file(rig: Rig) -> None:
    """LOG-120: never bytes."""
    log = await rig.load()
    fill(log, 3)
    records = log.read(1, 1 << 20, LOG_END).records
    assert isinstance(records, FileSlice)
    assert records.file.path == f"{rig.directory}/00000000000000000000.log"
    size = len(batch(b"0"))
    assert (records.position, records.length) == (size, 2 * size)


async def test_how_far_readers_see(rig: Rig) -> None:
    """LOG-87, LOG-89: nothing at or above the bound, on whatever segment it lies."""
    log = await rig.load()
    fill(log, 30)
    assert len(log.segments) > 2
    log.append_as_leader(
        batch(b"t", producer_id=1, producer_epoch=0, sequence=0, is_transactional=True), 0
    )
    fill(log, 30)
    for high_watermark in range(62):
        log.update_high_watermark(high_watermark)
        assert log.last_stable_offset == min(high_watermark, 30)
        assert sorted(values_in(log, isolation=HIGH_WATERMARK)) == list(range(high_watermark))
        assert sorted(values_in(log, isolation=COMMITTED)) == list(range(min(high_watermark, 30)))
    assert sorted(values_in(log, isolation=LOG_END)) == list(range(61))


async def test_right_after_a_roll_at_the_bound(rig: Rig) -> None:
    """LOG-89."""
    log = await rig.load()
    fill(log, 3)
    log.increment_high_watermark(log.log_end)
    log.roll()
    fill(log, 3)
    assert offsets_of(log, 0, HIGH_WATERMARK) == [0, 1, 2]
    assert offsets_of(log, 2, HIGH_WATERMARK) == [2]
    assert log.read(3, 1 << 20).records is None
    # Known by its offset only, as a follower knows it.
    log._watermarks.high_watermark = OffsetMetadata(3)
    assert offsets_of(log, 0, HIGH_WATERMARK) == [0, 1, 2]
    assert log.read(3, 1 << 20).records is None


async def test_gaps_are_skipped(rig: Rig) -> None:
    """LOG-88, LOG-115: the next segment when this one has nothing at or behind the offset."""
    log = await rig.load()
    log.append_as_follower(batch(b"a", base_offset=0), 0)
    log.append_as_follower(batch(b"b", base_offset=5), 0)
    log.roll(20)
    log.append_as_follower(batch(b"c", base_offset=30), 0)
    expected = {0: 0, **dict.fromkeys(range(1, 6), 5), **dict.fromkeys(range(6, 31), 30)}
    for offset, found in expected.items():
        assert offsets_of(log, offset, LOG_END)[0] == found, offset


async def test_limits_of_a_read(rig: Rig) -> None:
    """LOG-31."""
    log = await rig.load()
    fill(log, 3)
    size = len(batch(b"0"))
    assert log.read(0, 1, LOG_END).size_bytes == size
    part = log.read(0, 1, LOG_END, min_one_batch=False)
    assert part.size_bytes == 1
    assert part.first_entry_incomplete
    assert log.read(0, 0, LOG_END, min_one_batch=False).size_bytes == 0
    assert log.read(0, size + 5, LOG_END).size_bytes == size + 5


async def test_the_cost_of_a_read_does_not_depend_on_its_place(place: Place) -> None:
    """One look at the index and one read of headers, wherever in the log."""
    disk = TalliedDisk(place.disk)
    rig = Rig(
        disk, place.directory, replace(TINY, segment_bytes=1 << 20, index_interval_bytes=4096)
    )
    log = await rig.load()
    fill(log, 2000)
    for offset in (0, 1, 500, 1000, 1999):
        disk.tally.reads.clear()
        log.read(offset, 1 << 20, LOG_END)
        assert len(disk.tally.reads) <= 2
        assert sum(length for _, length in disk.tally.reads) <= 3 * 8192


# Transactions.


def transact(log: PartitionLog, producer_id: int, sequence: int) -> int:
    info = log.append_as_leader(
        batch(
            b"t%d" % producer_id,
            producer_id=producer_id,
            producer_epoch=0,
            sequence=sequence,
            is_transactional=True,
        ),
        0,
    )
    return info.first_offset


def end(log: PartitionLog, producer_id: int, *, is_commit: bool) -> int:
    return log.append_as_leader(
        marker(producer_id, 0, is_commit=is_commit),
        0,
        origin=AppendOrigin.COORDINATOR,
        transaction_version=1,
    ).first_offset


async def test_aborted_transactions_come_with_committed_reads(rig: Rig) -> None:
    """TXN-31, LOG-90, LOG-50: those that overlap what is returned, from all segments it takes."""
    log = await rig.load()
    aborted = []
    for index in range(12):
        first = transact(log, index, 0)
        fill(log, 3)
        last = end(log, index, is_commit=index % 3 == 0)
        if index % 3:
            aborted.append((index, first, last))
    assert len(log.segments) > 3
    log.update_high_watermark(log.log_end_offset)
    assert log.read(0, 100, HIGH_WATERMARK).aborted_transactions is None
    for offset in range(log.log_end_offset):
        read = log.read(offset, 200, COMMITTED)
        assert read.aborted_transactions is not None
        returned = [batch.last_offset for batch in walk_batches(data_of(read))]
        listed = {
            (found.producer_id, found.first_offset, found.last_offset)
            for found in read.aborted_transactions
        }
        needed = {entry for entry in aborted if entry[1] <= returned[-1] and entry[2] >= offset}
        assert needed <= listed <= set(aborted)
    assert log.read(log.log_end_offset, 100, COMMITTED).aborted_transactions == ()
    assert len(await rig.names(".txnindex")) > 3


async def test_committed_transactions_have_no_index(rig: Rig) -> None:
    """LOG-2, LOG-50."""
    log = await rig.load()
    transact(log, 1, 0)
    end(log, 1, is_commit=True)
    assert await rig.names(".txnindex") == []
    transact(log, 1, 1)
    end(log, 1, is_commit=False)
    assert await rig.names(".txnindex") == ["00000000000000000000.txnindex"]


# By time.


async def test_lookup_by_time(rig: Rig) -> None:
    """LOG-92: the first record, in the order of the log, that is not before."""
    log = await rig.load()
    times = [5, 3, 9, 9, 7, 20, 11, 30, 30, 2] * 4
    for index, time in enumerate(times):
        log.append_as_leader(batch(b"a", timestamp_ms=NOW_MS + time + index), index // 10)
    assert len(log.segments) > 2
    for target in range(-1, 80):
        assert by_time(log, NOW_MS + target) == first_not_before(times, target)
    again = await rig.reload(log)
    for target in range(-1, 80):
        assert by_time(again, NOW_MS + target) == first_not_before(times, target)


def first_not_before(times: list[int], target: int) -> FoundOffset | None:
    return next(
        (
            FoundOffset(index, NOW_MS + time + index, index // 10)
            for index, time in enumerate(times)
            if time + index >= target
        ),
        None,
    )


@pytest.mark.parametrize("codec", Codec)
async def test_lookup_by_time_looks_into_the_batch(rig: Rig, codec: Codec) -> None:
    """LOG-92."""
    log = await rig.load()
    builder = BatchBuilder(codec=codec)
    for index in range(10):
        builder.append(b"k", b"v", timestamp_ms=NOW_MS + 10 * index)
    log.append_as_leader(builder.build(), 0)
    assert by_time(log, NOW_MS + 41) == FoundOffset(5, NOW_MS + 50, 0)
    assert by_time(log, None) == FoundOffset(9, NOW_MS + 90, 0)
    log.update_high_watermark(10)
    log.raise_log_start(7)
    assert by_time(log, NOW_MS + 41) == FoundOffset(7, NOW_MS + 70, 0)


async def test_lookup_in_old_messages(rig: Rig) -> None:
    """LOG-92: magic 1 has times, magic 0 none."""
    log = await rig.load()
    log.append_as_follower(legacy(0, 1, 2), 0)
    log.append_as_follower(legacy(3, magic=0), 0)
    assert by_time(log, NOW_MS + 1) == FoundOffset(1, NOW_MS + 1, -1)
    assert by_time(log, NOW_MS + 3) is None
    assert values_in(log) == {offset: b"v%d" % offset for offset in range(4)}


async def test_earliest_latest_and_largest(rig: Rig) -> None:
    log = await rig.load()
    assert log.earliest_offset() == FoundOffset(0, -1, -1)
    assert by_time(log, None) is None
    assert by_time(log, 0) is None
    for index, time in enumerate([3, 8, 8, 1]):
        log.append_as_leader(batch(b"a", timestamp_ms=NOW_MS + time), index)
    assert by_time(log, None) == FoundOffset(1, NOW_MS + 8, 1)
    assert log.latest_offset(LOG_END) == FoundOffset(4, -1, 3)
    assert log.latest_offset(HIGH_WATERMARK) == FoundOffset(0, -1, 3)
    log.update_high_watermark(3)
    log.raise_log_start(2)
    assert log.earliest_offset() == FoundOffset(2, -1, 2)


async def test_a_flipped_bit_is_never_served_as_good(rig: Rig) -> None:
    """The damaged batch keeps its wrong CRC for the client to see; a lookup inside refuses it."""
    log = await rig.load()
    fill(log, 3)
    size = len(batch(b"0"))
    log.active_segment.log_file.pwrite([b"\xff"], size + 64)
    damaged, sound = walk_batches(data_of(log.read(1, 1 << 20, LOG_END)))
    assert (damaged.is_valid, sound.is_valid) == (False, True)
    log.update_high_watermark(3)
    log.raise_log_start(1)
    with pytest.raises(CorruptRecord):
        by_time(log, NOW_MS)


async def test_reading_everything_with_every_limit(rig: Rig) -> None:
    log = await rig.load()
    fill(log, 40)
    for max_bytes in (0, 1, 70, 71, 72, 73, 200, 1 << 20):
        assert len(batches_in(log, max_bytes=max_bytes)) == 40
