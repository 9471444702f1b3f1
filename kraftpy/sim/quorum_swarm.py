"""What one seed's quorum is like and what may happen to it: drawn features, then their parameters.

Each seed gets a subset of the faults. Leaving most out of a run finds more than having all in
every run (swarm testing), because faults hide each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

__all__ = ["Fault", "QuorumSwarm", "draw_swarm"]


class Fault(StrEnum):
    """What the nemesis can do."""

    CRASH = "crash"
    PAUSE = "pause"
    PARTITION = "partition"
    ONE_WAY = "one-way partition"
    BRIDGE = "bridge partition"
    RESIGN = "resign"
    SHUT_DOWN = "shut down"
    CHANGE_VOTERS = "change voters"
    LOSE_DISK = "lose disk"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class QuorumSwarm:
    """The parameters of one run. Probabilities are for each message, times in microseconds."""

    voters: int = 3
    observers: int = 0
    dynamic: bool = True
    auto_join: bool = False
    faults: tuple[Fault, ...] = ()
    delay_min_us: int = 200
    delay_mean_us: int = 1_000
    loss: float = 0.0
    duplication: float = 0.0
    sync_mean_us: int = 500
    evidence: float = 0.5
    drift: float = 0.0
    nemesis_mean_us: int = 400_000
    proposal_mean_us: int = 20_000
    values_max: int = 3
    # Uncommitted offsets beyond which nothing more is proposed.
    open_offsets_max: int = 50
    fetch_max_bytes: int = 1_024

    @property
    def round_trip_us(self) -> int:
        """From one Fetch of a replica to the next, on average."""
        return 2 * (self.delay_min_us + self.delay_mean_us) + self.sync_mean_us


def draw_swarm(random: Random) -> QuorumSwarm:
    """One seed's world."""
    dynamic = random.random() < 0.7
    faults = [fault for fault in Fault if random.random() < 0.45]
    if not dynamic:
        # Voters begin to change when the nemesis has raised kraft.version. Before, a node that
        # comes back empty would still be taken for the voter that it was.
        faults = [fault for fault in faults if fault is not Fault.LOSE_DISK]
    swarm = QuorumSwarm(
        voters=random.choice((1, 2, 3, 3, 3, 4, 5, 5)),
        observers=random.choice((0, 0, 1, 2)),
        dynamic=dynamic,
        auto_join=dynamic and random.random() < 0.5,
        faults=tuple(faults),
        delay_min_us=random.choice((50, 200, 2_000, 20_000)),
        delay_mean_us=random.choice((300, 1_000, 10_000, 60_000)),
        loss=random.choice((0.0, 0.0, 0.01, 0.1, 0.3)),
        duplication=random.choice((0.0, 0.0, 0.05, 0.3)),
        sync_mean_us=random.choice((100, 1_000, 10_000, 100_000)),
        evidence=random.choice((0.0, 0.5, 1.0)),
        drift=random.choice((0.0, 0.05, 0.1)),
        nemesis_mean_us=random.choice((100_000, 400_000, 1_500_000)),
        proposal_mean_us=random.choice((5_000, 20_000, 100_000)),
        values_max=random.choice((1, 3, 8)),
        open_offsets_max=random.choice((5, 50, 200)),
        fetch_max_bytes=random.choice((1, 300, 100_000)),
    )
    if random.random() < 0.1:
        swarm = replace(swarm, delay_min_us=50_000, delay_mean_us=200_000)
    if swarm.fetch_max_bytes < 1_000:
        # A replica takes a few batches in each round trip; it must be able to keep up.
        pace_us = max(swarm.proposal_mean_us, 2 * swarm.round_trip_us)
        swarm = replace(swarm, proposal_mean_us=pace_us)
    return swarm
