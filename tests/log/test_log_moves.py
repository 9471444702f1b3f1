"""Moving a partition between data directories, and deleting one: also through crashes."""

from __future__ import annotations

import errno
from dataclasses import replace
from random import Random

import pytest
import trio
import trio.testing
from log_home import SMALL, TOPIC_ID, Home, open_handles
from log_rig import batch, marker, values_in
from trio.testing import MockClock

from kraftpy.log.errors import StorageError, UnknownDirectoryError
from kraftpy.log.handles import PooledFile
from kraftpy.log.manager import LogManager
from kraftpy.log.offsets import Isolation
from kraftpy.log.partition_log import PartitionLog
from kraftpy.protocol.ids import Uuid
from kraftpy.records.validation import AppendOrigin
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk, Recording
from kraftpy.world.memory_disk_crash import CrashPolicy
from kraftpy.world.memory_disk_faults import SlowDisk

T = ("t", 0)


@pytest.fixture
def home() -> Home:
    return Home(MemoryDisk(), "/data")


async def filled(manager: LogManager, home: Home, count: int = 40) -> PartitionLog:
    log = await manager.get_or_create(T, topic_id=TOPIC_ID, directory=home.a)
    for number in range(count):
        log.append_as_leader(batch(b"%d" % number), number // 10)
    return log


async def half_moved(manager: LogManager, home: Home, count: int) -> PartitionLog:
    """A log of which a half is in the other directory, where its move was interrupted."""
    log = await filled(manager, home, count)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.move, T, home.b, Holder(log).swap)
            while (future := manager.future(T)) is None or future.log_end_offset < count // 2:
                await trio.lowlevel.checkpoint()
            scope.cancel()
    assert manager.get(T) is log
    return log


class Holder:
    """Someone who appends to a log and is told when it moves."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.swaps = 0

    def swap(self, log: PartitionLog) -> None:
        assert log.log_end_offset == self.log.log_end_offset
        self.log = log
        self.swaps += 1


async def test_a_log_moves_while_it_is_written(home: Home, autojump_clock: MockClock) -> None:
    """LOG-6: a `-future` log, caught up, swapped; nothing is lost, nothing is doubled."""
    disk = MemoryDisk(clock=MemoryClock(), random=Random(5))
    home.disk = disk
    async with home.manager().running() as manager:
        holder = Holder(await filled(manager, home))
        holder.log.update_high_watermark(33)
        holder.log.raise_log_start(12)
        slowness = disk.inject(SlowDisk(least_seconds=0.01))
        names: list[str] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.move, T, home.b, holder.swap)
            number = 40
            while not holder.swaps:
                if number < 60:
                    holder.log.append_as_leader(batch(b"%d" % number), 4)
                    number += 1
                names += await home.names(home.b)
                await trio.sleep(0.001)
            holder.log.append_as_leader(batch(b"%d" % number), 4)
        disk.heal(slowness)
        assert any(name.startswith("t-0.") and name.endswith("-future") for name in names)
        assert manager.get(T) is holder.log
        assert manager.future(T) is None
        assert holder.log.directory == f"{home.b}/t-0"
        assert (holder.log.log_start_offset, holder.log.high_watermark) == (12, 33)
        assert values_in(holder.log) == {n: b"%d" % n for n in range(12, number + 1)}
        assert [entry.epoch for entry in holder.log.epochs.entries] == [1, 2, 3, 4]
        assert await home.names(home.b) == ["t-0"]
        assert (await home.names(home.a))[0].endswith("-delete")
        await trio.sleep(61)
        assert await home.names(home.a) == []
        assert home.events.unlinked == [], "the partition is still there"
        await manager.delete(T)
        await trio.sleep(61)
        assert home.events.unlinked == [(T, TOPIC_ID)]


async def test_producers_move_along(home: Home, autojump_clock: MockClock) -> None:
    """A repeated batch is known, an open transaction still holds back the last stable offset."""
    async with home.manager(verifies_transactions=False).running() as manager:
        log = await manager.get_or_create(T, directory=home.a)
        first = batch(b"a", producer_id=1, producer_epoch=0, sequence=0)
        log.append_as_leader(bytearray(first), 0)
        aborted = batch(b"b", producer_id=2, producer_epoch=0, sequence=0, is_transactional=True)
        log.append_as_leader(aborted, 0)
        log.append_as_leader(
            marker(2, 0, is_commit=False), 0, origin=AppendOrigin.COORDINATOR, transaction_version=1
        )
        opened = batch(b"c", producer_id=3, producer_epoch=0, sequence=0, is_transactional=True)
        log.append_as_leader(opened, 0)
        log.update_high_watermark(4)
        holder = Holder(log)
        await manager.move(T, home.b, holder.swap)
        moved = holder.log
        assert moved.append_as_leader(bytearray(first), 0).is_duplicate
        assert (moved.high_watermark, moved.last_stable_offset) == (4, 3)
        read = moved.read(0, 10_000, Isolation.COMMITTED)
        assert read.aborted_transactions is not None
        assert [each.producer_id for each in read.aborted_transactions] == [2]


async def test_what_was_cut_off_meanwhile_does_not_move(
    home: Home, autojump_clock: MockClock
) -> None:
    """The current log was truncated and written anew, and is longer than before: epochs tell."""
    async with home.manager().running() as manager:
        log = await half_moved(manager, home, 80)
        # Not by the manager, which would cut the copy too, if it can be reached.
        await log.truncate_to(25)
        for number in range(25, 120):
            log.append_as_leader(batch(b"other %d" % number), 7)
        holder = Holder(log)
        await manager.move(T, home.b, holder.swap)
        expected = {n: b"%d" % n for n in range(25)} | {n: b"other %d" % n for n in range(25, 120)}
        assert values_in(holder.log) == expected
        assert [entry.epoch for entry in holder.log.epochs.entries] == [0, 1, 2, 7]


async def test_a_longer_copy_of_what_was_cut_off_is_not_taken_for_the_log(
    home: Home, autojump_clock: MockClock
) -> None:
    """A future log with all of the current one has won; offsets alone don't tell that."""
    async with home.manager().running() as manager:
        log = await half_moved(manager, home, 80)
        await log.truncate_to(25)
        log.append_as_leader(batch(b"other"), 9)
    async with home.manager().running() as manager:
        current, future = manager.get(T), manager.future(T)
        assert current is not None
        assert future is not None
        assert future.log_end_offset >= 40
        assert values_in(current) == {n: b"%d" % n for n in range(25)} | {25: b"other"}


async def test_truncation_cuts_the_copy(home: Home, autojump_clock: MockClock) -> None:
    """REP-88: and a restart doesn't take the copy for the log, with what was cut off in it."""
    async with home.manager().running() as manager:
        log = await half_moved(manager, home, 80)
        await manager.truncate(log, 25)
        future = manager.future(T)
        assert future is not None
        assert values_in(future) == values_in(log) == {n: b"%d" % n for n in range(25)}
        assert future.epochs.entries == log.epochs.entries
    async with home.manager().running() as manager:
        current = manager.get(T)
        assert current is not None
        assert current.log_end_offset == 25


async def test_a_log_that_begins_anew_below_the_copy(home: Home, autojump_clock: MockClock) -> None:
    """The leader has less than this log had ever kept: what comes then moves, from its start."""
    async with home.manager().running() as manager:
        log = await half_moved(manager, home, 80)
        future = manager.future(T)
        assert future is not None
        log.update_high_watermark(80)
        log.raise_log_start(30)
        future.update_high_watermark(40)
        future.raise_log_start(30)
        await manager.truncate_fully(log, 10)
        assert (future.log_start_offset, future.log_end_offset) == (10, 10)
        for number in range(10, 60):
            log.append_as_leader(batch(b"other %d" % number), 9)
        holder = Holder(log)
        await manager.move(T, home.b, holder.swap)
        assert values_in(holder.log) == {n: b"other %d" % n for n in range(10, 60)}


@pytest.mark.parametrize("is_whole", [False, True])
async def test_a_log_is_not_swapped_while_it_is_cut(
    home: Home, autojump_clock: MockClock, is_whole: bool
) -> None:
    """Or the old one would be cut, and the new one have it all."""
    disk = MemoryDisk(clock=MemoryClock(), random=Random(5))
    home.disk = disk
    async with home.manager().running() as manager:
        holder = Holder(await half_moved(manager, home, 80))
        log = holder.log
        slowness = disk.inject(SlowDisk(least_seconds=0.01))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.move, T, home.b, holder.swap)
            if is_whole:
                await manager.truncate_fully(log, 25)
            else:
                await manager.truncate(log, 25)
            assert holder.log.log_end_offset == 25
        disk.heal(slowness)
        assert holder.swaps == 1
        assert values_in(holder.log) == ({} if is_whole else {n: b"%d" % n for n in range(25)})


async def test_who_comes_too_late_to_cut_the_old_log_cuts_the_new_one(
    home: Home, autojump_clock: MockClock
) -> None:
    async with home.manager().running() as manager:
        holder = Holder(await filled(manager, home, 80))
        old = holder.log
        await manager.move(T, home.b, holder.swap)
        assert await manager.truncate(old, 25)
        assert values_in(holder.log) == {n: b"%d" % n for n in range(25)}
        await manager.truncate_fully(old, 12)
        assert (holder.log.log_start_offset, holder.log.log_end_offset) == (12, 12)


async def test_a_log_is_not_cut_for_another_topic_of_its_name(
    home: Home, autojump_clock: MockClock
) -> None:
    """It was made while the truncation of the deleted one waited for its turn."""
    disk = MemoryDisk(clock=MemoryClock(), random=Random(5))
    home.disk = disk
    other_id = Uuid(b"o" * 16)
    async with home.manager().running() as manager:
        old = await filled(manager, home)
        disk.inject(SlowDisk(least_seconds=0.01))

        async def make() -> None:
            new = await manager.get_or_create(T, topic_id=other_id, directory=home.a)
            new.append_as_leader(batch(b"new"), 0)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.delete, T)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(make)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(manager.truncate, old, 0)
        log = manager.get(T)
        assert log is not None
        assert values_in(log) == {0: b"new"}


async def test_a_copy_that_can_not_be_cut_is_no_reason_not_to_cut_the_log(
    home: Home, autojump_clock: MockClock
) -> None:
    async with home.manager().running() as manager:
        log = await half_moved(manager, home, 80)
        manager.directories[1].fail("by test")
        assert await manager.truncate(log, 25)
        assert log.log_end_offset == 25


async def test_a_log_that_begins_behind_the_copy(home: Home, autojump_clock: MockClock) -> None:
    """Retention has overtaken the copy: it begins anew."""
    async with home.manager().running() as manager:
        holder = Holder(await filled(manager, home, 300))
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(manager.move, T, home.b, holder.swap)
                while (future := manager.future(T)) is None or future.log_end_offset == 0:
                    await trio.lowlevel.checkpoint()
                scope.cancel()
        log = holder.log
        for number in range(300, 360):
            log.append_as_leader(batch(b"%d" % number), 40)
        log.update_high_watermark(360)
        log.raise_log_start(350)
        await manager.move(T, home.b, holder.swap)
        assert holder.log.log_start_offset == 350
        assert values_in(holder.log) == {n: b"%d" % n for n in range(350, 360)}


async def test_a_move_goes_on_after_a_restart(home: Home, autojump_clock: MockClock) -> None:
    async with home.manager().running() as manager:
        holder = Holder(await filled(manager, home, 300))
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(manager.move, T, home.b, holder.swap)
                while (future := manager.future(T)) is None or future.log_end_offset == 0:
                    await trio.lowlevel.checkpoint()
                scope.cancel()
        copied = future.log_end_offset
        assert 0 < copied < 300
    async with home.manager().running() as manager:
        log, future = manager.get(T), manager.future(T)
        assert log is not None
        assert future is not None
        assert (log.log_end_offset, future.log_end_offset) == (300, copied)
        holder = Holder(log)
        await manager.move(T, home.b, holder.swap)
        assert len(values_in(holder.log)) == 300
        assert home.text(f"{home.b}/t-0/partition.metadata").endswith("LbWaf3qcTM2zxfIuYfLDVw")


async def test_a_partition_can_be_deleted_while_it_moves(
    home: Home, autojump_clock: MockClock
) -> None:
    async with home.manager().running() as manager:
        holder = Holder(await filled(manager, home, 300))
        refusals: list[StorageError] = []

        async def move() -> None:
            with pytest.raises(StorageError, match="has gone while it was moved") as refused:
                await manager.move(T, home.b, holder.swap)
            refusals.append(refused.value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(move)
            while (future := manager.future(T)) is None or future.log_end_offset == 0:
                await trio.lowlevel.checkpoint()
            await manager.delete(T)
        assert refusals
        assert (manager.get(T), manager.future(T), holder.swaps) == (None, None, 0)
        await trio.sleep(61)
        assert await home.names(home.a) + await home.names(home.b) == []
        assert home.events.unlinked == [(T, TOPIC_ID)]


async def test_moves_that_make_no_sense(home: Home, autojump_clock: MockClock) -> None:
    async with home.manager().running() as manager:
        with pytest.raises(StorageError, match="there is no log of t-0"):
            await manager.move(T, home.b, lambda _: None)
        holder = Holder(await filled(manager, home))
        await manager.move(T, home.a, holder.swap)
        assert holder.swaps == 0
        with pytest.raises(UnknownDirectoryError):
            await manager.move(T, "/nowhere", holder.swap)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.move, T, home.b, holder.swap)
            await trio.testing.wait_all_tasks_blocked()
            if not holder.swaps:
                with pytest.raises(StorageError, match="is being moved already"):
                    await manager.move(T, home.b, holder.swap)


async def test_a_failing_target_leaves_the_current_log_alone(
    home: Home, autojump_clock: MockClock
) -> None:
    async with home.manager().running() as manager:
        holder = Holder(await filled(manager, home))
        manager.directories[1].fail("pulled out")
        with pytest.raises(StorageError, match="pulled out"):
            await manager.move(T, home.b, holder.swap)
        assert manager.get(T) is holder.log
        assert len(values_in(holder.log)) == 40


class Acknowledged:
    """Which records were flushed when so many effects had happened."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._log: list[tuple[int, int]] = []

    def note(self, count: int) -> None:
        self._log.append((len(self._recording.effects), count))

    def at(self, effects: int) -> int:
        return max((count for moment, count in self._log if moment <= effects), default=0)


@pytest.mark.parametrize("policy", [CrashPolicy.DROP_ALL, CrashPolicy.KEEP_ALL, CrashPolicy.SUBSET])
async def test_a_crash_at_any_point_of_a_move_loses_nothing(
    home: Home, autojump_clock: MockClock, policy: CrashPolicy
) -> None:
    """Every boundary between two effects: one log, with all that was flushed, and no more."""
    disk = home.disk
    assert isinstance(disk, MemoryDisk)
    home.config = replace(SMALL, segment_bytes=4096)
    async with home.manager().running() as manager:
        holder = Holder(await filled(manager, home, 12))
        await holder.log.flush()
        recording = Recording(disk)
        acknowledged = Acknowledged(recording)
        acknowledged.note(12)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.move, T, home.b, holder.swap)
            for number in range(12, 40):
                log = holder.log
                log.append_as_leader(batch(b"%d" % number), 5 + number // 20)
                await log.flush()
                acknowledged.note(number + 1)
        assert holder.swaps == 1
        total = len(recording.effects)
    assert total > 100
    random = Random(3)
    for effects in range(total + 1):
        crashed = Home(recording.disk_after(effects), "/data")
        crashed.config, crashed.seed = home.config, 100
        assert isinstance(crashed.disk, MemoryDisk)
        crashed.disk.crash(policy, random)
        async with crashed.manager().running() as manager:
            log_after = manager.get(T)
            assert log_after is not None, f"after {effects} effects"
            found = values_in(log_after)
            assert len(found) >= acknowledged.at(effects), f"after {effects} effects"
            assert found == {n: b"%d" % n for n in range(len(found))}, f"after {effects} effects"
            future = manager.future(T)
            assert future is None or future.log_end_offset < log_after.log_end_offset
        assert open_handles(crashed.disk) == []


@pytest.mark.parametrize("policy", [CrashPolicy.DROP_ALL, CrashPolicy.KEEP_ALL, CrashPolicy.SUBSET])
async def test_a_crash_at_any_point_of_a_deletion(
    home: Home, autojump_clock: MockClock, policy: CrashPolicy
) -> None:
    """Either the log is there whole, or it is gone; once `delete` has returned it is gone.

    A log of that name that was made since has nothing of the old one.
    """
    disk = home.disk
    assert isinstance(disk, MemoryDisk)
    async with home.manager().running() as manager:
        log = await filled(manager, home, 20)
        log.update_high_watermark(20)
        log.raise_log_start(5)
        await log.flush()
        await manager.directories[0].write_checkpoints()
        recording = Recording(disk)
        await manager.delete(T)
        deleted = len(recording.effects)
        again = await manager.get_or_create(T, directory=home.a)
        again.append_as_leader(batch(b"new"), 0)
        await again.flush()
        flushed = len(recording.effects)
        await trio.sleep(61)
        total = len(recording.effects)
    random = Random(3)
    for effects in range(total + 1):
        crashed = Home(recording.disk_after(effects), "/data")
        crashed.seed = 100
        assert isinstance(crashed.disk, MemoryDisk)
        crashed.disk.crash(policy, random)
        async with crashed.manager().running() as manager:
            found_log = manager.get(T)
            found = {} if found_log is None else values_in(found_log)
            if effects < deleted and len(found) > 1:
                assert found == {n: b"%d" % n for n in range(5, 20)}, f"after {effects} effects"
            else:
                assert found in ({}, {0: b"new"}), f"after {effects} effects"
            if effects >= flushed:
                assert found == {0: b"new"}, f"after {effects} effects"


async def test_slow_disks_do_not_change_what_happens(home: Home, autojump_clock: MockClock) -> None:
    """Every awaited call takes its time, so that other tasks run in between."""
    home.disk = MemoryDisk(clock=MemoryClock(), random=Random(5))
    home.disk.inject(SlowDisk(least_seconds=0.001, mean_more_seconds=0.004))
    async with home.manager().running() as manager:
        holder = Holder(await filled(manager, home, 100))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.move, T, home.b, holder.swap)
            for number in range(100, 400):
                holder.log.append_as_leader(batch(b"%d" % number), 10)
                await trio.sleep(0.001)
        assert holder.swaps == 1
        assert values_in(holder.log) == {n: b"%d" % n for n in range(400)}
    async with home.manager().running() as manager:
        log = manager.get(T)
        assert log is not None
        assert len(values_in(log)) == 400


async def test_data_that_can_not_be_copied_takes_its_directory_offline(
    home: Home, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the headers, which are read before, were fine."""

    async def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    async with home.manager().running() as manager:
        await filled(manager, home)
        monkeypatch.setattr(PooledFile, "read", fail)
        with pytest.raises(StorageError, match="can't read"):
            await manager.move(("t", 0), home.b, lambda _: None)
        assert [path for path, _ in home.events.failed] == [home.a]
