"""A node's logs on a disk that loses power: the real log manager, its chores, the real cleaner.

A client writes, in transactions and without, replicas confirm, leaders change and cut off what was
not confirmed, topics are deleted and made again under the same names, the wall clock jumps, and the
machine fails in the middle of any of it. What is in the logs is compared with the truth all the
time, and after every start (storage_truth.py).

It is a whole simulation in miniature: tasks of trio under the seeded scheduler, since the log waits
for its disk. Disk calls take their time, so that a loss of power may come between any two of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

import trio

from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.cleaner_settings import CleanerSettings
from kraftpy.log.errors import InconsistentTopicIdError
from kraftpy.log.log_config import LogConfig
from kraftpy.log.manager import LogManager
from kraftpy.log.manager_settings import LogManagerSettings
from kraftpy.log.partition_log import PartitionLog
from kraftpy.protocol.ids import Uuid
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.compression import Codec
from kraftpy.records.control import EndTransactionMarker, build_end_transaction
from kraftpy.records.validation import AppendOrigin
from kraftpy.sim.coordinator_rules import claim
from kraftpy.sim.digest import EventDigest, RunTrace
from kraftpy.sim.quorum_invariants import InvariantViolated
from kraftpy.sim.runner import run_simulation
from kraftpy.sim.simulation import Simulation
from kraftpy.sim.storage_truth import LogTruth, Pair, Written
from kraftpy.world.invariants import InternalInvariant
from kraftpy.world.memory_disk_crash import CrashPolicy
from kraftpy.world.memory_disk_faults import SlowDisk
from kraftpy.world.memory_rng import MemoryRng

__all__ = ["StorageRun", "StorageSimulation", "StorageSwarm"]

_NODE: Final = "node"
_PLAIN: Final = "plain"
_COMPACTED: Final = "compacted"
_PARTITIONS: Final[tuple[TopicPartition, ...]] = ((_PLAIN, 0), (_COMPACTED, 0))
_IDEMPOTENT: Final = (1, 2)
_TRANSACTIONAL: Final = (10, 11, 12)
_KEYS: Final = tuple(b"key%d" % number for number in range(6))
# Without the one that may leave a batch of another log where one of this log should be: no CRC
# tells that.
_POLICIES: Final = tuple(each for each in CrashPolicy if each is not CrashPolicy.SIZE_FIRST)
_CLOCK_JUMPS_MS: Final = (-3_600_000, -60_000, 60_000, 3_600_000)
# A round of retention, on the slowest disk.
_ROUND_SECONDS: Final = 5.0
# In a batch.
_RECORDS_MAX: Final = 3
_CONTENT_CHECK_STEPS: Final = 15


@dataclass(frozen=True, slots=True)
class StorageSwarm:
    """The parameters of one run."""

    segment_bytes: int = 9_000
    index_interval_bytes: int = 200
    retention_ms: int = 60_000
    delete_retention_ms: int = 2_000
    # Of the largest values: some sectors of a batch may be lost, others not.
    value_bytes: int = 900
    life_mean_seconds: float = 3.0
    # Of the ends of a process, how many are losses of power, and how many orderly.
    power: float = 0.6
    orderly: float = 0.2
    pause_mean_seconds: float = 0.02
    disk_mean_seconds: float = 0.001
    flush: float = 0.08
    cut: float = 0.04
    delete: float = 0.01
    jump: float = 0.03


def _draw_swarm(random: Random) -> StorageSwarm:
    value_bytes = random.choice((20, 900, 2_500))
    return StorageSwarm(
        segment_bytes=(_RECORDS_MAX * (value_bytes + 50) + 100) * random.choice((1, 3, 10)),
        index_interval_bytes=random.choice((1, 200, 4_096)),
        retention_ms=random.choice((5_000, 60_000, 1_800_000)),
        delete_retention_ms=random.choice((0, 2_000)),
        value_bytes=value_bytes,
        life_mean_seconds=random.choice((0.5, 3.0, 10.0)),
        power=random.choice((0.3, 0.8)),
        pause_mean_seconds=random.choice((0.001, 0.02, 0.2)),
        disk_mean_seconds=random.choice((0.0, 0.001, 0.02)),
        flush=random.choice((0.02, 0.15)),
        cut=random.choice((0.0, 0.05, 0.15)),
        delete=random.choice((0.0, 0.02)),
        jump=random.choice((0.0, 0.03)),
    )


@dataclass(frozen=True, slots=True)
class StorageRun:
    """What a run did; `event_count` are the effects on the disk and what led to them."""

    seed: int
    trace: RunTrace
    event_count: int
    virtual_us: int
    lives: int
    batches: int
    recovered: int


class StorageSimulation:
    def __init__(
        self, seed: int, swarm: StorageSwarm | None = None, window: range = range(0)
    ) -> None:
        rng = MemoryRng(seed, "storage")
        self.seed = seed
        self.swarm = swarm or _draw_swarm(rng.stream("swarm"))
        self.digest = EventDigest(window)
        self._random = rng.stream("client")
        self._nemesis = rng.stream("nemesis")
        self._truths: dict[TopicPartition, LogTruth] = {}
        self._steps_left = 0
        self._topic_count = self._value_count = 0
        self._lives = self._batches = self._recovered = 0
        self._is_dead = self._is_loaded = self._is_stopping = False
        # When the wall clock jumped last, and what it showed before.
        self._before_jump = (0.0, 0)

    def run(self, step_limit: int) -> StorageRun:
        """So many steps of the client, over as many lives of the process as it takes."""
        self._steps_left = step_limit
        try:
            result = run_simulation(self._main, seed=self.seed, digest=self.digest)
        except Exception as error:
            error.add_note(
                f"replay: python -m kraftpy.sim.storage_run --seed {self.seed}"
                f" --events {step_limit}  ({self._steps_left} steps left, {self.swarm})"
            )
            raise
        return StorageRun(
            self.seed,
            result.trace,
            result.trace.event_count,
            int(result.virtual_seconds * 1e6),
            self._lives,
            self._batches,
            self._recovered,
        )

    def _wall_ms(self) -> int:
        """As late as somebody may believe who looked at the clock a moment ago."""
        at, wall_ms = self._before_jump
        is_recent = self._clock.monotonic() - at < _ROUND_SECONDS
        return max(self._clock.wall_ms(), wall_ms if is_recent else 0)

    def _note(self, what: str, place: object = "") -> None:
        self.digest.record(self._clock.monotonic(), what, str(place), b"")

    # Lives.

    async def _main(self, simulation: Simulation) -> None:
        machine = simulation.machine(_NODE)
        self._clock = machine.clock
        self._wall_start_ms = machine.clock.wall_ms() - machine.clock.monotonic_ms()
        if self.swarm.disk_mean_seconds:
            machine.disk.inject(SlowDisk(mean_more_seconds=self.swarm.disk_mean_seconds))
        while self._steps_left > 0:
            await self._live(simulation)

    async def _live(self, simulation: Simulation) -> None:
        """One process, from its start to its end, of whatever kind."""
        self._is_dead = self._is_loaded = self._is_stopping = False
        self._lives += 1
        self._note("start")
        manager = LogManager(
            simulation.world(_NODE), self._settings(), config_of=self._config_of, events=self
        )
        failure: BaseException | None = None
        try:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._end_life, simulation, scope, manager)
                    async with manager.running():
                        failure = await self._use(manager)
                        if failure is not None:
                            scope.cancel()
                    if not self._is_dead:
                        self._stopped(manager)
                    nursery.cancel_scope.cancel()
        except Exception as error:
            failure = failure or self._unless_dead(error)
        if failure is not None:
            raise _violation_in(failure)

    async def _use(self, manager: LogManager) -> Exception | None:
        """What went wrong, to be raised where it is not in a group of others."""
        if self._is_dead:
            # The machine was gone before the end of the start.
            return None
        try:
            self._started(manager)
            await self._work(manager)
        except trio.Cancelled:
            raise
        except Exception as error:
            return self._unless_dead(error)
        return None

    def _unless_dead(self, error: Exception) -> Exception | None:
        """A process whose machine is gone fails at whatever it does next."""
        return None if self._is_dead else error

    async def _end_life(
        self, simulation: Simulation, scope: trio.CancelScope, manager: LogManager
    ) -> None:
        await self._clock.sleep(self._nemesis.expovariate(1 / self.swarm.life_mean_seconds))
        if self._nemesis.random() < self.swarm.orderly:
            self._is_stopping = True
            return
        is_power = self._nemesis.random() < self.swarm.power
        policy = self._nemesis.choice(_POLICIES) if is_power else CrashPolicy.KEEP_ALL
        for name, truth in self._truths.items():
            log = manager.get(name)
            if self._is_loaded and log is not None:
                truth.check_start(log, self._wall_ms())
                truth.flushed(log.recovery_point)
                truth.kept_end = truth.end
            if is_power:
                truth.kept_end = truth.durable_end
        self._note("crash", policy.value)
        self._is_dead = True
        simulation.vanish(_NODE, policy)
        scope.cancel()

    # DirectoryEvents.

    def directory_failed(self, path: str, lost: object) -> None:
        claim(self._is_dead, "directory-offline", path)

    def partition_unlinked(self, topic_partition: TopicPartition, topic_id: Uuid | None) -> None:
        pass

    # Settings.

    def _settings(self) -> LogManagerSettings:
        return LogManagerSettings(
            directories=("/data",),
            cluster_id="MkU3OEVBNTcwNTJENDM2Qg",
            node_id=1,
            initial_delay_ms=100,
            retention_check_interval_ms=500,
            recovery_point_checkpoint_interval_ms=300,
            log_start_checkpoint_interval_ms=300,
            high_watermark_checkpoint_interval_ms=300,
            verifies_transactions=False,
            cleaner=CleanerSettings(map_bytes=100_000, buffer_bytes=2_000, backoff_ms=200),
        )

    def _config_of(self, topic: str) -> LogConfig:
        swarm = self.swarm
        return LogConfig(
            is_compacted=topic == _COMPACTED,
            is_deleted=topic == _PLAIN,
            segment_bytes=swarm.segment_bytes,
            index_interval_bytes=swarm.index_interval_bytes,
            segment_index_bytes=1_200,
            retention_ms=swarm.retention_ms,
            delete_retention_ms=swarm.delete_retention_ms,
            min_cleanable_dirty_ratio=0.0,
            file_delete_delay_ms=1_000,
            timestamp_after_max_ms=1 << 62,
        )

    # The client.

    def _started(self, manager: LogManager) -> None:
        found = {log.topic_partition: log for log in manager.logs}
        for name in _PARTITIONS:
            truth, log = self._truths.get(name), found.get(name)
            if log is None or manager.topic_id(name) is None:
                # Without an id it was never made to the end.
                is_fine = truth is None or truth.may_be_absent
                claim(is_fine, "log-lost", name)
                self._truths.pop(name, None)
                continue
            claim(truth is not None, "deleted-and-back", name)
            if truth is not None:
                claim(manager.topic_id(name) == truth.topic_id, "foreign-log", name)
                truth.recovered(log)
                self._recovered += truth.end

    def _stopped(self, manager: LogManager) -> None:
        """In order: everything is durable."""
        for name, truth in self._truths.items():
            log = manager.get(name)
            if log is not None:
                truth.check_start(log, self._wall_ms())
            truth.durable_end = truth.kept_end = truth.end

    async def _work(self, manager: LogManager) -> None:
        self._is_loaded = True
        while self._steps_left > 0 and not self._is_stopping:
            self._steps_left -= 1
            name = self._random.choice(_PARTITIONS)
            truth, log = self._truths.get(name), manager.get(name)
            if truth is None or log is None:
                await self._create(manager, name)
            else:
                await self._step(manager, truth, log)
            self._check(manager)
            await self._clock.sleep(self._random.expovariate(1 / self.swarm.pause_mean_seconds))
        self._check(manager, is_thorough=True)

    def _check(self, manager: LogManager, *, is_thorough: bool = False) -> None:
        claim(not manager.cleaner.uncleanable, "uncleanable", manager.cleaner.uncleanable)
        is_thorough = is_thorough or self._steps_left % _CONTENT_CHECK_STEPS == 0
        for name, truth in self._truths.items():
            log = manager.get(name)
            if log is None:
                raise InvariantViolated("log-gone", str(name))
            truth.check_offsets(log, self._wall_ms())
            if is_thorough:
                truth.check_content(log)

    async def _create(self, manager: LogManager, name: TopicPartition) -> None:
        self._topic_count += 1
        topic_id = Uuid(self._topic_count.to_bytes(16, "big"))
        truth = LogTruth(
            topic_id,
            is_compacted=name[0] == _COMPACTED,
            retention_ms=self.swarm.retention_ms,
        )
        self._note("create", name)
        self._truths[name] = truth
        log = await manager.get_or_create(name, topic_id=topic_id, is_new=True)
        truth.may_be_absent = False
        claim(log.log_end_offset == 0, "foreign-data", log)

    async def _step(self, manager: LogManager, truth: LogTruth, log: PartitionLog) -> None:
        random, swarm = self._random, self.swarm
        chance = random.random()
        if chance < swarm.flush:
            await log.flush()
        elif (chance := chance - swarm.flush) < swarm.cut:
            await self._cut(manager, truth, log)
        elif (chance := chance - swarm.cut) < swarm.delete:
            await self._replace(manager, truth, log)
        elif (chance := chance - swarm.delete) < swarm.jump:
            self._note("jump")
            self._check(manager)
            self._before_jump = (self._clock.monotonic(), self._clock.wall_ms())
            self._clock.jump_wall(random.choice(_CLOCK_JUMPS_MS))
        elif chance < 0.4:
            self._replicate(truth, log)
        elif chance < 0.5 and truth.end > log.log_start_offset:
            truth.check_read(log, random.randrange(log.log_start_offset, truth.end))
        elif chance < 0.65:
            self._end_transaction(truth, log)
        else:
            self._append(truth, log)

    def _replicate(self, truth: LogTruth, log: PartitionLog) -> None:
        """Up to the end, or to the end of another batch."""
        ends = [each.last + 1 for each in truth.present if each.last >= truth.high_watermark]
        if ends:
            offset = self._random.choice((ends[-1], self._random.choice(ends)))
            truth.high_watermark = log.update_high_watermark(offset)
            if self._random.random() < 0.05 and not truth.is_compacted:
                log.raise_log_start(offset)
                truth.start = max(truth.start, offset)

    async def _cut(self, manager: LogManager, truth: LogTruth, log: PartitionLog) -> None:
        """As another leader has it."""
        places = [each.base for each in truth.present if each.base >= truth.high_watermark]
        if not places:
            return
        offset = self._random.choice(places)
        self._note("cut", f"{log.topic_partition} {offset}")
        truth.truncated(offset)
        await manager.truncate(log, offset)
        truth.leader_epoch += 1

    async def _replace(self, manager: LogManager, truth: LogTruth, log: PartitionLog) -> None:
        """The topic is deleted, and another of that name is made; perhaps too early."""
        name = log.topic_partition
        if self._random.random() < 0.5:
            try:
                await manager.get_or_create(name, topic_id=Uuid(b"another-topic-id"))
            except InconsistentTopicIdError:
                return
            raise InvariantViolated("foreign-data", f"{log!r} for another topic")
        self._note("delete", name)
        truth.may_be_absent = True
        await manager.delete(name)
        del self._truths[name]

    def _append(self, truth: LogTruth, log: PartitionLog) -> None:
        random = self._random
        producer_id = random.choice((-1, -1, *_IDEMPOTENT, *_TRANSACTIONAL, *_TRANSACTIONAL))
        is_transactional = producer_id in _TRANSACTIONAL
        # Of the client's clock, which is right.
        timestamp_ms = self._clock.monotonic_ms() + self._wall_start_ms
        known = log.producers.producers.get(producer_id)
        sequence = known.last_sequence + 1 if known is not None and known.batches else 0
        builder = BatchBuilder(
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            is_transactional=is_transactional,
            codec=random.choice((Codec.NONE, Codec.NONE, Codec.LZ4)),
        )
        pairs = []
        for index in range(random.choice((1, 1, _RECORDS_MAX))):
            key, value = random.choice(_KEYS), self._value()
            builder.append(key, value, timestamp_ms=timestamp_ms)
            pairs.append(Pair(truth.end + index, key, value))
        data = builder.build()
        info = log.append_as_leader(data, truth.leader_epoch)
        claim(info.first_offset == truth.end, "appended-elsewhere", info.first_offset)
        self._batches += 1
        truth.appended(
            Written(
                info.first_offset,
                info.last_offset,
                timestamp_ms,
                tuple(pairs),
                producer_id,
                is_transactional,
                data=bytes(data),
            )
        )

    def _value(self) -> bytes | None:
        if self._random.random() < 0.15:
            return None
        self._value_count += 1
        size = self._random.choice((0, self.swarm.value_bytes))
        return b"%d " % self._value_count + self._random.randbytes(size)

    def _end_transaction(self, truth: LogTruth, log: PartitionLog) -> None:
        open_ones = list(truth.open_transactions())
        if not open_ones:
            return
        producer_id = self._random.choice(open_ones)
        is_commit = self._random.random() < 0.5
        timestamp_ms = self._clock.monotonic_ms() + self._wall_start_ms
        data = build_end_transaction(
            EndTransactionMarker(is_commit, coordinator_epoch=1),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=timestamp_ms,
        )
        info = log.append_as_leader(
            data, truth.leader_epoch, origin=AppendOrigin.COORDINATOR, transaction_version=1
        )
        truth.appended(
            Written(
                info.first_offset,
                info.last_offset,
                timestamp_ms,
                (),
                producer_id,
                is_transactional=True,
                is_commit=is_commit,
                data=bytes(data),
            )
        )


def _violation_in(failure: BaseException) -> BaseException:
    """The broken rule, if one is known; and else that nothing of the kind should be raised."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    if isinstance(failure, InvariantViolated | InternalInvariant):
        return failure
    violation = InvariantViolated("unexpected-error", f"{type(failure).__name__}: {failure}")
    violation.__cause__ = failure
    return violation
