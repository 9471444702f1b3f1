"""One segment as its readers see it: finding batches, by offset and by time.

Nothing is read before it is needed: what a segment knows beyond its files (largest and first
timestamp) is asked of them when somebody first wants it.

The indexes are hints, and every hint is looked at before it is believed: the batch that an entry
names must be there, and have the time that is said. One that isn't true makes the index suspect.
Whoever reads then gets along with entries before it, as far as that goes in short time, and the
index is rebuilt in the background (index_rebuilding.py).

No CRC covers the base offset of a batch. Where something seems to be missing at the offset that a
reader asks for, as after a compaction, the batches around it are looked at: if their offsets do not
grow, one of them is damaged, and none of them is given.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import Final

from kraftpy.log.batch_headers import BatchHeader, walk_headers
from kraftpy.log.errors import IndexUnderRepairError
from kraftpy.log.handles import HandlePool
from kraftpy.log.index import NO_TIMESTAMP, TimestampOffset
from kraftpy.log.log_config import LogConfig
from kraftpy.log.offsets import OffsetMetadata, ReadInfo
from kraftpy.log.segment_store import SegmentStore
from kraftpy.records.batch import MAGIC
from kraftpy.records.errors import CorruptRecord
from kraftpy.records.walker import AnyBatch, batch_at
from kraftpy.world import Disk, FileSlice

__all__ = ["RELATIVE_OFFSET_MAX", "ReadableSegment"]

_log = logging.getLogger(__name__)

RELATIVE_OFFSET_MAX: Final = 2**31 - 1
_NO_END: Final = 2**63 - 1

# Passed over in one go where the index is damaged: some 2 ms.
_SCANNED_HEADERS_MAX: Final = 1000
# Who has to pass over more than so many, behind the last entry by so many times the interval of
# entries, begins to doubt the index.
_USUAL_HEADERS: Final = 256
_USUAL_INTERVALS: Final = 4


class ReadableSegment(SegmentStore):
    """The foundation of Segment."""

    __slots__ = (
        "_first_timestamp_ms",
        "_is_index_new",
        "_largest",
        "_recent",
        "has_damaged_data",
        "has_damaged_index",
        "index_interval_bytes",
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
        suffix: str,
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
        self.index_interval_bytes = config.index_interval_bytes
        # None until the files were asked.
        self._largest: TimestampOffset | None = None
        self._first_timestamp_ms: int | None = None
        # An index was caught lying, and is to be rebuilt; or can't be, and is the best there is.
        self.has_damaged_index = False
        self.has_damaged_data = False
        # It was rebuilt, and is as good as it gets.
        self._is_index_new = False
        # Where the newest appends begin, the last one first: the offset and the position. What
        # followers and most consumers ask for begins there, and the index leads only near it.
        self._recent: tuple[tuple[int, int], ...] = ()

    @property
    def first_timestamp_ms(self) -> int:
        """Of the first batch; the countdown to a roll by age starts with it. -1 without one."""
        if self._first_timestamp_ms is None:
            header = next(self.headers(), None)
            if header is None:
                return NO_TIMESTAMP
            self._first_timestamp_ms = header.max_timestamp_ms
        return self._first_timestamp_ms

    def headers(self, position: int = 0) -> Iterator[BatchHeader]:
        """The batches from `position` on, by their headers."""
        return walk_headers(self.log_file, position, self.size_bytes)

    def _headers_from(self, slot: int, offset: int) -> Iterator[BatchHeader]:
        """The batches from an index entry on, the last that does not lie behind `offset`.

        The index is only a hint. When the batch there does not bear it out, an entry before it is
        tried, each time twice as far. What then takes long to find has to wait until the index is
        rebuilt, which whoever sees `has_damaged_index` takes care of.
        """
        headers = self._headers_at(slot, offset)
        if headers is None:
            self._suspect_index()
            step = 1
            while headers is None:
                slot -= step
                step *= 2
                headers = self._headers_at(slot, offset)
        else:
            yield from islice(headers, _USUAL_HEADERS)
            following = next(headers, None)
            if following is None:
                return
            headers = chain((following,), headers)
            if self._leads_on_from(slot):
                yield from headers
                return
            self._suspect_index()
        yield from islice(headers, _SCANNED_HEADERS_MAX)
        if next(headers, None) is not None:
            raise IndexUnderRepairError(f"{self.log_file.path}: its index is being rebuilt")

    def _headers_at(self, slot: int, offset: int) -> Iterator[BatchHeader] | None:
        """The batches from a slot's on, or from the first; None if the entry can't be right."""
        if slot < 0:
            return self.headers()
        entry = self.offset_index.entry(slot)
        # No entry points to the first batch.
        if entry.position > 0:
            headers = self.headers(entry.position)
            with suppress(CorruptRecord):
                first = next(headers, None)
                if (
                    first is not None
                    and first.base_offset <= offset
                    and first.last_offset <= entry.offset
                ):
                    return chain((first,), headers)
        return None

    def _leads_on_from(self, slot: int) -> bool:
        """Whether it is right that no entry between a slot and the next has shortened the way.

        A search among damaged entries may have missed one, or there were more at the end once.
        """
        if self._is_index_new:
            return True
        index = self.offset_index
        if slot + 1 < index.entry_count:
            return self._headers_at(slot + 1, index.entry(slot + 1).offset) is not None
        last_position = index.last_entry.position
        return self.size_bytes - last_position <= _USUAL_INTERVALS * self.index_interval_bytes

    def _suspect_index(self) -> None:
        if not self.has_damaged_index and not self.has_damaged_data:
            _log.warning("%r has not the batches that its index says; that is rebuilt", self)
            self.has_damaged_index = True

    def find(self, offset: int) -> BatchHeader | None:
        """The first batch that holds `offset` or begins behind it."""
        for header in self._headers_from(self.offset_index.floor_slot(offset), offset):
            if header.last_offset >= offset:
                return header
        return None

    def _find_sound(self, offset: int, end_offset: int) -> BatchHeader | None:
        """As `find`, but CorruptRecord if what is there can't be in its place."""
        for base_offset, position in self._recent:
            if base_offset == offset:
                recent = self._find_recent(offset, position)
                if recent is not None and offset <= recent.last_offset < end_offset:
                    return recent
        slot = self.offset_index.floor_slot(offset)
        next_offset = self.base_offset if slot < 0 else None
        for header in self._headers_from(slot, offset):
            if header.last_offset >= offset:
                is_next = next_offset is None or header.base_offset == next_offset
                if header.base_offset > offset or not is_next or header.last_offset >= end_offset:
                    self._check_order(slot, offset, end_offset)
                return header
            next_offset = header.last_offset + 1
        if offset < end_offset:
            self._check_order(slot, offset, end_offset)
        return None

    def _find_recent(self, offset: int, position: int) -> BatchHeader | None:
        """The batch of `offset` at `position`, unless the file has something else there."""
        with suppress(CorruptRecord):
            header = next(self.headers(position), None)
            if header is not None and header.magic == MAGIC and header.base_offset == offset:
                return header
        return None

    def _check_order(self, slot: int, offset: int, end_offset: int) -> None:
        """Raises CorruptRecord if batches near `offset` overlap, or reach too far.

        Those behind the index entry before `slot` are looked at, and one behind `offset`.
        """
        next_offset = self.base_offset
        end_position = 0
        is_behind = False
        headers = self._headers_from(max(slot - 1, -1), offset)
        while True:
            try:
                header = next(headers, None)
            except (CorruptRecord, IndexUnderRepairError):
                # Who reads on gets there.
                return
            if header is None:
                if not is_behind and end_position < self.size_bytes:
                    raise CorruptRecord(f"{self.log_file.path}: no batch at {end_position}")
                return
            if header.magic < MAGIC:
                # It may be a new one, and its magic damaged.
                self.batch(header)
            if header.base_offset < next_offset or header.last_offset >= end_offset:
                raise CorruptRecord(
                    f"{self.log_file.path}: offset {header.base_offset} to {header.last_offset} "
                    f"behind {next_offset - 1} and before {end_offset}, at {header.position}"
                )
            if is_behind:
                return
            next_offset = header.last_offset + 1
            end_position = header.end_position
            is_behind = header.last_offset >= offset

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        *,
        end_offset: int = _NO_END,
        max_position: int | None = None,
        min_one_batch: bool = False,
    ) -> ReadInfo | None:
        """A slice from the batch that holds `start_offset` on; None if nothing follows here.

        Nothing at or behind `max_position` is given. With `min_one_batch` the first batch is given
        whole even when `max_bytes` is less. CorruptRecord if the offsets of the first batch can't
        be right; `end_offset`, where the next segment begins or the log ends, is above them.
        """
        if max_bytes < 0:
            raise ValueError(f"a read of at most {max_bytes} bytes")
        first = self._find_sound(start_offset, end_offset)
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
        end_position = read.fetch_offset.position + read.size_bytes
        index = self.offset_index
        slot = index.slot_from_position(end_position)
        if slot == index.entry_count:
            return None
        entry = index.entry(slot)
        if entry.position >= end_position and self._headers_at(slot, entry.offset) is not None:
            return entry.offset
        self._suspect_index()
        return None

    def headers_by_time(self, timestamp_ms: int, start_offset: int) -> Iterator[BatchHeader]:
        """The batches from where the first may be that reaches `timestamp_ms` and `start_offset`.

        Who looks for a record looks at each of them: many may come before it.
        """
        entry = self.time_index.lookup(timestamp_ms)
        offset = max(entry.offset if self._is_true(entry) else self.base_offset, start_offset)
        return self._headers_from(self.offset_index.floor_slot(offset), offset)

    def _is_true(self, entry: TimestampOffset) -> bool:
        """Whether the batch that a time index entry names has that time."""
        if entry.timestamp_ms == NO_TIMESTAMP:
            return True
        header = self.find(entry.offset)
        if header is not None and header.max_timestamp_ms == entry.timestamp_ms:
            return True
        self._suspect_index()
        return False

    def batch(self, header: BatchHeader) -> AnyBatch:
        """The batch with its bytes; CorruptRecord if they are damaged."""
        batch = batch_at(self.log_file.pread(header.size, header.position))
        if batch is None or not batch.is_valid:
            raise CorruptRecord(f"{self.log_file.path}: position {header.position}")
        return batch

    @property
    def largest(self) -> TimestampOffset:
        """The largest timestamp and its offset; timestamp -1 without any.

        A closed segment's time index ends with it. In the active one's, more may follow. Raises
        IndexUnderRepairError if the index is lying.
        """
        if self._largest is None:
            largest = self.time_index.last_entry
            if not self._is_true(largest):
                # By a wrong time, retention would delete what it must not.
                raise IndexUnderRepairError(f"{self.time_index.file.path} is being rebuilt")
            for header in self._last_headers():
                if header.max_timestamp_ms > largest.timestamp_ms:
                    largest = TimestampOffset(header.max_timestamp_ms, header.last_offset)
            self._largest = largest
        return self._largest

    @property
    def knows_largest(self) -> bool:
        """Whether `largest` is in memory."""
        return self._largest is not None

    def _last_headers(self) -> Iterator[BatchHeader]:
        """The batches from the last index entry on."""
        last_offset = self.base_offset + RELATIVE_OFFSET_MAX
        return self._headers_from(self.offset_index.entry_count - 1, last_offset)

    async def largest_timestamp_ms(self, disk: Disk) -> int:
        """For retention and compaction: without timestamps, when the file was last changed."""
        timestamp_ms = self.largest.timestamp_ms
        if timestamp_ms >= 0:
            return timestamp_ms
        return (await disk.stat(self.log_file.path)).modified_ms

    def next_offset(self) -> int:
        """Behind the last batch; the base offset if there is none. For loading."""
        return self.batches_end()[0]

    def batches_end(self) -> tuple[int, int]:
        """The offset and the position behind the last batch that is whole."""
        offset, position = self.base_offset, 0
        if self.size_bytes:
            for header in self._last_headers():
                offset, position = header.last_offset + 1, header.end_position
        return offset, position
