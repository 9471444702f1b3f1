"""One segment of a log: its data file and the three indexes that go with it.

Offsets in a segment are at least its base offset and below the next segment's. The last segment of
a log, the active one, is appended to; the others never change, they are only replaced as a whole.

Everything here is synchronous but what must wait for the medium or for directories. What a segment
knows beyond its files (largest timestamp, first timestamp) is read from them when it is first asked
for, so that loading a log opens nothing.

An append is all or nothing: when the system refuses a write, what was written of it is cut off
again, and index entries made for it are forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Final, TypeAlias

from kraftpy.log.batch_headers import BatchHeader, walk_headers
from kraftpy.log.errors import SegmentOffsetOverflowError
from kraftpy.log.handles import HandlePool
from kraftpy.log.index import NO_TIMESTAMP, OffsetPosition, TimestampOffset
from kraftpy.log.log_config import LogConfig
from kraftpy.log.offsets import OffsetMetadata, ReadInfo
from kraftpy.log.segment_store import SegmentStore
from kraftpy.records.errors import CorruptRecord
from kraftpy.records.walker import AnyBatch, batch_at
from kraftpy.world import Buffer, Disk, FileSlice

__all__ = ["RELATIVE_OFFSET_MAX", "Segment"]

_log = logging.getLogger(__name__)

RELATIVE_OFFSET_MAX: Final = 2**31 - 1

# Last offset and position of a batch, and the largest time up to it.
_IndexEntry: TypeAlias = tuple[int, int, TimestampOffset]


class Segment(SegmentStore):
    """Made over existing files, or by `create` with new ones."""

    __slots__ = (
        "_bytes_since_index_entry",
        "_first_timestamp_ms",
        "_index_interval_bytes",
        "_is_active",
        "_largest",
        "_roll_jitter_ms",
        "created_ms",
        "size_bytes",
    )

    def __init__(
        self,
        pool: HandlePool,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        size_bytes: int,
        has_transaction_index: bool,
        suffix: str = "",
        roll_jitter_ms: int = 0,
        now_ms: int = 0,
    ) -> None:
        """A segment in files that exist. None of them is opened yet."""
        super().__init__(
            pool,
            directory,
            base_offset,
            index_bytes=config.segment_index_bytes,
            has_transaction_index=has_transaction_index,
            suffix=suffix,
        )
        # Of the data; a preallocated file is longer.
        self.size_bytes = size_bytes
        self.created_ms = now_ms
        self._index_interval_bytes = config.index_interval_bytes
        self._roll_jitter_ms = roll_jitter_ms
        self._bytes_since_index_entry = 0
        # None until the files were asked.
        self._largest: TimestampOffset | None = None
        self._first_timestamp_ms: int | None = None
        self._is_active = False

    @classmethod
    def create(
        cls,
        pool: HandlePool,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        suffix: str = "",
        roll_jitter_ms: int = 0,
        now_ms: int = 0,
        preallocate: bool = False,
    ) -> Segment:
        """A new segment. Files that bear its names already are emptied."""
        segment = cls(
            pool,
            directory,
            base_offset,
            config,
            size_bytes=0,
            has_transaction_index=False,
            suffix=suffix,
            roll_jitter_ms=roll_jitter_ms,
            now_ms=now_ms,
        )
        segment.log_file.truncate(0)
        if preallocate:
            segment.log_file.truncate(config.segment_bytes)
        segment.offset_index.create()
        segment.time_index.create()
        segment._largest = TimestampOffset(NO_TIMESTAMP, base_offset)
        segment._is_active = True
        return segment

    # Appending.

    def append(
        self,
        parts: Sequence[Buffer],
        size_bytes: int,
        *,
        largest_offset: int,
        largest_timestamp_ms: int,
        offset_of_max_timestamp: int,
        batches: Sequence[AnyBatch] = (),
    ) -> None:
        """Write batches to the page cache; an index entry when enough bytes came before one.

        `batches` are those of a set of several: each of them may get an entry, so that the index is
        the one that recovery would build. Without, the set is taken for one. Raises
        SegmentOffsetOverflowError before anything is written; OSError with nothing changed.
        """
        if not size_bytes:
            return
        self._check_range(largest_offset)
        position = self.size_bytes
        largest = self.largest
        entries: list[_IndexEntry] = []
        unindexed_bytes = self._bytes_since_index_entry
        if len(batches) > 1:
            entries, unindexed_bytes, largest = self._plan_entries(batches)
        else:
            if largest_timestamp_ms > largest.timestamp_ms:
                largest = TimestampOffset(largest_timestamp_ms, offset_of_max_timestamp)
            if unindexed_bytes > self._index_interval_bytes:
                entries.append((largest_offset, position, largest))
                unindexed_bytes = 0
            unindexed_bytes += size_bytes
        try:
            self.log_file.pwrite(parts, position)
            if entries:
                self._add_index_entries(entries)
        except OSError:
            self.log_file.truncate(position)
            raise
        if position == 0:
            self._first_timestamp_ms = largest_timestamp_ms
        self._bytes_since_index_entry = unindexed_bytes
        self._largest = largest
        self.size_bytes = position + size_bytes

    def _plan_entries(
        self, batches: Sequence[AnyBatch]
    ) -> tuple[list[_IndexEntry], int, TimestampOffset]:
        """Of a set of several: its index entries, the bytes behind the last one, the largest."""
        entries: list[_IndexEntry] = []
        unindexed_bytes = self._bytes_since_index_entry
        position, largest = self.size_bytes, self.largest
        for batch in batches:
            last_offset, timestamp_ms, size = batch.last_offset, batch.max_timestamp_ms, batch.size
            if timestamp_ms > largest.timestamp_ms:
                largest = TimestampOffset(timestamp_ms, last_offset)
            if unindexed_bytes > self._index_interval_bytes:
                entries.append((last_offset, position, largest))
                unindexed_bytes = 0
            unindexed_bytes += size
            position += size
        return entries, unindexed_bytes, largest

    def _add_index_entries(self, entries: Sequence[_IndexEntry]) -> None:
        """All or none; but an index that gets full on the way takes no more, and a roll follows."""
        offsets, times = self.offset_index, self.time_index
        offset_count, time_count = offsets.entry_count, times.entry_count
        try:
            for offset, position, largest in entries:
                if offsets.is_full or times.is_full:
                    return
                offsets.append(offset, position)
                times.maybe_append(largest.timestamp_ms, largest.offset)
        except OSError:
            offsets.truncate_to_entries(offset_count)
            times.truncate_to_entries(time_count)
            raise

    def _check_range(self, offset: int) -> None:
        if not 0 <= offset - self.base_offset <= RELATIVE_OFFSET_MAX:
            raise SegmentOffsetOverflowError(
                f"{self.log_file.path}: offset {offset} is too far from its base"
            )

    def should_roll(
        self,
        *,
        size_bytes: int,
        max_offset: int,
        max_timestamp_ms: int,
        now_ms: int,
        config: LogConfig,
    ) -> bool:
        """Whether a set of this size, offset and time should begin a new segment (11)."""
        size = self.size_bytes
        return (
            size > config.segment_bytes - size_bytes
            or (
                size > 0
                and self._waited_for_roll_ms(max_timestamp_ms, now_ms)
                > config.roll_ms - self._roll_jitter_ms
            )
            or self.offset_index.is_full
            or self.time_index.is_full
            or max_offset - self.base_offset > RELATIVE_OFFSET_MAX
        )

    def _waited_for_roll_ms(self, incoming_timestamp_ms: int, now_ms: int) -> int:
        first = self.first_timestamp_ms
        if first >= 0:
            return incoming_timestamp_ms - first
        return now_ms - self.created_ms

    @property
    def first_timestamp_ms(self) -> int:
        """Of the first batch; the countdown to a roll by age starts with it. -1 without one."""
        if self._first_timestamp_ms is None:
            header = next(self.headers(), None)
            if header is None:
                return NO_TIMESTAMP
            self._first_timestamp_ms = header.max_timestamp_ms
        return self._first_timestamp_ms

    # Reading.

    def headers(self, position: int = 0) -> Iterator[BatchHeader]:
        """The batches from `position` on, by their headers."""
        return walk_headers(self.log_file, position, self.size_bytes)

    def _headers_from(self, entry: OffsetPosition) -> Iterator[BatchHeader]:
        """The batches from an index entry on.

        The index is only a hint: when the batch there does not bear it out, it is made anew.
        """
        if entry.position:
            headers = self.headers(entry.position)
            with suppress(CorruptRecord):
                first = next(headers, None)
                if first is not None and first.base_offset <= entry.offset:
                    return chain((first,), headers)
            _log.warning("%r has no batch as its index says; the index is rebuilt", self)
            self._rebuild_indexes()
        return self.headers()

    def find(self, offset: int) -> BatchHeader | None:
        """The first batch that holds `offset` or begins behind it."""
        for header in self._headers_from(self.offset_index.lookup(offset)):
            if header.last_offset >= offset:
                return header
        return None

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        *,
        max_position: int | None = None,
        min_one_batch: bool = False,
    ) -> ReadInfo | None:
        """A slice from the batch that holds `start_offset` on; None if nothing follows here.

        Nothing at or behind `max_position` is given. With `min_one_batch` the first batch is given
        whole even when `max_bytes` is less.
        """
        if max_bytes < 0:
            raise ValueError(f"a read of at most {max_bytes} bytes")
        first = self.find(start_offset)
        if first is None:
            return None
        metadata = OffsetMetadata(start_offset, self.base_offset, first.position)
        limit = max(max_bytes, first.size) if min_one_batch else max_bytes
        end = self.size_bytes
        if max_position is not None:
            # One that was noted before the cleaner replaced this segment may lie behind its end.
            end = min(end, max_position)
        length = max(0, min(end - first.position, limit))
        if not length:
            return ReadInfo(metadata, None)
        records = FileSlice(self.log_file, first.position, length)
        return ReadInfo(metadata, records, first_entry_incomplete=limit < first.size)

    def upper_bound_offset(self, read: ReadInfo) -> int | None:
        """An offset surely not below the end of what `read` gives; None if this segment's end."""
        entry = self.offset_index.first_from_position(read.fetch_offset.position + read.size_bytes)
        return None if entry is None else entry.offset

    def headers_by_time(self, timestamp_ms: int, start_offset: int) -> Iterator[BatchHeader]:
        """The batches that reach `timestamp_ms` and `start_offset`.

        By their headers; who wants a record looks inside, and goes on if there is none.
        """
        if self.largest.timestamp_ms < timestamp_ms:
            return
        floor = self.time_index.lookup(timestamp_ms).offset
        entry = self.offset_index.lookup(max(floor, start_offset))
        for header in self._headers_from(entry):
            if header.max_timestamp_ms >= timestamp_ms and header.last_offset >= start_offset:
                yield header

    def batch(self, header: BatchHeader) -> AnyBatch:
        """The batch with its bytes; CorruptRecord if they are damaged."""
        batch = batch_at(self.log_file.pread(header.size, header.position))
        if batch is None or not batch.is_valid:
            raise CorruptRecord(f"{self.log_file.path}: position {header.position}")
        return batch

    @property
    def largest(self) -> TimestampOffset:
        """The largest timestamp and its offset; timestamp -1 without any.

        A closed segment's time index ends with it. In the active one's, more may follow.
        """
        if self._largest is None:
            largest = self.time_index.last_entry
            for header in self._headers_from(self.offset_index.last_entry):
                if header.max_timestamp_ms > largest.timestamp_ms:
                    largest = TimestampOffset(header.max_timestamp_ms, header.last_offset)
            self._largest = largest
        return self._largest

    async def largest_timestamp_ms(self, disk: Disk) -> int:
        """For retention and compaction: without timestamps, when the file was last changed."""
        timestamp_ms = self.largest.timestamp_ms
        if timestamp_ms >= 0:
            return timestamp_ms
        return (await disk.stat(self.log_file.path)).modified_ms

    def next_offset(self) -> int:
        """Behind the last batch; the base offset if there is none. For loading."""
        following = self.base_offset
        if not self.size_bytes:
            return following
        for header in self._headers_from(self.offset_index.last_entry):
            following = header.last_offset + 1
        return following

    # Changing.

    def truncate_to(self, offset: int) -> int:
        """Remove everything at or above `offset`; how many bytes that were."""
        first = self.find(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self.make_active()
        self._bytes_since_index_entry = 0
        self._largest = None
        if first is None:
            return 0
        self.log_file.truncate(first.position)
        removed = self.size_bytes - first.position
        self.size_bytes = first.position
        if first.position == 0:
            self._first_timestamp_ms = None
        return removed

    def reset_indexes(self) -> None:
        """Forget all indexes, before recovery builds them anew."""
        self.offset_index.reset()
        self.time_index.reset()
        self.transaction_index.reset()
        self._bytes_since_index_entry = 0
        self._first_timestamp_ms = None
        self._largest = TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def _rebuild_indexes(self) -> None:
        """Offset and time index, from the batches' headers."""
        self.offset_index.reset()
        self.time_index.reset()
        self._bytes_since_index_entry = 0
        self._largest = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        # Behind a damaged header nothing can be found.
        with suppress(CorruptRecord):
            for header in self.headers():
                self.index_recovered(
                    header.position,
                    header.size,
                    last_offset=header.last_offset,
                    max_timestamp_ms=header.max_timestamp_ms,
                )
        if not self._is_active:
            self.make_inactive()

    def index_recovered(
        self, position: int, size_bytes: int, *, last_offset: int, max_timestamp_ms: int
    ) -> None:
        """Index a batch that recovery has found, as its append once did."""
        self._check_range(last_offset)
        largest = self.largest
        if max_timestamp_ms > largest.timestamp_ms:
            self._largest = largest = TimestampOffset(max_timestamp_ms, last_offset)
        if position == 0:
            self._first_timestamp_ms = max_timestamp_ms
        # More entries than fit can only come from a larger interval in the past.
        if (
            self._bytes_since_index_entry > self._index_interval_bytes
            and not self.offset_index.is_full
            and not self.time_index.is_full
        ):
            self._add_index_entries([(last_offset, position, largest)])
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += size_bytes

    def cut(self, size_bytes: int) -> int:
        """End the file here, which is behind a batch; how many bytes went."""
        removed = self.size_bytes - size_bytes
        self.log_file.truncate(size_bytes)
        self.size_bytes = size_bytes
        return removed

    @property
    def is_active(self) -> bool:
        """Whether the indexes have room for more entries."""
        return self._is_active

    def make_active(self) -> None:
        """Give the indexes room, in their files too."""
        self._is_active = True
        self.offset_index.resize()
        self.time_index.resize()

    def make_inactive(self) -> None:
        """Complete the time index and cut the files to what they hold: nothing will be added."""
        largest = self.largest
        self._is_active = False
        self.time_index.maybe_append(largest.timestamp_ms, largest.offset, skip_full_check=True)
        self.time_index.trim_to_valid_size()
        self.offset_index.trim_to_valid_size()
        if self.log_file.size() != self.size_bytes:
            self.log_file.truncate(self.size_bytes)

    def __repr__(self) -> str:
        return f"Segment({self.log_file.path}, {self.size_bytes} bytes)"
