"""The log of one partition, whole: what readers and writers see, and the changes of its structure.

Appending, reading and looking up (log_reading, log_writing) are synchronous and never leave the log
between two states. What waits for the medium or for directories is here, and falls in two kinds:

- Flushing after a roll, or because `flush.messages` is reached, and saving leader epochs is work
  that the log asks its owner for (`work_pending`) and does in `do_pending_work`.
- Structural changes (truncation, retention, replacement by the cleaner, closing) and flushes happen
  one at a time, behind `_turn`. They can't be cancelled half-way. Appends and reads go on
  meanwhile, but for truncation: who truncates a log does not let anybody append to it until that is
  done.

Invariants: there is always a segment; log start <= last stable <= high watermark <= log end;
everything below the recovery point is durable, with the names, snapshots and epochs that belong to
it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import trio

from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.epochs import LeaderEpochCache
from kraftpy.log.errors import IndexUnderRepairError, LogClosedError, StorageError
from kraftpy.log.index_rebuilding import rebuild_indexes
from kraftpy.log.log_config import LogConfig
from kraftpy.log.log_files import LogFiles
from kraftpy.log.log_owner import LogEnvironment
from kraftpy.log.log_writing import WritableLog
from kraftpy.log.producers import ProducerState
from kraftpy.log.rebuilding import rebuild_producers
from kraftpy.log.retention import deletable_segments
from kraftpy.log.segment import Segment
from kraftpy.log.segments import Segments
from kraftpy.log.turns import Turn
from kraftpy.world import assert_always

__all__ = ["PartitionLog"]

_log = logging.getLogger(__name__)


class PartitionLog(WritableLog):
    """Made by `kraftpy.log.loading.load_log`, for new partitions and old ones alike."""

    __slots__ = ("_turn", "_unproven", "last_flush_ms", "truncation_count")

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
        unproven_from: int | None = None,
    ) -> None:
        super().__init__(
            environment,
            files,
            topic_partition,
            config,
            segments=segments,
            epochs=epochs,
            producers=producers,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            recovery_point=recovery_point,
        )
        self._flush_wanted = 0
        self._is_truncating = False
        self._turn = Turn()
        # With the log end that it is about.
        self._unproven = None if unproven_from is None else (unproven_from, log_end_offset)
        self.last_flush_ms = environment.clock.wall_ms()
        # Who works on segments in the background sees by this that they may have changed.
        self.truncation_count = 0

    @property
    def unproven_from(self) -> int | None:
        """Where the last batch of the log would begin, if after a crash it comes behind a gap.

        Either compaction has left the gap, or the batch is not in its place. A follower can get it
        from its leader again, once: what it has then, or has led with, may be committed.
        """
        if self._unproven is None:
            return None
        offset, log_end_offset = self._unproven
        return offset if log_end_offset == self.log_end_offset else None

    def begin_epoch(self, epoch: int) -> None:
        super().begin_epoch(epoch)
        self._unproven = None

    # Work in the background.

    async def do_pending_work(self) -> None:
        """Flush what was asked for, save what has changed. A failure was told to the owner."""
        with suppress(StorageError):
            await self.flush(self._flush_wanted)
            if self._files.snapshots.has_unwritten:
                async with self._change("write snapshots of producers"):
                    await self._write_snapshots()
            # Those of a log that is not settled are found in its records by recovery.
            if self.epochs.changed and self._refusal is None and self._files.is_settled:
                async with self._change("save leader epochs"):
                    await self._save_epochs()
            await self.rebuild_damaged_indexes()

    async def rebuild_damaged_indexes(self) -> None:
        """Those that were caught lying, in slices. Raises StorageError."""
        if not any(segment.has_damaged_index for segment in self._segments):
            return
        async with self._change("rebuild an index"):
            for segment in self._segments:
                if segment.has_damaged_index:
                    await rebuild_indexes(segment, self._environment.pace)

    async def flush(self, offset: int | None = None) -> None:
        """Make everything below `offset`, the log end by default, durable.

        Those who wait behind another's flush mostly find their own done.
        """
        target = self.log_end_offset if offset is None else offset
        if target <= self.recovery_point:
            self.check_usable()
            return
        async with self._change("flush"):
            # What was appended while waiting for the turn goes along.
            target = min(max(target, self._flush_wanted), self.log_end_offset)
            start = self.recovery_point
            if target <= start:
                return
            # With the segment that ends there: it may have been completed since.
            segments = self._segments.overlapping(start - 1, target)
            await self._save_epochs()
            await self._write_snapshots()
            with self.storage_guard("flush"):
                for segment in segments:
                    segment.write_out()
            await self._files.sync(segments)
            marks = self._watermarks
            marks.recovery_point = max(marks.recovery_point, target)
            self.last_flush_ms = self._environment.clock.wall_ms()

    async def _save_epochs(self) -> None:
        """The checkpoint is replaced or left as it was, so that a full disk can be forgiven."""
        try:
            await self._files.save_epochs(self.epochs)
        except OSError as error:
            raise self._failed("save leader epochs", error) from error

    async def _write_snapshots(self) -> None:
        """They are tried again, so that a full disk can be forgiven."""
        try:
            await self._files.write_snapshots()
        except OSError as error:
            raise self._failed("write snapshots of producers", error) from error

    @property
    def is_unused(self) -> bool:
        """Whether the log is new, and nothing was ever in it: no checkpoint says more than 0."""
        return self.log_end_offset == 0 and not self._files.is_settled

    async def settle(self) -> None:
        """Make the log itself durable, if it is new and was not yet (log_files.py)."""
        if not self._files.is_settled:
            async with self._change("settle"):
                pass

    @asynccontextmanager
    async def _change(self, what: str, *, settles: bool = True) -> AsyncIterator[None]:
        """A turn for one structural change or flush, which then is not cancelled half-way."""
        async with self._turn:
            self.check_usable()
            with trio.CancelScope(shield=True):
                try:
                    if settles and not self._files.is_settled:
                        await self._files.settle()
                        if self.epochs.changed:
                            self._environment.owner.work_pending(self)
                    yield
                except OSError as error:
                    # A sync that failed, for whatever reason, has lost what it should have kept.
                    raise self._failed(what, error, is_fatal=True) from error

    # Truncation.

    async def truncate_to(self, offset: int) -> bool:
        """Remove everything at or above `offset`; whether there was anything.

        Nobody may append until this has returned. What is removed may come back if the machine
        fails meanwhile, but only as a whole prefix of what there was.
        """
        if offset < 0:
            raise ValueError(f"a truncation to {offset}")
        if offset >= self.log_end_offset:
            self.check_usable()
            self._forget_empty_epochs()
            return False
        if offset < self.high_watermark:
            _log.warning("%s is truncated to %d, below its high watermark", self, offset)
        async with self._truncation():
            # Not before it is our turn: retention may have had its own until now.
            if self._segments.first.base_offset > offset:
                await self._begin_anew(offset)
                return True
            await self._files.snapshots.remove_above(offset)
            await self._files.sync_names()
            while self._segments.last.base_offset > offset:
                await self._retire_last()
            last = self._segments.last
            try:
                last.truncate_to(offset)
            except IndexUnderRepairError:
                await rebuild_indexes(last, self._environment.pace)
                last.truncate_to(offset)
            self._truncated(offset)
            self.producers.truncated(offset)
            # What is cut off must not come back behind what is appended next.
            await last.log_file.sync()
            await self._files.save_epochs(self.epochs)
            if self.producers.map_end_offset > offset:
                await self._rebuild_producers()
        return True

    def _forget_empty_epochs(self) -> None:
        """Of a leader that was deposed before it had written anything, there may be one.

        The new leader does not know it, and would ask for a truncation again and again.
        """
        self.epochs.truncate_from_end(self.log_end_offset)
        if self.epochs.changed:
            self._environment.owner.work_pending(self)

    async def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the log is empty then, and begins at `offset`."""
        if offset < 0:
            raise ValueError(f"a log that begins at {offset}")
        async with self._truncation():
            await self._begin_anew(offset)

    async def _begin_anew(self, offset: int) -> None:
        await self._files.snapshots.remove_above(-1)
        while len(self._segments) > 1:
            await self._retire_last()
        only = self._segments.last
        await self._files.retire(only, self.config.file_delete_delay_ms)
        await self._files.sync_names()
        self._segments.replace([self._files.create_segment(offset, self.config)], [only])
        self._watermarks.restart(self._end_metadata(offset))
        self.epochs.clear()
        self.producers.truncate_fully(offset)
        await self._files.sync_names()
        await self._files.save_epochs(self.epochs)

    @asynccontextmanager
    async def _truncation(self) -> AsyncIterator[None]:
        async with self._change("truncate"):
            self._is_truncating = True
            self.truncation_count += 1
            try:
                yield
                self._unproven = None
            finally:
                self._is_truncating = False

    async def _retire_last(self) -> None:
        """Durably, so that of several segments none survives an earlier one."""
        last = self._segments.last
        await self._files.retire(last, self.config.file_delete_delay_ms)
        self._segments.remove(last)
        self._truncated(last.base_offset)
        await self._files.sync_names()

    def _truncated(self, offset: int) -> None:
        """The segments end at `offset` now."""
        self._watermarks.set_log_end(self._end_metadata(offset))
        self.epochs.truncate_from_end(offset)

    async def _rebuild_producers(self) -> None:
        await rebuild_producers(
            self.producers,
            self._files.snapshots,
            self._segments,
            clock=self._environment.clock,
            pace=self._environment.pace,
            log_start_offset=self.log_start_offset,
            end_offset=self.log_end_offset,
        )
        self._high_watermark_moved()

    async def roll_early(self) -> None:
        """Begin a new segment, though the active one may grow."""
        async with self._change("roll"):
            if self._segments.last.size_bytes:
                self.roll()

    # Retention.

    async def delete_old_segments(self) -> int:
        """Remove the segments that have outlived the topic's retention; how many."""
        async with self._change("delete old segments"):
            active, end_offset = self._segments.last, self.log_end_offset
            expired = await deletable_segments(self, self._environment)
            if expired and expired[-1] is active and self.log_end_offset != end_offset:
                # It was appended to while others were looked at, and what came is not old.
                expired.pop()
            if not expired:
                return 0
            if expired[-1] is self._segments.last:
                self.roll()
                # Without it, and without the others, the log would begin at 0 again.
                await self._files.sync_names()
            # Here, where a full disk does no harm.
            await self._write_snapshots()
            for segment in expired:
                self._segments.remove(segment)
            following = self._segments.first.base_offset
            if following > self.log_start_offset:
                self.raise_log_start(following)
            # From now on their producers are known by the snapshots behind them alone.
            await self._files.sync_snapshots()
            for segment in expired:
                await self._files.retire(segment, self.config.file_delete_delay_ms)
                # In order: none may come back without those behind it.
                await self._files.sync_names()
            return len(expired)

    # Cleaning.

    def create_cleaned_segment(self, base_offset: int) -> Segment:
        """An empty `.cleaned` segment that the cleaner fills and `replace_segments` takes in."""
        self.check_usable()
        with self.storage_guard("create a cleaned segment"):
            return self._files.create_cleaned(base_offset, self.config)

    async def discard_segments(self, segments: Sequence[Segment]) -> None:
        """Remove `.cleaned` segments that won't replace anything.

        Not from a log that refuses everything: a replacement may have failed half-way, and what its
        files are worth then is for the next start to tell.
        """
        if self._refusal is not None:
            return
        with trio.CancelScope(shield=True):
            for segment in segments:
                segment.close_untouched()
                for file in segment.files:
                    with suppress(FileNotFoundError):
                        await self._environment.disk.unlink(file.path)

    async def replace_segments(
        self, new: Sequence[Segment], old: Sequence[Segment], *, truncation_count: int
    ) -> bool:
        """Put finished `.cleaned` segments, made inactive, into the place of `old` ones.

        `truncation_count` is what it was when the caller began to read the old ones. False, with
        nothing done, if the log was truncated since, or if retention has taken one of them. The
        caller then discards the new ones.
        """
        async with self._change("replace segments"):
            if truncation_count != self.truncation_count or not all(
                segment in self._segments for segment in old
            ):
                return False
            assert_always(
                self._segments.last not in old, "active-segment-replaced", log=self.directory
            )
            # Recovery makes them from batches, and the first of an epoch may be about to go.
            await self._save_epochs()
            await self._files.announce_swap(new)
            self._segments.replace(list(new), list(old))
            # If it lies in one of them, as an end that is not moved yet, its place is another now.
            self._watermarks.forget_place()
            for segment in old:
                await self._files.retire(
                    segment,
                    self.config.file_delete_delay_ms,
                    is_replaced=self._segments.get(segment.base_offset) is not None,
                )
            await self._files.finish_swap(new)
            return True

    # Lifetime.

    async def close(self) -> None:
        """Flush everything and stop: after this a clean-shutdown marker tells the truth."""
        async with self._change("close"):
            # Before anything waits: what is appended behind the sync would not be durable.
            self._refusal = LogClosedError(f"{self.directory} is closed")
            if self._segments.last.is_active:
                self._segments.last.make_inactive()
            self._take_snapshot()
            await self._write_snapshots()
            await self._files.save_epochs(self.epochs)
            await self._files.sync(
                self._segments.overlapping(self.recovery_point - 1, self.log_end_offset + 1)
            )
            self._watermarks.recovery_point = self.log_end_offset
            for segment in self._segments:
                segment.close()

    def go_offline(self, reason: str) -> None:
        """Stop at once, without a touch to the files: the directory can't be trusted."""
        self._refusal = LogClosedError(f"{self.directory} is offline: {reason}")
        for segment in self._segments:
            segment.close_untouched()

    async def leave(self, reason: str) -> None:
        """Stop as `go_offline` does, but when the change under way, if there is one, is done."""
        async with self._turn:
            self.go_offline(reason)

    async def rename_directory(self, new_directory: str) -> None:
        """Another name in the same data directory: for deletion, or when a future log has come.

        What is deleted need not be durable before, and a future log is so from its beginning.
        """
        async with self._change("rename", settles=False):
            await self._environment.disk.rename(self.directory, new_directory)
            self._files.moved(new_directory)
            for segment in self._segments:
                segment.moved(new_directory)
            await self._environment.disk.sync_directory(new_directory.rpartition("/")[0])
