"""The log of one partition as its writers see it: appending and rolling.

Synchronous, and atomic: an append happened as a whole or not at all. The hot path is one look at a
batch's header, its CRC, its producer, and one write. Syncing is work that the log asks its owner
for.
"""

from __future__ import annotations

import errno
import logging
from typing import Final

from kraftpy.log.appending import (
    add_to_producers,
    commit_to_producers,
    find_duplicate,
    judge_as_follower,
    judge_as_leader,
)
from kraftpy.log.batch_set import BatchSet
from kraftpy.log.errors import IndexUnderRepairError, RecordBatchTooLargeError
from kraftpy.log.log_reading import ReadableLog
from kraftpy.log.offsets import AppendInfo, OffsetMetadata
from kraftpy.log.producer_entries import BatchMetadata
from kraftpy.log.producers import TRANSACTION_VERSION_UNKNOWN, ProducerUpdate
from kraftpy.log.segment import RELATIVE_OFFSET_MAX, Segment
from kraftpy.log.verifications import NO_GUARD, VerificationGuard
from kraftpy.observe.topic_metrics import BYTES_REJECTED, INVALID_CRC
from kraftpy.records.batch import RecordBatch, TimestampType
from kraftpy.records.errors import CorruptRecord, RecordDataError, RecordTooLarge
from kraftpy.records.validation import AppendOrigin
from kraftpy.world import Buffer, InternalInvariant, assert_always

__all__ = ["WritableLog"]

_log = logging.getLogger(__name__)

# An enum's member is looked up by a call.
_CLIENT: Final = AppendOrigin.CLIENT
_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME


class WritableLog(ReadableLog):
    """Adds what changes the end of a log."""

    __slots__ = ("_flush_wanted", "_is_truncating")

    # Up to here the owner was asked to flush.
    _flush_wanted: int
    # A truncation is under way, and whoever asked for it appends nothing until it is done.
    _is_truncating: bool

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard = NO_GUARD,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> AppendInfo:
        """Append batches at the log end; they are given offsets and epoch where they lie.

        Raises a RecordDataError or a LogError, and has then changed nothing but perhaps rolled the
        segment or noted the epoch.
        """
        self._check_appendable()
        now_ms = self._environment.clock.wall_ms()
        try:
            batches = judge_as_leader(
                records,
                self.config.rules,
                first_offset=self._watermarks.log_end.offset,
                leader_epoch=leader_epoch,
                origin=origin,
                now_ms=now_ms,
            )
        except RecordDataError as error:
            self._count_refusal(error, len(records))
            raise
        update = None
        if batches.has_producers:
            update = self.producers.prepare(
                origin, guard=guard, transaction_version=transaction_version
            )
        info = self._append(batches, update, now_ms=now_ms, is_client=origin is _CLIENT)
        if self.config.timestamp_type is _APPEND_TIME and not info.is_duplicate:
            return info._replace(log_append_time_ms=now_ms)
        return info

    def append_as_follower(self, records: Buffer, leader_epoch: int) -> AppendInfo:
        """Append what was fetched from the leader of `leader_epoch`, byte by byte.

        Batches of a later epoch are left out, with all behind them.
        """
        self._check_appendable()
        log_end_offset = self._watermarks.log_end.offset
        try:
            batches = judge_as_follower(
                records, log_end_offset=log_end_offset, leader_epoch=leader_epoch
            )
        except RecordDataError as error:
            self._count_refusal(error, len(records))
            raise
        update = None
        if batches.has_producers:
            update = self.producers.prepare(AppendOrigin.REPLICATION)
        now_ms = self._environment.clock.wall_ms()
        return self._append(batches, update, now_ms=now_ms, is_client=False)

    def _count_refusal(self, error: RecordDataError, size_bytes: int) -> None:
        metrics = self._environment.topic_metrics
        if metrics is None:
            return
        now = self._environment.clock.monotonic()
        if isinstance(error, RecordTooLarge):
            metrics.mark(BYTES_REJECTED, self.topic_partition[0], now, size_bytes)
        elif isinstance(error, CorruptRecord):
            metrics.mark_all(INVALID_CRC, now)

    def _append(
        self, batches: BatchSet, update: ProducerUpdate | None, *, now_ms: int, is_client: bool
    ) -> AppendInfo:
        """Steps 5 to 12 of the append; the order matters, see there."""
        if not batches.batches:
            return self._info(batches)
        self._assign_epochs(batches)
        if batches.size_bytes > self.config.segment_bytes:
            raise RecordBatchTooLargeError(
                f"{batches.size_bytes} bytes at once, of {self.config.segment_bytes} in a segment"
            )
        segment = self._segment_for(batches, now_ms)
        if update is not None:
            duplicate = find_duplicate(batches, self.producers) if is_client else None
            if duplicate is not None:
                return self._duplicate_info(batches, duplicate)
            self._check_producers(batches, update, segment)
        # Not by the guard, which costs as much as all the rest of this method.
        try:
            segment.append(batches)
        except IndexUnderRepairError:
            self.notice_damage(segment)
            raise
        except OSError as error:
            raise self._failed("append", error) from error
        end_offset = batches.last_offset + 1
        self._watermarks.set_log_end(
            OffsetMetadata(end_offset, segment.base_offset, segment.size_bytes)
        )
        if update is not None:
            self._commit_producers(update, segment)
        self.producers.advance(end_offset)
        info = self._info(batches)
        if info.must_flush:
            self._want_flush(end_offset)
        return info

    def _check_producers(self, batches: BatchSet, update: ProducerUpdate, segment: Segment) -> None:
        position = segment.size_bytes
        for batch in batches.batches:
            if isinstance(batch, RecordBatch) and batch.producer_id >= 0:
                add_to_producers(
                    batch, update, segment_base_offset=segment.base_offset, position=position
                )
            position += batch.size

    def _commit_producers(self, update: ProducerUpdate, segment: Segment) -> None:
        for aborted in commit_to_producers(update, self.producers):
            try:
                segment.transaction_index.append(aborted)
            except OSError as error:
                # The marker is in the log: without its entry here, readers would take what was
                # aborted for committed. Recovery makes it anew.
                raise self._failed("index a transaction", error, is_fatal=True) from error

    def _assign_epochs(self, batches: BatchSet) -> None:
        epochs = self.epochs
        for batch in batches.batches:
            if isinstance(batch, RecordBatch):
                epoch = batch.leader_epoch
                if epoch >= 0 and epoch != epochs.latest_epoch:
                    epochs.assign(epoch, batch.base_offset)
                    self._environment.owner.work_pending(self)
            elif epochs.latest_epoch is not None:
                _log.warning("%s: messages without leader epochs; its epochs are forgotten", self)
                epochs.clear()
                self._environment.owner.work_pending(self)

    def begin_epoch(self, epoch: int) -> None:
        """A leadership begins at the log end, whether or not anything will be appended in it."""
        if self.epochs.assign(epoch, self._watermarks.log_end.offset):
            self._environment.owner.work_pending(self)

    def _segment_for(self, batches: BatchSet, now_ms: int) -> Segment:
        """The active segment, or a new one that `batches` begin."""
        segment = self._segments.last
        if not segment.is_active:
            self._activate(segment)
        if not segment.should_roll(batches, now_ms, self.config):
            return segment
        # Replicated offsets may leave a gap wider than a segment can span.
        expected = batches.first_offset
        if not isinstance(batches.batches[0], RecordBatch):
            expected = batches.last_offset - RELATIVE_OFFSET_MAX
        return self.roll(expected)

    def _activate(self, segment: Segment) -> None:
        """The first append after a clean start, which has left the files of the log alone.

        It took the log's end from a checkpoint. If that is not this log's, offsets would be given
        twice, or some are missing; and what is appended behind half a batch can't be found again.
        Then the directory goes offline, and the next start recovers what is in it. A compacted log
        may have been cut off in a gap, and ends behind its last batch.
        """
        with self.storage_guard("append"):
            try:
                next_offset, position = segment.batches_end()
            except CorruptRecord as error:
                raise OSError(errno.EIO, str(error), segment.log_file.path) from error
            finally:
                self.notice_damage(segment)
            log_end_offset = self._watermarks.log_end.offset
            is_cut_off = self.config.is_compacted and next_offset < log_end_offset
            if next_offset != log_end_offset and not is_cut_off:
                message = f"it ends at {next_offset}, not at the checkpoint's {log_end_offset}"
                raise OSError(errno.EIO, message, segment.log_file.path)
            if position < segment.size_bytes:
                message = f"there is no batch at {position}, though the file goes on"
                raise OSError(errno.EIO, message, segment.log_file.path)
            segment.make_active()

    def _info(self, batches: BatchSet) -> AppendInfo:
        marks = self._watermarks
        # Keywords would double the time that this takes.
        return AppendInfo(
            batches.first_offset,
            batches.last_offset,
            batches.max_timestamp_ms,
            batches.offset_of_max_timestamp,
            marks.log_start_offset,
            len(batches.batches),
            batches.size_bytes,
            marks.log_end.offset - marks.recovery_point >= self.config.flush_messages,
        )

    def _duplicate_info(self, batches: BatchSet, duplicate: BatchMetadata) -> AppendInfo:
        """The same answer as to the batch that is repeated, with the same wait for a flush."""
        info = self._info(batches)
        return info._replace(
            first_offset=duplicate.first_offset,
            last_offset=duplicate.last_offset,
            log_append_time_ms=duplicate.timestamp_ms,
            must_flush=info.must_flush and duplicate.last_offset >= self.recovery_point,
            is_duplicate=True,
        )

    def roll(self, expected_next_offset: int = 0) -> Segment:
        """Begin a new segment at the log end, or at `expected_next_offset` if that is higher.

        The old one's files are completed now and synced by work that is asked for, which also
        writes the snapshot of the producers.
        """
        self.check_usable()
        end_offset = self._watermarks.log_end.offset
        base_offset = max(expected_next_offset, end_offset)
        old = self._segments.last
        if old.base_offset == base_offset:
            assert_always(old.size_bytes == 0, "rolled-into-itself", directory=self.directory)
            return old
        with self.storage_guard("roll"):
            old.make_inactive()
            self.producers.advance(base_offset)
            self._take_snapshot()
            segment = self._files.create_segment(base_offset, self.config)
        self._segments.add(segment)
        self._watermarks.set_log_end(self._end_metadata(end_offset))
        self._want_flush(end_offset)
        return segment

    def _take_snapshot(self) -> None:
        """Of the producers; it is written in the background."""
        snapshot = self.producers.take_snapshot()
        if snapshot is not None:
            self._files.snapshots.take(snapshot)

    def raise_log_start(self, offset: int) -> bool:
        """Delete what is below `offset`, in effect; whether that was new.

        For DeleteRecords, and for a follower that hears of it. OffsetOutOfRangeError above the high
        watermark. Retention removes the segments later.
        """
        self.check_usable()
        if not self._watermarks.raise_log_start(offset):
            return False
        self.epochs.truncate_from_start(offset)
        self.producers.log_start_advanced(
            offset, latest_snapshot_offset=self._files.snapshots.latest
        )
        self._environment.owner.work_pending(self)
        return True

    def _want_flush(self, offset: int) -> None:
        self._flush_wanted = max(self._flush_wanted, offset)
        self._environment.owner.work_pending(self)

    def _check_appendable(self) -> None:
        if self._refusal is not None:
            raise self._refusal
        if self._is_truncating:
            raise InternalInvariant(f"append-while-truncating log={self.directory}")
