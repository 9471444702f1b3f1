"""A timing wheel on a clock, and the one task that drives it: the reaper.

The reaper sleeps until the wheel's next deadline and no shorter. A timer that is due earlier than
that wakes it; without timers nothing does. An alarm whose timers were all cancelled still rings
once: to unset it would cost a task switch for every operation of a lightly loaded node, which
mostly end long before their time.

Tasks run in the reaper, outside the wheel, one after the other. They are synchronous; one that
fails is logged and the next one runs, but for InternalInvariant, which stops the node. After
SLICE_SECONDS on the loop the reaper lets others go first, however much is due.

With the reaper not started, `advance` does the same by hand.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from math import inf
from typing import NoReturn

import trio

from kraftpy.purgatory.wheel import TimerEntry, TimingWheel, WheelView
from kraftpy.world import Clock, InternalInvariant

__all__ = ["Timer", "TimerTask"]

log = logging.getLogger(__name__)

SLICE_SECONDS = 0.001
# Timers that move to a finer level before the reaper looks at the clock again.
_MOVES_IN_A_PIECE = 256
# Later than the millisecond that was asked for by this, because floats are not exact: woken a
# hair before it, the reaper would find nothing due and might never see virtual time move.
_LATER_SECONDS = 1e-6


class TimerTask(TimerEntry, ABC):
    """What runs at its deadline."""

    __slots__ = ()

    @abstractmethod
    def run(self) -> None:
        """Called by the reaper when the time is over. The task may be added again."""


class Timer:
    __slots__ = ("_alarm_ms", "_bell", "_chores", "_clock", "_wheel", "name", "wake_count")

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._wheel: TimingWheel[TimerTask] = TimingWheel(clock.monotonic_ms())
        self._chores: deque[Iterator[None]] = deque()
        self._bell = clock.bell()
        # Nobody has to be woken before the reaper sleeps.
        self._alarm_ms = -inf
        self.wake_count = 0

    @property
    def size(self) -> int:
        return self._wheel.size

    def add(self, task: TimerTask, delay_ms: int) -> None:
        """Run `task` when that time is over; one that is pending starts anew."""
        now_ms = self._clock.monotonic_ms()
        deadline_ms = now_ms + delay_ms
        self._wheel.add(task, deadline_ms, now_ms)
        if deadline_ms < self._alarm_ms:
            self._bell.ring()

    def cancel(self, task: TimerTask) -> bool:
        """The task won't run, also if it is due already. False if it was not pending."""
        return self._wheel.cancel(task)

    def defer(self, chore: Iterator[None]) -> None:
        """Have the reaper do this, a piece at a time, after what is due."""
        self._chores.append(chore)
        self._bell.ring()

    def advance(self) -> bool:
        """Do by hand what the reaper would do now. False if nothing was due, to run or to move."""
        return sum(1 for _ in self._pieces()) > 0

    def next_deadline_ms(self) -> int | None:
        """When there is something to do for the wheel; None if there are no timers."""
        return self._wheel.next_deadline_ms()

    def inspect(self) -> WheelView:
        return self._wheel.inspect()

    async def run(self) -> NoReturn:
        """The reaper: one task for each timer, until cancelled."""
        while True:
            await self._work()
            await self._sleep()
            self.wake_count += 1

    async def _work(self) -> None:
        clock = self._clock
        slice_ends = clock.monotonic() + SLICE_SECONDS
        for _ in self._pieces():
            if clock.monotonic() >= slice_ends:
                await trio.lowlevel.checkpoint()
                slice_ends = clock.monotonic() + SLICE_SECONDS

    async def _sleep(self) -> None:
        self._bell.clear()
        deadline_ms = self._wheel.next_deadline_ms()
        self._alarm_ms = inf if deadline_ms is None else deadline_ms
        try:
            await self._bell.wait_until(self._alarm_ms / 1000 + _LATER_SECONDS)
        finally:
            self._alarm_ms = -inf

    def _pieces(self) -> Iterator[None]:
        """Everything there is to do now, in pieces too small to divide."""
        wheel = self._wheel
        while True:
            now_ms = self._clock.monotonic_ms()
            deadline_ms = wheel.next_deadline_ms()
            if deadline_ms is not None and deadline_ms <= now_ms:
                for task in wheel.advance(now_ms, max_moves=_MOVES_IN_A_PIECE):
                    self._run(task)
                    yield
            elif self._chores:
                try:
                    next(self._chores[0])
                except StopIteration:
                    self._chores.popleft()
            else:
                return
            yield

    def _run(self, task: TimerTask) -> None:
        try:
            task.run()
        except InternalInvariant:
            raise
        except Exception:
            log.exception("timer=%s task failed: %r", self.name, task)
