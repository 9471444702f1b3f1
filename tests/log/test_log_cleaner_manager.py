"""The cleaner within the log manager: it runs, and steps aside for deletion, truncation, moves."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
import trio.testing
from cleaning_rig import keyed, records_in, state_of
from log_home import CLUSTER_ID, OTHER_ID, SMALL, TOPIC_ID, Home

from kraftpy.config import NodeConfig, from_mapping
from kraftpy.log.checkpoints import CLEANER_OFFSET_CHECKPOINT
from kraftpy.log.cleaner_settings import CleanerSettings
from kraftpy.log.manager import LogManager
from kraftpy.log.manager_settings import LogManagerSettings
from kraftpy.log.offset_map import SLOT_BYTES
from kraftpy.log.partition_log import PartitionLog
from kraftpy.world.memory_disk import MemoryDisk

T0 = ("t", 0)
SETTINGS = CleanerSettings(map_bytes=10_000, buffer_bytes=1_000)
SLOW = replace(SETTINGS, max_bytes_per_second=1_000.0)


@pytest.fixture
async def home() -> Home:
    disk = MemoryDisk()
    await disk.make_directory("/data")
    home = Home(disk, "/data")
    home.config = replace(SMALL, is_compacted=True, is_deleted=False)
    return home


def fill(log: PartitionLog, count: int = 60) -> None:
    """All of it replicated, and none of it in the active segment."""
    for number in range(count):
        log.append_as_leader(keyed((b"k%d" % (number % 5), b"v%d" % number)), 0)
    log.update_high_watermark(log.log_end_offset)
    log.roll()


async def made(manager: LogManager) -> PartitionLog:
    return await manager.get_or_create(T0, topic_id=TOPIC_ID, is_new=True)


async def wait_for_cleaning(manager: LogManager) -> None:
    with trio.fail_after(60):
        while not manager.cleaner._current:  # noqa: ASYNC110 (nobody is told of it)
            await trio.sleep(0.1)


async def test_it_runs_and_its_checkpoint_outlives_the_manager(
    home: Home, autojump_clock: trio.testing.MockClock
) -> None:
    """LOG-107, LOG-110: without being asked."""
    async with home.manager(cleaner=SETTINGS).running() as manager:
        log = await made(manager)
        fill(log)
        await trio.sleep(31)
        assert len(records_in(log)) == 5
        assert manager.cleaner.clean_until(log) == 60
        path = log.directory.rpartition("/")[0]
        assert home.text(f"{path}/{CLEANER_OFFSET_CHECKPOINT}") == "0\n1\nt 0 60\n"
    async with home.manager(cleaner=SETTINGS).running() as manager:
        log = await made(manager)
        assert manager.cleaner.clean_until(log) == 60


async def test_a_stop_in_the_middle_of_a_cleaning_is_orderly(
    home: Home, autojump_clock: trio.testing.MockClock
) -> None:
    async with home.manager(cleaner=SLOW).running() as manager:
        log = await made(manager)
        fill(log)
        await wait_for_cleaning(manager)
        await trio.sleep(5)
    names = await home.disk.list_directory(log.directory)
    assert [name for name in names if name.endswith((".cleaned", ".swap"))] == []
    async with home.manager(cleaner=SETTINGS).running() as manager:
        assert len(state_of(records_in(await made(manager)))) == 5


async def test_a_deleted_log_takes_its_checkpoint_along(
    home: Home, autojump_clock: trio.testing.MockClock
) -> None:
    """LOG-6, LOG-110: also one that is being cleaned; the next of its name begins anew."""
    async with home.manager(cleaner=SETTINGS).running() as manager:
        log = await made(manager)
        fill(log)
        await trio.sleep(31)
        manager.cleaner.configure(SLOW)
        fill(log, 300)
        await wait_for_cleaning(manager)
        assert await manager.delete(T0)
        assert home.events.failed == []
        path = log.directory.rpartition("/")[0]
        assert home.text(f"{path}/{CLEANER_OFFSET_CHECKPOINT}") == "0\n0\n"
        log = await manager.get_or_create(T0, topic_id=OTHER_ID, is_new=True)
        assert manager.cleaner.clean_until(log) is None
        await trio.sleep(200)
    assert home.events.failed == []


async def test_a_truncated_log_is_dirty_from_there_on(
    home: Home, autojump_clock: trio.testing.MockClock
) -> None:
    """LOG-98, LOG-110: the checkpoint is lowered on disk before anything is cut."""
    async with home.manager(cleaner=SETTINGS).running() as manager:
        log = await made(manager)
        fill(log)
        await trio.sleep(31)
        assert await manager.truncate(log, 40)
        path = log.directory.rpartition("/")[0]
        assert home.text(f"{path}/{CLEANER_OFFSET_CHECKPOINT}") == "0\n1\nt 0 40\n"
        await manager.truncate_fully(log, 7)
        assert home.text(f"{path}/{CLEANER_OFFSET_CHECKPOINT}") == "0\n1\nt 0 7\n"
        fill(log)
        await trio.sleep(31)
        assert len(records_in(log)) == 5
    assert home.events.failed == []


async def test_a_truncation_waits_for_the_cleaning_to_end(
    home: Home, autojump_clock: trio.testing.MockClock
) -> None:
    async with home.manager(cleaner=SLOW).running() as manager:
        log = await made(manager)
        fill(log)
        await wait_for_cleaning(manager)
        await trio.sleep(3)
        started = trio.current_time()
        assert await manager.truncate(log, 4)
        assert trio.current_time() - started < 1, "at once, whatever the speed limit"
        names = await home.disk.list_directory(log.directory)
        assert [name for name in names if name.endswith((".cleaned", ".swap"))] == []
        assert [record.value for record in records_in(log)] == [b"v0", b"v1", b"v2", b"v3"]
    assert home.events.failed == []


async def test_a_log_is_not_cleaned_while_it_is_moved_and_is_dirty_after(
    home: Home, autojump_clock: trio.testing.MockClock
) -> None:
    """A copy of a deleted record could outlive its tombstone."""
    async with home.manager(cleaner=SETTINGS).running() as manager:
        log = await made(manager)
        fill(log)
        await trio.sleep(31)
        old_path = log.directory.rpartition("/")[0]
        new_path = home.b if old_path == home.a else home.a
        swapped: list[PartitionLog] = []
        paused: list[bool] = []

        def on_swap(new: PartitionLog) -> None:
            paused.append(T0 in manager.cleaner._paused)
            swapped.append(new)

        await manager.move(T0, new_path, on_swap)
        assert paused == [True]
        assert manager.cleaner._paused == {}
        assert manager.cleaner.clean_until(swapped[0]) is None
        assert home.text(f"{old_path}/{CLEANER_OFFSET_CHECKPOINT}") == "0\n0\n"
        fill(swapped[0])
        await trio.sleep(31)
        assert len(records_in(swapped[0])) == 5
        assert manager.cleaner.clean_until(swapped[0]) == 120
    assert home.events.failed == []


def settings_with(**values: str) -> CleanerSettings:
    keys = {f"log.cleaner.{key.replace('_', '.')}": value for key, value in values.items()}
    node = NodeConfig(
        from_mapping(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": "1@localhost:9093",
                "controller.listener.names": "C",
                "listeners": "PLAINTEXT://:9092,C://:9093",
                "listener.security.protocol.map": "C:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "log.dirs": "/x",
                **keys,
            },
            "test",
        )
    )
    return LogManagerSettings.from_node(node, CLUSTER_ID, node.log_dirs, open_files_max=9).cleaner


def test_settings_come_from_the_configuration() -> None:
    """LOG-111: log.cleaner.*."""
    assert settings_with(
        enable="false",
        threads="2",
        dedupe_buffer_size="4000000",
        io_buffer_size="9000",
        io_buffer_load_factor="0.5",
        io_max_bytes_per_second="77.5",
        backoff_ms="99",
    ) == CleanerSettings(
        is_enabled=False,
        task_count=2,
        map_bytes=4_000_000,
        map_load_factor=0.5,
        buffer_bytes=9_000,
        max_bytes_per_second=77.5,
        backoff_ms=99,
    )


@pytest.mark.parametrize("number", ["0", "-3", "7"])
def test_settings_with_which_nothing_could_be_cleaned(number: str) -> None:
    """Kafka takes them; a node must not fall over them."""
    settings = settings_with(
        io_buffer_size=str(max(0, int(number))),
        io_buffer_load_factor=number,
        io_max_bytes_per_second=number,
    )
    assert 0.01 <= settings.map_load_factor <= 1.0
    assert settings.buffer_bytes == 4096
    assert settings.max_bytes_per_second == max(1.0, float(number))


def test_memory_is_divided_over_the_tasks() -> None:
    """LOG-111: and no share of the buffer is too small to read with."""
    settings = settings_with(threads="4", dedupe_buffer_size="8000003", io_buffer_size="5000")
    assert settings.map_bytes_each == 2_000_000
    assert settings.buffer_bytes_each == 4096


async def test_each_task_cleans_a_log_of_its_own(
    home: Home, autojump_clock: trio.testing.MockClock
) -> None:
    """LOG-111: with its share of the memory; the limit of speed is for all of them together."""
    # Just enough slots for the keys, in each half.
    two = replace(SLOW, task_count=2, map_bytes=2 * 7 * SLOT_BYTES)
    logs = []
    async with home.manager(cleaner=two).running() as manager:
        for partition in range(3):
            logs.append(await manager.get_or_create(("t", partition), topic_id=TOPIC_ID))
            fill(logs[-1])
        size_bytes = sum(log.size_bytes for log in logs)
        await wait_for_cleaning(manager)
        started = trio.current_time()
        most = 0
        while any(manager.cleaner.clean_until(log) is None for log in logs):
            most = max(most, len(manager.cleaner._current))
            await trio.sleep(0.1)
        assert most == 2
        report = manager.cleaner.last_report
        assert report is not None
        assert report.map_bytes == 7 * SLOT_BYTES
        # Everything is read twice.
        assert trio.current_time() - started > 2 * size_bytes / two.max_bytes_per_second * 0.9
        assert all(len(records_in(log)) == 5 for log in logs)
    assert home.events.failed == []


async def test_the_number_of_tasks_follows_the_settings(
    home: Home, autojump_clock: trio.testing.MockClock
) -> None:
    """LOG-111: `log.cleaner.threads` may change at any time."""
    async with home.manager(cleaner=SETTINGS).running() as manager:
        for count in (1, 3, 2, 1, 2):
            manager.cleaner.configure(replace(SETTINGS, task_count=count))
            await trio.sleep(SETTINGS.backoff_ms / 1000 + 1)
            assert manager.cleaner._tasks == {*range(count)}
