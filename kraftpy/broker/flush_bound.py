"""How far a leader's own log counts for its high watermark when it has to be flushed first.

With flush.messages=1 nothing is committed that the leader does not have on its disk. A flush takes
time, and appends go on meanwhile: the log counts as far as it was flushed last, until a flush has
come to the end of the last append that asked for one. What was appended since then did not ask.
"""

from __future__ import annotations

from kraftpy.log.offsets import OffsetMetadata

__all__ = ["FlushBound"]


class FlushBound:
    __slots__ = ("_until_offset", "bound")

    def __init__(self) -> None:
        # None if the log counts as a whole.
        self.bound: OffsetMetadata | None = None
        self._until_offset = 0

    def require(self, end_before: OffsetMetadata, until_offset: int) -> None:
        """Everything up to `until_offset` has to be flushed; `end_before` it, nothing new has."""
        self._until_offset = until_offset
        if self.bound is None:
            self.bound = end_before

    def flushed(self, recovery_point: int) -> None:
        """Everything below is durable."""
        if recovery_point >= self._until_offset:
            self.bound = None
        elif self.bound is not None and recovery_point > self.bound.offset:
            self.bound = OffsetMetadata(recovery_point)

    def lift(self) -> None:
        self.bound = None
