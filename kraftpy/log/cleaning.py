"""One cleaning of one log: two passes over its segments (15.4 to 15.7).

The first pass reads the dirty part and notes the last offset of every key, until it is at the end
or the offset map is full. The second pass reads everything from the start of the log up to there,
group by group, writes what remains of a group to a `.cleaned` segment, and has the log put that in
the place of the group. compaction.py says what remains.

Readers are not disturbed: they keep to the old files until these are unlinked. The loop stays free:
work is cut into slices, within a batch as well, and bytes are paid for to a throttle. A cleaning
can be cancelled at any moment; a group that was not put in place is then as if never begun, and
those before it are clean already, which does not harm the next cleaning.

Memory is bounded by the offset map, one piece of a segment, and one batch, inflated.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Final, TypeVar

from kraftpy.log.cleaned_output import CleanedOutput
from kraftpy.log.cleaner_schedule import LogToClean, group_segments
from kraftpy.log.cleaner_settings import CleanerSettings
from kraftpy.log.compaction import (
    Compaction,
    KeptRecords,
    TransactionTracker,
    Verdict,
    builder_for_legacy,
    builder_with_horizon,
)
from kraftpy.log.offset_map import OffsetMap
from kraftpy.log.pacing import Pace
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.recovery import read_batches
from kraftpy.log.segment import Segment
from kraftpy.log.throttle import Throttle
from kraftpy.log.transactions import AbortedTransaction
from kraftpy.records.batch import MAX_INT32, RecordBatch
from kraftpy.records.builder import BatchBuilder, empty_copy, with_records
from kraftpy.records.errors import InvalidRecord, RecordDataError
from kraftpy.records.legacy import LegacyBatch
from kraftpy.records.reader import Record, read_records, record_data
from kraftpy.records.spans import record_spans
from kraftpy.records.walker import AnyBatch
from kraftpy.world import Clock

__all__ = ["Cleaning", "CleaningAbortedError", "CleaningReport"]

# Records between two looks at the clock; a few hundred microseconds.
_SLICE_RECORDS: Final = 100

_Item = TypeVar("_Item")

_log = logging.getLogger(__name__)


class CleaningAbortedError(Exception):
    """The log was truncated, or retention took a segment that was to be cleaned."""


@dataclass(frozen=True, slots=True)
class CleaningReport:
    """What a cleaning did. The log is clean below `end_offset`."""

    first_dirty_offset: int
    end_offset: int
    key_count: int
    map_bytes: int
    read_bytes: int
    """In both passes."""
    old_bytes: int
    new_bytes: int
    keyless_count: int
    elapsed_ms: int


class Cleaning:
    """`run` once."""

    __slots__ = (
        "_clock",
        "_log",
        "_pace",
        "_read_bytes",
        "_settings",
        "_sources",
        "_target",
        "_throttle",
    )

    def __init__(
        self,
        target: LogToClean,
        settings: CleanerSettings,
        *,
        clock: Clock,
        pace: Pace,
        throttle: Throttle,
    ) -> None:
        self._target = target
        self._log: PartitionLog = target.log
        self._settings = settings
        self._clock = clock
        self._throttle = throttle
        self._pace = pace
        self._read_bytes = 0
        # The segments that are being read.
        self._sources: Sequence[Segment] = ()

    async def run(self) -> CleaningReport:
        """Clean the log.

        Raises CleaningAbortedError, a StorageError, or a RecordDataError for data that can't be
        cleaned.
        """
        with self._log.storage_guard("clean"):
            try:
                return await self._run()
            except (OSError, RecordDataError) as error:
                # What was read may have been cut or unlinked under our eyes.
                self._check_unchanged(error)
                raise

    async def _run(self) -> CleaningReport:
        log, target = self._log, self._target
        segments = [s for s in log.segments if s.base_offset < target.end_offset]
        started = self._clock.monotonic()
        offset_map = OffsetMap.for_keys(
            target.end_offset - target.first_dirty_offset,
            self._settings.map_bytes_each,
            self._settings.map_load_factor,
        )
        while not offset_map.reserve():
            await self._pace.rest(0)
        await self._fill(offset_map, segments)
        end_offset = offset_map.latest_offset + 1
        segments = [segment for segment in segments if segment.base_offset < end_offset]
        compaction = Compaction(
            offset_map,
            log.producers.producers,
            now_ms=self._clock.wall_ms(),
            delete_retention_ms=log.config.delete_retention_ms,
        )
        old_bytes = sum(segment.size_bytes for segment in segments)
        new_bytes = 0
        aborted = _AbortedTransactions(log)
        for segment in segments:
            segment.offset_index.learn_length()
            segment.time_index.learn_length()
            await self._pace.rest(0)
        for group in group_segments(segments, self._end_of(segments[-1]), log.config):
            new_bytes += await self._clean_group(group, compaction, aborted)
        return CleaningReport(
            target.first_dirty_offset,
            end_offset,
            key_count=len(offset_map),
            map_bytes=offset_map.memory_bytes,
            read_bytes=self._read_bytes,
            old_bytes=old_bytes,
            new_bytes=new_bytes,
            keyless_count=compaction.keyless_count,
            elapsed_ms=int((self._clock.monotonic() - started) * 1000),
        )

    # The first pass.

    async def _fill(self, offset_map: OffsetMap, segments: Sequence[Segment]) -> None:
        """Note the keys of the dirty part, and how far that went."""
        tracker = TransactionTracker()
        aborted = _AbortedTransactions(self._log)
        offset_map.latest_offset = self._target.first_dirty_offset - 1
        self._sources = segments
        for segment in segments:
            end_offset = self._end_of(segment)
            if end_offset <= self._target.first_dirty_offset:
                continue
            tracker.add_aborted(aborted.within(segment.base_offset, end_offset))
            if await self._fill_from(segment, offset_map, tracker):
                return
            # The last offsets of a segment may have been compacted away.
            offset_map.latest_offset = end_offset - 1

    async def _fill_from(
        self, segment: Segment, offset_map: OffsetMap, tracker: TransactionTracker
    ) -> bool:
        """Note the keys of one segment; whether the map is full."""
        first_dirty_offset = self._target.first_dirty_offset
        batches = read_batches(segment, self._pace, chunk_bytes=self._settings.buffer_bytes_each)
        async with aclosing(batches):
            async for batch in batches:
                await self._was_read(batch.size)
                if isinstance(batch, RecordBatch):
                    if batch.is_control:
                        tracker.is_spent(batch)
                        continue
                    if tracker.is_aborted(batch):
                        continue
                if batch.last_offset < first_dirty_offset:
                    continue
                for keys in _slices(self._keys(batch)):
                    for offset, key in keys:
                        if key is None or offset < first_dirty_offset:
                            continue
                        if offset_map.is_full:
                            return True
                        offset_map.put(key, offset)
                    await self._pace.rest(0)
                offset_map.latest_offset = batch.last_offset
        return False

    def _keys(self, batch: AnyBatch) -> Iterator[tuple[int, bytes | None]]:
        max_bytes = self._log.config.max_inflated_bytes
        if isinstance(batch, RecordBatch):
            spans = record_spans(batch, record_data(batch, max_bytes=max_bytes))
            return ((offset, key) for _, _, offset, _, key, _ in spans)
        return ((record.offset, record.key) for record in batch.records(max_bytes=max_bytes))

    # The second pass.

    async def _clean_group(
        self, group: list[Segment], compaction: Compaction, aborted: _AbortedTransactions
    ) -> int:
        """Replace a group by what remains of it; how many bytes that are."""
        log = self._log
        output = CleanedOutput(log, group[0].base_offset)
        is_replaced = False
        self._sources = group
        try:
            for segment in group:
                self._check_unchanged()
                tracker = compaction.tracker
                tracker.add_aborted(aborted.within(segment.base_offset, self._end_of(segment)))
                await self._clean_segment(segment, compaction, output)
            await output.finish()
            await self._throttle.pay(output.take_written())
            is_replaced = await log.replace_segments(
                output.segments, group, truncation_count=self._target.truncation_count
            )
            if not is_replaced:
                raise CleaningAbortedError(f"{log} has changed while it was cleaned")
        finally:
            if not is_replaced:
                # What can't be removed now is removed by the next start.
                with suppress(OSError):
                    await log.discard_segments(output.segments)
        return sum(segment.size_bytes for segment in output.segments)

    async def _clean_segment(
        self, segment: Segment, compaction: Compaction, output: CleanedOutput
    ) -> None:
        batches = read_batches(segment, self._pace, chunk_bytes=self._settings.buffer_bytes_each)
        async with aclosing(batches):
            async for batch in batches:
                await self._was_read(batch.size)
                if isinstance(batch, RecordBatch):
                    await self._clean_batch(batch, compaction, output)
                else:
                    await self._clean_legacy(batch, compaction, output)
                written = output.take_written()
                if written:
                    await self._throttle.pay(written)

    async def _clean_batch(
        self, batch: RecordBatch, compaction: Compaction, output: CleanedOutput
    ) -> None:
        match compaction.judge(batch):
            case Verdict.DROP:
                pass
            case Verdict.EMPTY:
                output.add(RecordBatch(empty_copy(batch)))
            case Verdict.COPY:
                output.add(batch)
            case Verdict.STAMP:
                await self._stamp(batch, compaction, output)
            case Verdict.SIFT:
                await self._sift(batch, compaction, output)
        output.add_aborted(compaction.tracker.take_aborted())

    async def _sift(
        self, batch: RecordBatch, compaction: Compaction, output: CleanedOutput
    ) -> None:
        """Write what remains of a batch that is looked into."""
        data = record_data(batch, max_bytes=self._log.config.max_inflated_bytes)
        kept = KeptRecords()
        for spans in _slices(record_spans(batch, data)):
            compaction.sift(batch, spans, kept)
            await self._pace.rest(0)
        if not kept.count:
            if compaction.keeps_header(batch):
                output.add(RecordBatch(empty_copy(batch)))
            return
        if kept.count < batch.records_count:
            batch = RecordBatch(
                with_records(
                    batch,
                    kept.take_from(data),
                    records_count=kept.count,
                    max_timestamp_ms=kept.max_timestamp_ms,
                )
            )
        if kept.has_tombstone and batch.delete_horizon_ms is None:
            await self._stamp(batch, compaction, output)
        else:
            output.add(batch)

    async def _stamp(
        self, batch: RecordBatch, compaction: Compaction, output: CleanedOutput
    ) -> None:
        """Write a batch with a delete horizon."""
        builder = builder_with_horizon(batch, compaction.new_horizon_ms)
        records = read_records(batch, max_bytes=self._log.config.max_inflated_bytes)
        await self._build(records, builder)
        output.add(RecordBatch(builder.build(last_offset=batch.last_offset)))

    async def _clean_legacy(
        self, batch: LegacyBatch, compaction: Compaction, output: CleanedOutput
    ) -> None:
        kept: list[Record] = []
        count = 0
        for records in _slices(batch.records(max_bytes=self._log.config.max_inflated_bytes)):
            count += len(records)
            kept += [record for record in records if compaction.stays(record)]
            await self._pace.rest(0)
        if not kept:
            return
        _check_order(kept, batch.last_offset)
        has_tombstone = any(record.value is None for record in kept)
        if len(kept) == count and not has_tombstone:
            output.add(batch)
            return
        builder = builder_for_legacy(
            batch, kept, compaction.new_horizon_ms if has_tombstone else None
        )
        await self._build(kept, builder)
        output.add(RecordBatch(builder.build(last_offset=batch.last_offset)))

    async def _build(self, records: Iterable[Record], builder: BatchBuilder) -> None:
        for some in _slices(iter(records)):
            for offset, timestamp_ms, key, value, headers in some:
                builder.append(
                    key, value, timestamp_ms=timestamp_ms, headers=headers, offset=offset
                )
            await self._pace.rest(0)

    # Both.

    async def _was_read(self, size_bytes: int) -> None:
        self._read_bytes += size_bytes
        await self._throttle.pay(size_bytes)

    def _end_of(self, segment: Segment) -> int:
        following = self._log.segments.higher(segment.base_offset)
        return self._target.end_offset if following is None else following.base_offset

    def _check_unchanged(self, cause: Exception | None = None) -> None:
        log = self._log
        if log.truncation_count != self._target.truncation_count or not all(
            segment in log.segments for segment in self._sources
        ):
            raise CleaningAbortedError(f"{log} has changed while it was cleaned") from cause


class _AbortedTransactions:
    """The aborted transactions of a log, found without a look at segments that have none."""

    __slots__ = ("_bases", "_segments")

    def __init__(self, log: PartitionLog) -> None:
        self._segments = [s for s in log.segments if s.transaction_index.exists]
        self._bases = [segment.base_offset for segment in self._segments]

    def within(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Those with a record in the range, which begins at a segment's base.

        They are listed where they end, so that later segments may have some.
        """
        found: list[AbortedTransaction] = []
        for segment in self._segments[bisect_left(self._bases, start_offset) :]:
            search = segment.transaction_index.collect(start_offset, end_offset)
            found += search.transactions
            if search.is_complete:
                break
        return found


def _slices(items: Iterator[_Item]) -> Iterator[list[_Item]]:
    """The items, some at a time: who takes them rests in between."""
    while some := list(islice(items, _SLICE_RECORDS)):
        yield some


def _check_order(records: list[Record], last_offset: int) -> None:
    """A message of an old format may lie about the offsets in it."""
    offsets = [record.offset for record in records]
    is_growing = all(first < second for first, second in pairwise(offsets))
    if not is_growing or not offsets[-1] <= last_offset <= offsets[0] + MAX_INT32:
        raise InvalidRecord(f"offsets in disorder in the message at {last_offset}")
