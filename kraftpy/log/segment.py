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

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from kraftpy.log.batch_set import BatchSet
from kraftpy.log.errors import SegmentOffsetOverflowError
from kraftpy.log.handles import HandlePool
from kraftpy.log.index import NO_TIMESTAMP, TimestampOffset
from kraftpy.log.log_config import LogConfig
from kraftpy.log.segment_reading import RELATIVE_OFFSET_MAX, ReadableSegment

if TYPE_CHECKING:
    from kraftpy.log.index_rebuilding import IndexPlan

__all__ = ["RELATIVE_OFFSET_MAX", "Segment"]

# Appends that are remembered for readers who have the one before them.
_RECENT_APPENDS: Final = 4
# Last offset and position of a batch, and the largest time up to it.
_IndexEntry: TypeAlias = tuple[int, int, TimestampOffset]


class Segment(ReadableSegment):
    """Made over existing files, or by `create` with new ones."""

    __slots__ = (
        "_bytes_since_index_entry",
        "_roll_jitter_ms",
        "created_ms",
        "is_active",
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
            config,
            size_bytes=size_bytes,
            has_transaction_index=has_transaction_index,
            suffix=suffix,
        )
        self.created_ms = now_ms
        self._roll_jitter_ms = roll_jitter_ms
        self._bytes_since_index_entry = 0
        # Whether the indexes have room for more entries.
        self.is_active = False

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
        segment.is_active = True
        return segment

    # Appending.

    def append(self, batches: BatchSet) -> None:
        """Write batches to the page cache; an index entry for each that enough bytes came before.

        So the index is the one that recovery would build. Raises SegmentOffsetOverflowError before
        anything is written; OSError with nothing changed.
        """
        if not batches.size_bytes:
            return
        self._check_range(batches.last_offset)
        start = position = self.size_bytes
        largest = self.largest
        unindexed_bytes = self._bytes_since_index_entry
        entries: list[_IndexEntry] = []
        for batch in batches.batches:
            size, timestamp_ms = batch.size, batch.max_timestamp_ms
            if timestamp_ms > largest.timestamp_ms:
                largest = TimestampOffset(timestamp_ms, batch.last_offset)
            if unindexed_bytes > self.index_interval_bytes:
                entries.append((batch.last_offset, position, largest))
                unindexed_bytes = 0
            unindexed_bytes += size
            position += size
        try:
            self.log_file.pwrite(batches.parts, start)
            if entries:
                self._add_index_entries(entries)
        except OSError:
            self.log_file.truncate(start)
            raise
        if start == 0:
            self._first_timestamp_ms = batches.max_timestamp_ms
        self._bytes_since_index_entry = unindexed_bytes
        self._largest = largest
        self.size_bytes = position
        if start:
            # The first one is where every search begins, and many partitions never have another.
            self._recent = ((batches.first_offset, start), *self._recent[: _RECENT_APPENDS - 1])

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

    def should_roll(self, batches: BatchSet, now_ms: int, config: LogConfig) -> bool:
        """Whether these should begin a new segment (11)."""
        size = self.size_bytes
        return (
            size > config.segment_bytes - batches.size_bytes
            or (
                size > 0
                and self._waited_for_roll_ms(batches.max_timestamp_ms, now_ms)
                > config.roll_ms - self._roll_jitter_ms
            )
            or self.offset_index.is_full
            or self.time_index.is_full
            or batches.last_offset - self.base_offset > RELATIVE_OFFSET_MAX
        )

    def _waited_for_roll_ms(self, incoming_timestamp_ms: int, now_ms: int) -> int:
        first = self.first_timestamp_ms
        if first >= 0:
            return incoming_timestamp_ms - first
        return now_ms - self.created_ms

    # Changing.

    def truncate_to(self, offset: int) -> int:
        """Remove everything at or above `offset`; how many bytes that were."""
        first = self.find(offset)
        self._recent = ()
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
        self._recent = ()
        self.offset_index.reset()
        self.time_index.reset()
        self.transaction_index.reset()
        self._bytes_since_index_entry = 0
        self._first_timestamp_ms = None
        self._largest = TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def install_indexes(self, plan: IndexPlan) -> None:
        """Rebuilt ones, of all batches that there are."""
        self.offset_index.replace_entries(plan.offset_entries)
        self.time_index.replace_entries(plan.time_entries)
        self._bytes_since_index_entry = plan.unindexed_bytes
        self._largest = plan.largest
        self.has_damaged_index = False
        self._is_index_new = True
        if not self.is_active:
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
            self._bytes_since_index_entry > self.index_interval_bytes
            and not self.offset_index.is_full
            and not self.time_index.is_full
        ):
            self._add_index_entries([(last_offset, position, largest)])
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += size_bytes

    def cut(self, size_bytes: int) -> int:
        """End the file here, which is behind a batch; how many bytes went."""
        removed = self.size_bytes - size_bytes
        self._recent = ()
        self.log_file.truncate(size_bytes)
        self.size_bytes = size_bytes
        return removed

    def make_active(self) -> None:
        """Give the indexes room, in their files too."""
        self.is_active = True
        self.offset_index.resize()
        self.time_index.resize()

    def make_inactive(self) -> None:
        """Complete the time index and cut the files to what they hold: nothing will be added."""
        largest = self.largest
        self.is_active = False
        self._recent = ()
        self.time_index.maybe_append(largest.timestamp_ms, largest.offset, skip_full_check=True)
        self.time_index.trim_to_valid_size()
        self.offset_index.trim_to_valid_size()
        if self.log_file.size() != self.size_bytes:
            self.log_file.truncate(self.size_bytes)

    def __repr__(self) -> str:
        return f"Segment({self.log_file.path}, {self.size_bytes} bytes)"
