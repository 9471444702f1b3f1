"""The sparse indexes of a segment: offset to file position, and time to offset."""

from __future__ import annotations

import struct
from typing import ClassVar, Final, NamedTuple

from kraftpy.log.errors import (
    CorruptIndexError,
    IndexFullError,
    IndexTimestampError,
    InvalidIndexOffsetError,
)
from kraftpy.log.segment_index import WARM_BYTES, IndexField, SegmentIndex

__all__ = [
    "NO_TIMESTAMP",
    "WARM_BYTES",
    "OffsetIndex",
    "OffsetPosition",
    "SegmentIndex",
    "TimeIndex",
    "TimestampOffset",
]

NO_TIMESTAMP: Final = -1


class OffsetPosition(NamedTuple):
    offset: int
    position: int


class TimestampOffset(NamedTuple):
    timestamp_ms: int
    offset: int


class OffsetIndex(SegmentIndex[OffsetPosition]):
    """`.index`: int32 offset relative to the base, int32 position in the segment's file."""

    __slots__ = ()

    _ENTRY = struct.Struct(">ii")
    _KEY = IndexField(struct.Struct(">i"), 0, is_offset=True)
    _OFFSET = _KEY
    _BELOW_FIRST = (0, 0)
    _POSITION: ClassVar[IndexField] = IndexField(struct.Struct(">i"), 4, is_offset=False)

    def append(self, offset: int, position: int) -> None:
        """The batches from `position` on hold `offset`, or begin above it."""
        last_offset = self._base_offset + self._last_fields()[0]
        if self._entries >= self._capacity:
            raise IndexFullError(f"{self._file.path} is full with {self._entries} entries")
        if offset <= last_offset and self._entries:
            raise InvalidIndexOffsetError(
                f"{self._file.path}: offset {offset} can't follow {last_offset}"
            )
        self._append(self._relative(offset), position)

    def slot_from_position(self, position: int) -> int:
        """The first slot at or behind `position`, whose offset is above what is before that.

        The count of entries if there is none.
        """
        return self._floor_slot(position - 1, self._POSITION) + 1

    def sanity_check(self) -> None:
        """Reads the last entry."""
        last = self.last_entry
        self._check_last_offset_and_length(last.offset)
        # No entry points to the first batch, so this is room that was never filled: the file was
        # not cut to its entries, or that was lost.
        if self.entry_count and last.position == 0:
            raise CorruptIndexError(f"{self._file.path}: it ends with an empty entry")

    def _named(self, first: int, second: int) -> OffsetPosition:
        return OffsetPosition(self._base_offset + first, second)


class TimeIndex(SegmentIndex[TimestampOffset]):
    """`.timeindex`: int64 largest timestamp so far, int32 offset of that record, relative."""

    __slots__ = ()

    _ENTRY = struct.Struct(">qi")
    _KEY = IndexField(struct.Struct(">q"), 0, is_offset=False)
    _OFFSET = IndexField(struct.Struct(">i"), 8, is_offset=True)
    _BELOW_FIRST = (NO_TIMESTAMP, 0)
    # For the entry that a segment gets when it is rolled or closed.
    _RESERVED_SLOTS = 1

    def maybe_append(
        self, timestamp_ms: int, offset: int, *, skip_full_check: bool = False
    ) -> None:
        """Note a new largest timestamp; one that is not larger is passed over."""
        last_timestamp_ms, last_relative = self._last_fields()
        if self._entries >= self._capacity and not skip_full_check:
            raise IndexFullError(f"{self._file.path} is full with {self._entries} entries")
        if self._entries:
            if offset < self._base_offset + last_relative:
                raise InvalidIndexOffsetError(
                    f"{self._file.path}: offset {offset} can't follow {self.last_entry.offset}"
                )
            if timestamp_ms < last_timestamp_ms:
                raise IndexTimestampError(
                    f"{self._file.path}: time {timestamp_ms} can't follow {last_timestamp_ms}"
                )
        if timestamp_ms > last_timestamp_ms:
            self._append(timestamp_ms, self._relative(offset))

    def sanity_check(self) -> None:
        """Reads the first and the last entry."""
        last = self.last_entry
        if self._entries > 1 and last.timestamp_ms <= self.entry(0).timestamp_ms:
            raise CorruptIndexError(f"{self._file.path}: its last entry is no later than its first")
        # Room that was never filled. An index that really ends in 1970 is rebuilt for nothing.
        if self._entries and last.timestamp_ms == 0:
            raise CorruptIndexError(f"{self._file.path}: it ends with an empty entry")
        self._check_last_offset_and_length(last.offset)

    def _named(self, first: int, second: int) -> TimestampOffset:
        return TimestampOffset(first, self._base_offset + second)
