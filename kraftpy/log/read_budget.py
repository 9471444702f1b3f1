"""The bytes that one fetch may take from several logs, in the order in which it names them (10).

A batch larger than the whole budget would never be read. So the first log that has anything gives
one batch at least, unless the limit is hard; from then on every log gives what is left. A beginning
of a batch is nothing that a client can use, and some take it for a batch that fits into no fetch:
then a log gives nothing instead. Whoever has set a hard limit gets it all the same.
"""

from __future__ import annotations

from dataclasses import replace

from kraftpy.log.log_reading import ReadableLog
from kraftpy.log.offsets import Isolation, ReadInfo

__all__ = ["ReadBudget"]


class ReadBudget:
    """For one fetch."""

    __slots__ = ("_gives_one_batch", "_is_hard", "remaining_bytes")

    def __init__(self, max_bytes: int, *, is_hard: bool = False) -> None:
        self.remaining_bytes = max_bytes
        self._is_hard = is_hard
        self._gives_one_batch = not is_hard

    def read(
        self, log: ReadableLog, start_offset: int, max_bytes: int, isolation: Isolation
    ) -> ReadInfo:
        """As `log.read`, within `max_bytes` and what is left of the budget."""
        info = log.read(
            start_offset,
            min(max_bytes, self.remaining_bytes),
            isolation,
            min_one_batch=self._gives_one_batch,
        )
        if info.first_entry_incomplete and not self._is_hard:
            return replace(info, records=None, first_entry_incomplete=False)
        if info.size_bytes:
            self._gives_one_batch = False
            self.remaining_bytes = max(0, self.remaining_bytes - info.size_bytes)
        return info
