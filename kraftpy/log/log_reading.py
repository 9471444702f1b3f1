"""The log of one partition as its readers see it: offsets, reads, and the state behind them.

Everything here is synchronous and touches the page cache and memory only. What a read returns is a
slice of a segment's file, never bytes. Looking for a time takes longer: see time_search.py.

An OSError becomes a StorageError, and the owner is told to take the directory offline; the log then
refuses everything. A full disk is the exception: the append is undone and refused, and the log goes
on.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.epochs import UNDEFINED_EPOCH, LeaderEpochCache
from kraftpy.log.errors import LogClosedError, OffsetOutOfRangeError, StorageError
from kraftpy.log.log_config import LogConfig
from kraftpy.log.log_files import LogFiles
from kraftpy.log.log_owner import LogEnvironment
from kraftpy.log.offsets import (
    FoundOffset,
    Isolation,
    OffsetMetadata,
    OffsetSnapshot,
    ReadInfo,
)
from kraftpy.log.producers import ProducerState
from kraftpy.log.segment import Segment
from kraftpy.log.segments import Segments
from kraftpy.log.transactions import AbortedTransaction
from kraftpy.log.watermarks import Watermarks
from kraftpy.records.batch import NO_TIMESTAMP

__all__ = ["ReadableLog"]

_FULL_DISK: Final = (errno.ENOSPC, errno.EDQUOT)


class ReadableLog(ABC):
    """The state of a log, and what can be asked of it."""

    __slots__ = (
        "_environment",
        "_files",
        "_refusal",
        "_segments",
        "_watermarks",
        "config",
        "epochs",
        "producers",
        "topic_partition",
    )

    def __init__(
        self,
        environment: LogEnvironment,
        files: LogFiles,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        segments: Segments,
        epochs: LeaderEpochCache,
        producers: ProducerState,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
    ) -> None:
        self._environment = environment
        self._files = files
        self.topic_partition = topic_partition
        # Replaced as a whole when settings change.
        self.config = config
        self._segments = segments
        self.epochs = epochs
        self.producers = producers
        self._watermarks = Watermarks(
            log_start_offset=log_start_offset,
            log_end=self._end_metadata(log_end_offset),
            recovery_point=recovery_point,
        )
        # Why nothing is possible any more.
        self._refusal: StorageError | None = None

    def __repr__(self) -> str:
        marks = self._watermarks
        return (
            f"PartitionLog({self._files.directory}, start {marks.log_start_offset}, "
            f"high watermark {marks.high_watermark.offset}, end {marks.log_end.offset})"
        )

    # What it is.

    @property
    def directory(self) -> str:
        return self._files.directory

    @property
    def segments(self) -> Segments:
        """To look at; only the log changes them."""
        return self._segments

    @property
    def active_segment(self) -> Segment:
        return self._segments.last

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def log_start_offset(self) -> int:
        return self._watermarks.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Of the next record to be appended."""
        return self._watermarks.log_end.offset

    @property
    def log_end(self) -> OffsetMetadata:
        return self._watermarks.log_end

    @property
    def recovery_point(self) -> int:
        """Everything below is durable."""
        return self._watermarks.recovery_point

    @property
    def high_watermark(self) -> int:
        return self._watermarks.high_watermark.offset

    def marks(self) -> tuple[int, int, int, int]:
        """End, high watermark, start and recovery point, for who compares them often."""
        marks = self._watermarks
        return (
            marks.log_end.offset,
            marks.high_watermark.offset,
            marks.log_start_offset,
            marks.recovery_point,
        )

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided, and the decision replicated."""
        unstable = self.producers.first_unstable
        high_watermark = self._watermarks.high_watermark.offset
        if unstable is None or unstable.first_offset >= high_watermark:
            return high_watermark
        return max(unstable.first_offset, self._watermarks.log_start_offset)

    def offset_snapshot(self) -> OffsetSnapshot:
        return OffsetSnapshot(
            self._watermarks.log_start_offset,
            self._watermarks.log_end,
            self.high_watermark_metadata(),
            self.last_stable_metadata(),
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
        """A slice of one segment's file, from the batch that holds `start_offset` on.

        OffsetOutOfRangeError outside of the log; nothing at the log end or above the isolation's
        bound. CorruptRecord if a header on the way can't be one, or not the one for its place.
        """
        self.check_usable()
        log_end = self._watermarks.log_end
        segment = self._segments.floor(start_offset)
        if (
            start_offset > log_end.offset
            or start_offset < self._watermarks.log_start_offset
            or segment is None
        ):
            raise OffsetOutOfRangeError(
                f"offset {start_offset} is not from {self.log_start_offset} to {log_end.offset}"
            )
        aborted = () if isolation is Isolation.COMMITTED else None
        # Not `storage_guard`, which would cost more than a read that finds nothing new.
        try:
            bound = self._bound(isolation)
            if start_offset == log_end.offset or start_offset >= bound.offset:
                place = bound if start_offset == bound.offset else self._locate(start_offset)
                return ReadInfo(place, None, aborted_transactions=aborted)
            while segment is not None:
                is_bound_here = bound.segment_base_offset == segment.base_offset
                following = self._segments.higher(segment.base_offset)
                try:
                    found = segment.read(
                        start_offset,
                        max_bytes,
                        end_offset=log_end.offset if following is None else following.base_offset,
                        max_position=bound.position if is_bound_here else None,
                        min_one_batch=min_one_batch,
                    )
                finally:
                    self.notice_damage(segment)
                if found is not None:
                    if aborted is None:
                        return found
                    return replace(
                        found, aborted_transactions=self._aborted_in(segment, start_offset, found)
                    )
                if segment.base_offset >= bound.segment_base_offset:
                    break
                segment = following
        except OSError as error:
            raise self._failed("read", error) from error
        return ReadInfo(log_end, None, aborted_transactions=aborted)

    def _bound(self, isolation: Isolation) -> OffsetMetadata:
        if isolation is Isolation.LOG_END:
            return self._watermarks.log_end
        if isolation is Isolation.HIGH_WATERMARK:
            return self.high_watermark_metadata()
        return self.last_stable_metadata()

    def _aborted_in(
        self, segment: Segment, start_offset: int, found: ReadInfo
    ) -> tuple[AbortedTransaction, ...]:
        upper_bound = segment.upper_bound_offset(found)
        self.notice_damage(segment)
        if upper_bound is None:
            following = self._segments.higher(segment.base_offset)
            upper_bound = self.log_end_offset if following is None else following.base_offset
        transactions: list[AbortedTransaction] = []
        current: Segment | None = segment
        while current is not None:
            search = current.transaction_index.collect(start_offset, upper_bound)
            transactions += search.transactions
            if search.is_complete:
                break
            current = self._segments.higher(current.base_offset)
        return tuple(transactions)

    def _locate(self, offset: int) -> OffsetMetadata:
        """The place of an offset in the log."""
        segment = self._segments.floor(offset)
        while segment is not None:
            try:
                header = segment.find(offset)
            finally:
                self.notice_damage(segment)
            if header is not None:
                return OffsetMetadata(offset, segment.base_offset, header.position)
            segment = self._segments.higher(segment.base_offset)
        return self._watermarks.log_end

    # Looking up.

    def earliest_offset(self) -> FoundOffset:
        """Where the log starts, with the epoch of what is there."""
        offset = self._watermarks.log_start_offset
        epoch = self.epochs.epoch_for_offset(offset)
        if epoch is None and self.epochs.earliest is not None:
            epoch = self.epochs.earliest.epoch
        return FoundOffset(offset, NO_TIMESTAMP, UNDEFINED_EPOCH if epoch is None else epoch)

    def latest_offset(self, isolation: Isolation) -> FoundOffset:
        """Up to where a reader may see, with the latest epoch."""
        if isolation is Isolation.LOG_END:
            offset = self.log_end_offset
        elif isolation is Isolation.HIGH_WATERMARK:
            offset = self.high_watermark
        else:
            offset = self.last_stable_offset
        epoch = self.epochs.latest_epoch
        return FoundOffset(offset, NO_TIMESTAMP, UNDEFINED_EPOCH if epoch is None else epoch)

    # Offsets.

    def high_watermark_metadata(self) -> OffsetMetadata:
        """With its place, which is looked up when a follower knows the offset only."""
        metadata = self._watermarks.high_watermark
        if metadata.is_offset_only:
            with self.storage_guard("read"):
                metadata = self._located(metadata.offset)
            self._watermarks.high_watermark = metadata
        return metadata

    def last_stable_metadata(self) -> OffsetMetadata:
        offset = self.last_stable_offset
        if offset == self._watermarks.high_watermark.offset:
            return self.high_watermark_metadata()
        unstable = self.producers.first_unstable
        if (
            unstable is not None
            and unstable.position >= 0
            and unstable.first_offset == offset
            and self._segments.get(unstable.segment_base_offset) is not None
        ):
            return OffsetMetadata(offset, unstable.segment_base_offset, unstable.position)
        with self.storage_guard("read"):
            return self._located(offset)

    def _located(self, offset: int) -> OffsetMetadata:
        return self._locate(offset)._replace(offset=offset)

    def update_high_watermark(self, offset: int) -> int:
        """A follower's, from its leader: clamped to the log. What it became."""
        self._watermarks.update_high_watermark(offset)
        self._high_watermark_moved()
        return self.high_watermark

    def increment_high_watermark(self, new: OffsetMetadata) -> OffsetMetadata | None:
        """A leader's: it only grows. The old one if it changed."""
        old = self._watermarks.increment_high_watermark(new)
        if old is not None:
            self._high_watermark_moved()
        return old

    def _high_watermark_moved(self) -> None:
        snapshot = self.producers.high_watermark_advanced(self.high_watermark)
        if snapshot is not None:
            self._files.snapshots.take(snapshot)
            self._environment.owner.work_pending(self)

    def check(self) -> None:
        """Assert the order of the offsets."""
        self._watermarks.check(self.last_stable_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """For OffsetsForLeaderEpoch: the largest epoch not above `epoch`, and where it ends."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    @abstractmethod
    async def do_pending_work(self) -> None:
        """For the owner, after `work_pending`."""

    # Trouble.

    def notice_damage(self, segment: Segment) -> None:
        """After a look into a segment: an index that was caught lying is rebuilt by the owner."""
        if segment.has_damaged_index:
            self._environment.owner.work_pending(self)

    def check_usable(self) -> None:
        """Raises the StorageError that everything is refused with."""
        if self._refusal is not None:
            raise self._refusal

    def storage_guard(self, what: str) -> AbstractContextManager[None]:
        """Around work on the log's files: an OSError becomes a StorageError, and is reported."""
        return _StorageGuard(self, what)

    def _failed(self, what: str, error: OSError, *, is_fatal: bool = False) -> StorageError:
        """The error to raise; the owner is told unless the disk is merely full.

        `is_fatal`: something was left half done, so that a full disk is no excuse.
        """
        failure = StorageError(f"{self._files.directory}: can't {what}: {error}")
        if (is_fatal or error.errno not in _FULL_DISK) and self._refusal is None:
            self._refusal = LogClosedError(f"{self._files.directory} is offline: {error}")
            self._environment.owner.storage_failed(self, error)
        return failure

    def _end_metadata(self, offset: int) -> OffsetMetadata:
        """The end of the active segment as the place of `offset`."""
        segment = self._segments.last
        return OffsetMetadata(offset, segment.base_offset, segment.size_bytes)


class _StorageGuard:
    """A class, which costs a third of a generator: every read of the metadata log has one."""

    __slots__ = ("_log", "_what")

    def __init__(self, log: ReadableLog, what: str) -> None:
        self._log = log
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise self._log._failed(self._what, error) from error
