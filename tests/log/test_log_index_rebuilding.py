"""An index that lies is found out, worked around and rebuilt, and nobody waits long for it."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest
import trio
from log_rig import NOW_MS, TINY, Rig, batch, by_time, data_of, marker

from kraftpy.log.errors import IndexUnderRepairError, OutOfOrderSequenceError
from kraftpy.log.offsets import FoundOffset, Isolation
from kraftpy.log.partition_log import PartitionLog
from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.batch import RecordBatch
from kraftpy.records.validation import AppendOrigin
from kraftpy.world import Disk
from kraftpy.world.memory_disk import MemoryDisk

# One segment, an index entry for each batch.
LARGE = replace(TINY, segment_bytes=1 << 24, segment_index_bytes=1 << 20)
COUNT = 3_000
INDEX = "00000000000000000000.index"
TIMES = "00000000000000000000.timeindex"


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def rig(disk: MemoryDisk) -> Rig:
    return Rig(disk, "/data", LARGE)


def get(disk: Disk, rig: Rig, name: str) -> bytes:
    file = disk.open(f"{rig.directory}/{name}")
    data = file.pread(file.size(), 0)
    file.close()
    return data


async def closed_log(rig: Rig, count: int = COUNT) -> PartitionLog:
    """With a segment in the middle of its life, and one behind it."""
    log = await rig.load()
    for index in range(count):
        log.append_as_leader(batch(b"v", timestamp_ms=NOW_MS + index), 0)
    log.roll()
    log.append_as_leader(batch(b"v", timestamp_ms=NOW_MS + count), 0)
    return log


async def damaged_log(rig: Rig, index: bytes, count: int = COUNT) -> PartitionLog:
    log = await closed_log(rig, count)
    await log.close()
    return await damaged_log_with(rig, log, index)


async def damaged_log_with(rig: Rig, log: PartitionLog, index: bytes) -> PartitionLog:
    await rig.put(INDEX, index)
    again = await rig.load(is_clean=True, recovery_point=log.recovery_point)
    rig.owner.pending.clear()
    return again


def first_offset(log: PartitionLog, offset: int) -> int:
    found = log.read(offset, 1, Isolation.LOG_END)
    return RecordBatch(data_of(found)).base_offset


@pytest.mark.parametrize("field_byte", [0, 3, 4, 5, 7])
async def test_a_lie_is_worked_around_and_then_repaired(rig: Rig, field_byte: int) -> None:
    """Issue 4: a flipped bit in an index. Byte 4 has the sign of the position."""
    sound_log = await closed_log(rig)
    await sound_log.close()
    sound, sound_times = get(rig.disk, rig, INDEX), get(rig.disk, rig, TIMES)
    index = bytearray(sound)
    slot = 1_500
    index[8 * slot + field_byte] ^= 0x80 if field_byte in (0, 4) else 0x11
    await rig.put(INDEX, bytes(index))
    log = await rig.load(is_clean=True, recovery_point=sound_log.recovery_point)
    for offset in (slot, slot + 1, slot + 2, 0, COUNT - 1, 700, 2_900):
        assert first_offset(log, offset) == offset
    if log.segments.first.has_damaged_index:
        assert rig.owner.pending[-1] is log
        await log.do_pending_work()
        assert get(rig.disk, rig, INDEX) == sound
        assert get(rig.disk, rig, TIMES) == sound_times
    assert not log.segments.first.has_damaged_index
    assert rig.owner.failures == []
    for offset in range(0, COUNT, 97):
        assert first_offset(log, offset) == offset


@pytest.mark.parametrize("filling", [b"\0", b"\x7f", b"\xff"])
async def test_without_any_truth_readers_wait_for_the_repair(rig: Rig, filling: bytes) -> None:
    """What is near the beginning is found at once, for the rest clients come again."""
    log = await damaged_log(rig, filling * 8 * (COUNT - 1))
    assert first_offset(log, 0) == 0
    with pytest.raises(IndexUnderRepairError) as refused:
        first_offset(log, 2_500)
    assert refused.value.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert rig.owner.failures == []
    assert rig.owner.pending == [log] * len(rig.owner.pending) != []
    await log.do_pending_work()
    assert first_offset(log, 2_500) == 2_500
    assert by_time(log, NOW_MS + 2_500) == FoundOffset(2_500, NOW_MS + 2_500, 0)


@pytest.mark.parametrize(("slot", "field_byte"), [(12, 3), (10, 5)], ids=["offset", "position"])
async def test_a_lie_hides_no_aborted_transaction(rig: Rig, slot: int, field_byte: int) -> None:
    """How far to look for them is a hint of the index, too."""
    log = await rig.load()
    for _ in range(11):
        log.append_as_leader(batch(b"v"), 0)
    data = batch(b"no", producer_id=7, producer_epoch=0, sequence=0, is_transactional=True)
    log.append_as_leader(data, 0)
    abort = marker(7, 0, is_commit=False)
    log.append_as_leader(abort, 0, origin=AppendOrigin.COORDINATOR, transaction_version=1)
    for _ in range(8):
        log.append_as_leader(batch(b"v"), 0)
    read_bytes = sum(header.size for header in islice(log.segments.first.headers(), 13))
    await log.close()
    index = bytearray(get(rig.disk, rig, INDEX))
    assert len(index) == 8 * 20, "there is no entry for the first batch"
    index[8 * slot + field_byte] = 1
    log = await damaged_log_with(rig, log, bytes(index))
    log.update_high_watermark(log.log_end_offset)
    read = log.read(0, read_bytes, Isolation.COMMITTED)
    assert read.aborted_transactions is not None
    assert [each.first_offset for each in read.aborted_transactions] == [11]
    assert rig.owner.pending == [log]


async def test_a_search_by_time_asks_for_the_repair(rig: Rig) -> None:
    log = await damaged_log(rig, b"\0" * 8 * (COUNT - 1))
    with pytest.raises(IndexUnderRepairError):
        by_time(log, NOW_MS + 2_500)
    assert rig.owner.pending
    await log.do_pending_work()
    assert by_time(log, NOW_MS + 2_500) == FoundOffset(2_500, NOW_MS + 2_500, 0)


async def test_the_loop_stays_free_and_appends_go_on(rig: Rig) -> None:
    """The active segment's index is rebuilt while others append to it."""
    log = await rig.load()
    for index in range(COUNT):
        log.append_as_leader(batch(b"v", timestamp_ms=NOW_MS + index), 0)
    segment = log.active_segment
    segment.offset_index.write_out()
    segment.offset_index.file.pwrite([b"\xff" * 800], 80)
    assert first_offset(log, 50) == 50
    assert segment.has_damaged_index
    moments: list[int] = []

    async def append() -> None:
        while True:
            log.append_as_leader(batch(b"w", timestamp_ms=NOW_MS + log.log_end_offset), 0)
            moments.append(log.log_end_offset)
            await trio.lowlevel.checkpoint()

    class Slow(type(rig.clock)):  # type: ignore[misc]
        """Every look at it takes a tenth of a millisecond."""

        seconds = 0.0

        def monotonic(self) -> float:
            Slow.seconds += 0.0001
            return Slow.seconds

    rig.environment.pace._clock = Slow()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(append)
        await log.do_pending_work()
        nursery.cancel_scope.cancel()
    assert not segment.has_damaged_index
    assert len(moments) > COUNT / 100
    for offset in range(log.log_end_offset):
        found = segment.find(offset)
        assert found is not None
        assert found.base_offset == offset
    assert not segment.has_damaged_index
    # Its entries are those that recovery makes.
    entries = [segment.offset_index.entry(n) for n in range(segment.offset_index.entry_count)]
    times = [segment.time_index.entry(n) for n in range(segment.time_index.entry_count)]
    await log.flush()
    recovered = (await rig.load()).segments.first
    assert [
        recovered.offset_index.entry(n) for n in range(recovered.offset_index.entry_count)
    ] == entries
    assert [recovered.time_index.entry(n) for n in range(recovered.time_index.entry_count)] == times


async def test_a_truncation_repairs_what_it_needs(rig: Rig) -> None:
    log = await damaged_log(rig, b"\0" * 8 * (COUNT - 1))
    await log.truncate_to(2_500)
    assert log.log_end_offset == 2_500
    assert first_offset(log, 2_499) == 2_499
    log.append_as_leader(batch(b"w"), 1)
    assert first_offset(log, 2_500) == 2_500


def append_as(log: PartitionLog, sequence: int) -> None:
    log.append_as_leader(batch(b"v", producer_id=7, producer_epoch=0, sequence=sequence), 0)


async def test_producers_are_rebuilt_without_an_index(rig: Rig) -> None:
    """Their snapshot lies in the middle of the segment that has lost its index."""
    log = await rig.load()
    for index in range(2_500):
        append_as(log, index)
    taken = log.producers.take_snapshot()
    assert taken is not None
    log._files.snapshots.take(taken)
    for index in range(2_500, COUNT):
        append_as(log, index)
    end = log.log_end_offset
    await log.flush()
    await log.close()
    for name in await rig.names(f"{end:020d}.snapshot"):
        await rig.disk.unlink(f"{rig.directory}/{name}")
    await rig.put(INDEX, b"\0" * 8 * (COUNT - 1))
    again = await rig.load(is_clean=True, recovery_point=end)
    # The first append wants to know where the log ends, and comes too early.
    rig.owner.pending.clear()
    with pytest.raises(IndexUnderRepairError):
        append_as(again, COUNT)
    assert rig.owner.pending == [again]
    await again.do_pending_work()
    append_as(again, COUNT)
    with pytest.raises(OutOfOrderSequenceError):
        append_as(again, COUNT + 2)


async def test_a_start_without_a_checkpoint_repairs_the_last_index(rig: Rig) -> None:
    log = await rig.load()
    for index in range(COUNT):
        log.append_as_leader(batch(b"v", timestamp_ms=NOW_MS + index), 0)
    await log.close()
    await rig.put(INDEX, b"\0" * 8 * (COUNT - 1))
    again = await rig.load(is_clean=True, recovery_point=0)
    assert again.log_end_offset == COUNT
    assert first_offset(again, 2_500) == 2_500


@pytest.mark.parametrize("field_byte", [1, 5, 7, 11])
async def test_a_time_that_is_not_there_is_not_believed(rig: Rig, field_byte: int) -> None:
    """Neither by who looks for one, nor by retention, which would delete too early."""
    log = await closed_log(rig)
    await log.close()
    sound = get(rig.disk, rig, TIMES)
    for slot in (1_500, len(sound) // 12 - 1):
        times = bytearray(sound)
        times[12 * slot + field_byte] ^= 0x01
        await rig.put(TIMES, bytes(times))
        again = await rig.load(is_clean=True, recovery_point=log.recovery_point)
        rig.owner.pending.clear()
        for target in (1_400, 1_499, 1_500, 1_501, 1_502, 2_900, COUNT - 1):
            try:
                found = by_time(again, NOW_MS + target)
            except IndexUnderRepairError:
                assert slot != 1_500, "only the last one is believed by nobody"
                assert rig.owner.pending
                await again.do_pending_work()
                found = by_time(again, NOW_MS + target)
            assert found == FoundOffset(target, NOW_MS + target, 0), target
        await again.do_pending_work()
        if again.segments.first._is_index_new:
            assert get(rig.disk, rig, TIMES) == sound


async def test_entries_that_a_search_misses_are_missed(rig: Rig) -> None:
    """A page of nonsense in the middle sends the search to the entries before it."""
    log = await closed_log(rig)
    await log.close()
    index = bytearray(get(rig.disk, rig, INDEX))
    index[8 * 500 : 8 * 2_400] = b"\x7f" * 8 * 1_900
    again = await damaged_log_with(rig, log, bytes(index))
    assert first_offset(again, 520) == 520
    with pytest.raises(IndexUnderRepairError):
        first_offset(again, 2_000)
    assert rig.owner.pending
    await again.do_pending_work()
    assert first_offset(again, 2_000) == 2_000


async def test_entries_that_were_lost_at_the_end_are_missed(rig: Rig) -> None:
    log = await closed_log(rig)
    await log.close()
    index = get(rig.disk, rig, INDEX)
    again = await damaged_log_with(rig, log, index[: 8 * 100])
    with pytest.raises(IndexUnderRepairError):
        first_offset(again, 2_000)
    await again.do_pending_work()
    assert get(rig.disk, rig, INDEX) == index


async def test_a_sparse_index_is_no_damaged_one() -> None:
    """One entry in thousands of batches is what `index.interval.bytes` asked for."""
    rig = Rig(MemoryDisk(), "/data", replace(LARGE, index_interval_bytes=1 << 18))
    log = await closed_log(rig, 6_000)
    for offset in (5_999, 3_500, 3_400, 2_000, 0):
        assert first_offset(log, offset) == offset
    assert not log.segments.first.has_damaged_index
    assert rig.owner.failures == []


async def test_retention_does_not_believe_a_time_that_is_not_there(rig: Rig) -> None:
    """By the time index all of the segment were from 1970."""
    rig.config = replace(LARGE, retention_ms=1_000_000)
    log = await closed_log(rig)
    await log.close()
    times = get(rig.disk, rig, TIMES)
    await rig.put(TIMES, times[:-12] + (1).to_bytes(8) + times[-4:])
    again = await rig.load(is_clean=True, recovery_point=log.recovery_point)
    again.update_high_watermark(COUNT)
    with pytest.raises(IndexUnderRepairError):
        await again.delete_old_segments()
    assert len(again.segments) == 2
    assert rig.owner.pending[-1] is again
    await again.do_pending_work()
    assert get(rig.disk, rig, TIMES) == times
    assert await again.delete_old_segments() == 0
    rig.clock.now_ms += 2_000_000
    assert await again.delete_old_segments() == 1


async def test_a_sound_index_is_not_suspected() -> None:
    """Whatever lies behind its last entry: many small batches, or a large one; by every look."""
    rig = Rig(MemoryDisk(), "/data", replace(LARGE, index_interval_bytes=4096))
    log = await rig.load()
    for values in ([b"v"] * 700, [b"x" * 100_000], [b"v"] * 50, [b"x" * 100_000]):
        for value in values:
            timestamp_ms = NOW_MS + log.log_end_offset
            log.append_as_leader(batch(value, timestamp_ms=timestamp_ms), 0)
        end = log.log_end_offset
        again = await rig.load()
        for each in (log, again):
            segment = each.active_segment
            assert segment.next_offset() == end
            assert segment.find(end) is None
            assert segment.largest.timestamp_ms == NOW_MS + end - 1
            assert by_time(each, NOW_MS + end - 1) is not None
            assert by_time(each, None) is not None
            assert [first_offset(each, offset) for offset in range(end)] == list(range(end))
            assert not segment.has_damaged_index
    assert rig.owner.failures == []
