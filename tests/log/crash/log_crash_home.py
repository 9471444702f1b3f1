"""A log manager at work in two data directories: partitions made, deleted, moved, checkpointed.

What a crash may leave is said for each partition: not to be there, or to be there with one of some
outcomes. Everything else (recovery points, log starts, identities, clean or not) the manager must
find in its own files.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import trio
from log_crash_model import Outcome, check
from log_crash_scene import CRASH, stamped
from log_home import OTHER_ID, TOPIC_ID, Home
from log_rig import NOW_MS, batch

from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.manager import LogManager
from kraftpy.log.manager_settings import NEVER_MS
from kraftpy.log.partition_log import PartitionLog
from kraftpy.protocol.ids import Uuid
from kraftpy.world.memory_disk import MemoryDisk, Recording

__all__ = ["OTHER_ID", "TOPIC_ID", "HomeScene"]

# Nothing happens but what the scene asks for.
_ALONE = {"initial_delay_ms": 10**9, "high_watermark_checkpoint_interval_ms": NEVER_MS}


@dataclass(frozen=True)
class Expected:
    """One partition after a crash."""

    outcomes: tuple[Outcome, ...]
    ids: tuple[Uuid | None, ...]
    may_be_absent: bool = False
    is_unsettled: bool = False
    """A log that was made quickly. Without a topic id it is as good as absent."""
    log_starts: tuple[int, ...] = (0,)
    directories: tuple[str, ...] = ("/data/a", "/data/b")


@dataclass(frozen=True)
class HomeStep:
    name: str
    expected: dict[TopicPartition, Expected]
    effects_until: int
    is_stopped: bool = False


@dataclass
class Partition:
    """What the caller of the manager knows of one."""

    topic_id: Uuid
    directory: str
    batches: tuple[bytes, ...] = ()
    end: int = 0
    flushed: int = 0
    log_start: int = 0
    is_settled: bool = True

    def now(self) -> Outcome:
        return Outcome(self.batches, self.end, self.flushed)

    def expected(self) -> Expected:
        return Expected(
            (self.now(),),
            (self.topic_id,) if self.is_settled else (self.topic_id, None),
            may_be_absent=not self.is_settled,
            is_unsettled=not self.is_settled,
            log_starts=(self.log_start,),
            directories=(self.directory,),
        )


@dataclass
class HomeScene:
    nursery: trio.Nursery
    """In which managers live, until it is cancelled."""
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    partitions: dict[TopicPartition, Partition] = field(default_factory=dict)
    steps: list[HomeStep] = field(default_factory=list)
    is_stopped: bool = False
    _lives: int = 0

    def __post_init__(self) -> None:
        self.recording = Recording(self.disk)
        self.home = self._home(self.disk)
        self.manager: LogManager
        self._stopping: trio.Event
        self._stopped: trio.Event

    def record(self) -> None:
        """What was done so far is not explored."""
        self.recording = Recording(self.disk)
        self.steps.clear()

    @asynccontextmanager
    async def step(self, name: str, **changed: Expected) -> AsyncIterator[None]:
        """Around an operation; `changed` are topics for which it may have other outcomes."""
        expected = {key: each.expected() for key, each in self.partitions.items()}
        expected |= {(topic, 0): each for topic, each in changed.items()}
        yield
        self.steps.append(HomeStep(name, expected, len(self.recording.effects)))

    # For the explorer.

    def all_steps(self) -> list[HomeStep]:
        expected = {key: each.expected() for key, each in self.partitions.items()}
        count = len(self.recording.effects)
        return [*self.steps, HomeStep("afterwards", expected, count, self.is_stopped)]

    async def reload(self, disk: MemoryDisk, step: HomeStep) -> object:
        manager = self._home(disk).manager(**_ALONE)
        found: dict[TopicPartition, tuple[str, int]] = {}
        failure: Exception | None = None
        # Left by cancellation, which is like a crash and much quicker than an orderly stop.
        with trio.CancelScope() as scope:
            async with manager.running():
                try:
                    self._judge(manager, step.expected)
                    for log in manager.logs:
                        found[log.topic_partition] = log.directory, log.log_end_offset
                except Exception as error:
                    # Raised outside, where it is not in a group.
                    failure = error
                scope.cancel()
        if failure is not None:
            raise failure
        return found

    async def reload_otherwise(self, disk: MemoryDisk, step: HomeStep) -> None:
        """The manager has all from its files; but that a stop was orderly it sees only once."""
        if step.is_stopped:
            manager = self._home(disk.copy()).manager(**_ALONE)
            async with manager.running():
                assert all(each.was_clean for each in manager.directories)
                self._judge(manager, step.expected)

    def _home(self, disk: MemoryDisk) -> Home:
        home = Home(disk, "/data")
        home.config = CRASH
        # Every life draws other random names.
        self._lives += 1
        home.seed = 1000 * self._lives
        return home

    def _judge(self, manager: LogManager, expected: dict[TopicPartition, Expected]) -> None:
        failures = [each.failure for each in manager.directories if not each.is_online]
        assert not failures, f"offline: {failures}"
        found = {log.topic_partition: log for log in manager.logs}
        assert found.keys() <= expected.keys(), f"partitions {found.keys() - expected.keys()}"
        for topic_partition, each in expected.items():
            log = found.get(topic_partition)
            if log is None:
                assert each.may_be_absent, f"{topic_partition} is lost"
                continue
            assert log.directory.rpartition("/")[0] in each.directories, f"it is in {log.directory}"
            topic_id = manager.topic_id(topic_partition)
            assert topic_id in each.ids, f"its topic is {topic_id}, not {each.ids}"
            if each.is_unsettled and topic_id is None:
                continue
            starts = [max(start, log.segments.first.base_offset) for start in each.log_starts]
            assert log.log_start_offset in starts, f"it starts at {log.log_start_offset}"
            check(log, each.outcomes, log_starts=(log.log_start_offset, *each.log_starts))

    # Operations.

    async def start(self) -> None:
        async with self.step("start"):
            self.manager = await self.nursery.start(self._live)
        self.is_stopped = False

    async def _live(self, task_status: trio.TaskStatus[LogManager]) -> None:
        self._stopping, self._stopped = trio.Event(), trio.Event()
        async with self.home.manager(**_ALONE).running() as manager:
            task_status.started(manager)
            await self._stopping.wait()
        self._stopped.set()

    async def stop(self) -> None:
        async with self.step("stop"):
            self._stopping.set()
            await self._stopped.wait()
        for partition in self.partitions.values():
            partition.flushed = partition.end
            partition.is_settled = True
        self.is_stopped = True

    def log(self, topic: str) -> PartitionLog:
        log = self.manager.get((topic, 0))
        assert log is not None
        return log

    async def create(self, topic: str, topic_id: Uuid = TOPIC_ID, directory: str = "a") -> None:
        path = f"/data/{directory}"
        new = Partition(topic_id, path)
        unmade = replace(new.expected(), ids=(topic_id, None), may_be_absent=True)
        async with self.step(f"create {topic}", **{topic: unmade}):
            await self.manager.get_or_create((topic, 0), topic_id=topic_id, directory=path)
            self.partitions[topic, 0] = new

    async def create_quickly(self, topic: str, topic_id: Uuid) -> None:
        """Not durable before something in it was flushed."""
        new = Partition(topic_id, "/data/a", is_settled=False)
        async with self.step(f"create {topic} quickly", **{topic: new.expected()}):
            await self.manager.get_or_create(
                (topic, 0), topic_id=topic_id, directory="/data/a", is_durable=False
            )
            self.partitions[topic, 0] = new

    async def settle(self) -> None:
        async with self.step("settle"):
            for directory in self.manager.directories:
                await directory.settle_logs()
        for partition in self.partitions.values():
            partition.is_settled = True

    async def fill(
        self, topic: str, count: int, *, epoch: int = 0, letter: bytes = b"a", flush: bool = True
    ) -> None:
        """Append batches, and flush them."""
        partition, log = self.partitions[topic, 0], self.log(topic)
        for _ in range(count):
            value = b"%s%03d" % (letter, partition.end)
            records = batch(value, timestamp_ms=NOW_MS + partition.end)
            data = stamped(records, partition.end, epoch)
            after = replace(partition.now(), batches=(*partition.batches, data))
            after = replace(after, end=partition.end + 1)
            expected = replace(partition.expected(), outcomes=(after,))
            async with self.step(f"append to {topic}", **{topic: expected}):
                log.append_as_leader(records, epoch)
            partition.batches, partition.end = after.batches, after.end
        if flush:
            async with self.step(f"flush {topic}"):
                await log.flush()
            partition.flushed = partition.end
            partition.is_settled = True

    async def checkpoint(self) -> None:
        async with self.step("write checkpoints"):
            for directory in self.manager.directories:
                await directory.write_checkpoints()

    async def delete(self, topic: str) -> None:
        old = self.partitions[topic, 0].expected()
        async with self.step(f"delete {topic}", **{topic: replace(old, may_be_absent=True)}):
            assert await self.manager.delete((topic, 0))
            del self.partitions[topic, 0]

    async def move(self, topic: str, directory: str) -> None:
        partition = self.partitions[topic, 0]
        target = f"/data/{directory}"
        both = replace(partition.expected(), directories=(partition.directory, target))
        async with self.step(f"move {topic}", **{topic: both}):
            await self.manager.move((topic, 0), target, lambda _: None)
        partition.directory = target
        partition.flushed = partition.end

    async def truncate(self, topic: str, offset: int) -> None:
        partition = self.partitions[topic, 0]
        lower = replace(partition.now(), floor=min(partition.flushed, offset))
        expected = replace(partition.expected(), outcomes=(lower,))
        async with self.step(f"truncate {topic}", **{topic: expected}):
            await self.manager.truncate(self.log(topic), offset)
        partition.is_settled = True
        partition.batches = partition.batches[:offset]
        partition.end, partition.flushed = offset, min(offset, partition.flushed)

    async def delete_records(self, topic: str, offset: int) -> None:
        """Done, as far as a loss of power is concerned, with the checkpoint of log starts."""
        partition = self.partitions[topic, 0]
        expected = replace(partition.expected(), log_starts=(partition.log_start, offset))
        async with self.step(f"delete records of {topic}", **{topic: expected}):
            log = self.log(topic)
            log.update_high_watermark(partition.end)
            log.raise_log_start(offset)
            await log.do_pending_work()
            for directory in self.manager.directories:
                await directory.write_log_starts()
        partition.log_start = offset
