"""A run of one seed at level L3, and what it leaves behind."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from kraftpy.sim.digest import EventDigest, RunTrace
from kraftpy.sim.runner import SimulationResult, run_simulation
from kraftpy.sim.whole.more_faults import draw_more_faults
from kraftpy.sim.whole.schedule import PlannedFault, draw_plan
from kraftpy.sim.whole.swarm import WholeSwarm, draw_more, draw_swarm
from kraftpy.sim.whole.system import WholeOutcome, WholeSystem
from kraftpy.world.memory_rng import MemoryRng

__all__ = ["WholeCase", "make_case"]

_TIME_LIMIT_SECONDS = 3_000.0
_ADDRESS = re.compile(r"\b10\.0\.0\.\d+\b")


class WholeCase:
    """One seed's world and plan, ready to run once; both may have been made smaller."""

    def __init__(
        self,
        seed: int,
        swarm: WholeSwarm,
        plan: Sequence[PlannedFault],
        *,
        seconds: float,
        messages: int | None = None,
    ) -> None:
        self.seed = seed
        self.swarm = swarm
        self.plan = tuple(plan)
        self.seconds = seconds
        self.system = WholeSystem(swarm, plan, seconds=seconds, messages=messages)
        self._digest = EventDigest()

    def run(self, window: range = range(0)) -> SimulationResult[WholeOutcome]:
        """Raises what ended it, with a note of seed, time and events."""
        self._digest = EventDigest(window)
        return run_simulation(
            self.system.run,
            seed=self.seed,
            time_limit_seconds=_TIME_LIMIT_SECONDS,
            digest=self._digest,
        )

    # When it has run, however it ended.

    @property
    def trace(self) -> RunTrace:
        return self._digest.trace()

    @property
    def virtual_seconds(self) -> float:
        return self.system.last_seconds

    def readable(self, line: str) -> str:
        """An event in words, with the names of machines in place of their addresses."""
        return _ADDRESS.sub(lambda found: self.system.machine_at(found.group()), line)


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
    drawn = swarm or draw_more(random.stream("more"), draw_swarm(random.stream("swarm")))
    plan = draw_plan(random.stream("plan"), drawn, seconds)
    plan += draw_more_faults(random.stream("more faults"), drawn, seconds, len(plan))
    kept = [planned for planned in plan if planned.number not in without]
    return WholeCase(seed, drawn, kept, seconds=seconds, messages=messages)
