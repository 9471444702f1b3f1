"""A limit on bytes per second, for work in the background."""

from __future__ import annotations

from typing import Final

from kraftpy.world import Clock

__all__ = ["Throttle"]

# Shorter debts are carried over: waking up costs something too.
_SHORTEST_SLEEP_SECONDS: Final = 0.05


class Throttle:
    """Whoever has moved bytes waits until they were due. `bytes_per_second` may be changed."""

    __slots__ = ("_clock", "_paid_until", "bytes_per_second")

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self._clock = clock
        self._paid_until = clock.monotonic()
        self.bytes_per_second = bytes_per_second

    async def pay(self, size_bytes: int) -> None:
        """`size_bytes` were moved; time that passed without any is not saved up."""
        now = self._clock.monotonic()
        self._paid_until = max(self._paid_until, now) + size_bytes / self.bytes_per_second
        if self._paid_until - now >= _SHORTEST_SLEEP_SECONDS:
            await self._clock.sleep_until(self._paid_until)
