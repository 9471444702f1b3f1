"""Run seeds of the simulation of requests: python -m kraftpy.sim.server_run --seed 7."""

from __future__ import annotations

import sys

from kraftpy.sim.seed_run import run_seeds
from kraftpy.sim.server_simulation import ServerRun, ServerSimulation

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    return run_seeds(
        "kraftpy.sim.server_run",
        lambda seed, window: ServerSimulation(seed, window=window),
        _summary,
        arguments,
    )


def _summary(run: ServerRun) -> str:
    return (
        f"seed {run.seed}: {run.event_count} pieces, {run.virtual_us / 1e6:.1f} s,"
        f" {run.answered} answers, {run.expired} after their timeouts, {run.trace.digest}"
    )


if __name__ == "__main__":
    sys.exit(main())
