"""Run seeds of the simulation of coordinators:

python -m kraftpy.sim.coordinator_run --seed 7 [--count 100]
"""

from __future__ import annotations

import logging
import sys

from kraftpy.sim.coordinator_simulation import CoordinatorRun, CoordinatorSimulation
from kraftpy.sim.seed_run import run_seeds

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    logging.getLogger("kraftpy").addHandler(logging.NullHandler())
    return run_seeds(
        "kraftpy.sim.coordinator_run",
        lambda seed, window: CoordinatorSimulation(seed, window=window),
        _summary,
        arguments,
    )


def _summary(run: CoordinatorRun) -> str:
    return (
        f"seed {run.seed}: {run.event_count} events, {run.virtual_us / 1e6:.1f} s,"
        f" {run.moves} leaders, {run.commits} commits, {run.reads} reads,"
        f" {run.assignments} assignments, {run.transactions} transactions, {run.trace.digest}"
    )


if __name__ == "__main__":
    sys.exit(main())
