"""The one adapter to trio's private scheduler: a seed fixes the order in which tasks run.

trio runs tasks in batches and shuffles each. With its private flag
`_ALLOW_DETERMINISTIC_SCHEDULING` it first sorts a batch by the tasks' order of creation, then
shuffles it with the module's own Random, `_r`. Setting the flag and the state of `_r` makes the
schedule a function of the seed; the shuffle is our explorer of interleavings.

Other threads may have loops of their own, such as a cluster that lives in the process of its tests.
They share the module, so the Random that takes `_r`'s place gives each thread its own: what other
loops draw changes nothing here.

A loop asks the system for events in each pass. In a simulation there are none but those of trio's
own entry queue (a signal, a thread that is about to end), so the system is asked only when
something is in that queue.

A loop also asks for instruments, eight times for each switch of tasks. trio keeps them in a
mapping that answers by a function in Python; a simulation has none, and a plain dict says so.

These names are private, so they are touched nowhere else. They are checked at every run; a trio
newer than the ones we have tried must also pass the canary first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, MutableSequence
from contextlib import contextmanager
from random import Random
from threading import get_ident
from typing import Any

import trio
from trio._core import _run as trio_run

__all__ = [
    "RandomOfThisThread",
    "UnsupportedTrio",
    "leave_out_instruments",
    "require_deterministic_trio",
    "schedule_trace",
    "seeded_scheduler",
]

_FLAG = "_ALLOW_DETERMINISTIC_SCHEDULING"
_RANDOM = "_r"
_EVENTS = "TheIOManager"
_OLDEST_TRIED = (0, 30)
_NEWEST_TRIED = (0, 35)


class UnsupportedTrio(Exception):  # noqa: N818 (it names what was found)
    """This trio's scheduler can't be made deterministic the way we know."""


@contextmanager
def seeded_scheduler(random: Random) -> Iterator[None]:
    """Within this, `trio.run` schedules by the state of `random`; afterwards all is as it was."""
    _require_private_names()
    old_random: Random = getattr(trio_run, _RANDOM)
    old_flag = getattr(trio_run, _FLAG)
    setattr(trio_run, _FLAG, True)
    setattr(trio_run, _RANDOM, RandomOfThisThread(random, old_random))
    try:
        with _without_system_events():
            yield
    finally:
        setattr(trio_run, _RANDOM, old_random)
        setattr(trio_run, _FLAG, old_flag)


@contextmanager
def _without_system_events() -> Iterator[None]:
    """Leave out the calls in this thread that can't give anything; on Linux, where it is tried."""
    manager: Any = getattr(trio_run, _EVENTS, None)
    if not sys.platform.startswith("linux") or not hasattr(manager, "get_events"):
        yield
        return
    ask_system, thread = manager.get_events, get_ident()
    context = trio_run.GLOBAL_RUN_CONTEXT

    def get_events(self: Any, timeout: float) -> Any:
        if timeout <= 0 and get_ident() == thread:
            entries = context.runner.entry_queue
            if not entries.queue and not entries.idempotent_queue:
                return []
        return ask_system(self, timeout)

    manager.get_events = get_events
    try:
        yield
    finally:
        manager.get_events = ask_system


def leave_out_instruments() -> None:
    """In the loop that runs, unless it has some. None can be added later."""
    runner: Any = trio_run.GLOBAL_RUN_CONTEXT.runner
    if not any(dict(getattr(runner, "instruments", {"unknown": True})).values()):
        runner.instruments = {}


class RandomOfThisThread(Random):
    """What trio draws: from `own` in the thread that made this, from `others` elsewhere."""

    def __init__(self, own: Random, others: Random) -> None:
        super().__init__(0)
        self._thread = get_ident()
        self._own = own
        self._others = others

    def _drawn_from(self) -> Random:
        return self._own if get_ident() == self._thread else self._others

    def random(self) -> float:
        return self._drawn_from().random()

    def shuffle(self, x: MutableSequence[Any]) -> None:
        # Most batches are of one task, for which nothing is drawn.
        if len(x) > 1:
            self._drawn_from().shuffle(x)


def require_deterministic_trio(version: str = trio.__version__) -> None:
    """Raise UnsupportedTrio unless the installed trio can be relied upon."""
    _require_private_names()
    major_minor = tuple(int(part) for part in version.split(".")[:2])
    if major_minor < _OLDEST_TRIED:
        raise UnsupportedTrio(f"trio {version} is older than 0.30, the oldest tried")
    if major_minor > _NEWEST_TRIED:
        traces = []
        for seed in (1, 1, 2):
            with seeded_scheduler(Random(seed)):
                traces.append(trio.run(schedule_trace))
        if traces[0] != traces[1] or traces[0] == traces[2]:
            raise UnsupportedTrio(
                f"trio {version} no longer schedules by {trio_run.__name__}.{_RANDOM}:"
                " kraftpy/sim/scheduler.py has to learn its new ways"
            )


def _require_private_names() -> None:
    flag = getattr(trio_run, _FLAG, None)
    random = getattr(trio_run, _RANDOM, None)
    if not isinstance(flag, bool) or not isinstance(random, Random):
        raise UnsupportedTrio(
            f"trio {trio.__version__} has no {trio_run.__name__}.{_FLAG} (bool) or no"
            f" {_RANDOM} (Random): kraftpy/sim/scheduler.py has to learn its new ways"
        )


async def schedule_trace() -> tuple[tuple[int, int], ...]:
    """The canary: an order of steps that depends on nothing but the scheduler."""
    trace: list[tuple[int, int]] = []

    async def walk(task: int) -> None:
        for step in range(20):
            trace.append((task, step))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for task in range(6):
            nursery.start_soon(walk, task)
    return tuple(trace)
