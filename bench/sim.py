"""How fast the simulations are, on one processor with all checks on.

Times are the processor's own, so that others on the machine don't count.
"""

from __future__ import annotations

import time

from kraftpy.sim.levels import LEVELS, SeedReport, Size, run_case
from kraftpy.sim.whole.run import WholeCase
from kraftpy.sim.whole.swarm import WholeSwarm

__all__ = ["main"]

_SEEDS = 3
_IDLE_SECONDS = 600.0


def main() -> None:
    for level in LEVELS:
        if level.name == "whole":
            continue
        reports = [level.run(seed, Size(), range(0)) for seed in range(_SEEDS)]
        _show(level.name, sum(each.steps for each in reports), _seconds(reports), "events")
    swarm = WholeSwarm(workloads=("queue-assign", "idempotent"), rate=150.0, faults=())
    reports = [run_case(WholeCase(seed, swarm, (), seconds=20.0)) for seed in range(_SEEDS)]
    _show("whole, busy", sum(each.steps for each in reports), _seconds(reports), "messages")
    idle = WholeCase(0, WholeSwarm(workloads=(), faults=()), (), seconds=_IDLE_SECONDS)
    began = time.process_time()
    report = run_case(idle)
    ratio = report.virtual_seconds / (time.process_time() - began)
    print(f"  whole, idle      {ratio:8,.0f} times real time (goal: 100)")


def _seconds(reports: list[SeedReport]) -> float:
    return sum(each.processor_seconds for each in reports)


def _show(name: str, steps: int, seconds: float, unit: str) -> None:
    goal = 3_000 if unit == "messages" else 15_000
    print(f"  {name:<16} {steps / seconds:8,.0f} {unit}/s a processor (goal: {goal:,})")
