"""A run of one seed at level L3, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kraftpy.sim.runner import SimulationResult, run_simulation
from kraftpy.sim.whole.schedule import draw_plan
from kraftpy.sim.whole.swarm import WholeSwarm, draw_swarm
from kraftpy.sim.whole.system import WholeOutcome, WholeSystem
from kraftpy.world.memory_rng import MemoryRng

__all__ = ["WholeCase", "make_case"]

_TIME_LIMIT_SECONDS = 3_000.0


@dataclass(slots=True)
class WholeCase:
    """One seed's world and plan, ready to run; both may have been made smaller."""

    seed: int
    swarm: WholeSwarm
    system: WholeSystem

    def run(self, window: range = range(0)) -> SimulationResult[WholeOutcome]:
        """Raises what ended it, with a note of seed, time and events."""
        return run_simulation(
            self.system.run,
            seed=self.seed,
            time_limit_seconds=_TIME_LIMIT_SECONDS,
            window=window,
        )


def make_case(
    seed: int,
    *,
    seconds: float = 60.0,
    messages: int | None = None,
    swarm: WholeSwarm | None = None,
    without: Collection[int] = (),
) -> WholeCase:
    """`without` are the numbers of planned faults that are left out."""
    random = MemoryRng(seed, "whole")
    drawn = swarm or draw_swarm(random.stream("swarm"))
    plan = draw_plan(random.stream("plan"), drawn, seconds)
    kept = [planned for planned in plan if planned.number not in without]
    return WholeCase(seed, drawn, WholeSystem(drawn, kept, seconds=seconds, messages=messages))
