"""The one adapter to trio's private scheduler: a seed fixes the order in which tasks run.

trio runs tasks in batches and shuffles each. With its private flag
`_ALLOW_DETERMINISTIC_SCHEDULING` it first sorts a batch by the tasks' order of creation, then
shuffles it with the module's own Random, `_r`. Setting the flag and the state of `_r` makes the
schedule a function of the seed; the shuffle is our explorer of interleavings.

Both names are private, so they are touched nowhere else. They are checked at every run; a trio
newer than the ones we have tried must also pass the canary first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import trio
from trio._core import _run as trio_run

__all__ = ["UnsupportedTrio", "require_deterministic_trio", "schedule_trace", "seeded_scheduler"]

_FLAG = "_ALLOW_DETERMINISTIC_SCHEDULING"
_RANDOM = "_r"
_OLDEST_TRIED = (0, 30)
_NEWEST_TRIED = (0, 35)


class UnsupportedTrio(Exception):  # noqa: N818 (it names what was found)
    """This trio's scheduler can't be made deterministic the way we know."""


@contextmanager
def seeded_scheduler(random: Random) -> Iterator[None]:
    """Within this, `trio.run` schedules by the state of `random`; afterwards all is as it was."""
    _require_private_names()
    scheduler_random: Random = getattr(trio_run, _RANDOM)
    old_flag = getattr(trio_run, _FLAG)
    old_state = scheduler_random.getstate()
    setattr(trio_run, _FLAG, True)
    scheduler_random.setstate(random.getstate())
    try:
        yield
    finally:
        scheduler_random.setstate(old_state)
        setattr(trio_run, _FLAG, old_flag)


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
