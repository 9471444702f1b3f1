"""Run seeds of the cluster simulation that have data, all of them:

python -m kraftpy.sim.cluster_data_run --seed 7 [--count 100]
"""

from __future__ import annotations

import sys

from kraftpy.sim.cluster_run import summary
from kraftpy.sim.cluster_simulation import ClusterSimulation
from kraftpy.sim.cluster_swarm import draw_data_swarm
from kraftpy.sim.seed_run import run_seeds
from kraftpy.world.memory_rng import MemoryRng

__all__ = ["data_simulation", "main"]

_NAME = "kraftpy.sim.cluster_data_run"


def data_simulation(seed: int, window: range = range(0)) -> ClusterSimulation:
    swarm = draw_data_swarm(MemoryRng(seed, "cluster").stream("data swarm"))
    return ClusterSimulation(seed, swarm, window, _NAME)


def main(arguments: list[str] | None = None) -> int:
    return run_seeds(_NAME, data_simulation, summary, arguments)


if __name__ == "__main__":
    sys.exit(main())
