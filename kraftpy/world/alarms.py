"""Waiting for a moment, at the cost of a switch of tasks.

trio's way to wait for a moment is a scope that is cancelled then. That takes several times as long
as to switch tasks, and an idle simulation does little else. A loop whose clock is an AlarmClock
wakes those who wait at an Alarm by itself; on any other clock an Alarm is such a scope. Nobody can
tell the difference: tasks become runnable in the same turn of the loop.

What a task does between two waits may be given to its Alarm as a function. When that task would be
the only one to wake, the clock calls the function in its place: the same is done at the same
moment, and no task is switched to.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final, Protocol

import trio

__all__ = ["TRIO_TIME", "Alarm", "AlarmClock", "Alarms", "TrueTime"]

# Those that were rung before their time are swept out when there are so many of them.
_MANY_GONE = 1_000


class TrueTime(Protocol):
    """Shows the time of the loop's clock.

    A clock that stands still while tasks run has it in an attribute: it is asked for so often that
    the way through the loop would be a twentieth of a simulation's work.
    """

    @property
    def now(self) -> float: ...


class _TrioTime:
    """Of whatever loop this is."""

    __slots__ = ()

    @property
    def now(self) -> float:
        return trio.current_time()


TRIO_TIME: Final[TrueTime] = _TrioTime()


class _Entry:
    """A task that waits; None when it waits no more."""

    __slots__ = ("alarm", "task")

    def __init__(self, task: trio.lowlevel.Task, alarm: Alarm) -> None:
        self.task: trio.lowlevel.Task | None = task
        self.alarm = alarm


class Alarms:
    """Who is to be woken when. Equal moments are served in the order in which they were set."""

    __slots__ = ("_count", "_gone", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, _Entry]] = []
        self._count = 0
        self._gone = 0

    def next_time(self) -> float:
        """The first moment at which somebody is to be woken; inf if there is none."""
        heap = self._heap
        while heap:
            if heap[0][2].task is not None:
                return heap[0][0]
            heappop(heap)
            self._gone -= 1
        return inf

    def ring(self, now: float, *, is_quiet: bool = False) -> None:
        """Wake all whose moment has come. `is_quiet`: nobody else is about to run."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            entry = heappop(heap)[2]
            task = entry.task
            if task is None:
                self._gone -= 1
                continue
            entry.task = None
            if is_quiet and entry.alarm.can_serve and self.next_time() > now:
                entry.alarm.serve(self, task)
                return
            trio.lowlevel.reschedule(task)
            is_quiet = False

    def set(self, time: float, entry: _Entry) -> None:
        heappush(self._heap, (time, self._count, entry))
        self._count += 1

    def note_gone(self) -> None:
        """An entry's task waits no more."""
        self._gone += 1
        if self._gone > _MANY_GONE and self._gone * 2 > len(self._heap):
            self._heap = [each for each in self._heap if each[2].task is not None]
            heapify(self._heap)
            self._gone = 0

    @property
    def size(self) -> int:
        return len(self._heap)


class AlarmClock(trio.abc.Clock):
    """A clock of a loop that rings its alarms when it moves."""

    __slots__ = ("alarms",)

    def __init__(self) -> None:
        self.alarms = Alarms()


class Alarm:
    """One task waits at it at a time, again and again. Moments are those of trio's clock."""

    __slots__ = ("_alarms", "_entry", "_failure", "_scope", "_serve", "_time", "can_serve")

    def __init__(self, serve: Callable[[], float] | None = None) -> None:
        """`serve` may be called in place of waking the task, and returns until when that would wait
        next. What it raises is raised where the task waits.
        """
        self._alarms: Alarms | None = None
        self._entry: _Entry | None = None
        self._scope: trio.CancelScope | None = None
        self._time = inf
        self._serve = serve
        self._failure: BaseException | None = None
        self.can_serve = serve is not None

    async def wait_until(self, time: float) -> None:
        """Until then (inf: for ever), or until somebody rings; a checkpoint in any case."""
        clock = trio.lowlevel.current_clock()
        # By what it has: isinstance of an abstract class would take as long as all of this.
        alarms: Alarms | None = getattr(clock, "alarms", None)
        if alarms is None:
            with trio.CancelScope(deadline=time) as self._scope:
                await trio.sleep_forever()
            self._scope = None
            return
        if time <= clock.current_time():
            await trio.lowlevel.checkpoint()
            return
        self._alarms = alarms
        self._entry = entry = _Entry(trio.lowlevel.current_task(), self)
        self._time = time
        if time < inf:
            alarms.set(time, entry)
        await trio.lowlevel.wait_task_rescheduled(self._abort)
        self._entry = None
        if self._failure is not None:
            raise self._failure

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        if self._entry is not None and self._alarms is not None:
            self._leave(self._alarms, self._entry)
        return trio.lowlevel.Abort.SUCCEEDED

    def serve(self, alarms: Alarms, task: trio.lowlevel.Task) -> None:
        """The moment has come, and `task` alone would wake."""
        assert self._serve is not None
        try:
            time = self._serve()
        except BaseException as error:
            self._failure = error
            trio.lowlevel.reschedule(task)
            return
        # A new one: that of before may still lie somewhere, for a moment that was given up.
        self._entry = entry = _Entry(task, self)
        self._time = time
        if time < inf:
            alarms.set(time, entry)

    def _leave(self, alarms: Alarms, entry: _Entry) -> None:
        entry.task = None
        self._entry = None
        if self._time < inf:
            alarms.note_gone()

    def ring(self) -> None:
        """Wake whoever waits; the next one to come waits all the same."""
        entry = self._entry
        if entry is not None and entry.task is not None and self._alarms is not None:
            trio.lowlevel.reschedule(entry.task)
            self._leave(self._alarms, entry)
        elif self._scope is not None:
            self._scope.cancel()

    def ring_by(self, time: float) -> None:
        """Wake whoever waits at that moment, if it would have waited for longer."""
        entry = self._entry
        if self._scope is not None:
            self._scope.deadline = min(time, self._scope.deadline)
        elif entry is not None and entry.task is not None and time < self._time:
            if time <= trio.current_time():
                self.ring()
            elif self._alarms is not None:
                if self._time < inf:
                    # The entry for later goes without an effect when its time has come.
                    self._alarms.note_gone()
                self._time = time
                self._alarms.set(time, entry)
