"""What one seed's cluster is like: its quorum, brokers, features, timeouts, and who asks for what.

As for the quorum alone, a seed has some of everything and never all of it. Voters are fixed here:
their changes, and disks that are lost, are the quorum simulation's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import TypeVar

from kraftpy.metadata.features import LATEST_METADATA_VERSION
from kraftpy.sim.quorum_swarm import Fault, QuorumSwarm

__all__ = ["NEVER_FLUSHED", "ClusterSwarm", "Wish", "draw_cluster_swarm", "draw_data_swarm"]

# Before ISR shrinks kept the leader epoch, before directories, before and after ELR.
_METADATA_VERSIONS = (11, 14, 21, 25, LATEST_METADATA_VERSION.level)
_FIRST_VERSION_WITH_ELR = 23
NEVER_FLUSHED = 1 << 62


class Wish(StrEnum):
    """What clients and operators ask for."""

    CREATE = "create"
    DELETE = "delete"
    GROW = "grow"
    ELECT = "elect"
    REASSIGN = "reassign"
    CONFIGURE = "configure"
    UNREGISTER = "unregister"


@dataclass(frozen=True, slots=True)
class ClusterSwarm:
    """The parameters of one run; times in the units that their names end with."""

    quorum: QuorumSwarm
    brokers: int = 3
    metadata_version: int = LATEST_METADATA_VERSION.level
    has_elr: bool = True
    allows_unclean: bool = False
    wishes: tuple[Wish, ...] = tuple(Wish)
    topics_max: int = 6
    partitions_max: int = 3
    wish_mean_us: int = 150_000
    # From one look of a broker at its partitions to the next.
    look_mean_us: int = 250_000
    # How long a woken task waits for its turn.
    task_mean_us: int = 200
    session_timeout_ms: int = 3_000
    heartbeat_interval_ms: int = 600
    idle_interval_ms: int = 500
    balance_interval_ms: int = 300_000
    # Of calls and answers, how many come seconds late, as from a connection that was stuck.
    late: float = 0.0
    # Of shutdowns, how many are controlled.
    controlled: float = 0.5
    # Whether brokers have real replicas, with producers and consumers.
    data: bool = False
    # `flush.messages` of all topics: 1 for flush mode.
    flush_messages: int = NEVER_FLUSHED
    flush_us: int = 1_000
    lag_time_max_ms: int = 2_000
    # How long a follower waits after an answer without records.
    fetch_pause_us: int = 10_000
    # How much a follower gets at once; never less than a batch.
    fetch_bytes: int = 300
    # Of the looks at its partitions, with how many a broker writes down their high watermarks.
    high_watermark_written: float = 0.2
    produce_mean_us: int = 20_000
    # How late brokers hear of what is committed; 0 for as soon as a task has its turn.
    feed_mean_us: int = 0
    # Of the brokers, how many fetch much less often than the others.
    slow: float = 0.0
    # How long a broker waits for an answer about partitions before it asks again.
    alteration_limit_us: int = 1_000_000
    # How few replicas a new topic may have.
    replicas_min: int = 1
    # Of producers, how many are idempotent; whether those have transactions.
    sequenced: float = 0.0
    transactional: bool = False
    # Of consumers, how many ask any replica; of all clients, how many delete records.
    follower_reads: float = 0.05
    deletions: float = 0.0


def draw_cluster_swarm(random: Random) -> ClusterSwarm:
    """One seed's world."""
    controllers = random.choice((1, 3, 3, 3, 5))
    brokers = random.choice((1, 2, 3, 3, 4, 5))
    possible = [fault for fault in Fault if fault not in (Fault.CHANGE_VOTERS, Fault.LOSE_DISK)]
    quorum = QuorumSwarm(
        voters=controllers,
        observers=brokers,
        dynamic=False,
        faults=tuple(fault for fault in possible if random.random() < 0.35),
        delay_min_us=random.choice((50, 200, 2_000)),
        delay_mean_us=random.choice((300, 1_000, 10_000, 40_000)),
        loss=random.choice((0.0, 0.0, 0.01, 0.05, 0.2)),
        duplication=random.choice((0.0, 0.0, 0.05, 0.3)),
        sync_mean_us=random.choice((100, 1_000, 10_000, 50_000)),
        evidence=random.choice((0.0, 0.5, 1.0)),
        drift=random.choice((0.0, 0.05, 0.1)),
        nemesis_mean_us=random.choice((300_000, 1_000_000, 3_000_000)),
        fetch_max_bytes=random.choice((2_000, 100_000)),
    )
    if random.random() < 0.1:
        quorum = replace(quorum, delay_min_us=50_000, delay_mean_us=100_000)
    metadata_version = random.choice(_METADATA_VERSIONS)
    # A heartbeat waits for a commit as well; a session that can't be kept up tests nothing.
    session_timeout_ms = max(random.choice((800, 2_000, 9_000)), 15 * quorum.round_trip_us // 1_000)
    swarm = ClusterSwarm(
        quorum=quorum,
        brokers=brokers,
        metadata_version=metadata_version,
        has_elr=metadata_version >= _FIRST_VERSION_WITH_ELR and random.random() < 0.7,
        allows_unclean=random.random() < 0.3,
        wishes=(Wish.CREATE, *(wish for wish in Wish if random.random() < 0.6)),
        topics_max=random.choice((2, 6, 15)),
        partitions_max=random.choice((1, 3, 6)),
        wish_mean_us=random.choice((20_000, 60_000, 200_000)),
        look_mean_us=random.choice((20_000, 100_000, 300_000)),
        task_mean_us=random.choice((10, 200, 5_000)),
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=session_timeout_ms // 5,
        idle_interval_ms=random.choice((100, 500, 500)),
        balance_interval_ms=random.choice((2_000, 300_000)),
        late=random.choice((0.0, 0.01, 0.1)),
        controlled=random.choice((0.0, 0.5, 1.0)),
    )
    return _with_data(swarm, random) if random.random() < 0.25 else swarm


def draw_data_swarm(random: Random) -> ClusterSwarm:
    """One seed's world, with data."""
    swarm = draw_cluster_swarm(random)
    return swarm if swarm.data else _with_data(swarm, random)


def _with_data(swarm: ClusterSwarm, random: Random) -> ClusterSwarm:
    """Few partitions, of which each sees much, and several brokers. Most seeds have one theme."""
    brokers = max(3, swarm.brokers)
    mixed = replace(
        swarm,
        quorum=replace(swarm.quorum, observers=brokers),
        data=True,
        brokers=brokers,
        topics_max=2,
        partitions_max=min(swarm.partitions_max, 2),
        flush_messages=random.choice((1, NEVER_FLUSHED)),
        flush_us=random.choice((100, 5_000, 50_000)),
        lag_time_max_ms=random.choice((50, 300, 1_000, 5_000)),
        fetch_pause_us=random.choice((2_000, 10_000, 50_000)),
        fetch_bytes=random.choice((1, 300, 5_000)),
        produce_mean_us=random.choice((5_000, 20_000, 100_000)),
        high_watermark_written=random.choice((0.0, 0.2)),
        feed_mean_us=random.choice((0, 0, 20_000, 200_000)),
        slow=random.choice((0.0, 0.3)),
        replicas_min=random.choice((1, 2, 3)),
        sequenced=random.choice((0.0, 0.5, 1.0)),
        transactional=random.random() < 0.5,
        follower_reads=random.choice((0.05, 0.6)),
        deletions=random.choice((0.0, 0.0, 0.02, 0.1)),
    )
    return _THEMES[random.randrange(len(_THEMES))](mixed, random)


def _anything(swarm: ClusterSwarm, random: Random) -> ClusterSwarm:
    del random
    return swarm


def _changing_leaders(swarm: ClusterSwarm, random: Random) -> ClusterSwarm:
    """Operators move leaders about, and everybody hears of it at another time."""
    return replace(
        swarm,
        quorum=_swift(swarm.quorum, random, Fault.PAUSE, Fault.ONE_WAY),
        wishes=(Wish.CREATE, Wish.ELECT, Wish.ELECT, Wish.REASSIGN),
        wish_mean_us=random.choice((100_000, 300_000)),
        feed_mean_us=random.choice((20_000, 100_000, 500_000)),
        look_mean_us=20_000,
        lag_time_max_ms=random.choice((50, 300)),
        fetch_bytes=random.choice((1, 1, 300)),
        produce_mean_us=5_000,
        slow=random.choice((0.3, 0.6)),
        replicas_min=3,
    )


def _lagging_followers(swarm: ClusterSwarm, random: Random) -> ClusterSwarm:
    """Who is in sync changes all the time, and answers are late, lost or doubled."""
    quorum = replace(
        _swift(swarm.quorum, random, Fault.PAUSE, Fault.PARTITION, Fault.SNAPSHOT),
        loss=random.choice((0.0, 0.02, 0.1)),
        duplication=random.choice((0.0, 0.3)),
    )
    return replace(
        swarm,
        quorum=quorum,
        wishes=(Wish.CREATE, *_some(random, Wish.CONFIGURE, Wish.REASSIGN)),
        wish_mean_us=200_000,
        look_mean_us=20_000,
        late=random.choice((0.0, 0.1)),
        lag_time_max_ms=random.choice((20, 100)),
        feed_mean_us=random.choice((0, 100_000, 500_000)),
        alteration_limit_us=random.choice((100_000, 1_000_000)),
        # Whoever fetches at all has everything then, and is in sync again.
        fetch_bytes=5_000,
        produce_mean_us=random.choice((5_000, 20_000)),
        slow=random.choice((0.3, 0.6)),
        replicas_min=3,
    )


def _failing_machines(swarm: ClusterSwarm, random: Random) -> ClusterSwarm:
    """With whatever was not flushed."""
    quorum = replace(
        swarm.quorum, faults=(Fault.CRASH, *_some(random, Fault.PARTITION)), nemesis_mean_us=500_000
    )
    session_timeout_ms = max(800, 15 * quorum.round_trip_us // 1_000)
    return replace(
        swarm,
        quorum=quorum,
        wishes=(Wish.CREATE, *_some(random, Wish.ELECT, Wish.CONFIGURE)),
        wish_mean_us=200_000,
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=session_timeout_ms // 5,
        controlled=random.choice((0.0, 0.5)),
        flush_us=random.choice((5_000, 50_000)),
        replicas_min=2,
    )


def _changing_minimum(swarm: ClusterSwarm, random: Random) -> ClusterSwarm:
    """How many have to be in sync changes as often as who is; with eligible leaders beside them."""
    return replace(
        _lagging_followers(swarm, random),
        metadata_version=LATEST_METADATA_VERSION.level,
        has_elr=True,
        allows_unclean=False,
        alteration_limit_us=1_000_000,
        wishes=(Wish.CREATE, Wish.CONFIGURE, Wish.CONFIGURE),
        wish_mean_us=random.choice((20_000, 60_000)),
        feed_mean_us=random.choice((100_000, 500_000)),
    )


def _swift(quorum: QuorumSwarm, random: Random, *faults: Fault) -> QuorumSwarm:
    """A quorum that decides at once, so that most of what happens happens to the data."""
    return replace(
        quorum,
        voters=random.choice((1, 3)),
        faults=_some(random, *faults),
        delay_min_us=200,
        delay_mean_us=random.choice((300, 3_000)),
        loss=0.0,
        sync_mean_us=1_000,
    )


_THEMES = (
    _anything,
    _changing_leaders,
    _lagging_followers,
    _failing_machines,
    _changing_minimum,
)

_E = TypeVar("_E", bound=StrEnum)


def _some(random: Random, *possible: _E) -> tuple[_E, ...]:
    return tuple([each for each in possible if random.random() < 0.5])
