"""New logs that wait for no disk: what they are at once, and what they become (creating.py)."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import trio
from log_home import OTHER_ID, TOPIC_ID, Home
from log_rig import batch, values_in
from trio.testing import MockClock

from kraftpy.log.manager import LogManager
from kraftpy.log.partition_log import PartitionLog
from kraftpy.protocol.ids import Uuid
from kraftpy.world.memory_disk import MemoryDisk, Recording
from kraftpy.world.memory_disk_crash import CrashPolicy
from kraftpy.world.memory_disk_effects import Sync
from kraftpy.world.real_disk import RealDisk

NEW = "partition.metadata.new"
SETTLED = "partition.metadata"
SEGMENT = "00000000000000000000"


@pytest.fixture(params=["real", "memory"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    if request.param == "real":
        return Home(RealDisk(), str(tmp_path))
    return Home(MemoryDisk(), "/data")


async def make(manager: LogManager, topic: str, topic_id: Uuid = TOPIC_ID) -> PartitionLog:
    directory = manager.directories[0].path
    return await manager.get_or_create(
        (topic, 0), topic_id=topic_id, directory=directory, is_durable=False
    )


def append(log: PartitionLog, count: int) -> None:
    for number in range(count):
        log.append_as_leader(batch(b"%03d" % number * 20), 0)


def kill(home: Home, scope: trio.CancelScope, policy: CrashPolicy) -> None:
    """End the process, and with it as much of the disk as `policy` says."""
    scope.cancel()
    assert isinstance(home.disk, MemoryDisk)
    home.disk.crash(policy, Random(1))


async def test_a_new_log_is_two_small_files_and_no_sync(home: Home) -> None:
    async with home.manager().running() as manager:
        recording = Recording(home.disk) if isinstance(home.disk, MemoryDisk) else None
        log = await make(manager, "t")
        assert await home.disk.list_directory(log.directory) == [f"{SEGMENT}.log", NEW]
        assert home.text(f"{log.directory}/{NEW}").endswith("LbWaf3qcTM2zxfIuYfLDVw")
        assert manager.topic_id(("t", 0)) == TOPIC_ID
        if recording is not None:
            assert not any(isinstance(each, Sync) for each in recording.effects)
        append(log, 30)
        await log.flush()
        names = await home.disk.list_directory(log.directory)
        assert SETTLED in names
        assert NEW not in names
    async with home.manager().running() as manager:
        found = manager.get(("t", 0))
        assert found is not None
        assert len(values_in(found)) == 30
        assert manager.topic_id(("t", 0)) == TOPIC_ID


async def test_an_orderly_stop_settles_what_is_new() -> None:
    home = Home(MemoryDisk(), "/data")
    async with home.manager().running() as manager:
        path = (await make(manager, "t")).directory
    names = await home.disk.list_directory(path)
    assert SETTLED in names
    assert {f"{SEGMENT}.index", f"{SEGMENT}.timeindex"} <= {*names}


async def test_new_logs_are_settled_after_a_while(autojump_clock: MockClock) -> None:
    home = Home(MemoryDisk(), "/data")
    async with home.manager().running() as manager:
        path = (await make(manager, "t")).directory
        await trio.sleep(100)
        assert SETTLED in await home.disk.list_directory(path)


async def test_a_new_log_survives_its_process() -> None:
    """What was appended is there too, and the leader's epoch with it."""
    home = Home(MemoryDisk(), "/data")
    with trio.CancelScope() as scope:
        async with home.manager().running() as manager:
            log = await make(manager, "t")
            log.begin_epoch(3)
            log.append_as_leader(batch(b"x"), 3)
            await make(manager, "empty", OTHER_ID)
            kill(home, scope, CrashPolicy.KEEP_ALL)
            await trio.lowlevel.checkpoint()
    async with home.manager().running() as manager:
        assert manager.topic_id(("t", 0)) == TOPIC_ID
        assert manager.topic_id(("empty", 0)) == OTHER_ID
        found = manager.get(("t", 0))
        assert found is not None
        assert values_in(found) == {0: b"x"}
        assert found.epochs.latest_epoch == 3
        names = await home.disk.list_directory(found.directory)
        assert SETTLED in names
        assert NEW not in names


@pytest.mark.parametrize("loss", ["", "log", "index", "timeindex"])
@pytest.mark.parametrize("is_read", [False, True], ids=["unread", "read"])
async def test_a_new_log_that_is_empty_is_loaded_as_new(loss: str, is_read: bool) -> None:
    """Without a sync, as often as processes end; and then it is settled like any other."""
    home = Home(MemoryDisk(), "/data")
    disk = home.disk
    assert isinstance(disk, MemoryDisk)
    path = f"{home.a}/t-0"
    for _ in range(3):
        with trio.CancelScope() as scope:
            async with home.manager().running() as manager:
                log = await make(manager, "t")
                if is_read:
                    assert not values_in(log)
                    # Its indexes have room then, which must not be taken for entries.
                    log.segments.last.make_active()
                kill(home, scope, CrashPolicy.KEEP_ALL)
                await trio.lowlevel.checkpoint()
        names = await disk.list_directory(path)
        if f"{SEGMENT}.{loss}" in names:
            await disk.unlink(f"{path}/{SEGMENT}.{loss}")
        recording = Recording(disk)
        with trio.CancelScope() as scope:
            async with home.manager().running() as manager:
                assert manager.topic_id(("t", 0)) == TOPIC_ID
                synced = [each.path for each in recording.effects if isinstance(each, Sync)]
                assert not any(each.startswith(path) for each in synced)
                names = await disk.list_directory(path)
                assert {f"{SEGMENT}.log", NEW} <= {*names}
                assert SETTLED not in names
                kill(home, scope, CrashPolicy.KEEP_ALL)
                await trio.lowlevel.checkpoint()
    with trio.CancelScope() as scope:
        async with home.manager().running() as manager:
            found = manager.get(("t", 0))
            assert found is not None
            append(found, 30)
            await found.flush()
            kill(home, scope, CrashPolicy.DROP_ALL)
            await trio.lowlevel.checkpoint()
    async with home.manager().running() as manager:
        found = manager.get(("t", 0))
        assert found is not None
        assert len(values_in(found)) == 30
        assert manager.topic_id(("t", 0)) == TOPIC_ID


async def test_a_new_log_that_has_lost_only_its_indexes_is_not_empty() -> None:
    home = Home(MemoryDisk(), "/data")
    with trio.CancelScope() as scope:
        async with home.manager().running() as manager:
            log = await make(manager, "t")
            append(log, 1)
            path = log.directory
            kill(home, scope, CrashPolicy.KEEP_ALL)
            await trio.lowlevel.checkpoint()
    for name in await home.disk.list_directory(path):
        if name not in (f"{SEGMENT}.log", NEW):
            await home.disk.unlink(f"{path}/{name}")
    async with home.manager().running() as manager:
        found = manager.get(("t", 0))
        assert found is not None
        assert len(values_in(found)) == 1
        assert SETTLED in await home.disk.list_directory(path)


@pytest.mark.parametrize("use", ["none", "append", "settle"])
async def test_of_a_log_that_was_never_used_no_checkpoint_has_to_be_told(use: str) -> None:
    """Whoever counts on it finds 0, with its line or without; of others more may stand there."""
    home = Home(MemoryDisk(), "/data")
    async with home.manager().running() as manager:
        log = await make(manager, "t")
        if use == "append":
            append(log, 3)
            log.update_high_watermark(3)
        elif use == "settle":
            await log.settle()
        await manager.directories[0].write_checkpoints()
        recording = Recording(home.disk)
        await manager.delete(("t", 0))
        paths = [each.path for each in recording.effects if isinstance(each, Sync)]
        assert any("checkpoint" in path for path in paths) == (use != "none")
        text = home.text(f"{home.a}/replication-offset-checkpoint")
        assert ("t 0 0" in text) == (use == "none")
        assert "t 0 3" not in text


async def test_a_new_log_may_be_lost_with_the_power() -> None:
    home = Home(MemoryDisk(), "/data")
    with trio.CancelScope() as scope:
        async with home.manager().running() as manager:
            append(await make(manager, "t"), 3)
            kill(home, scope, CrashPolicy.DROP_ALL)
            await trio.lowlevel.checkpoint()
    async with home.manager().running() as manager:
        assert manager.get(("t", 0)) is None
        assert all(each.is_online for each in manager.directories)
        # And can be made again.
        append(await make(manager, "t"), 3)


@pytest.mark.parametrize("text", ["", "version: 0\ntopic_id: LbWa", "\0" * 40])
async def test_a_torn_note_takes_no_directory_offline(text: str) -> None:
    home = Home(MemoryDisk(), "/data")
    with trio.CancelScope() as scope:
        async with home.manager().running() as manager:
            path = (await make(manager, "t")).directory
            kill(home, scope, CrashPolicy.KEEP_ALL)
            await trio.lowlevel.checkpoint()
    home.put(f"{path}/{NEW}", text)
    async with home.manager().running() as manager:
        assert all(each.is_online for each in manager.directories)
        assert manager.topic_id(("t", 0)) is None


async def test_a_new_log_without_its_first_segment_begins_anew() -> None:
    """A later one that outlived it would be taken for the log's beginning, by followers too."""
    home = Home(MemoryDisk(), "/data")
    with trio.CancelScope() as scope:
        async with home.manager().running() as manager:
            log = await make(manager, "t")
            append(log, 30)
            assert len(log.segments) > 2
            path = log.directory
            kill(home, scope, CrashPolicy.KEEP_ALL)
            await trio.lowlevel.checkpoint()
    await home.disk.unlink(f"{path}/{SEGMENT}.log")
    async with home.manager().running() as manager:
        found = manager.get(("t", 0))
        assert found is not None
        assert (found.log_start_offset, found.log_end_offset) == (0, 0)
        assert manager.topic_id(("t", 0)) == TOPIC_ID


async def test_what_is_in_the_place_of_a_new_log_is_loaded() -> None:
    """A making that failed half-way, or files that somebody has put there."""
    home = Home(MemoryDisk(), "/data")
    async with home.manager().running() as manager:
        append(await make(manager, "t"), 3)
    async with home.manager().running() as manager:
        await home.disk.make_directory(f"{home.a}/u-0")
        for name in await home.disk.list_directory(f"{home.a}/t-0"):
            if name.startswith(SEGMENT):
                home.put(f"{home.a}/u-0/{name}", "")
                source = home.disk.open(f"{home.a}/t-0/{name}")
                target = home.disk.open(f"{home.a}/u-0/{name}", write=True)
                target.pwrite([source.pread(source.size(), 0)], 0)
        found = await make(manager, "u", OTHER_ID)
        assert len(values_in(found)) == 3
        assert SETTLED in await home.disk.list_directory(found.directory)
