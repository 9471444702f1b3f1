"""The segments of a log, ordered by base offset. Lookups are binary searches in a list."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from kraftpy.log.segment import Segment
from kraftpy.world import assert_always

__all__ = ["Segments"]


class Segments:
    """Invariant: base offsets grow strictly, and each segment is under its own."""

    __slots__ = ("_bases", "_segments")

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._segments: list[Segment] = []

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        """Oldest first, as they are now: a change meanwhile does not matter."""
        return iter(tuple(self._segments))

    def __contains__(self, segment: Segment) -> bool:
        """Whether this very segment is here, and not another under its base offset."""
        return self.get(segment.base_offset) is segment

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def last(self) -> Segment:
        """The active one."""
        return self._segments[-1]

    @property
    def size_bytes(self) -> int:
        """Of the data."""
        return sum(segment.size_bytes for segment in self._segments)

    def get(self, base_offset: int) -> Segment | None:
        index = bisect_left(self._bases, base_offset)
        if index < len(self._bases) and self._bases[index] == base_offset:
            return self._segments[index]
        return None

    def floor(self, offset: int) -> Segment | None:
        """The segment that `offset` falls into."""
        index = bisect_right(self._bases, offset) - 1
        return self._segments[index] if index >= 0 else None

    def higher(self, base_offset: int) -> Segment | None:
        """The next segment behind this base offset."""
        index = bisect_right(self._bases, base_offset)
        return self._segments[index] if index < len(self._segments) else None

    def overlapping(self, start_offset: int, end_offset: int) -> list[Segment]:
        """Those that may hold offsets from `start_offset` up to, not including, `end_offset`."""
        if start_offset >= end_offset:
            return []
        low = max(0, bisect_right(self._bases, start_offset) - 1)
        high = bisect_left(self._bases, end_offset)
        return self._segments[low:high]

    def add(self, segment: Segment) -> None:
        base_offset = segment.base_offset
        index = bisect_left(self._bases, base_offset)
        assert_always(
            index == len(self._bases) or self._bases[index] != base_offset,
            "segment-already-there",
            path=segment.log_file.path,
        )
        self._bases.insert(index, base_offset)
        self._segments.insert(index, segment)

    def remove(self, segment: Segment) -> None:
        index = bisect_left(self._bases, segment.base_offset)
        assert_always(
            index < len(self._bases) and self._segments[index] is segment,
            "segment-not-there",
            path=segment.log_file.path,
        )
        del self._bases[index]
        del self._segments[index]

    def replace(self, new: list[Segment], old: list[Segment]) -> None:
        """Put `new` into the place of `old` at one stroke."""
        for segment in old:
            self.remove(segment)
        for segment in new:
            self.add(segment)
