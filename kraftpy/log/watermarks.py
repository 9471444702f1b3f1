"""The four offsets of a log and the order between them.

log start <= high watermark <= log end, and recovery point <= log end: every change goes through
here and keeps it so. (The last stable offset, between log start and high watermark, follows from
the high watermark and the transactions, and is the log's.)
"""

from __future__ import annotations

from kraftpy.log.errors import OffsetOutOfRangeError
from kraftpy.log.offsets import OffsetMetadata
from kraftpy.world import assert_always

__all__ = ["Watermarks"]


class Watermarks:
    """The high watermark begins at the log start."""

    __slots__ = ("high_watermark", "log_end", "log_start_offset", "recovery_point")

    def __init__(
        self, *, log_start_offset: int, log_end: OffsetMetadata, recovery_point: int
    ) -> None:
        self.log_start_offset = log_start_offset
        self.log_end = log_end
        self.high_watermark = OffsetMetadata(log_start_offset)
        self.recovery_point = min(recovery_point, log_end.offset)

    def set_log_end(self, log_end: OffsetMetadata) -> None:
        """After an append, roll or truncation. What lies beyond is pulled down.

        A high watermark at the log end takes over its place too: after a roll that is a new one.
        """
        offset = log_end.offset
        if self.high_watermark.offset >= offset:
            self.high_watermark = log_end
        if offset < self.log_end.offset:
            self.recovery_point = min(self.recovery_point, offset)
            self.log_start_offset = min(self.log_start_offset, offset)
        self.log_end = log_end

    def update_high_watermark(self, offset: int) -> int:
        """A follower's: whatever the leader says, as far as this log reaches."""
        if offset < 0:
            raise ValueError(f"a high watermark of {offset}")
        if offset >= self.log_end.offset:
            self.high_watermark = self.log_end
        else:
            self.high_watermark = OffsetMetadata(max(offset, self.log_start_offset))
        return self.high_watermark.offset

    def increment_high_watermark(self, new: OffsetMetadata) -> OffsetMetadata | None:
        """A leader's: only forwards. The old one if it changed.

        At the same offset, a place on a newer segment is news too.
        """
        if not 0 <= new.offset <= self.log_end.offset:
            raise ValueError(f"a high watermark of {new.offset}, log end {self.log_end.offset}")
        old = self.high_watermark
        if old.offset < new.offset or (
            old.offset == new.offset
            and not new.is_offset_only
            and old.segment_base_offset < new.segment_base_offset
        ):
            self.high_watermark = new
            return old
        return None

    def forget_place(self) -> None:
        """The high watermark's, which is looked up when it is needed: segments were replaced."""
        self.high_watermark = OffsetMetadata(self.high_watermark.offset)

    def raise_log_start(self, offset: int) -> bool:
        """Whether that is a change; OffsetOutOfRangeError above the high watermark.

        The recovery point stays: a loss of power may bring back the start that was, and segments
        whose removal was not synced, with ends that were not.
        """
        if offset > self.high_watermark.offset:
            raise OffsetOutOfRangeError(
                f"a log start of {offset} is above the high watermark {self.high_watermark.offset}"
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        return True

    def restart(self, log_end: OffsetMetadata) -> None:
        """The log is empty and begins here."""
        self.log_start_offset = self.recovery_point = log_end.offset
        self.log_end = self.high_watermark = log_end

    def check(self, last_stable_offset: int) -> None:
        """Assert the order."""
        assert_always(
            0
            <= self.log_start_offset
            <= last_stable_offset
            <= self.high_watermark.offset
            <= self.log_end.offset
            and self.recovery_point <= self.log_end.offset,
            "log-offsets-out-of-order",
            log_start_offset=self.log_start_offset,
            last_stable_offset=last_stable_offset,
            high_watermark=self.high_watermark.offset,
            log_end_offset=self.log_end.offset,
            recovery_point=self.recovery_point,
        )
