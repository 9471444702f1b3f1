"""A partition that is led by one broker after the other, as its leaders see it.

Replication is reduced to what a coordinator can see of it: what a leader appends is committed some
time later, and the next leader has everything that was committed and any part of the rest. A leader
that is replaced goes on with a log of its own, in which nothing is ever committed again.

Logs are those of replicas, with the rules for producers (memory_replica_log.py).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from kraftpy.broker.memory_replica_log import MemoryReplicaLog
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.errors import LogError
from kraftpy.log.log_config import LogConfig
from kraftpy.log.offsets import Isolation
from kraftpy.log.verifications import NO_GUARD, VerificationGuard
from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.validation import AppendOrigin
from kraftpy.sim.coordinator_swarm import CoordinatorSwarm
from kraftpy.sim.kernel import EventHeap
from kraftpy.world import Buffer, Clock

__all__ = ["NOBODY", "Reign", "SimulatedPartition"]

NOBODY: Final = -1
_ALL_BYTES: Final = 1 << 30
_BATCH_BYTES_MAX: Final = 1_048_588
_EXPIRATION_MS: Final = 86_400_000


class Reign:
    """One broker's leadership of a partition. Fits coordinator.ports.ShardLog."""

    __slots__ = ("_partition", "broker_id", "epoch", "log", "max_batch_bytes")

    def __init__(
        self, partition: SimulatedPartition, broker_id: int, epoch: int, log: MemoryReplicaLog
    ) -> None:
        self._partition = partition
        self.broker_id = broker_id
        self.epoch = epoch
        self.log = log
        self.max_batch_bytes = _BATCH_BYTES_MAX

    @property
    def is_current(self) -> bool:
        return self._partition.reign is self

    @property
    def is_led(self) -> bool:
        """As far as this broker knows: it hears of its end when its shard does."""
        return True

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    def append(
        self,
        batch: Buffer,
        *,
        guard: VerificationGuard = NO_GUARD,
        transaction_version: int = 0,
        origin: AppendOrigin = AppendOrigin.COORDINATOR,
    ) -> int:
        if self._partition.refuses_append():
            raise CoordinatorError(ErrorCode.NOT_ENOUGH_REPLICAS)
        try:
            info = self.log.append_as_leader(
                bytearray(batch),
                self.epoch,
                origin=origin,
                guard=guard,
                transaction_version=transaction_version,
            )
        except LogError as error:
            raise CoordinatorError(error.error_code, str(error)) from error
        if self.is_current and not info.is_duplicate:
            self._partition.appended(self)
        return info.first_offset

    def read_now(
        self,
        offset: int,
        max_bytes: int = _ALL_BYTES,
        isolation: Isolation = Isolation.LOG_END,
    ) -> bytes:
        part = self.log.read(offset, max_bytes, isolation).records
        return b"" if part is None else bytes(part.file.pread(part.length, part.position))

    async def read(self, offset: int, max_bytes: int) -> Buffer:
        return self.read_now(offset, max_bytes)


class SimulatedPartition:
    """`committed` is told of the bytes of each piece of the log that can't be lost any more."""

    __slots__ = (
        "_clock",
        "_committed",
        "_heap",
        "_random",
        "_swarm",
        "_tell",
        "is_faulty",
        "name",
        "reign",
        "stalled_until_us",
    )

    def __init__(
        self,
        name: TopicPartition,
        heap: EventHeap,
        swarm: CoordinatorSwarm,
        random: Random,
        clock: Clock,
        *,
        committed: Callable[[bytes, int], None],
        tell: Callable[[SimulatedPartition, Reign], None],
    ) -> None:
        """`tell` the leader that its high watermark has moved."""
        self.name = name
        self.is_faulty = True
        self.stalled_until_us = 0
        self._heap = heap
        self._swarm = swarm
        self._random = random
        self._clock = clock
        self._committed = committed
        self._tell = tell
        self.reign = Reign(self, NOBODY, 0, self._new_log())

    def __repr__(self) -> str:
        return f"{self.name[0]}-{self.name[1]}"

    def _new_log(self) -> MemoryReplicaLog:
        log = MemoryReplicaLog(self._clock, LogConfig())
        log.producers.configure(expiration_ms=_EXPIRATION_MS, verify_transactions=True)
        return log

    def elect(self, broker_id: int, *, kept: float = 1.0) -> Reign:
        """Another leader, which has that part of what was not committed."""
        old = self.reign
        epoch = old.epoch + 1
        log = self._new_log()
        span = old.log_end_offset - old.high_watermark
        keep = old.high_watermark + round(span * kept)
        data = old.read_now(0)
        if data:
            log.append_as_follower(data, epoch)
            if keep < log.log_end_offset:
                log.crash(keep)
        log.update_high_watermark(min(old.high_watermark, log.log_end_offset))
        self.reign = Reign(self, broker_id, epoch, log)
        if log.log_end_offset > log.high_watermark:
            self.appended(self.reign)
        return self.reign

    def refuses_append(self) -> bool:
        return self.is_faulty and self._random.random() < self._swarm.append_failures

    def appended(self, reign: Reign) -> None:
        """It will be committed, if the leader lives for long enough."""
        delay = int(self._random.expovariate(1 / self._swarm.replication_mean_us)) + 1
        stall = max(0, self.stalled_until_us - self._heap.now_us)
        end = reign.log_end_offset
        self._heap.plan(delay + stall, lambda: self._replicated(reign, end))

    def _replicated(self, reign: Reign, end: int) -> None:
        if not reign.is_current or end <= reign.high_watermark:
            return
        before = reign.high_watermark
        reign.log.update_high_watermark(end)
        self._committed(reign.read_now(before, isolation=Isolation.HIGH_WATERMARK), end)
        self._tell(self, reign)
