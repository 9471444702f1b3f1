"""Long work in slices, so that the loop stays free (design, decision 1).

Those who share a pace share its slices: however many they are, together they take no more of a turn
of the loop than one of them would.
"""

from __future__ import annotations

from typing import Final

import trio

from kraftpy.world import Clock

__all__ = ["Pace"]

_SLICE_SECONDS: Final = 0.002
# By amount as well: in simulation no time passes while code runs.
_SLICE_BYTES: Final = 4 * 1024 * 1024


class Pace:
    """Asked often, it lets others run when a slice of 2 ms or 4 MiB is over."""

    __slots__ = ("_bytes", "_clock", "_slice_number", "_started")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Below zero before the first slice, which begins when it is first asked for.
        self._started = -1.0
        self._bytes = 0
        self._slice_number = 0

    @property
    def is_over(self) -> bool:
        """Whether the slice is used up."""
        now = self._clock.monotonic()
        if self._started < 0:
            self._started = now
        return self._bytes >= _SLICE_BYTES or now - self._started >= _SLICE_SECONDS

    def begin(self) -> None:
        """A slice begins now: whoever asks has just been given the loop."""
        self._slice_number += 1
        self._started = self._clock.monotonic()
        self._bytes = 0

    def count(self, done_bytes: int) -> None:
        """`done_bytes` more were worked on."""
        self._bytes += done_bytes

    async def rest(self, done_bytes: int) -> None:
        """`done_bytes` more were worked on. A checkpoint only when the slice is over."""
        self._bytes += done_bytes
        while self.is_over:
            number = self._slice_number
            await trio.lowlevel.checkpoint()
            # The first to come back begins the next slice; the others get what that leaves.
            if number == self._slice_number:
                self.begin()
                return
