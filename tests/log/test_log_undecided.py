"""What a start must not take for decided, or forget: found by simulated losses of power."""

from __future__ import annotations

from random import Random

from log_rig import Rig, batch, marker

from kraftpy.log.offsets import Isolation
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
