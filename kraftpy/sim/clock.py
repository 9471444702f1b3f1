"""The virtual clock: time stands still while anybody can run, and then jumps to the next deadline.

trio's loop asks for `deadline_to_sleep_time` only when no task is runnable. That is the moment to
jump: to trio's own deadline or to the next alarm (kraftpy/world/alarms.py). When there is neither,
nothing can ever wake again: the clock writes down where every task waits and cancels the
simulation, so that all of it unwinds in order; whoever started it raises `deadlock`. That finds
every lost wake-up.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

import trio

from kraftpy.world.alarms import AlarmClock

__all__ = ["SimDeadlock", "VirtualClock", "describe_tasks"]


class SimDeadlock(Exception):  # noqa: N818 (it names what happened)
    """No task can run and none has a deadline. The message shows where each waits."""


class VirtualClock(AlarmClock):
    """A clock for `trio.run`.

    It looks for deadlocks within `simulated` only: afterwards trio waits for its own wake-ups.
    """

    __slots__ = ("_scope", "deadlock", "now")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._scope: trio.CancelScope | None = None
        self.deadlock: SimDeadlock | None = None

    def start_clock(self) -> None:
        """Nothing to start."""

    def current_time(self) -> float:
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        moment = min(deadline, self.alarms.next_time())
        if moment < inf:
            self.now = max(self.now, moment)
            self.alarms.ring(self.now, is_quiet=deadline > self.now)
        elif self._scope is None:
            return inf
        else:
            self._give_up(self._scope)
        return 0.0

    @contextmanager
    def simulated(self, time_limit_seconds: float = inf) -> Iterator[trio.CancelScope]:
        """What happens in here is the simulation."""
        with trio.CancelScope(deadline=time_limit_seconds) as self._scope:
            try:
                yield self._scope
            finally:
                self._scope = None

    def _give_up(self, scope: trio.CancelScope) -> None:
        if self.deadlock is None:
            self.deadlock = SimDeadlock(
                f"at virtual time {self.now:.6f} nothing can ever wake:\n{describe_tasks()}"
            )
        if scope.cancel_called:
            # Somebody refuses to be cancelled. trio reports this as an internal error of its
            # own, with the deadlock as the cause, and leaves the tasks lying.
            raise self.deadlock
        scope.cancel()


def describe_tasks() -> str:
    """Every task below the root and the line it waits in, in the order of their names."""
    root = trio.lowlevel.current_root_task()
    if root is None:
        return "no task"
    return "\n".join(sorted(_describe(task) for task in _descendants(root)))


def _descendants(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield child
            yield from _descendants(child)


def _describe(task: trio.lowlevel.Task) -> str:
    stack = traceback.StackSummary.extract(
        (frame, line) for frame, line in task.iter_await_frames()
    )
    return f"task {task.name}\n{''.join(stack.format())}"
