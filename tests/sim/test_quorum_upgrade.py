"""Static quorums that become dynamic ones under way."""

from __future__ import annotations

from kraftpy.sim.quorum_simulation import QuorumSimulation
from kraftpy.sim.quorum_swarm import Fault, QuorumSwarm

FAULTS = (Fault.CHANGE_VOTERS, Fault.CRASH, Fault.RESIGN, Fault.PARTITION, Fault.SNAPSHOT)


def test_kraft_version_rises_under_faults() -> None:
    """KRF-82: every invariant holds, and the voters change afterwards as in any other quorum"""
    swarm = QuorumSwarm(
        voters=3,
        observers=1,
        dynamic=False,
        faults=FAULTS,
        nemesis_mean_us=2_000_000,
        proposal_mean_us=200_000,
    )
    upgraded = changed = 0
    for seed in range(12):
        simulation = QuorumSimulation(seed, swarm)
        simulation.run(6_000)
        cores = [node.core for node in simulation.network.nodes.values() if node.core is not None]
        upgraded += any(core.quorum.kraft_versions.latest for core in cores)
        changed += any(core.quorum.voters.latest.ids != (1, 2, 3) for core in cores)
    assert upgraded >= 3
    assert changed >= 1
