"""The manager of all logs: directories, checkpoints, deletion, failures, life and death."""

from __future__ import annotations

import errno
import logging
import os
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing
from log_home import CLUSTER_ID, OTHER_ID, SMALL, TOPIC_ID, Home, open_handles
from log_rig import batch, data_of, values_in
from trio.testing import MockClock

from kraftpy.config import NodeConfig, TopicConfig, from_mapping
from kraftpy.log.batch_headers import walk_headers
from kraftpy.log.checkpoints import parse_offsets
from kraftpy.log.errors import (
    InconsistentTopicIdError,
    MalformedFileError,
    StorageError,
    UnknownDirectoryError,
)
from kraftpy.log.log_config import LogConfig
from kraftpy.log.log_directory import DirectoryInUseError, WrongDirectoryError
from kraftpy.log.manager import LogManager
from kraftpy.log.manager_settings import NEVER_MS, LogManagerSettings
from kraftpy.log.meta_properties import parse_meta_properties
from kraftpy.log.offsets import Isolation
from kraftpy.log.partition_log import PartitionLog
from kraftpy.protocol.errors import ErrorCode
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_crash import CrashPolicy
from kraftpy.world.memory_disk_faults import ReadError, SlowDisk, SyncError, WriteError
from kraftpy.world.real_disk import RealDisk

CHECKPOINTS = [
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
]
MARKER = ".kafka_cleanshutdown"


@pytest.fixture(params=["real", "memory"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    if request.param == "real":
        return Home(RealDisk(), str(tmp_path))
    return Home(MemoryDisk(), "/data")


@pytest.fixture
def memory() -> Home:
    return Home(MemoryDisk(), "/data")


def disk_of(home: Home) -> MemoryDisk:
    assert isinstance(home.disk, MemoryDisk)
    return home.disk


def offsets(home: Home, directory: str, name: str) -> dict[tuple[str, int], int]:
    path = f"{directory}/{name}"
    return parse_offsets(home.text(path), path)


async def fill(manager: LogManager, topic: str, count: int = 30, **where: str) -> None:
    log = await manager.get_or_create((topic, 0), topic_id=TOPIC_ID, **where)  # type: ignore[arg-type]
    for number in range(count):
        log.append_as_leader(batch(b"%03d" % number * 20), 0)


# Directories.


async def test_the_first_start_makes_the_files(home: Home) -> None:
    """LOG-3: in every data directory, which is made too."""
    ids = []
    async with home.manager().running():
        for directory in (home.a, home.b):
            names = await home.disk.list_directory(directory)
            assert names == sorted([*CHECKPOINTS, ".lock", "meta.properties"])
            for name in CHECKPOINTS:
                assert home.text(f"{directory}/{name}") == "0\n0\n"
            meta = parse_meta_properties(home.text(f"{directory}/meta.properties"), "")
            assert (meta.cluster_id, meta.node_id) == (CLUSTER_ID, 7)
            ids.append(meta.directory_id)
    assert ids[0] != ids[1]
    async with home.manager().running() as manager:
        assert [directory.directory_id for directory in manager.directories] == ids


async def test_a_new_partition_goes_where_the_fewest_are(home: Home) -> None:
    """LOG-4, also for partitions that are made at the same time."""
    async with home.manager().running() as manager:
        await manager.get_or_create(("x", 0), directory=home.a)
        await manager.get_or_create(("x", 1), directory=home.a)
        async with trio.open_nursery() as nursery:
            for partition in range(4):
                nursery.start_soon(manager.get_or_create, ("t", partition))
        assert len(await home.names(home.a)) == 3
        assert len(await home.names(home.b)) == 3
        with pytest.raises(UnknownDirectoryError) as refused:
            await manager.get_or_create(("t", 9), directory="/nowhere")
        assert refused.value.error_code is ErrorCode.LOG_DIR_NOT_FOUND


async def test_cordoned_directories_get_no_new_partitions(memory: Home) -> None:
    async with memory.manager(cordoned_directories=(memory.a,)).running() as manager:
        for partition in range(3):
            await manager.get_or_create(("t", partition))
        assert await memory.names(memory.a) == []
        assert (await manager.get_or_create(("u", 0), directory=memory.a)).log_end_offset == 0
    async with memory.manager(cordoned_directories=("*",)).running() as manager:
        assert manager.get(("t", 1)) is not None
        with pytest.raises(StorageError, match="no data directory takes new partitions"):
            await manager.get_or_create(("v", 0))


async def test_a_directory_has_one_user(home: Home) -> None:
    async with home.manager().running():
        with pytest.raises(DirectoryInUseError, match="stop that node"):
            async with home.manager().running():
                pass
    async with home.manager().running():
        pass


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"node_id": 8}, "says node.id=7, and this node has node.id=8"),
        ({"cluster_id": "another"}, f"says cluster.id={CLUSTER_ID}, and this node has"),
    ],
)
async def test_a_directory_belongs_to_one_node(
    memory: Home, changes: dict[str, object], said: str
) -> None:
    async with memory.manager().running():
        pass
    with pytest.raises(WrongDirectoryError, match=said):
        async with memory.manager(**changes).running():
            pass
    assert open_handles(disk_of(memory)) == []


async def test_an_old_meta_properties_gets_a_directory_id(memory: Home) -> None:
    await memory.disk.make_directory(memory.a)
    old = f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=7\n"
    memory.put(f"{memory.a}/meta.properties", old)
    async with memory.manager().running() as manager:
        given = manager.directories[0].directory_id
    meta = parse_meta_properties(memory.text(f"{memory.a}/meta.properties"), "")
    assert meta.directory_id == given


async def test_a_copied_directory_is_refused(memory: Home) -> None:
    async with memory.manager().running():
        pass
    memory.put(f"{memory.b}/meta.properties", memory.text(f"{memory.a}/meta.properties"))
    with pytest.raises(StorageError, match=r"the same directory\.id"):
        async with memory.manager().running():
            pass


async def test_a_damaged_meta_properties_is_refused(memory: Home) -> None:
    async with memory.manager().running():
        pass
    memory.put(f"{memory.a}/meta.properties", "version=1\nnode.id=7\n")
    with pytest.raises(MalformedFileError, match=r"cluster\.id is missing"):
        async with memory.manager().running():
            pass


async def test_a_partition_in_two_directories_is_refused(memory: Home) -> None:
    async with memory.manager().running():
        pass
    for directory in (memory.a, memory.b):
        await memory.disk.make_directory(f"{directory}/t-0")
    with pytest.raises(StorageError, match="/a/t-0 and /data/b/t-0 are the same partition"):
        async with memory.manager().running():
            pass
    assert open_handles(disk_of(memory)) == []


async def test_what_is_no_partition_is_left_alone(
    memory: Home, caplog: pytest.LogCaptureFixture
) -> None:
    async with memory.manager().running():
        pass
    for name in (
        "lost+found",
        "t-0.00112233445566778899aabbccddeeff-stray",
        "__cluster_metadata-0",
    ):
        await memory.disk.make_directory(f"{memory.a}/{name}")
    memory.put(f"{memory.a}/notes.txt", "mine")
    async with memory.manager().running() as manager:
        assert manager.logs == []
    assert len(await memory.names(memory.a)) == 3
    warned = [line for line in caplog.messages if "it is left alone" in line]
    assert [line.split("/")[3].split(" ")[0] for line in warned] == [
        "lost+found",
        "t-0.00112233445566778899aabbccddeeff-stray",
    ]


# Life.


async def test_everything_is_there_after_a_restart(home: Home) -> None:
    """LOG-117, LOG-66: all directories, with watermarks, starts and topic ids."""
    async with home.manager().running() as manager:
        for number, topic in enumerate(("t", "u", "with-dash")):
            await fill(manager, topic, 10 * (number + 1))
        log = manager.get(("u", 0))
        assert log is not None
        log.update_high_watermark(15)
        log.raise_log_start(7)
    for directory in (home.a, home.b):
        assert home.text(f"{directory}/{MARKER}") == '{"version":0,"brokerEpoch":-1}'
    async with home.manager().running() as manager:
        for directory in (home.a, home.b):
            assert MARKER not in await home.disk.list_directory(directory)
        assert {log.topic_partition[0]: log.log_end_offset for log in manager.logs} == {
            "t": 10,
            "u": 20,
            "with-dash": 30,
        }
        log = manager.get(("u", 0))
        assert log is not None
        assert (log.log_start_offset, log.high_watermark, log.recovery_point) == (7, 15, 20)
        assert min(values_in(log)) == 7
        assert manager.topic_id(("with-dash", 0)) == TOPIC_ID


async def test_closed_indexes_are_trimmed_and_the_active_ones_have_room(home: Home) -> None:
    """LOG-7: at full length while the segment is active, at the length of their entries after."""
    home.config = LogConfig(segment_bytes=100_000, index_interval_bytes=100)
    async with home.manager().running() as manager:
        await fill(manager, "t", 100, directory=home.a)
        base = f"{home.a}/t-0/{0:020d}"
        assert (await home.disk.stat(f"{base}.index")).size == 10_485_760
        assert (await home.disk.stat(f"{base}.timeindex")).size == 10_485_756
        log = manager.get(("t", 0))
        assert log is not None
        entries = log.active_segment.offset_index.entry_count
        assert entries > 10
        log.roll()
        assert (await home.disk.stat(f"{base}.index")).size == 8 * entries
        base = f"{home.a}/t-0/{100:020d}"
        assert (await home.disk.stat(f"{base}.index")).size == 10_485_760
    assert (await home.disk.stat(f"{base}.index")).size == 0
    assert (await home.disk.stat(f"{base}.timeindex")).size == 0


async def test_no_marker_after_a_failure(memory: Home) -> None:
    """LOG-66: only an orderly stop says that nothing need be recovered."""
    with pytest.RaisesGroup(ZeroDivisionError):
        async with memory.manager().running() as manager:
            await fill(manager, "t")
            raise ZeroDivisionError
    assert MARKER not in await memory.disk.list_directory(memory.a)
    assert open_handles(disk_of(memory)) == []


async def test_a_crash_is_recovered_from(memory: Home) -> None:
    """LOG-117, LOG-61: what was flushed is there, by whatever the checkpoints say or do not say."""
    with trio.CancelScope() as crash:
        async with memory.manager().running() as manager:
            await fill(manager, "t", 50, directory=memory.a)
            log = manager.get(("t", 0))
            assert log is not None
            await log.flush()
            for number in range(5):
                log.append_as_leader(batch(b"later %d" % number), 0)
            crash.cancel()
            disk_of(memory).crash(CrashPolicy.DROP_ALL, Random(1))
            await trio.lowlevel.checkpoint()
    assert offsets(memory, memory.a, "recovery-point-offset-checkpoint") == {}
    async with memory.manager().running() as manager:
        log = manager.get(("t", 0))
        assert log is not None
        assert len(values_in(log)) == 50
        assert manager.topic_id(("t", 0)) == TOPIC_ID


async def test_recovery_begins_at_the_recovery_point(memory: Home) -> None:
    """LOG-117: a missing entry means 0. What lies below the recovery point is not looked at."""
    async with memory.manager().running() as manager:
        await fill(manager, "known", 30, directory=memory.a)
        await fill(manager, "unknown", 30, directory=memory.a)
    await memory.disk.unlink(f"{memory.a}/{MARKER}")
    memory.put(f"{memory.a}/recovery-point-offset-checkpoint", "0\n1\nknown 0 25\n")
    for topic in ("known", "unknown"):
        # In the second batch of the first segment.
        assert disk_of(memory).rot(f"{memory.a}/{topic}-0/{0:020d}.log", 300, 1)
    async with memory.manager().running() as manager:
        ends = {log.topic_partition[0]: log.log_end_offset for log in manager.logs}
        assert ends == {"known": 30, "unknown": 1}


async def test_offsets_of_no_log_are_forgotten_at_start(memory: Home) -> None:
    """A crash came between a deletion and its checkpoints; then the name is used again."""
    async with memory.manager().running():
        pass
    for name in CHECKPOINTS:
        memory.put(f"{memory.a}/{name}", "0\n1\nt 0 25\n")
    with trio.CancelScope() as crash:
        async with memory.manager().running() as manager:
            await fill(manager, "t", 3, directory=memory.a)
            crash.cancel()
            await trio.lowlevel.checkpoint()
    async with memory.manager().running() as manager:
        log = manager.get(("t", 0))
        assert log is not None
        assert (log.log_start_offset, log.log_end_offset) == (0, 3)


async def test_cancelling_leaves_no_task_and_no_handle(
    memory: Home, autojump_clock: MockClock
) -> None:
    """Wherever it strikes, loading included."""
    async with memory.manager().running() as manager:
        for topic in ("t", "u", "v"):
            await fill(manager, topic)
    for steps in range(0, 120, 3):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel_after, scope, steps)
                async with memory.manager(initial_delay_ms=0).running() as manager:
                    log = manager.get(("t", 0))
                    assert log is not None
                    log.append_as_leader(batch(bytes(300)), 0)
                    await trio.sleep_forever()
        assert scope.cancelled_caught
        assert open_handles(disk_of(memory)) == []
    async with memory.manager().running() as manager:
        assert len(manager.logs) == 3


async def cancel_after(scope: trio.CancelScope, steps: int) -> None:
    for _ in range(steps):
        await trio.lowlevel.checkpoint()
    scope.cancel()


async def test_open_files_are_bounded(memory: Home, autojump_clock: MockClock) -> None:
    """Also while many logs have work: a few at a time do it, each with a handle or two."""
    disk = MemoryDisk(clock=MemoryClock(), random=Random(2))
    memory.disk = disk
    async with memory.manager(open_files_max=8).running() as manager:
        for partition in range(60):
            await manager.get_or_create(("t", partition))
        disk.inject(SlowDisk(least_seconds=0.01))
        for log in manager.logs:
            for _ in range(10):
                log.append_as_leader(batch(bytes(100)), 0)
        most = 0
        while any(log.recovery_point == 0 for log in manager.logs):
            await trio.sleep(0.005)
            most = max(most, len(open_handles(disk)))
        # Two locks; the pool; in each directory eight logs with a file in use and a snapshot.
        assert 8 < most <= 2 + 8 + 2 * 8 * 2
        disk.heal()
        await trio.sleep(1)
        for log in manager.logs:
            assert len(values_in(log)) == 10
        assert len(open_handles(disk)) == 2 + 8


# Checkpoints.


async def test_checkpoints_are_written_by_the_clock(
    memory: Home, autojump_clock: MockClock
) -> None:
    """LOG-118, REP-121, REP-122: 5 s for the high watermark; 30 s, then 60, for the others."""
    memory.config = LogConfig(segment_bytes=100_000, segment_index_bytes=4800, retention_ms=-1)
    async with memory.manager().running() as manager:
        await fill(manager, "t", 30, directory=memory.a)
        log = manager.get(("t", 0))
        assert log is not None
        log.update_high_watermark(20)
        log.raise_log_start(7)
        await log.flush()
        seen = dict.fromkeys(CHECKPOINTS, 0.0)
        start = trio.current_time()
        while trio.current_time() < start + 31:
            await trio.sleep(0.5)
            for name in CHECKPOINTS:
                if not seen[name] and offsets(memory, memory.a, name):
                    seen[name] = trio.current_time() - start
        assert 4.5 <= seen["replication-offset-checkpoint"] <= 5.5
        assert 29.5 <= seen["recovery-point-offset-checkpoint"] <= 30.5
        assert 29.5 <= seen["log-start-offset-checkpoint"] <= 30.5
        log.append_as_leader(batch(b"more"), 0)
        await log.flush()
        log.raise_log_start(10)
        await trio.sleep_until(start + 89)
        assert offsets(memory, memory.a, "recovery-point-offset-checkpoint") == {("t", 0): 30}
        assert offsets(memory, memory.a, "log-start-offset-checkpoint") == {("t", 0): 7}
        await trio.sleep_until(start + 91)
        assert offsets(memory, memory.a, "recovery-point-offset-checkpoint") == {("t", 0): 31}
        assert offsets(memory, memory.a, "log-start-offset-checkpoint") == {("t", 0): 10}


async def test_an_idle_node_writes_nothing(memory: Home, autojump_clock: MockClock) -> None:
    """Checkpoints are written only when they would change."""
    async with memory.manager().running() as manager:
        await fill(manager, "t")
        await trio.sleep(200)
        effects: list[object] = []
        disk_of(memory).observe(effects.append)
        await trio.sleep(3600)
        assert effects == []


async def test_a_damaged_checkpoint_is_as_good_as_none(
    memory: Home, caplog: pytest.LogCaptureFixture
) -> None:
    async with memory.manager().running() as manager:
        await fill(manager, "t", 30, directory=memory.a)
    for name in CHECKPOINTS:
        memory.put(f"{memory.a}/{name}", "0\n1\nt zero 30\n")
    await memory.disk.unlink(f"{memory.a}/{MARKER}")
    async with memory.manager().running() as manager:
        log = manager.get(("t", 0))
        assert log is not None
        assert len(values_in(log)) == 30
    assert sum("taken for empty" in line for line in caplog.messages) == 3


async def test_a_deleted_partitions_offsets_are_forgotten(memory: Home) -> None:
    """Else a new partition of that name would begin where the old one did."""
    async with memory.manager().running() as manager:
        await fill(manager, "t", 30, directory=memory.a)
        log = manager.get(("t", 0))
        assert log is not None
        log.update_high_watermark(30)
        log.raise_log_start(29)
        await log.flush()
        for directory in manager.directories:
            await directory.write_checkpoints()
        assert offsets(memory, memory.a, "log-start-offset-checkpoint") == {("t", 0): 29}
        await manager.delete(("t", 0))
        for name in CHECKPOINTS:
            assert offsets(memory, memory.a, name) == {}
        await fill(manager, "t", 3, directory=memory.a)
    async with memory.manager().running() as manager:
        log = manager.get(("t", 0))
        assert log is not None
        assert (log.log_start_offset, log.log_end_offset) == (0, 3)


@pytest.mark.parametrize("fully", [False, True])
async def test_a_truncation_lowers_the_recovery_point_on_disk(memory: Home, fully: bool) -> None:
    """Else segments written after it would not be recovered after a crash."""
    async with memory.manager().running() as manager:
        await fill(manager, "t", 40, directory=memory.a)
        log = manager.get(("t", 0))
        assert log is not None
        await log.flush()
        await manager.directories[0].write_recovery_points()
        assert offsets(memory, memory.a, "recovery-point-offset-checkpoint") == {("t", 0): 40}
        if fully:
            await manager.truncate_fully(log, 5)
        else:
            assert await manager.truncate(log, 10)
            assert not await manager.truncate(log, 10)
        expected = 5 if fully else 10
        found = offsets(memory, memory.a, "recovery-point-offset-checkpoint")
        assert found == {("t", 0): expected}


# Deletion.


async def test_deleting_renames_first_and_unlinks_later(
    memory: Home, autojump_clock: MockClock
) -> None:
    """LOG-6: `-delete` at once, and the name is free; the files go after `file.delete.delay.ms`."""
    async with memory.manager().running() as manager:
        await fill(manager, "t", directory=memory.a)
        log = manager.get(("t", 0))
        assert log is not None
        reader = log.read(0, 1 << 20, Isolation.LOG_END)
        before = data_of(reader)
        assert await manager.delete(("t", 0))
        assert not await manager.delete(("t", 0))
        assert manager.get(("t", 0)) is None
        (name,) = await memory.names(memory.a)
        assert name.startswith("t-0.")
        assert name.endswith("-delete")
        assert data_of(reader) == before, "a reader under way is not disturbed"
        again = await manager.get_or_create(("t", 0), topic_id=OTHER_ID, directory=memory.a)
        assert again.log_end_offset == 0
        await trio.sleep(59)
        assert len(await memory.names(memory.a)) == 2
        assert memory.events.unlinked == []
        await trio.sleep(2)
        assert await memory.names(memory.a) == ["t-0"]
        assert memory.events.unlinked == [(("t", 0), TOPIC_ID)]


async def test_a_delete_directory_is_removed_at_start(
    memory: Home, autojump_clock: MockClock
) -> None:
    """LOG-65: it is not loaded, whatever is in it; the deletion is reported."""
    async with memory.manager().running() as manager:
        await fill(manager, "t", directory=memory.a)
        await manager.delete(("t", 0))
    (name,) = await memory.names(memory.a)
    memory.put(f"{memory.a}/{name}/{0:020d}.log", "no batch at all, and longer than a header: ...")
    async with memory.manager().running() as manager:
        assert manager.logs == []
        await trio.sleep(1)
        assert await memory.names(memory.a) == []
        assert memory.events.unlinked == [(("t", 0), TOPIC_ID)]


async def test_removed_segments_are_unlinked_after_the_delay(
    memory: Home, autojump_clock: MockClock
) -> None:
    """LOG-106's end: nothing keeps their space, no handle either."""
    memory.config = LogConfig(
        segment_bytes=1024, segment_index_bytes=4800, retention_bytes=2048, retention_ms=-1
    )
    async with memory.manager(retention_check_interval_ms=100_000).running() as manager:
        await fill(manager, "t", 60, directory=memory.a)
        log = manager.get(("t", 0))
        assert log is not None
        log.update_high_watermark(60)
        assert log.read(0, 100).size_bytes
        await trio.sleep(29)
        assert log.log_start_offset == 0
        await trio.sleep(2)
        assert log.log_start_offset > 0
        deleted = f"{memory.a}/t-0/{0:020d}.log.deleted"
        assert deleted in open_handles(disk_of(memory))
        await trio.sleep(58)
        assert (await memory.disk.stat(deleted)).size
        await trio.sleep(2)
        assert not [n for n in await memory.disk.list_directory(f"{memory.a}/t-0") if "del" in n]
        assert "(unlinked)" not in open_handles(disk_of(memory))


async def test_a_file_that_takes_the_name_of_a_deleted_one_has_its_own_delay(
    memory: Home, autojump_clock: MockClock
) -> None:
    """LOG-106: as when a segment is cleaned twice; its readers may be in the second one."""
    async with memory.manager().running() as manager:
        await fill(manager, "t", directory=memory.a)
        directory = next(each for each in manager._directories if each.path == memory.a)
        first, other = f"{memory.a}/t-0/0.log.deleted", f"{memory.a}/t-0/7.log.deleted"
        memory.put(first, "one")
        memory.put(other, "other")
        directory.unlink_later([first, other], 60_000)
        await trio.sleep(40)
        memory.put(first, "two")
        directory.unlink_later([first], 60_000)
        await trio.sleep(30)
        names = await memory.disk.list_directory(f"{memory.a}/t-0")
        assert [name for name in names if "deleted" in name] == ["0.log.deleted"]
        await trio.sleep(31)
        names = await memory.disk.list_directory(f"{memory.a}/t-0")
        assert [name for name in names if "deleted" in name] == []
        # A third one of the name, later, goes too.
        memory.put(first, "three")
        directory.unlink_later([first], 60_000)
        await trio.sleep(61)
        names = await memory.disk.list_directory(f"{memory.a}/t-0")
        assert [name for name in names if "deleted" in name] == []


# Chores.


async def test_a_roll_is_flushed_in_the_background(memory: Home, autojump_clock: MockClock) -> None:
    """LOG-96: the log does not wait for it."""
    async with memory.manager().running() as manager:
        await fill(manager, "t", 30, directory=memory.a)
        log = manager.get(("t", 0))
        assert log is not None
        assert log.recovery_point == 0
        await trio.sleep(0.1)
        assert log.recovery_point == log.active_segment.base_offset > 0
        assert "leader-epoch-checkpoint" in await memory.disk.list_directory(f"{memory.a}/t-0")


async def test_old_records_are_flushed_by_the_clock(
    memory: Home, autojump_clock: MockClock
) -> None:
    """`flush.ms`, where the flusher is switched on."""
    memory.config = LogConfig(flush_ms=5_000)
    async with memory.manager(flush_check_interval_ms=1_000, initial_delay_ms=0).running() as logs:
        await fill(logs, "t", 3)
        log = logs.get(("t", 0))
        assert log is not None
        await trio.sleep(4)
        assert log.recovery_point == 0
        await trio.sleep(3)
        assert log.recovery_point == 3


async def test_idle_producers_are_forgotten(memory: Home, autojump_clock: MockClock) -> None:
    settings = {"producer_expiration_ms": 1000, "producer_expiration_check_interval_ms": 5000}
    async with memory.manager(**settings).running() as manager:
        log = await manager.get_or_create(("t", 0))
        now_ms = 1_767_225_600_000
        produced = batch(b"x", producer_id=1, producer_epoch=0, sequence=0, timestamp_ms=now_ms)
        log.append_as_leader(produced, 0)
        await trio.sleep(4)
        assert len(log.producers.producers) == 1
        await trio.sleep(2)
        assert len(log.producers.producers) == 0


# Failures.


async def write(log: PartitionLog) -> None:
    log.append_as_leader(batch(b"x"), 0)


async def read(log: PartitionLog) -> None:
    log.read(0, 100, Isolation.LOG_END)


USES = {"write": write, "read": read, "sync": PartitionLog.flush}


@pytest.mark.parametrize("fault", USES)
async def test_an_io_error_takes_one_directory_offline(
    memory: Home, autojump_clock: MockClock, fault: str
) -> None:
    """LOG-119: its partitions answer KAFKA_STORAGE_ERROR, those of others go on."""
    async with memory.manager().running() as manager:
        await fill(manager, "bad", 3, directory=memory.a)
        await fill(manager, "lost", 3, directory=memory.a)
        await fill(manager, "good", 3, directory=memory.b)
        bad, lost, good = (manager.get((topic, 0)) for topic in ("bad", "lost", "good"))
        assert bad is not None
        assert lost is not None
        assert good is not None
        paths = f"{memory.a}/bad-0/*"
        disk = disk_of(memory)
        disk.inject(
            {
                "write": WriteError(paths=paths, error=errno.EIO),
                "read": ReadError(paths=paths),
                "sync": SyncError(paths=paths),
            }[fault]
        )
        with pytest.raises(StorageError) as refused:
            await USES[fault](bad)
        assert refused.value.error_code is ErrorCode.KAFKA_STORAGE_ERROR
        assert memory.events.failed == [(memory.a, [("bad", 0), ("lost", 0)])]
        for log in (bad, lost):
            with pytest.raises(StorageError) as refused:
                log.append_as_leader(batch(b"x"), 0)
            assert refused.value.error_code is ErrorCode.KAFKA_STORAGE_ERROR
            with pytest.raises(StorageError):
                log.read(0, 100, Isolation.LOG_END)
        good.append_as_leader(batch(b"x"), 0)
        assert len(values_in(good)) == 4
        assert manager.logs == [good]
        # Where could a partition that is not known be? Nobody knows, unless it is new.
        with pytest.raises(StorageError, match="may be in /data/a, offline"):
            await manager.get_or_create(("t", 0))
        await manager.get_or_create(("t", 0), is_new=True)
        assert await memory.names(memory.b) == ["good-0", "t-0"]
        with pytest.raises(StorageError, match="offline"):
            await manager.get_or_create(("t", 1), is_new=True, directory=memory.a)
        await trio.sleep(200)
    assert MARKER not in await memory.disk.list_directory(memory.a)
    assert MARKER in await memory.disk.list_directory(memory.b)
    assert open_handles(disk) == []


async def test_a_directory_that_cannot_be_loaded_is_offline(memory: Home) -> None:
    """LOG-119 at start; nothing in it is touched, the other one is used."""
    async with memory.manager().running() as manager:
        await fill(manager, "t", directory=memory.a)
        await fill(manager, "u", directory=memory.b)
    disk_of(memory).inject(ReadError(paths=f"{memory.a}/t-0/*"))
    async with memory.manager().running() as manager:
        assert memory.events.failed[0][0] == memory.a
        assert [log.topic_partition for log in manager.logs] == [("u", 0)]
    disk_of(memory).heal()
    async with memory.manager().running() as manager:
        assert [log.log_end_offset for log in manager.logs] == [30, 30]


async def test_without_any_directory_there_is_no_start(memory: Home) -> None:
    async with memory.manager().running() as manager:
        for directory in (memory.a, memory.b):
            await fill(manager, f"t{directory[-1]}", directory=directory)
    disk_of(memory).inject(ReadError(paths="*/leader-epoch-checkpoint"))
    with pytest.raises(StorageError, match="no data directory can be used: /data/a: ta-0 can't"):
        async with memory.manager().running():
            pass
    assert open_handles(disk_of(memory)) == []


async def test_rotten_data_stops_no_chore_and_no_shutdown(
    memory: Home, caplog: pytest.LogCaptureFixture
) -> None:
    """Retention asks a segment for its largest time, which may have to be searched for."""
    async with memory.manager().running() as manager:
        await fill(manager, "t", directory=memory.a)
        manager.logs[0].update_high_watermark(30)
    rot(memory, f"{memory.a}/t-0/{0:020d}.log")
    async with memory.manager(initial_delay_ms=0).running() as manager:
        await trio.testing.wait_all_tasks_blocked()
        assert "the retention of PartitionLog(/data/a/t-0" in caplog.text
        assert len(manager.logs) == 1


async def test_a_log_whose_end_is_not_to_be_found_is_refused(memory: Home) -> None:
    """At a clean start, where nothing is recovered: its directory is offline, the node lives."""
    async with memory.manager().running() as manager:
        await fill(manager, "t", directory=memory.a)
        await fill(manager, "u", directory=memory.b)
        path = manager.logs[0].active_segment.log_file.path
    rot(memory, path)
    memory.put(f"{memory.a}/recovery-point-offset-checkpoint", "")
    async with memory.manager().running() as manager:
        assert memory.events.failed == [(memory.a, [])]
        assert [log.topic_partition for log in manager.logs] == [("u", 0)]


def rot(home: Home, path: str) -> None:
    """Make the length of the last batch of a segment nonsense."""
    file = home.disk.open(path, write=True)
    *_, last = walk_headers(file, 0, file.size())
    file.pwrite([b"\xff"], last.position + 8)
    file.close()


@pytest.mark.parametrize("name", ["partition.metadata", "leader-epoch-checkpoint"])
async def test_a_damaged_small_file_is_refused_by_name(
    memory: Home, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    async with memory.manager().running() as manager:
        await fill(manager, "t", directory=memory.a)
        await fill(manager, "u", directory=memory.b)
    memory.put(f"{memory.a}/t-0/{name}", "0\n7\n1 x\n")
    async with memory.manager().running() as manager:
        assert [log.topic_partition for log in manager.logs] == [("u", 0)]
    assert any(f"t-0/{name}, line" in line for line in caplog.messages)


async def test_a_full_disk_passes(
    memory: Home, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with memory.manager().running() as manager:
        await fill(manager, "t", 3, directory=memory.a)
        log = manager.get(("t", 0))
        assert log is not None
        # Work on the structure of a log can't be undone, so that must not be what meets it.
        await trio.sleep(1)
        disk = disk_of(memory)
        disk.inject(WriteError(paths=f"{memory.a}/*"))
        with pytest.raises(StorageError) as refused:
            log.append_as_leader(batch(b"x"), 0)
        assert refused.value.error_code is ErrorCode.KAFKA_STORAGE_ERROR
        log.update_high_watermark(2)
        await trio.sleep(7)
        assert any("No space left" in line for line in caplog.messages)
        disk.heal()
        await trio.sleep(7)
        assert offsets(memory, memory.a, "replication-offset-checkpoint") == {("t", 0): 2}
        assert log.append_as_leader(batch(b"x"), 0).first_offset == 3
        assert memory.events.failed == []


# Topics.


async def test_topic_ids(memory: Home) -> None:
    """partition.metadata tells whose data it is; the topic's name does not."""
    async with memory.manager().running() as manager:
        log = await manager.get_or_create(("t", 0), directory=memory.a)
        assert "partition.metadata" not in await memory.disk.list_directory(log.directory)
        assert await manager.get_or_create(("t", 0), topic_id=TOPIC_ID) is log
        assert await manager.get_or_create(("t", 0)) is log
    text = memory.text(f"{memory.a}/t-0/partition.metadata")
    assert text == "version: 0\ntopic_id: LbWaf3qcTM2zxfIuYfLDVw"
    async with memory.manager().running() as manager:
        with pytest.raises(InconsistentTopicIdError) as refused:
            await manager.get_or_create(("t", 0), topic_id=OTHER_ID)
        assert refused.value.error_code is ErrorCode.INCONSISTENT_TOPIC_ID


async def test_a_new_configuration_is_taken_at_once(memory: Home) -> None:
    async with memory.manager().running() as manager:
        log = await manager.get_or_create(("t", 0))
        memory.config = LogConfig(segment_bytes=77)
        manager.reconfigure("other")
        assert log.config is SMALL
        manager.reconfigure("t")
        assert log.config.segment_bytes == 77


def test_settings_from_a_nodes_configuration() -> None:
    node = NodeConfig(
        from_mapping(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": "1@localhost:9093",
                "controller.listener.names": "C",
                "listeners": "PLAINTEXT://:9092,C://:9093",
                "listener.security.protocol.map": "C:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "log.dirs": "/x,/y",
            },
            "test",
        )
    )
    settings = LogManagerSettings.from_node(node, CLUSTER_ID, node.log_dirs, open_files_max=9)
    assert settings.directories == ("/x", "/y")
    assert settings.loaders_per_directory == 8
    assert settings.recovery_point_checkpoint_interval_ms == 60_000
    assert settings.log_start_checkpoint_interval_ms == 60_000
    assert settings.high_watermark_checkpoint_interval_ms == 5_000
    assert settings.flush_check_interval_ms == NEVER_MS
    assert LogConfig.from_topic(TopicConfig({}, node)).file_delete_delay_ms == 60_000


async def test_a_read_can_be_sent_by_the_kernel(tmp_path: Path) -> None:
    """LOG-120: the slice's file has a descriptor for sendfile, opened again if need be."""
    home = Home(RealDisk(), str(tmp_path))
    async with home.manager(open_files_max=1).running() as manager:
        await fill(manager, "t", 3)
        await fill(manager, "u", 3)
        log = manager.get(("t", 0))
        assert log is not None
        found = log.read(0, 1 << 20, Isolation.LOG_END).records
        assert found is not None
        expected = found.file.pread(found.length, found.position)
        left, right = socket.socketpair()
        with left, right:
            values_in(manager.logs[1])
            descriptor = found.file.fileno()  # type: ignore[attr-defined]
            assert os.sendfile(left.fileno(), descriptor, found.position, found.length) > 0
            assert right.recv(1 << 20) == expected


async def test_progress_is_told(
    memory: Home, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with memory.manager().running() as manager:
        await fill(manager, "t", directory=memory.a)
    assert "loaded 0 logs directory=/data/a ms=0" in caplog.messages
    assert any(line.startswith("closed 1 logs directory=/data/a") for line in caplog.messages)
    async with memory.manager().running():
        assert any(line.startswith("loaded 1 logs directory=/data/a") for line in caplog.messages)


async def test_a_flush_under_way_does_not_hinder_the_removal(
    memory: Home, autojump_clock: MockClock
) -> None:
    """It may be about to save leader epochs in the very directory that is removed."""
    disk = MemoryDisk(clock=MemoryClock(), random=Random(2))
    memory.disk = disk
    memory.config = replace(SMALL, file_delete_delay_ms=0)
    async with memory.manager().running() as manager:
        for seed in range(20):
            log = await manager.get_or_create(("t", 0), is_new=True)
            log.append_as_leader(batch(b"a"), seed)
            disk.inject(SlowDisk(mean_more_seconds=0.001))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(manager.delete, ("t", 0))
                while not log._turn.locked():
                    await trio.lowlevel.checkpoint()
                with suppress(StorageError):
                    await log.flush()
            await trio.sleep(1)
            assert memory.events.unlinked != []
            disk.heal()
            assert memory.events.failed == []
            memory.events.unlinked.clear()
