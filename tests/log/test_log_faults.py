"""What the system refuses: EIO, ENOSPC, failed syncs (LOG-119: the log's part)."""

from __future__ import annotations

import errno
from dataclasses import replace
from random import Random

import pytest
from log_rig import NOW_MS, TINY, Rig, batch, data_of, values_in

from kraftpy.log.errors import LogClosedError, StorageError
from kraftpy.log.offsets import Isolation
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.producer_entries import decode_snapshot
from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.errors import CorruptRecord
from kraftpy.records.walker import walk_batches
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_faults import BitRot, ReadError, SyncError, WriteError
from kraftpy.world.memory_disk_image import DirectoryInode, FileInode


@pytest.fixture
async def faulty() -> Rig:
    disk = MemoryDisk(random=Random(11))
    await disk.make_directory("/data")
    await disk.sync_directory("/")
    return Rig(disk, "/data")


def fill(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        offset = log.log_end_offset
        log.append_as_leader(batch(b"%d" % offset, timestamp_ms=NOW_MS + offset), 0)


def expected(count: int) -> dict[int, bytes]:
    return {offset: b"%d" % offset for offset in range(count)}


def disk_of(rig: Rig) -> MemoryDisk:
    assert isinstance(rig.disk, MemoryDisk)
    return rig.disk


@pytest.mark.parametrize("what", ["*.log", "*.index", "*.timeindex"])
async def test_a_full_disk_refuses_the_append_only(faulty: Rig, what: str) -> None:
    """The partial write is cut off, the log stays readable and goes on when there is room."""
    log = await faulty.load()
    fill(log, 5)
    disk_of(faulty).inject(WriteError(paths=what, error=errno.ENOSPC))
    for _ in range(3):
        with pytest.raises(StorageError) as caught:
            fill(log, 100)
        assert caught.value.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        count = log.log_end_offset
        assert count == 5 or what != "*.log"
        assert len(faulty.get("00000000000000000000.log")) == log.size_bytes
        assert values_in(log) == expected(count)
    assert faulty.owner.failures == []
    disk_of(faulty).heal()
    fill(log, 30)
    assert values_in(log) == expected(count + 30)
    for segment in log.segments:
        index = segment.offset_index
        offsets = [index.entry(slot).offset for slot in range(index.entry_count)]
        assert offsets == sorted(set(offsets))
    assert values_in(await faulty.reload(log)) == expected(count + 30)


async def test_a_full_index_in_the_middle_of_a_segment(faulty: Rig) -> None:
    """The append that finds no room for index entries is undone in the data too."""
    faulty.config = replace(TINY, segment_bytes=1 << 20, segment_index_bytes=1 << 16)
    log = await faulty.load()
    disk_of(faulty).inject(WriteError(paths="*.timeindex", error=errno.ENOSPC))
    with pytest.raises(StorageError):
        fill(log, 100)
    count = log.log_end_offset
    assert 10 < count < 100
    assert len(faulty.get("00000000000000000000.log")) == log.size_bytes
    assert log.active_segment.offset_index.last_entry.offset == count - 1
    assert values_in(log) == expected(count)
    disk_of(faulty).heal()
    fill(log, 1)
    assert values_in(log) == expected(count + 1)


async def test_a_full_disk_leaves_the_snapshot_of_a_roll_for_later(faulty: Rig) -> None:
    """And the flush with it; the log goes on."""
    log = await faulty.load()
    disk_of(faulty).inject(WriteError(paths="*.snapshot", error=errno.ENOSPC))
    fill(log, 20)
    assert len(log.segments) == 2
    await log.do_pending_work()
    assert (log.recovery_point, faulty.owner.failures) == (0, [])
    fill(log, 2)
    disk_of(faulty).heal()
    await log.do_pending_work()
    end = log.active_segment.base_offset
    assert log.recovery_point == end
    assert list(decode_snapshot(faulty.get(f"{end:020d}.snapshot"), "file")) == []
    assert values_in(log) == expected(22)


async def test_a_full_disk_does_not_stop_retention_half_way(faulty: Rig) -> None:
    """It needs the snapshots, and finds out before it has removed anything."""
    faulty.config = replace(TINY, retention_bytes=1)
    log = await faulty.load()
    fill(log, 40)
    log.update_high_watermark(40)
    count = len(log.segments)
    disk_of(faulty).inject(WriteError(paths="*.snapshot", error=errno.ENOSPC))
    with pytest.raises(StorageError):
        await log.delete_old_segments()
    assert (len(log.segments), log.log_start_offset) == (count, 0)
    disk_of(faulty).heal()
    assert await log.delete_old_segments() == count - 1
    assert log.log_start_offset == log.active_segment.base_offset


async def test_an_error_of_the_medium_takes_the_directory_offline(faulty: Rig) -> None:
    """LOG-119: in an append."""
    log = await faulty.load()
    fill(log, 5)
    disk_of(faulty).inject(WriteError(paths="*.log", error=errno.EIO, count=1))
    with pytest.raises(StorageError):
        fill(log, 1)
    assert [error.errno for error in faulty.owner.failures] == [errno.EIO]
    # Nothing is tried any more, though the disk would do it.
    with pytest.raises(LogClosedError):
        fill(log, 1)
    with pytest.raises(LogClosedError):
        log.read(0, 100)
    assert len(faulty.owner.failures) == 1


async def test_a_read_error_takes_the_directory_offline(faulty: Rig) -> None:
    """LOG-119: in a read."""
    log = await faulty.load()
    fill(log, 5)
    log.update_high_watermark(5)
    disk_of(faulty).inject(ReadError(paths="*.log", count=1))
    with pytest.raises(StorageError) as caught:
        log.read(0, 100)
    assert caught.value.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(faulty.owner.failures) == 1


@pytest.mark.parametrize("paths", ["*.log", "*.index", "*.snapshot", "*t-0", "*checkpoint.tmp"])
async def test_a_failed_sync_is_never_retried(faulty: Rig, paths: str) -> None:
    """LOG-119: the recovery point stays, and the log is not used any more."""
    log = await faulty.load()
    fill(log, 20)
    fault = disk_of(faulty).inject(SyncError(paths=paths, count=1))
    await log.do_pending_work()
    if not fault.struck:
        with pytest.raises(StorageError):
            await log.flush()
    assert fault.struck == 1
    assert log.recovery_point == 0
    assert len(faulty.owner.failures) == 1
    with pytest.raises(LogClosedError):
        await log.flush()
    with pytest.raises(LogClosedError):
        fill(log, 1)


class FullOnSync(MemoryDisk):
    """A disk that finds out only in a sync that there is no room: what was written is lost."""

    __slots__ = ("is_full",)

    async def sync_inode(self, inode: FileInode | DirectoryInode, path: str) -> None:
        if self.is_full and path.endswith(".log"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        await super().sync_inode(inode, path)


async def test_a_sync_that_finds_no_room_is_no_better() -> None:
    """LOG-119: unlike a write that is refused, it can't be tried again."""
    disk = FullOnSync()
    disk.is_full = False
    await disk.make_directory("/data")
    rig = Rig(disk, "/data")
    log = await rig.load()
    fill(log, 20)
    disk.is_full = True
    with pytest.raises(StorageError):
        await log.flush()
    assert len(rig.owner.failures) == 1
    assert log.recovery_point == 0


async def test_a_flush_that_can_not_write_is_tried_again(faulty: Rig) -> None:
    """Index entries and epochs are written before anything is synced."""
    log = await faulty.load()
    fill(log, 5)
    for paths in ("*.tmp", "*.index"):
        fault = disk_of(faulty).inject(WriteError(paths=paths, error=errno.ENOSPC))
        with pytest.raises(StorageError):
            await log.flush()
        assert log.recovery_point == 0
        assert faulty.owner.failures == []
        disk_of(faulty).heal(fault)
    await log.flush()
    assert log.recovery_point == 5
    assert faulty.get("leader-epoch-checkpoint") == b"0\n1\n0 0\n"


async def test_a_failed_rename_in_a_truncation(faulty: Rig) -> None:
    log = await faulty.load()
    fill(log, 40)
    await faulty.disk.unlink(f"{faulty.directory}/00000000000000000028.log")
    with pytest.raises(StorageError):
        await log.truncate_to(5)
    assert len(faulty.owner.failures) == 1


async def test_offline_touches_nothing(faulty: Rig) -> None:
    log = await faulty.load()
    fill(log, 40)
    before = {name: faulty.get(name) for name in await faulty.names()}
    log.go_offline("pulled out")
    assert faulty.pool.open_count == 0
    assert {name: faulty.get(name) for name in await faulty.names()} == before
    with pytest.raises(LogClosedError, match="pulled out"):
        log.read(0, 1)


@pytest.mark.parametrize("seed", range(8))
async def test_rot_is_found_when_the_log_is_recovered(faulty: Rig, seed: int) -> None:
    """One rotten bit somewhere in the data: recovery serves a sound prefix."""
    log = await faulty.load()
    fill(log, 30)
    await log.flush()
    log.go_offline("crash")
    disk = MemoryDisk(random=Random(seed), image=disk_of(faulty).image)
    rig = Rig(disk, "/data")
    disk.inject(BitRot(paths="*.log", after=seed % 3, count=1))
    recovered = await rig.load()
    values = values_in(recovered)
    assert values == expected(len(values))


# Base offset and leader epoch lie outside of a batch's CRC, in Kafka's format as in ours.
_BEFORE_LENGTH, _BEFORE_MAGIC = 8, 16


async def test_a_flipped_bit_is_never_served_as_good(faulty: Rig) -> None:
    """Wherever it lies under the CRC: the read is refused, or what it gives shows the damage."""
    log = await faulty.load()
    log.append_as_leader(batch(b"value"), 0)
    [path] = [name for name in await faulty.names() if name.endswith(".log")]
    size = log.segments.last.size_bytes
    file = disk_of(faulty).open(f"{faulty.directory}/{path}", write=True)
    for position in (*range(_BEFORE_LENGTH, 12), *range(_BEFORE_MAGIC, size)):
        for bit in range(8):
            good = file.pread(1, position)
            file.pwrite([bytes([good[0] ^ 1 << bit])], position)
            assert not served_as_good(log), f"bit {bit} of byte {position}"
            file.pwrite([good], position)
    assert served_as_good(log)
    file.close()


def served_as_good(log: PartitionLog) -> bool:
    """Whether a reader at offset 0 gets a batch that it takes for sound."""
    try:
        data = data_of(log.read(0, 1 << 20, Isolation.LOG_END))
        return any(each.is_valid for each in walk_batches(data))
    except CorruptRecord:
        return False
