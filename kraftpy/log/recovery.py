"""Recovery of segments after a crash, and of indexes that are lost or wrong (5.3, 7.6).

A segment is read from its start, batch by batch. What is sound builds the indexes, the leader
epochs and the producers' state anew, as the appends once did. The first batch that is not (cut
short, a wrong CRC, an offset that does not grow) ends the segment, and the log with it: nothing
behind it was ever synced, or else the medium is damaged and nothing behind it can be trusted.

Files reach the medium in any order, so the end of a segment may be lost without a trace although
the next segment is there. An offset missing between two segments ends the log as well, therefore,
unless offsets are missing within the segment too or its topic is compacted: then it may be that the
cleaner has taken them.

Kafka empties a segment whose offsets do not grow. We keep what comes before: it may have been
acknowledged and synced, and bytes that a failing machine has left behind it are no reason to lose
it.

No CRC covers a batch's base offset and leader epoch, and they are judged by their neighbours: both
only grow along a log. So a batch is taken when the one behind it has been seen.

- Offsets that overlap: the later batch is damaged if the earlier one begins where the one before it
  ends, and the log ends between them. Otherwise it is the earlier one, which then pretends to be
  further on than it is, and the log ends before that. A gap alone proves nothing, since nobody
  knows whether a topic has always been what it is, or a leader's log was compacted once. But if the
  last batch of a log comes behind a gap, a follower does well to fetch it again (`unproven_from`).
- An epoch that does not lie between those around it, while the checkpoint's for that offset does,
  ends the log if it is above the recovery point. Two witnesses would not do: in a log that was
  brought here from another cluster epochs may begin anew, once.
- An epoch that is above those of the two batches behind it and not in the checkpoint is forgotten.

What these can't tell, docs/format.md lists.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from kraftpy.log.batch_headers import header_at
from kraftpy.log.epochs import EpochEntry, LeaderEpochCache
from kraftpy.log.errors import StorageError
from kraftpy.log.log_config import LogConfig
from kraftpy.log.log_files import LogFiles
from kraftpy.log.pacing import Pace
from kraftpy.log.producers import ProducerState
from kraftpy.log.rebuilding import rebuild_producers, replay
from kraftpy.log.segment import Segment
from kraftpy.log.segments import Segments
from kraftpy.log.succession import OverlappingOffsets, Succession
from kraftpy.records.batch import HEADER_SIZE, NO_EPOCH, RecordBatch
from kraftpy.records.errors import CorruptRecord
from kraftpy.records.walker import AnyBatch, first_offset_of, walk_batches
from kraftpy.world import Clock

__all__ = ["Recovery", "read_batches"]

_log = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 1024 * 1024


async def read_batches(
    segment: Segment, pace: Pace, *, chunk_bytes: int = _CHUNK_BYTES
) -> AsyncGenerator[AnyBatch, None]:
    """The batches of a segment with their bytes, up to the first that is cut short or corrupt.

    Checks CRC and that offsets grow. Raises CorruptRecord with the reason for ending early.
    """
    position = 0
    wanted = chunk_bytes
    last_offset = segment.base_offset - 1
    while position < segment.size_bytes:
        data = await segment.log_file.read(min(wanted, segment.size_bytes - position), position)
        consumed = 0
        for batch in walk_batches(data):
            if not batch.is_valid:
                raise CorruptRecord(f"a wrong CRC at position {position + consumed}")
            first_offset = first_offset_of(batch)
            if not last_offset < first_offset <= batch.last_offset:
                raise OverlappingOffsets(
                    f"offset {first_offset} to {batch.last_offset} behind {last_offset} at "
                    f"position {position + consumed}",
                    first_offset,
                )
            last_offset = batch.last_offset
            consumed += batch.size
            yield batch
            await pace.rest(batch.size)
        if consumed:
            position += consumed
            wanted = chunk_bytes
            continue
        if len(data) < HEADER_SIZE:
            raise CorruptRecord(f"{len(data)} bytes at position {position} are no batch")
        wanted = header_at(data, 0, position).size
        if wanted > segment.size_bytes - position:
            raise CorruptRecord(f"a batch of {wanted} bytes at position {position} is cut short")


class Recovery:
    """Recovers segments of one log, in the order of their offsets."""

    __slots__ = (
        "_clock",
        "_config",
        "_durable_end",
        "_epochs",
        "_files",
        "_known_epochs",
        "_last_epoch",
        "_learned",
        "_log_start_offset",
        "_lower",
        "_pace",
        "_producers",
        "_progress",
        "_recovery_point",
        "_segments",
        "unproven_from",
    )

    def __init__(
        self,
        segments: Segments,
        epochs: LeaderEpochCache,
        producers: ProducerState,
        files: LogFiles,
        config: LogConfig,
        *,
        recovery_point: int,
        log_start_offset: int,
        durable_end: int,
        clock: Clock,
        pace: Pace,
        progress: Callable[[int], None],
    ) -> None:
        self._segments = segments
        self._epochs = epochs
        # Those of the checkpoint, and that of the batch before the next segment.
        self._known_epochs = epochs.copy()
        self._last_epoch = NO_EPOCH
        # Where the gap begins that the log ends behind, with one batch.
        self.unproven_from: int | None = None
        # A state of its own: the log's is loaded when all segments are in order.
        self._producers = producers
        # The last epoch that was found in a batch and not in the checkpoint, and a lower one in a
        # batch behind it.
        self._learned: EpochEntry | None = None
        self._lower: EpochEntry | None = None
        self._files = files
        self._config = config
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._durable_end = durable_end
        self._clock = clock
        self._pace = pace
        self._progress = progress

    async def recover(self, segment: Segment, *, is_unflushed: bool) -> None:
        """Rebuild what goes with a segment and cut what is not sound.

        If it was not flushed and lacks something at its end, the log ends there: the segments
        behind it go. StorageError if it would end before what is known to be durable;
        SegmentOffsetOverflowError if its offsets reach too far for one segment.
        """
        base_offset = segment.base_offset
        if self._producers.map_end_offset != base_offset:
            # Nor was the segment before it recovered.
            self._last_epoch = NO_EPOCH
            await rebuild_producers(
                self._producers,
                self._files.snapshots,
                self._segments,
                clock=self._clock,
                pace=self._pace,
                log_start_offset=self._log_start_offset,
                end_offset=base_offset,
            )
        following = self._segments.higher(base_offset)
        succession = await self._read(segment, following, is_unflushed=is_unflushed)
        valid_bytes, next_offset = succession.size_bytes, succession.next_offset
        has_gaps = self._config.is_compacted or succession.has_gaps
        is_damaged = valid_bytes < segment.size_bytes
        is_short = following is not None and next_offset < following.base_offset and not has_gaps
        if (is_damaged or is_short) and next_offset < self._durable_end:
            raise StorageError(
                f"{segment.log_file.path} is damaged behind its first {valid_bytes} bytes: what "
                f"was synced there, from offset {next_offset} on, can't be read"
            )
        if is_unflushed and following is not None and (is_damaged or is_short):
            # Before the cut, or nothing would tell any more that they must go.
            await self._end_log_before(following, next_offset)
            following = None
        segment.cut(valid_bytes)
        if is_damaged:
            # What is cut off must not come back behind what is appended next.
            await segment.log_file.sync()
        segment.make_inactive()
        if not is_unflushed:
            # The next start takes it for durable.
            await self._files.sync_aborted(segment)
        self.unproven_from = succession.unproven_from if following is None else None
        if following is None:
            self._producers.advance(next_offset)
        else:
            self._producers.advance(following.base_offset)
            snapshot = self._producers.take_snapshot()
            if snapshot is not None:
                self._files.snapshots.take(snapshot)
                await self._files.write_snapshots()

    async def _read(
        self, segment: Segment, following: Segment | None, *, is_unflushed: bool
    ) -> Succession:
        """Take the batches that are sound."""
        segment.reset_indexes()
        succession = Succession(
            segment.base_offset,
            last_epoch=self._last_epoch,
            known_epochs=self._known_epochs,
            doubted_from=self._recovery_point if is_unflushed else None,
        )
        try:
            async with aclosing(read_batches(segment, self._pace)) as batches:
                async for batch in batches:
                    self._progress(batch.size)
                    borne_out = succession.follow(batch)
                    if borne_out is not None:
                        self._take(segment, borne_out, succession.size_bytes - borne_out.size)
            last = succession.end(following)
        except CorruptRecord as error:
            last = succession.stop(error)
            _log.warning("%r ends after %d bytes: %s", segment, succession.size_bytes, error)
        if last is not None:
            self._take(segment, last, succession.size_bytes - last.size)
        self._last_epoch = succession.last_epoch
        return succession

    async def _end_log_before(self, following: Segment, next_offset: int) -> None:
        directory = self._files.directory
        _log.warning("%s ends at %d, what came behind it is lost", directory, next_offset)
        delay_ms = self._config.file_delete_delay_ms
        await self._files.retire_from(self._segments, following.base_offset, delay_ms)

    def _take(self, segment: Segment, batch: AnyBatch, position: int) -> None:
        segment.index_recovered(
            position,
            batch.size,
            last_offset=batch.last_offset,
            max_timestamp_ms=batch.max_timestamp_ms,
        )
        if not isinstance(batch, RecordBatch):
            return
        if batch.leader_epoch >= 0:
            self._learn_epoch(batch)
        if batch.producer_id >= 0:
            for aborted in replay(self._producers, batch):
                segment.transaction_index.append(aborted)

    def _learn_epoch(self, batch: RecordBatch) -> None:
        latest, learned, lower = self._epochs.latest, self._learned, self._lower
        found = EpochEntry(batch.leader_epoch, batch.base_offset)
        if latest is None or found.epoch > latest.epoch:
            self._epochs.assign(*found)
            self._learned, self._lower = found, None
        elif learned is None or learned != latest or found.epoch == latest.epoch:
            # As the checkpoint says, or of a time before its latest.
            self._lower = None
        elif lower is None or lower.epoch != found.epoch:
            _log.warning("leader %r behind %r: one of them is damaged", found, learned)
            self._lower = found
        else:
            self._epochs.truncate_from_end(learned.start_offset)
            self._learned = self._lower = None
            if self._epochs.latest_epoch is None or lower.epoch > self._epochs.latest_epoch:
                self._epochs.assign(*lower)
                self._learned = lower
