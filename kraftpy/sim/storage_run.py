"""Run seeds of the simulation of logs: python -m kraftpy.sim.storage_run --seed 7 [--count 100]."""

from __future__ import annotations

import logging
import sys

from kraftpy.sim.seed_run import run_seeds
from kraftpy.sim.storage_simulation import StorageRun, StorageSimulation

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    logging.getLogger("kraftpy").addHandler(logging.NullHandler())
    return run_seeds(
        "kraftpy.sim.storage_run",
        lambda seed, window: StorageSimulation(seed, window=window),
        _summary,
        arguments,
    )


def _summary(run: StorageRun) -> str:
    return (
        f"seed {run.seed}: {run.event_count} effects, {run.virtual_us / 1e6:.1f} s,"
        f" {run.lives} lives, {run.batches} batches, {run.recovered} recovered, {run.trace.digest}"
    )


if __name__ == "__main__":
    sys.exit(main())
