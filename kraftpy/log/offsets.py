"""Offsets and their places in the files; what an append and a read return.

An offset alone says nothing about bytes. OffsetMetadata adds the segment and the position in it,
so that a fetch can tell how many bytes lie between two offsets, and where to stop, without a
lookup. Where the place is not known both are -1, and comparing places is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from kraftpy.log.transactions import AbortedTransaction
from kraftpy.records.batch import NO_TIMESTAMP
from kraftpy.world import FileSlice, InternalInvariant

__all__ = [
    "UNKNOWN",
    "AppendInfo",
    "FoundOffset",
    "Isolation",
    "OffsetMetadata",
    "OffsetSnapshot",
    "ReadInfo",
]

UNKNOWN = -1


class Isolation(IntEnum):
    """How far a reader may see."""

    HIGH_WATERMARK = 0
    """Consumers: what is replicated."""
    COMMITTED = 1
    """Consumers with read_committed: what is decided, up to the last stable offset."""
    LOG_END = 2
    """Followers: everything."""


class OffsetMetadata(NamedTuple):
    """An offset, and where it lies if that is known."""

    offset: int
    segment_base_offset: int = UNKNOWN
    position: int = UNKNOWN

    @property
    def is_offset_only(self) -> bool:
        return self.segment_base_offset == UNKNOWN

    def is_on_older_segment(self, other: OffsetMetadata) -> bool:
        self._check_known(other)
        return self.segment_base_offset < other.segment_base_offset

    def is_on_same_segment(self, other: OffsetMetadata) -> bool:
        self._check_known(other)
        return self.segment_base_offset == other.segment_base_offset

    def bytes_since(self, earlier: OffsetMetadata) -> int:
        """How many bytes lie between; both on one segment."""
        if not self.is_on_same_segment(earlier):
            raise InternalInvariant(f"{self} and {earlier} lie on different segments")
        return self.position - earlier.position

    def _check_known(self, other: OffsetMetadata) -> None:
        if self.is_offset_only or other.is_offset_only:
            raise InternalInvariant(f"the place of {self} or {other} is not known")


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """The answer to a lookup by time; epoch -1 if it isn't known."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class OffsetSnapshot:
    """All offsets of a log at one moment."""

    log_start_offset: int
    log_end: OffsetMetadata
    high_watermark: OffsetMetadata
    last_stable: OffsetMetadata


class AppendInfo(NamedTuple):
    """What an append did.

    A duplicate changed nothing and has the offsets and time of the batch that it repeats. An empty
    set has `first_offset` -1. `log_append_time_ms` is -1 for a topic with CreateTime.
    """

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    offset_of_max_timestamp: int
    log_start_offset: int
    batch_count: int
    valid_bytes: int
    must_flush: bool = False
    """`flush.messages` is reached: nobody may be told of this append before `flush` returned."""
    log_append_time_ms: int = NO_TIMESTAMP
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True)
class ReadInfo:
    """What a read found: a slice of a segment's file, never bytes.

    It begins with the batch that holds the offset asked for, or the next one, and may end within a
    batch. `records` is None when there is nothing to read yet.
    """

    fetch_offset: OffsetMetadata
    records: FileSlice | None
    first_entry_incomplete: bool = False
    aborted_transactions: tuple[AbortedTransaction, ...] | None = None
    """For COMMITTED only: those with records in the slice."""

    @property
    def size_bytes(self) -> int:
        return 0 if self.records is None else self.records.length
