"""Run seeds of the cluster simulation: python -m kraftpy.sim.cluster_run --seed 7 [--count 100]."""

from __future__ import annotations

import sys

from kraftpy.sim.cluster_simulation import ClusterRun, ClusterSimulation
from kraftpy.sim.seed_run import run_seeds

__all__ = ["main", "summary"]


def main(arguments: list[str] | None = None) -> int:
    return run_seeds(
        "kraftpy.sim.cluster_run",
        lambda seed, window: ClusterSimulation(seed, window=window),
        summary,
        arguments,
    )


def summary(run: ClusterRun) -> str:
    return (
        f"seed {run.seed}: {run.event_count} events, {run.virtual_us / 1e6:.1f} s,"
        f" {run.elections} epochs led, {run.registrations} registrations,"
        f" {run.topics_created} topics, {run.partition_changes} changes of partitions,"
        f" {run.replies} replies, {run.acknowledged} records acknowledged,"
        f" {run.delivered} delivered, {run.trace.digest}"
    )


if __name__ == "__main__":
    sys.exit(main())
