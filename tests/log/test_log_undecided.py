"""What a start must not take for decided, or forget: found by simulated losses of power."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from log_rig import TINY, Rig, batch, marker

from kraftpy.log.offsets import Isolation
from kraftpy.log.partition_log import PartitionLog
from kraftpy.records.validation import AppendOrigin
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_crash import CrashPolicy
from kraftpy.world.memory_disk_effects import Write


async def test_a_marker_that_is_not_replicated_decides_nothing_after_a_restart(rig: Rig) -> None:
    """The last stable offset stays, or readers would see what may still be aborted."""
    log = await rig.load()
    log.append_as_leader(batch(b"first"), 0)
    log.append_as_leader(
        batch(b"x", producer_id=7, producer_epoch=0, sequence=0, is_transactional=True), 0
    )
    log.append_as_leader(batch(b"after"), 0)
    log.update_high_watermark(3)
    log.append_as_leader(
        marker(7, 0, is_commit=True), 0, origin=AppendOrigin.COORDINATOR, transaction_version=1
    )
    assert log.last_stable_offset == 1
    log = await rig.reload(log)
    log.update_high_watermark(3)
    assert log.last_stable_offset == 1
    log.update_high_watermark(4)
    assert log.last_stable_offset == 4
    log = await rig.reload(log)
    log.update_high_watermark(4)
    assert log.last_stable_offset == 4


async def test_the_transaction_index_survives_a_loss_of_power_after_a_flush() -> None:
    """TXN-31, LOG-50: its name too, although the segment is rolled when all of it is flushed."""
    disk = MemoryDisk()
    await disk.make_directory("/data")
    await disk.sync_directory("/")
    rig = Rig(disk, "/data")
    log = await rig.load()
    log.append_as_leader(batch(b"first"), 0)
    await log.flush()
    log.append_as_leader(
        batch(b"x", producer_id=7, producer_epoch=0, sequence=0, is_transactional=True), 0
    )
    log.append_as_leader(
        marker(7, 0, is_commit=False), 0, origin=AppendOrigin.COORDINATOR, transaction_version=1
    )
    await log.flush()
    log.roll()
    # Whatever was not synced of the file, its name too, is lost, and the new segment is not.
    disk.crash_keeping([each for each in disk.effects() if "txnindex" not in repr(each)])
    log = await Rig(disk, "/data").load(recovery_point=3)
    log.update_high_watermark(3)
    aborted = log.read(0, 1 << 20, Isolation.COMMITTED).aborted_transactions
    assert aborted is not None
    assert [(each.producer_id, each.first_offset) for each in aborted] == [(7, 1)]


async def test_rebuilt_indexes_below_the_recovery_point_are_durable() -> None:
    """A start that had to rebuild them is followed by one that takes them as they are."""
    disk = MemoryDisk()
    await disk.make_directory("/data")
    await disk.sync_directory("/")
    rig = Rig(disk, "/data")
    log = await rig.load()
    log.append_as_leader(
        batch(b"x", producer_id=7, producer_epoch=0, sequence=0, is_transactional=True), 0
    )
    log.append_as_leader(
        marker(7, 0, is_commit=False), 0, origin=AppendOrigin.COORDINATOR, transaction_version=1
    )
    log.roll()
    log.append_as_leader(batch(b"later"), 0)
    await log.flush()
    await disk.unlink(f"{rig.directory}/{0:020}.index")
    await disk.sync_directory(rig.directory)
    disk.crash(CrashPolicy.DROP_ALL, Random(1))
    await Rig(disk, "/data").load(recovery_point=3)
    disk.crash_keeping(
        [
            each
            for each in disk.effects()
            if not (isinstance(each, Write) and each.path.endswith(".txnindex"))
        ]
    )
    log = await Rig(disk, "/data").load(recovery_point=3)
    log.update_high_watermark(3)
    aborted = log.read(0, 1 << 20, Isolation.COMMITTED).aborted_transactions
    assert aborted is not None
    assert [(each.producer_id, each.first_offset) for each in aborted] == [(7, 0)]


def in_transaction(log: PartitionLog, producer_id: int, sequence: int) -> None:
    log.append_as_leader(
        batch(
            b"x",
            producer_id=producer_id,
            producer_epoch=0,
            sequence=sequence,
            is_transactional=True,
        ),
        0,
    )


def decide(log: PartitionLog, producer_id: int) -> None:
    log.append_as_leader(
        marker(producer_id, 0, is_commit=True),
        0,
        origin=AppendOrigin.COORDINATOR,
        transaction_version=1,
    )


async def test_a_snapshot_that_waits_for_a_marker_is_there_before_its_segment_goes() -> None:
    """Or, after a crash, producers of deleted segments were unknown, and one of their transactions
    open for ever: a clean stop has left a snapshot in which it is.
    """
    disk = MemoryDisk()
    await disk.make_directory("/data")
    await disk.sync_directory("/")
    config = replace(TINY, retention_bytes=1)
    rig = Rig(disk, "/data", config)
    log = await rig.load()
    log.append_as_leader(batch(b"i", producer_id=50, producer_epoch=3, sequence=0), 0)
    in_transaction(log, 7, 0)
    log = await rig.reload(log)
    log.update_high_watermark(log.log_end_offset)
    decide(log, 7)
    log.update_high_watermark(log.log_end_offset)
    for sequence in range(2):
        # As on a follower: the marker is not replicated yet when the segment is rolled.
        in_transaction(log, 8, sequence)
        decide(log, 8)
        log.roll()
        assert log.log_end_offset not in log._files.snapshots.offsets
        log.append_as_leader(batch(b"d"), 0)
        log.update_high_watermark(log.log_end_offset)
    assert await log.delete_old_segments() == 2
    disk.crash(CrashPolicy.DROP_ALL, Random(1))
    log = await Rig(disk, "/data", config).load(recovery_point=log.recovery_point)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.high_watermark
    assert sorted(log.producers.producers) == [7, 8, 50]


async def test_a_snapshot_that_waits_goes_with_what_it_knows(rig: Rig) -> None:
    log = await rig.load()
    log.append_as_leader(batch(b"first"), 0)
    log.update_high_watermark(1)
    in_transaction(log, 7, 0)
    decide(log, 7)
    log.roll()
    log.append_as_leader(batch(b"in the next segment"), 0)
    # Below the marker: another leader has not got it.
    await log.truncate_to(2)
    log.append_as_leader(batch(b"b"), 0)
    log.append_as_leader(batch(b"c"), 0)
    log.update_high_watermark(log.log_end_offset)
    assert log._files.snapshots.offsets == ()
    assert log.last_stable_offset == 1


async def test_a_snapshot_that_waits_stays_if_what_it_knows_does(rig: Rig) -> None:
    log = await rig.load()
    log.append_as_leader(batch(b"first"), 0)
    in_transaction(log, 7, 0)
    decide(log, 7)
    log.roll()
    log.append_as_leader(batch(b"in the next segment"), 0)
    await log.truncate_to(3)
    log.append_as_leader(batch(b"another"), 0)
    log.update_high_watermark(2)
    assert log._files.snapshots.offsets == ()
    await log.flush()
    rig.owner.pending.clear()
    log.update_high_watermark(3)
    assert log._files.snapshots.offsets == (3,)
    assert rig.owner.pending == [log]
    await log.do_pending_work()
    assert await rig.names(".snapshot") == [f"{3:020d}.snapshot"]
