"""The machine's clock behind the Clock port.

`monotonic` reads the system directly rather than trio's clock, so that it also works where no loop
runs (a composition root that is still being assembled). Both tick at the same rate; a sleep is
therefore asked of trio as a duration, and repeated in the rare case that trio wakes a hair early.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from math import inf

import trio

__all__ = ["RealClock"]


class _RealBell:
    __slots__ = ("_rung",)

    def __init__(self) -> None:
        self._rung = trio.Event()

    def ring(self) -> None:
        self._rung.set()

    def clear(self) -> None:
        if self._rung.is_set():
            self._rung = trio.Event()

    async def wait_until(self, deadline: float) -> None:
        if deadline == inf:
            await self._rung.wait()
            return
        with trio.move_on_after(max(0.0, deadline - time.monotonic())):
            await self._rung.wait()


class RealClock:
    """Stateless; any number of them show the same time."""

    __slots__ = ()

    def monotonic(self) -> float:
        return time.monotonic()

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await self.sleep_until(time.monotonic() + seconds)

    async def sleep_until(self, deadline: float) -> None:
        await trio.sleep(max(0.0, deadline - time.monotonic()))
        while (remaining := deadline - time.monotonic()) > 0:  # noqa: ASYNC110 (woken early)
            await trio.sleep(remaining)

    def bell(self) -> _RealBell:
        return _RealBell()

    def move_on_after(self, seconds: float) -> trio.CancelScope:
        return trio.move_on_after(max(0.0, seconds))

    def fail_after(self, seconds: float) -> AbstractContextManager[trio.CancelScope]:
        return trio.fail_after(max(0.0, seconds))
