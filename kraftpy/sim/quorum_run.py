"""Run seeds of the quorum simulation: python -m kraftpy.sim.quorum_run --seed 7 [--count 100]."""

from __future__ import annotations

import sys

from kraftpy.sim.quorum_simulation import QuorumRun, QuorumSimulation
from kraftpy.sim.seed_run import run_seeds

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    return run_seeds(
        "kraftpy.sim.quorum_run",
        lambda seed, window: QuorumSimulation(seed, window=window),
        _summary,
        arguments,
    )


def _summary(run: QuorumRun) -> str:
    return (
        f"seed {run.seed}: {run.event_count} events, {run.virtual_us / 1e6:.1f} s,"
        f" {run.elections} epochs led, {run.committed_end} committed, {run.trace.digest}"
    )


if __name__ == "__main__":
    sys.exit(main())
