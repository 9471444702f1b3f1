"""What one seed's world is like: its nodes, links, clocks, disks, settings, clients and faults.

Each seed has some of everything and never all of it: leaving features out finds more than having
all of them in every run. A swarm is a value, so that a run can be repeated without one of its
features.

`is_safe` says that nothing acknowledged may be lost, whatever is drawn to befall this world: where
machines lose power, or disks what they were told to keep, records are flushed before they are
acknowledged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from kraftpy.verify.workloads.catalogue import WORKLOADS
from kraftpy.world import Random
from kraftpy.world.memory_link import LinkProfile

__all__ = ["FAULT_NAMES", "LOSING", "MORE_FAULTS", "WholeSwarm", "draw_more", "draw_swarm"]

FAULT_NAMES: Final = (
    *("kill", "power-loss", "restart", "pause", "partition", "one-way", "delay", "cut-clients"),
    *("reset", "fail-next", "clock-jump", "slow-disk", "disk-full", "disk-error"),
)
MORE_FAULTS: Final = ("flip-bits", "stray-write", "remove-voter")
"""Drawn apart: see more_faults.py."""
LOSING: Final = ("power-loss", "torn-write", "disk-error")
"""Faults by which unsynced data is lost."""

_NEAR_SECONDS: Final = 0.001
_MORE_FAULT_SHARE: Final = 0.2
_PLAIN_WORKLOADS: Final = ("queue-assign", "list-append", "idempotent", "offsets", "metadata")
_SESSION_SETTINGS: Final = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "auto.create.topics.enable": "false",
}
# Each of these is as in a usual cluster, or extreme (rule 13).
_NODE_EXTREMES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("metadata.log.max.record.bytes.between.snapshots", ("1500", "20000")),
    ("metadata.log.max.snapshot.interval.ms", ("2000",)),
    ("internal.metadata.log.segment.bytes", ("4096",)),
    ("controller.quorum.fetch.max.bytes", ("1", "3000")),
    ("num.replica.fetchers", ("3",)),
    ("replica.fetch.max.bytes", ("1", "2000")),
    ("fetch.max.bytes", ("1024",)),
    ("connections.max.idle.ms", ("700", "3000")),
    ("producer.purgatory.purge.interval.requests", ("1",)),
    ("fetch.purgatory.purge.interval.requests", ("1",)),
    # The least that a topic may have: with less, there would be no coordinators.
    ("offsets.topic.segment.bytes", ("1048576",)),
    ("transaction.state.log.segment.bytes", ("1048576",)),
    ("log.retention.check.interval.ms", ("1000",)),
    ("socket.send.buffer.bytes", ("1024",)),
    ("max.connections.per.ip", ("60",)),
    ("auto.leader.rebalance.enable", ("false",)),
    ("leader.imbalance.check.interval.seconds", ("3",)),
)
# Drawn apart, so that worlds are as they were before there were these.
_MORE_NODE_EXTREMES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("metadata.max.retention.bytes", ("3000",)),
    ("controller.quorum.fetch.snapshot.max.bytes", ("300",)),
    ("max.incremental.fetch.session.cache.slots", ("0", "2")),
)
_TOPIC_EXTREMES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("internal.segment.bytes", ("70000", "200000")),
    ("segment.ms", ("1500",)),
    ("index.interval.bytes", ("0", "200")),
    ("segment.index.bytes", ("120",)),
)


@dataclass(frozen=True, slots=True)
class WholeSwarm:
    """The parameters of one run; times in the units that their names end with."""

    controllers: tuple[int, ...] = (1, 2, 3)
    brokers: tuple[int, ...] = (1, 2, 3)
    partitions: int = 2
    min_isr: int = 2
    flushes: bool = True
    has_elr: bool = True
    link: LinkProfile = field(
        default_factory=lambda: LinkProfile(latency_mean_seconds=0.002, tail_probability=0.005)
    )
    clock_rates: Mapping[int, float] = field(default_factory=dict)
    wall_offsets_ms: Mapping[int, int] = field(default_factory=dict)
    # What every awaited call of a disk takes, on average; 0 for none.
    disk_seconds: float = 0.0
    buggify: bool = False
    node_extremes: Mapping[str, str] = field(default_factory=dict)
    topic_extremes: Mapping[str, str] = field(default_factory=dict)
    workloads: tuple[str, ...] = ("queue-assign",)
    slots: int = 4
    # Operations a second of each workload.
    rate: float = 40.0
    keys: int = 4
    writes_per_key: int = 1_024
    crash_mean_ms: float = 30_000.0
    has_old_clients: bool = False
    vandals: int = 0
    compression: str = "none"
    group_protocol: str = "classic"
    faults: tuple[str, ...] = ("kill", "power-loss", "partition", "pause", "restart")
    more_faults: tuple[str, ...] = ()
    fault_mean_seconds: float = 4.0
    # Whether a fault waits for the end of the one before.
    overlaps: bool = False
    # A node that stays down while the others must get on without it; 0 for none.
    left_behind: int = 0

    @property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(sorted({*self.controllers, *self.brokers}))

    @property
    def is_far(self) -> bool:
        return self.link.latency_mean_seconds > 0.05

    @property
    def is_safe(self) -> bool:
        return self.flushes or not any(name in LOSING for name in self.faults)

    @property
    def node_settings(self) -> dict[str, str]:
        replicas = str(min(3, len(self.brokers)))
        return {
            **_SESSION_SETTINGS,
            # A heartbeat waits for a commit as well; a session that can't be kept tests nothing.
            "broker.session.timeout.ms": "9000" if self.is_far else "3000",
            "broker.heartbeat.interval.ms": "2000" if self.is_far else "500",
            "replica.lag.time.max.ms": "10000" if self.is_far else "2000",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": str(min(2, len(self.brokers))),
            # What groups and transactions have said survives what the topics do.
            "min.insync.replicas": str(min(2, len(self.brokers))),
            "log.flush.interval.messages": "1" if self.flushes else "",
            **self.node_extremes,
        }

    @property
    def topic_settings(self) -> dict[str, str]:
        return {"flush.messages": "1"} if self.flushes else {}


def draw_swarm(random: Random) -> WholeSwarm:
    """One seed's world."""
    count = random.choice((3, 3, 3, 4, 5))
    ids = tuple(range(1, count + 1))
    is_split = count > 3 and random.random() < 0.3
    brokers = ids[-3:] if is_split else ids
    is_careful = random.random() < 0.85
    faults = tuple(name for name in FAULT_NAMES if random.random() < 0.35)
    link = _draw_link(random)
    loses = any(name in LOSING for name in faults)
    return WholeSwarm(
        controllers=ids[:3] if count < 5 or is_split else random.choice((ids[:3], ids)),
        brokers=brokers,
        partitions=random.choice((1, 2, 3)),
        min_isr=2 if is_careful else 1,
        flushes=(is_careful and loses) or random.random() < 0.3,
        has_elr=random.random() < 0.7,
        link=link,
        clock_rates={each: random.uniform(0.9, 1.1) for each in ids if random.random() < 0.3},
        wall_offsets_ms={
            each: random.randint(-300_000, 300_000) for each in ids if random.random() < 0.3
        },
        disk_seconds=random.choice((0.0, 0.0, 0.0005, 0.01, 0.05)),
        buggify=random.random() < 0.5,
        node_extremes=_draw_node_extremes(random, link),
        topic_extremes=_draw_extremes(random, _TOPIC_EXTREMES),
        workloads=_draw_workloads(random),
        slots=random.choice((3, 4, 6)),
        rate=random.choice((20.0, 60.0, 150.0)),
        keys=random.choice((2, 4, 10)),
        writes_per_key=random.choice((20, 200, 1_024)),
        crash_mean_ms=random.choice((15_000.0, 60_000.0)),
        has_old_clients=random.random() < 0.3,
        vandals=random.choice((0, 0, 1, 2)),
        compression=random.choice(("none", "none", "gzip", "lz4", "snappy", "zstd")),
        group_protocol=random.choice(("classic", "consumer")),
        faults=faults,
        fault_mean_seconds=random.choice((1.5, 4.0, 10.0)),
        overlaps=random.random() < 0.5,
        left_behind=random.choice(ids) if is_careful and random.random() < 0.3 else 0,
    )


def draw_more(random: Random, swarm: WholeSwarm) -> WholeSwarm:
    """What is drawn apart from the rest."""
    more = _draw_extremes(random, _MORE_NODE_EXTREMES)
    faults = [name for name in MORE_FAULTS if random.random() < _MORE_FAULT_SHARE]
    if swarm.left_behind and "remove-voter" in faults:
        faults.remove("remove-voter")
    return replace(swarm, node_extremes={**swarm.node_extremes, **more}, more_faults=tuple(faults))


def _draw_workloads(random: Random) -> tuple[str, ...]:
    """One of all, and beside it perhaps one that has neither groups nor transactions."""
    name = random.choice(WORKLOADS).name
    if random.random() < 0.5:
        return (name,)
    return (name, random.choice([each for each in _PLAIN_WORKLOADS if each != name]))


def _draw_link(random: Random) -> LinkProfile:
    mean = random.choice((0.0002, 0.001, 0.003, 0.01))
    tail_factor = 50.0
    if random.random() < 0.1:
        # From one continent to another; still within everybody's timeouts.
        mean, tail_factor = 0.1, 5.0
    return LinkProfile(
        latency_min_seconds=mean / 4,
        latency_mean_seconds=mean,
        tail_probability=random.choice((0.0, 0.005, 0.02)),
        tail_factor=tail_factor,
        bandwidth_bytes_per_second=random.choice((inf, inf, 2_000_000.0)),
        chunk_min_bytes=random.choice((1, 1_000)),
        chunk_max_bytes=random.choice((1_000, 65_536, 65_536)),
        reset_probability=random.choice((0.0, 0.0, 0.0002, 0.001)),
        refuse_probability=random.choice((0.0, 0.0, 0.02)),
    )


def _draw_node_extremes(random: Random, link: LinkProfile) -> dict[str, str]:
    extremes = _draw_extremes(random, _NODE_EXTREMES)
    if link.latency_mean_seconds > _NEAR_SECONDS:
        # One batch for each round trip would be slower than any transaction's time-out.
        extremes.pop("replica.fetch.max.bytes", None)
    return extremes


def _draw_extremes(
    random: Random, possible: tuple[tuple[str, tuple[str, ...]], ...]
) -> dict[str, str]:
    """Some of them, of a random share."""
    share = random.choice((0.0, 0.2, 0.5))
    return {key: random.choice(values) for key, values in possible if random.random() < share}
