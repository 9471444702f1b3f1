"""What the logs of a data directory have done in the background: flushing, saving, unlinking.

A log that has work says so from synchronous code (`work_pending`); a task of its own then does it,
one task for a log at a time, and a few logs at a time, since each of them needs file handles. Files
and directories that have left their log are unlinked by one task, each when its time has come:
readers under way have finished by then. Each directory has its own chores, so that a slow disk
holds up nobody else's.

All of it happens in the nursery that `run` is in. Before and after, work is only collected: files
that nobody unlinks are found, and unlinked, by the next start.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import trio

from kraftpy.log.log_reading import ReadableLog
from kraftpy.world import Clock

__all__ = ["Chores"]

_FOREVER: Final = 2.0**40
_CONCURRENT_LOGS: Final = 8


@dataclass(order=True, slots=True)
class _Errand:
    """Something to be done at a moment of the monotonic clock."""

    due: float
    number: int
    do: Callable[[], Awaitable[None]] = field(compare=False)


class Chores:
    """Lives as long as its directory; works while `run` does."""

    __slots__ = (
        "_changed",
        "_clock",
        "_errands",
        "_number",
        "_nursery",
        "_places",
        "_waiting",
        "_working",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._nursery: trio.Nursery | None = None
        # Logs with work: those that wait for a task, and those that have one. The latter's value
        # tells whether more work came meanwhile.
        self._waiting: dict[ReadableLog, None] = {}
        self._working: dict[ReadableLog, bool] = {}
        self._places = trio.Semaphore(_CONCURRENT_LOGS)
        self._errands: list[_Errand] = []
        self._number = 0
        self._changed = trio.Event()

    async def run(self) -> None:
        """Work until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                waiting, self._waiting = self._waiting, {}
                for log in waiting:
                    self.work_pending(log)
                await self._run_errands()
            finally:
                self._nursery = None

    def work_pending(self, log: ReadableLog) -> None:
        """`log.do_pending_work()` should soon be called."""
        if log in self._working:
            self._working[log] = True
        elif self._nursery is None:
            self._waiting[log] = None
        else:
            self._working[log] = False
            self._nursery.start_soon(self._work, log, name=f"log-work[{log.directory}]")

    async def _work(self, log: ReadableLog) -> None:
        try:
            while True:
                async with self._places:
                    self._working[log] = False
                    await log.do_pending_work()
                if not self._working[log]:
                    return
        finally:
            del self._working[log]

    def later(self, delay_ms: int, do: Callable[[], Awaitable[None]]) -> None:
        """Call `do` when the delay is over; it handles its own errors."""
        due = self._clock.monotonic() + delay_ms / 1000
        heapq.heappush(self._errands, _Errand(due, self._number, do))
        self._number += 1
        self._changed.set()

    async def _run_errands(self) -> None:
        while True:
            now = self._clock.monotonic()
            while self._errands and self._errands[0].due <= now:
                await heapq.heappop(self._errands).do()
            self._changed = trio.Event()
            pause = self._errands[0].due - self._clock.monotonic() if self._errands else _FOREVER
            with self._clock.move_on_after(pause):
                await self._changed.wait()

    def inspect(self) -> dict[str, int]:
        """For tests and invariants."""
        return {"working": len(self._working) + len(self._waiting), "errands": len(self._errands)}
