"""What one seed's coordinators go through: who their clients are, and what goes wrong.

As in the other simulations a seed has some of everything and never all of it. Times are much
shorter than in real clusters, so that sessions end and rebalances happen all the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random

__all__ = ["CoordinatorFault", "CoordinatorSwarm", "draw_coordinator_swarm"]


class CoordinatorFault(StrEnum):
    """What the nemesis does to a partition of an internal topic, or to a broker."""

    # Another broker leads, with everything that was written.
    MOVE = "move"
    # The next leader has only some of what was not committed.
    MOVE_WITH_LOSS = "move with loss"
    # The same, and the leader before hears of it late.
    ZOMBIE = "zombie"
    # The next leader does not stay for long enough to have anything committed.
    TWO_MOVES = "two moves"
    CRASH = "crash"
    PAUSE = "pause"
    # Followers are slow, and nothing is committed for a while.
    STALL = "stall"
    # The topic gets another partition.
    GROW = "grow"


@dataclass(frozen=True, slots=True)
class CoordinatorSwarm:
    """The parameters of one run; times in the units that their names end with."""

    brokers: int = 3
    # Of `__consumer_offsets`.
    partitions: int = 1
    faults: tuple[CoordinatorFault, ...] = ()
    nemesis_mean_us: int = 1_000_000
    # How many clients of each kind there are; those of a kind are one group.
    classic: int = 3
    consumers: int = 3
    # They consume, transform and produce, in transactions of version 2 or 1.
    workers: int = 0
    worker_version: int = 2
    transaction_timeout_ms: int = 3_000
    topic_partitions: int = 4
    static: float = 0.3
    # Of the members of KIP-848, how many subscribe by a pattern.
    patterns: float = 0.0
    # Of what clients do between heartbeats: leaving, dying, falling silent.
    unrest: float = 0.1
    session_ms: int = 1_500
    rebalance_ms: int = 2_000
    heartbeat_ms: int = 300
    initial_delay_ms: int = 300
    delay_mean_us: int = 1_000
    loss: float = 0.0
    duplication: float = 0.0
    # Of requests and answers, how many come seconds late.
    late: float = 0.0
    replication_mean_us: int = 2_000
    append_failures: float = 0.0
    # How much of a log is loaded at once.
    load_bytes: int = 2_000
    linger_ms: int = -1
    write_timeout_ms: int = 1_000
    # How late brokers hear who leads.
    feed_mean_us: int = 5_000
    drift: float = 0.0


def draw_coordinator_swarm(random: Random) -> CoordinatorSwarm:
    """One seed's world."""
    classic = random.choice((0, 2, 3, 4))
    consumers = random.choice((0, 2, 3, 4))
    workers = random.choice((0, 0, 2, 3))
    if classic + consumers + workers == 0:
        classic = consumers = 3
    return CoordinatorSwarm(
        brokers=random.choice((2, 3)),
        partitions=random.choice((1, 2)),
        faults=tuple(fault for fault in CoordinatorFault if random.random() < 0.4),
        nemesis_mean_us=random.choice((200_000, 700_000, 2_000_000)),
        classic=classic,
        consumers=consumers,
        workers=workers,
        worker_version=random.choice((2, 2, 1)),
        transaction_timeout_ms=random.choice((800, 3_000)),
        topic_partitions=random.choice((1, 3, 5)),
        static=random.choice((0.0, 0.3, 1.0)),
        patterns=random.choice((0.0, 0.0, 0.5)),
        unrest=random.choice((0.02, 0.1, 0.25)),
        session_ms=random.choice((800, 1_500, 4_000)),
        rebalance_ms=random.choice((1_000, 3_000)),
        heartbeat_ms=random.choice((100, 250)),
        initial_delay_ms=random.choice((0, 300)),
        delay_mean_us=random.choice((300, 3_000, 30_000)),
        loss=random.choice((0.0, 0.02, 0.1)),
        duplication=random.choice((0.0, 0.05, 0.2)),
        late=random.choice((0.0, 0.02, 0.1)),
        replication_mean_us=random.choice((500, 5_000, 50_000)),
        append_failures=random.choice((0.0, 0.01, 0.1)),
        load_bytes=random.choice((300, 20_000)),
        linger_ms=random.choice((-1, -1, 0, 20)),
        write_timeout_ms=random.choice((200, 1_000, 5_000)),
        feed_mean_us=random.choice((500, 20_000, 200_000)),
        drift=random.choice((0.0, 0.05, 0.2)),
    )
