"""The writes of a shard on their way into the log: in a batch, in the log, committed.

This half of a shard collects records, appends batches and tells writers what became of them; the
other half (shard.py) has the events, the machine's life, and what others may ask for.

Invariants:
- The next offset of the log equals `timeline.last_written` whenever a batch is appended (CRT-9).
- `_deferred` is ordered by offset, and only the open batch is behind it.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from kraftpy.coordinator.batch import (
    EncodedRecord,
    EndOfLinger,
    OpenBatch,
    Producer,
    encode_record,
    space_for,
)
from kraftpy.coordinator.failures import for_clients, not_coordinator, unexpected
from kraftpy.coordinator.outcome import CoordinatorError, CoordinatorRecord, Outcome
from kraftpy.coordinator.ports import Machine, ShardLog
from kraftpy.coordinator.timeline import Timeline
from kraftpy.coordinator.writes import Write
from kraftpy.log.verifications import NO_GUARD, VerificationGuard
from kraftpy.protocol.coordinator_records import RecordTypes
from kraftpy.protocol.errors import ErrorCode
from kraftpy.purgatory.timer import Timer
from kraftpy.records.batch import HEADER_SIZE
from kraftpy.records.compression import Codec
from kraftpy.world import LATE_SECONDS, Buffer, Buggify, Clock, InternalInvariant, never

__all__ = ["CollectingShard", "ShardSettings", "ShardWorld"]

log = logging.getLogger(__name__)

_Machine = TypeVar("_Machine", bound=Machine)
_Encoded: TypeAlias = list[tuple[CoordinatorRecord, EncodedRecord]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSettings:
    append_linger_ms: int = -1
    """`group.coordinator.append.linger.ms`: -1 for the end of the loop's round"""
    write_timeout_ms: int = 5000
    """`offsets.commit.timeout.ms`"""
    codec: Codec = Codec.NONE
    """`offsets.topic.compression.codec`"""


@dataclass(frozen=True, slots=True)
class ShardWorld:
    """What all shards of a runtime share. `slow` does background work, `timer` everything else."""

    clock: Clock
    timer: Timer
    slow: Timer
    settings: ShardSettings
    records: RecordTypes
    buggify: Buggify = never


class CollectingShard(ABC, Generic[_Machine]):
    """The machine is the other half's, which makes it."""

    machine: _Machine

    def __init__(self, shard_log: ShardLog, world: ShardWorld) -> None:
        self.log = shard_log
        self.timeline = Timeline()
        self._world = world
        self._batch: OpenBatch | None = None
        # With the offset behind the last record that each waits for.
        self._deferred: deque[tuple[int, Write]] = deque()

    @abstractmethod
    def fail(self) -> None:
        """The state can't be trusted."""

    @abstractmethod
    def _enqueue(self, event: Callable[[], None]) -> None:
        """Have something happen when nothing else does."""

    # Waiting.

    def _wait_for_others(self, write: Write) -> None:
        """It may have seen what is not committed: then it is answered after that (CRT-3).

        That may be older than this shard: loaded from the log, but not on all replicas yet.
        """
        timeline = self.timeline
        if self._batch is not None:
            self._batch.writes.append(write)
        elif timeline.last_committed < timeline.last_written:
            self._deferred.append((timeline.last_written, write))
        else:
            write.committed()
            return
        write.start_timeout(self._world.settings.write_timeout_ms)

    def _commit(self, high_watermark: int) -> None:
        self.timeline.committed(min(high_watermark, self.timeline.last_written))
        while self._deferred and self._deferred[0][0] <= high_watermark:
            self._deferred.popleft()[1].committed()

    # The batch.

    def _collect(self, write: Write, outcome: Outcome[Any], producer: Producer | None) -> None:
        """Replay the records and put them into the batch, together or one by one."""
        try:
            records = [(record, encode_record(record)) for record in outcome.records]
        except Exception as error:
            # A number or a name that a client sent is beyond what a record can hold.
            write.failed(unexpected(error))
            return
        pieces = [records] if outcome.is_atomic or producer else [[each] for each in records]
        # The operation has seen what is in the batch: if that is lost, so is this.
        lost = None if producer is None else self._flush()
        for piece in pieces:
            lost = lost or self._make_space(piece) or self._take_in(piece, producer)
        if lost is not None:
            write.failed(lost)
            return
        self._opened(producer).writes.append(write)
        write.start_timeout(self._world.settings.write_timeout_ms)
        if producer is not None or self._world.settings.append_linger_ms == 0:
            self._flush()

    def _make_space(self, records: _Encoded) -> CoordinatorError | None:
        needed = sum(space_for(data) for _, data in records)
        if HEADER_SIZE + needed > self.log.max_batch_bytes:
            return for_clients(CoordinatorError(ErrorCode.RECORD_LIST_TOO_LARGE))
        if self._batch is None or self._batch.has_space(needed, self.log.max_batch_bytes):
            return None
        return self._flush()

    def _take_in(self, records: _Encoded, producer: Producer | None) -> CoordinatorError | None:
        batch = self._opened(producer)
        producer_id, producer_epoch = (producer.id, producer.epoch) if producer else (-1, -1)
        try:
            for record, data in records:
                self.machine.replay(self._next_offset(), producer_id, producer_epoch, record)
                batch.append(data)
        except InternalInvariant:
            raise
        except Exception as error:
            return self._drop(batch.writes, unexpected(error))
        return None

    def _next_offset(self) -> int:
        return self.timeline.last_written + (0 if self._batch is None else self._batch.count)

    def _opened(self, producer: Producer | None) -> OpenBatch:
        batch = self._batch
        if batch is None:
            settings = self._world.settings
            batch = self._batch = OpenBatch(settings.codec, self._world.clock.wall_ms(), producer)
            if producer is None and settings.append_linger_ms != 0:
                # With -1 at once, which is when the reaper comes to run: behind what the loop has
                # to do in this round.
                delay_ms = max(settings.append_linger_ms, 0)
                if self._world.buggify("shard-lingers"):
                    delay_ms += round(LATE_SECONDS * 1000)
                self._world.timer.add(EndOfLinger(batch, self._linger_over), delay_ms)
        return batch

    def _linger_over(self, batch: OpenBatch) -> None:
        """The batch has waited long enough for more; one that is gone already is no matter."""
        self._enqueue(partial(self._flush_if_open, batch))

    def _flush_if_open(self, batch: OpenBatch) -> None:
        if self._batch is batch:
            self._flush()

    def _flush(self) -> CoordinatorError | None:
        """Append the open batch, if there is one."""
        batch, self._batch = self._batch, None
        if batch is None or not batch.count:
            return None
        return self._append(batch.build(), batch.count, batch.writes, guard=batch.guard)

    def _append(
        self,
        data: Buffer,
        count: int,
        writes: list[Write],
        *,
        guard: VerificationGuard = NO_GUARD,
        transaction_version: int = 0,
    ) -> CoordinatorError | None:
        expected = self.timeline.last_written
        try:
            offset = self.log.append(data, guard=guard, transaction_version=transaction_version)
        except CoordinatorError as error:
            return self._drop(writes, for_clients(error))
        if offset != expected:
            log.error("%r wrote at offset %d instead of %d", self, offset, expected)
            self._drop(writes, not_coordinator())
            self.fail()
            return not_coordinator()
        self.timeline.written(offset + count)
        self._deferred.extend((offset + count, write) for write in writes)
        return None

    def _drop(self, writes: list[Write], error: CoordinatorError) -> CoordinatorError:
        """What was replayed for these, and for the rest of their batch, has never been."""
        self._batch = None
        self.timeline.revert()
        for write in writes:
            write.failed(error)
        return error
