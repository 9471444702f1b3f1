"""Truncation, flush and closing (LOG-98, LOG-36; crash order of truncation)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import trio
import trio.testing
from log_rig import NOW_MS, TINY, Rig, batch, by_time, marker, values_in
from trio.testing import MockClock

from kraftpy.log.errors import LogClosedError
from kraftpy.log.partition_log import PartitionLog
from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.validation import AppendOrigin
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk, Recording
from kraftpy.world.memory_disk_faults import ColdCache, SlowDisk


def fill(log: PartitionLog, count: int, *, epoch: int = 0) -> None:
    for _ in range(count):
        log.append_as_leader(
            batch(b"%d" % log.log_end_offset, timestamp_ms=NOW_MS + log.log_end_offset), epoch
        )


@pytest.mark.parametrize("target", [0, 1, 13, 14, 15, 29, 30, 39])
async def test_truncation(rig: Rig, target: int) -> None:
    """LOG-98: log, indexes, epochs, producers and offsets."""
    log = await rig.load()
    for index in range(40):
        log.append_as_leader(
            batch(b"%d" % index, producer_id=3, producer_epoch=0, sequence=index), index // 10
        )
    await log.flush()
    log.update_high_watermark(35)
    assert await log.truncate_to(target)
    assert log.log_end_offset == target
    assert log.high_watermark == min(35, target)
    assert log.recovery_point == target
    assert values_in(log) == {offset: b"%d" % offset for offset in range(target)}
    assert [entry for entry in log.epochs.entries if entry.start_offset >= target] == []
    assert all(s.offset_index.last_entry.offset <= max(0, target) for s in log.segments)
    assert await log.truncate_to(target) is False
    # The producer goes on where the log ends, and nowhere else.
    if target:
        assert log.producers.producers[3].last_sequence == target - 1
        assert log.producers.map_end_offset == target
    info = log.append_as_leader(batch(b"new", producer_id=3, producer_epoch=0, sequence=target), 9)
    assert info.first_offset == target
    again = await rig.reload(log)
    assert values_in(again) == values_in_expected(target)
    assert again.producers.producers[3].last_sequence == target


async def test_undecided_records_stay_so_while_producers_are_found_again(
    autojump_clock: MockClock,
) -> None:
    """Readers of a follower come meanwhile: what is known of transactions is never half of it."""
    disk = MemoryDisk(clock=MemoryClock(), random=Random(1))
    rig = Rig(disk, "/data", replace(TINY, segment_bytes=100_000))
    log = await rig.load()
    fill(log, 10)
    log.append_as_leader(
        batch(b"undecided", producer_id=3, producer_epoch=0, sequence=0, is_transactional=True), 0
    )
    fill(log, 10)
    log.update_high_watermark(15)
    disk.inject(ColdCache())
    disk.inject(SlowDisk(least_seconds=0.01))
    seen = []

    async def watch() -> None:
        while True:
            seen.append(log.last_stable_offset)
            await trio.sleep(0.001)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        await log.truncate_to(18)
        nursery.cancel_scope.cancel()
    assert set(seen) == {10}
    assert log.last_stable_offset == 10


def values_in_expected(target: int) -> dict[int, bytes]:
    return {**{offset: b"%d" % offset for offset in range(target)}, target: b"new"}


async def test_truncation_beyond_the_end(rig: Rig) -> None:
    log = await rig.load()
    fill(log, 3)
    assert not await log.truncate_to(3)
    assert not await log.truncate_to(50)
    assert log.log_end_offset == 3
    with pytest.raises(ValueError, match="-1"):
        await log.truncate_to(-1)


async def test_truncation_reopens_a_transaction(rig: Rig) -> None:
    """LOG-98: the marker is gone, and with it the aborted entry."""
    log = await rig.load()
    log.append_as_leader(
        batch(b"t", producer_id=3, producer_epoch=0, sequence=0, is_transactional=True), 0
    )
    log.append_as_leader(
        marker(3, 0, is_commit=False), 0, origin=AppendOrigin.COORDINATOR, transaction_version=1
    )
    fill(log, 4)
    log.update_high_watermark(6)
    assert log.last_stable_offset == 6
    await log.truncate_to(1)
    assert log.last_stable_offset == 0
    assert log.active_segment.transaction_index.all() == []
    assert log.producers.first_undecided_offset == 0


async def test_truncation_below_the_first_segment_begins_anew(rig: Rig) -> None:
    log = await rig.load(log_start_offset=100)
    fill(log, 30)
    assert await log.truncate_to(40)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (40, 40, 40)
    assert [segment.base_offset for segment in log.segments] == [40]
    fill(log, 2)
    again = await rig.reload(log)
    assert sorted(values_in(again)) == [40, 41]


@pytest.mark.parametrize("start", [0, 7, 14, 1000])
async def test_truncation_of_everything(rig: Rig, start: int) -> None:
    """Also to an offset where a segment begins now."""
    log = await rig.load()
    fill(log, 40, epoch=3)
    assert len(log.segments) > 2
    await log.truncate_fully_and_start_at(start)
    assert (log.log_start_offset, log.log_end_offset) == (start, start)
    assert (log.high_watermark, log.recovery_point) == (start, start)
    assert log.epochs.entries == ()
    assert log.producers.is_empty
    assert await rig.names(".snapshot") == []
    fill(log, 3, epoch=4)
    assert sorted(values_in(log)) == [start, start + 1, start + 2]
    again = await rig.reload(log)
    assert sorted(values_in(again)) == [start, start + 1, start + 2]


async def test_truncated_segments_are_unlinked_later(rig: Rig) -> None:
    log = await rig.load()
    fill(log, 40)
    gone = [segment.base_offset for segment in log.segments][1:]
    await log.truncate_to(5)
    assert [len(paths) for paths, _ in rig.owner.unlinks] == [3] * len(gone)
    for paths, delay_ms in rig.owner.unlinks:
        assert delay_ms == 60_000
        for path in paths:
            assert path.endswith(".deleted")
            rig.disk.open(path).close()


async def test_a_crash_in_a_truncation_leaves_a_prefix() -> None:
    """At every effect, with everything kept and with everything unsynced lost."""
    disk = MemoryDisk()
    await disk.make_directory("/data")
    await disk.sync_directory("/")
    rig = Rig(disk, "/data")
    log = await rig.load()
    fill(log, 40)
    await log.flush()
    recording = Recording(disk)
    await log.truncate_to(20)
    assert len(recording.effects) > 5
    for count in range(len(recording.effects) + 1):
        for keeps in (True, False):
            after = recording.disk_after(count)
            after.crash_keeping(after.effects() if keeps else [])
            recovered = await Rig(after, "/data").load(recovery_point=40)
            values = values_in(recovered)
            assert values == {offset: b"%d" % offset for offset in range(len(values))}
            assert 20 <= len(values) <= 40
            assert recovered.log_end_offset == len(values)


async def test_cancelling_does_not_leave_a_truncation_half_done(rig: Rig) -> None:
    log = await rig.load()
    fill(log, 40)
    with trio.CancelScope() as scope:
        scope.cancel()
        with pytest.raises(trio.Cancelled):
            await log.truncate_to(5)
    assert log.log_end_offset == 40
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.truncate_to, 5)
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert log.log_end_offset in (5, 40)
    assert values_in(log) == {offset: b"%d" % offset for offset in range(log.log_end_offset)}


async def test_flush_moves_the_recovery_point(rig: Rig) -> None:
    """LOG-96."""
    log = await rig.load()
    fill(log, 40)
    assert log.recovery_point == 0
    await log.flush(10)
    # What the rolls have asked for goes along.
    assert log.recovery_point == log.active_segment.base_offset
    await log.flush()
    assert log.recovery_point == 40
    assert rig.get("leader-epoch-checkpoint") == b"0\n1\n0 0\n"


async def test_what_is_flushed_survives_a_loss_of_power() -> None:
    """Nothing below the recovery point is lost, whatever of the rest is."""
    disk = MemoryDisk()
    await disk.make_directory("/data")
    await disk.sync_directory("/")
    rig = Rig(disk, "/data")
    log = await rig.load()
    fill(log, 40, epoch=2)
    await log.flush()
    fill(log, 40, epoch=3)
    disk.crash_keeping([])
    rig = Rig(disk, "/data")
    log = await rig.load(recovery_point=40)
    assert sorted(values_in(log)) == list(range(40))
    assert log.epochs.entries == ((2, 0),)


async def test_a_closed_log_refuses(rig: Rig) -> None:
    log = await rig.load()
    fill(log, 3)
    await log.close()
    assert log.recovery_point == 3
    assert rig.pool.open_count == 0
    for use in (
        lambda: log.append_as_leader(batch(b"a"), 0),
        lambda: log.append_as_follower(batch(b"a", base_offset=3), 0),
        lambda: log.read(0, 100),
        lambda: by_time(log, 0),
        lambda: log.raise_log_start(1),
        log.roll,
    ):
        with pytest.raises(LogClosedError) as caught:
            use()
        assert caught.value.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(LogClosedError):
        await log.truncate_to(0)
    with pytest.raises(LogClosedError):
        await log.flush()
    await log.do_pending_work()


async def test_a_renamed_directory(rig: Rig) -> None:
    """LOG-6: the log goes on in its new place."""
    log = await rig.load()
    fill(log, 20)
    new = f"{rig.directory}.0123456789abcdef0123456789abcdef-future"
    await log.rename_directory(new)
    assert log.directory == new
    fill(log, 20)
    assert sorted(values_in(log)) == list(range(40))
    await log.close()
    rig.directory = new
    assert sorted(values_in(await rig.load(is_clean=True, recovery_point=40))) == list(range(40))


async def test_truncation_while_retention_has_its_turn(rig: Rig) -> None:
    """What retention takes meanwhile may be all that the truncation would have left."""
    rig.config = replace(TINY, retention_bytes=0)
    log = await rig.load()
    fill(log, 40)
    log.update_high_watermark(40)
    # Both wait for the same turn, retention in front.
    async with trio.open_nursery() as nursery, log._turn:
        nursery.start_soon(log.delete_old_segments)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(log.truncate_to, 5)
        await trio.testing.wait_all_tasks_blocked()
        assert log.segments.first.base_offset == 0, "nothing is done yet"
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (5, 5, 5)
    assert log.append_as_leader(batch(b"new"), 1).first_offset == 5


async def test_truncation_to_the_log_start_knows_what_ended_below_it(rig: Rig) -> None:
    """Or a transaction that a snapshot has for open would hold readers back for ever."""
    log = await rig.load()
    records = batch(b"a", producer_id=3, producer_epoch=0, sequence=0, is_transactional=True)
    log.append_as_leader(records, 0)
    log.roll()
    ending = marker(3, 0, is_commit=True)
    log.append_as_leader(ending, 0, origin=AppendOrigin.COORDINATOR, transaction_version=1)
    log.update_high_watermark(2)
    log.raise_log_start(2)
    fill(log, 1)
    await log.truncate_to(2)
    fill(log, 1)
    log.update_high_watermark(3)
    assert log.last_stable_offset == 3
