"""A replica's log in memory, for simulations: the twin of PartitionLog.

Real batches, judged as a real log judges them, in one file of a memory disk. Everything is
synchronous, truncation and flushing too. A crash keeps what was flushed and any prefix of the rest,
as a log has it after recovery; the high watermark is the one that was last checkpointed.

One test suite runs against both twins (tests/broker/test_replica_log_contract.py).
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import NamedTuple

from kraftpy.log.appending import (
    add_to_producers,
    commit_to_producers,
    find_duplicate,
    judge_as_follower,
    judge_as_leader,
)
from kraftpy.log.batch_set import BatchSet
from kraftpy.log.epochs import LeaderEpochCache
from kraftpy.log.errors import OffsetOutOfRangeError, RecordBatchTooLargeError
from kraftpy.log.log_config import LogConfig
from kraftpy.log.offsets import AppendInfo, Isolation, OffsetMetadata, ReadInfo
from kraftpy.log.producers import TRANSACTION_VERSION_UNKNOWN, ProducerState, ProducerUpdate
from kraftpy.log.rebuilding import replay
from kraftpy.log.verifications import NO_GUARD, VerificationGuard
from kraftpy.log.watermarks import Watermarks
from kraftpy.records.batch import RecordBatch, TimestampType
from kraftpy.records.validation import AppendOrigin
from kraftpy.world import Buffer, Clock, FileSlice
from kraftpy.world.memory_disk import MemoryDisk

__all__ = ["MemoryReplicaLog"]

_PRODUCER_EXPIRATION_MS = 86_400_000
# All places are on one segment, whatever a real one would be called.
_SEGMENT = 0


class _Stored(NamedTuple):
    """A batch, and where it lies."""

    last_offset: int
    position: int
    size: int


_last_offset_of = attrgetter("last_offset")


class MemoryReplicaLog:
    """Fits ReplicaLog. `truncate_to`, `flush` and the like are PartitionLog's without the wait."""

    __slots__ = (
        "_base_offset",
        "_batches",
        "_clock",
        "_file",
        "_watermarks",
        "checkpointed_high_watermark",
        "config",
        "epochs",
        "producers",
    )

    def __init__(self, clock: Clock, config: LogConfig) -> None:
        self.config = config
        self.epochs = LeaderEpochCache()
        self.producers = ProducerState(
            expiration_ms=_PRODUCER_EXPIRATION_MS, verify_transactions=False
        )
        self.checkpointed_high_watermark = 0
        self._clock = clock
        self._file = MemoryDisk().open("/log", write=True, create=True)
        self._batches: list[_Stored] = []
        self._base_offset = 0
        self._watermarks = Watermarks(
            log_start_offset=0, log_end=OffsetMetadata(0, _SEGMENT, 0), recovery_point=0
        )

    # What it is.

    @property
    def log_start_offset(self) -> int:
        return self._watermarks.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._watermarks.log_end.offset

    @property
    def log_end(self) -> OffsetMetadata:
        return self._watermarks.log_end

    @property
    def recovery_point(self) -> int:
        return self._watermarks.recovery_point

    @property
    def unproven_from(self) -> int | None:
        return None

    @property
    def high_watermark(self) -> int:
        return self._watermarks.high_watermark.offset

    @property
    def last_stable_offset(self) -> int:
        unstable = self.producers.first_unstable
        high_watermark = self.high_watermark
        if unstable is None or unstable.first_offset >= high_watermark:
            return high_watermark
        return max(unstable.first_offset, self.log_start_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def check(self) -> None:
        """Assert the order of the offsets."""
        self._watermarks.check(self.last_stable_offset)

    # Appending.

    def begin_epoch(self, epoch: int) -> None:
        self.epochs.assign(epoch, self.log_end_offset)

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard = NO_GUARD,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> AppendInfo:
        now_ms = self._clock.wall_ms()
        batches = judge_as_leader(
            records,
            self.config.rules,
            first_offset=self.log_end_offset,
            leader_epoch=leader_epoch,
            origin=origin,
            now_ms=now_ms,
        )
        update = None
        if batches.has_producers:
            update = self.producers.prepare(
                origin, guard=guard, transaction_version=transaction_version
            )
        info = self._append(batches, update, is_client=origin is AppendOrigin.CLIENT)
        if self.config.timestamp_type is TimestampType.LOG_APPEND_TIME and not info.is_duplicate:
            return info._replace(log_append_time_ms=now_ms)
        return info

    def append_as_follower(self, records: Buffer, leader_epoch: int) -> AppendInfo:
        batches = judge_as_follower(
            records, log_end_offset=self.log_end_offset, leader_epoch=leader_epoch
        )
        update = None
        if batches.has_producers:
            update = self.producers.prepare(AppendOrigin.REPLICATION)
        return self._append(batches, update, is_client=False)

    def _append(
        self, batches: BatchSet, update: ProducerUpdate | None, *, is_client: bool
    ) -> AppendInfo:
        if not batches.batches:
            return self._info(batches)
        for batch in batches.batches:
            if isinstance(batch, RecordBatch) and batch.leader_epoch >= 0:
                self.epochs.assign(batch.leader_epoch, batch.base_offset)
        if batches.size_bytes > self.config.segment_bytes:
            raise RecordBatchTooLargeError(f"{batches.size_bytes} bytes at once")
        if update is not None:
            duplicate = find_duplicate(batches, self.producers) if is_client else None
            if duplicate is not None:
                info = self._info(batches)
                return info._replace(
                    first_offset=duplicate.first_offset,
                    last_offset=duplicate.last_offset,
                    log_append_time_ms=duplicate.timestamp_ms,
                    must_flush=info.must_flush and duplicate.last_offset >= self.recovery_point,
                    is_duplicate=True,
                )
            for batch in batches.batches:
                if isinstance(batch, RecordBatch) and batch.producer_id >= 0:
                    add_to_producers(batch, update)
        self._write(batches)
        if update is not None:
            commit_to_producers(update, self.producers)
        self.producers.advance(self.log_end_offset)
        return self._info(batches)

    def _write(self, batches: BatchSet) -> None:
        position = self._file.size()
        self._file.pwrite(batches.parts, position)
        for batch in batches.batches:
            self._batches.append(_Stored(batch.last_offset, position, batch.size))
            position += batch.size
        self._watermarks.set_log_end(OffsetMetadata(batches.last_offset + 1, _SEGMENT, position))

    def _info(self, batches: BatchSet) -> AppendInfo:
        unflushed = self.log_end_offset - self.recovery_point
        return AppendInfo(
            first_offset=batches.first_offset,
            last_offset=batches.last_offset,
            max_timestamp_ms=batches.max_timestamp_ms,
            offset_of_max_timestamp=batches.offset_of_max_timestamp,
            log_start_offset=self.log_start_offset,
            batch_count=len(batches.batches),
            valid_bytes=batches.size_bytes,
            must_flush=unflushed >= self.config.flush_messages,
        )

    # Reading.

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        *,
        min_one_batch: bool = True,
    ) -> ReadInfo:
        """As PartitionLog; what transactions were aborted is not told."""
        if not self.log_start_offset <= start_offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {start_offset} is not from {self.log_start_offset} to "
                f"{self.log_end_offset}"
            )
        bound = self._bound(isolation)
        first = self._position_of(start_offset)
        place = OffsetMetadata(start_offset, _SEGMENT, first)
        if start_offset >= bound:
            return ReadInfo(place, None)
        length = self._position_of(bound) - first
        if length > max_bytes:
            length = max_bytes
            size = self._batches[self._index_of(start_offset)].size
            if min_one_batch:
                length = max(length, size)
        return ReadInfo(place, FileSlice(self._file, first, length))

    def _bound(self, isolation: Isolation) -> int:
        if isolation is Isolation.LOG_END:
            return self.log_end_offset
        if isolation is Isolation.HIGH_WATERMARK:
            return self.high_watermark
        return self.last_stable_offset

    def _index_of(self, offset: int) -> int:
        """Of the batch that holds `offset`, or the next one."""
        return bisect_left(self._batches, offset, key=_last_offset_of)

    def _position_of(self, offset: int) -> int:
        index = self._index_of(offset)
        return self._batches[index].position if index < len(self._batches) else self._file.size()

    # Offsets.

    def update_high_watermark(self, offset: int) -> int:
        self._watermarks.update_high_watermark(offset)
        self.producers.high_watermark_advanced(self.high_watermark)
        return self.high_watermark

    def increment_high_watermark(self, new: OffsetMetadata) -> OffsetMetadata | None:
        old = self._watermarks.increment_high_watermark(new)
        if old is not None:
            self.producers.high_watermark_advanced(new.offset)
        return old

    def raise_log_start(self, offset: int) -> bool:
        if not self._watermarks.raise_log_start(offset):
            return False
        self.epochs.truncate_from_start(offset)
        self.producers.log_start_advanced(offset, latest_snapshot_offset=None)
        return True

    # What takes time on a real disk.

    def truncate_to(self, offset: int) -> bool:
        if offset >= self.log_end_offset:
            self.epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self._base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        index = self._index_of(offset)
        self._file.truncate(self._position_of(offset))
        del self._batches[index:]
        self._watermarks.set_log_end(OffsetMetadata(offset, _SEGMENT, self._file.size()))
        self.epochs.truncate_from_end(offset)
        self._rebuild_producers()
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self._batches.clear()
        self._base_offset = offset
        self._file.truncate(0)
        self._watermarks.restart(OffsetMetadata(offset, _SEGMENT, 0))
        self.epochs.clear()
        self.producers.truncate_fully(offset)

    def _rebuild_producers(self) -> None:
        self.producers.reload(self.log_start_offset)
        for stored in self._batches[self._index_of(self.log_start_offset) :]:
            batch = RecordBatch(self._file.pread(stored.size, stored.position))
            if batch.producer_id >= 0:
                replay(self.producers, batch)
        self.producers.advance(self.log_end_offset)
        self.producers.high_watermark_advanced(self.high_watermark)

    def flush(self, offset: int | None = None) -> None:
        """Make everything below `offset`, the log end by default, durable."""
        target = self.log_end_offset if offset is None else min(offset, self.log_end_offset)
        self._watermarks.recovery_point = max(self.recovery_point, target)

    def checkpoint_high_watermark(self) -> None:
        self.checkpointed_high_watermark = self.high_watermark

    def crash(self, kept_end_offset: int) -> None:
        """The machine fails, and the log is recovered as of the next start.

        It ends with the last whole batch below `kept_end_offset`, but keeps what was flushed.
        """
        kept = max(kept_end_offset, self.recovery_point)
        while self._batches and self._batches[-1].last_offset >= kept:
            self._file.truncate(self._batches.pop().position)
        last_end = self._batches[-1].last_offset + 1 if self._batches else self._base_offset
        end_offset = max(last_end, self.log_start_offset)
        self._watermarks = Watermarks(
            log_start_offset=self.log_start_offset,
            log_end=OffsetMetadata(end_offset, _SEGMENT, self._file.size()),
            recovery_point=end_offset,
        )
        self.epochs.truncate_from_end(end_offset)
        self._rebuild_producers()
        self.update_high_watermark(self.checkpointed_high_watermark)
