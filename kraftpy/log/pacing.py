"""Long work in slices, so that the loop stays free (design, decision 1)."""

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

    __slots__ = ("_bytes", "_clock", "_started")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.monotonic()
        self._bytes = 0

    async def rest(self, done_bytes: int) -> None:
        """`done_bytes` more were worked on. A checkpoint only when the slice is over."""
        self._bytes += done_bytes
        if self._bytes >= _SLICE_BYTES or self._clock.monotonic() - self._started >= _SLICE_SECONDS:
            await trio.lowlevel.checkpoint()
            self._started = self._clock.monotonic()
            self._bytes = 0
