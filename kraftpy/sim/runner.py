"""Run a whole system under one seed: the same seed gives the same run, event for event.

    async def main(sim: Simulation) -> None:
        world = sim.world("node-1")
        ...

    result = run_simulation(main, seed=7)
    result.trace.digest

What makes it deterministic: the seeded scheduler, the virtual clock, the memory twins of the
ports, named random streams that hang on the seed alone, and the guard that refuses everything
else. The garbage collector is off during a run, because it runs code at moments that depend on
the history of the process.

A failure carries a note with the seed, the virtual time and the number of events so far. A run that
does not end by itself is ended at `time_limit_seconds` of virtual time.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

import trio

from kraftpy.sim.clock import VirtualClock
from kraftpy.sim.digest import EventDigest, RunTrace
from kraftpy.sim.guard import SimulationRuleBroken, guarded
from kraftpy.sim.scheduler import (
    leave_out_instruments,
    require_deterministic_trio,
    seeded_scheduler,
)
from kraftpy.sim.simulation import Simulation
from kraftpy.world.memory_rng import MemoryRng

__all__ = ["SimOverrun", "SimulationResult", "run_simulation"]

T = TypeVar("T")


class SimOverrun(Exception):  # noqa: N818 (it names what happened)
    """The simulation did not end within its limit of virtual time."""


@dataclass(frozen=True, slots=True)
class SimulationResult(Generic[T]):
    seed: int
    value: T
    trace: RunTrace
    virtual_seconds: float


def run_simulation(
    main: Callable[[Simulation], Awaitable[T]],
    *,
    seed: int,
    time_limit_seconds: float = inf,
    window: range = range(0),
    digest: EventDigest | None = None,
) -> SimulationResult[T]:
    """Run `main` to its end. `window` is the range of events to be kept in words.

    Who wants to know of a run that fails, too, gives it a digest of its own.
    """
    require_deterministic_trio()
    clock = VirtualClock()
    digest = digest or EventDigest(window)
    simulation = Simulation(seed, digest, clock)
    collecting = gc.isenabled()
    gc.disable()
    try:
        with seeded_scheduler(MemoryRng(seed, "scheduler").stream("shuffle")):
            value = trio.run(_root, main, simulation, clock, time_limit_seconds, clock=clock)
    except BaseException as error:
        error.add_note(
            f"simulation: seed={seed} virtual_time={clock.current_time():.6f}"
            f" events={digest.trace().event_count}"
        )
        raise
    finally:
        gc.collect()
        if collecting:
            gc.enable()
    return SimulationResult(seed, value, digest.trace(), clock.current_time())


async def _root(
    main: Callable[[Simulation], Awaitable[T]],
    simulation: Simulation,
    clock: VirtualClock,
    time_limit_seconds: float,
) -> T:
    leave_out_instruments()
    outcome: list[T] = []
    failure: BaseException | None = None
    with guarded(), clock.simulated(time_limit_seconds):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(simulation.fabric.run)
            try:
                outcome.append(await main(simulation))
            except trio.Cancelled:
                raise
            except BaseException as error:
                failure = error
            nursery.cancel_scope.cancel()
    if clock.deadlock is not None:
        raise clock.deadlock
    if failure is not None:
        raise _plain(failure)
    if not outcome:
        raise SimOverrun(f"still running after {time_limit_seconds} virtual seconds")
    return outcome[0]


def _plain(failure: BaseException) -> BaseException:
    """The broken rule itself, rather than the nest of groups it came in."""
    while isinstance(failure, BaseExceptionGroup):
        broken = failure.subgroup(SimulationRuleBroken)
        if broken is None:
            return failure
        failure = broken.exceptions[0]
    return failure
