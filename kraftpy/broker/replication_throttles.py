"""The throttles of replication on one broker: how much, and for which partitions (KIP-73).

How much is the broker's setting, `leader.replication.throttled.rate` and its likes; which replicas,
each topic's, `leader.replication.throttled.replicas` and its like. Moves between directories are
throttled all alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kraftpy.observe.metrics import MetricRegistry
from kraftpy.security.quota_metrics import QuotaKind, QuotaMetrics
from kraftpy.security.replication_quota import UNLIMITED, ReplicationQuota, throttled_on
from kraftpy.security.windows import QuotaWindow
from kraftpy.world import Clock

__all__ = ["ReplicationLimits", "ReplicationThrottles", "ReplicationWindows", "ThrottledReplicas"]

ThrottledReplicas: TypeAlias = tuple[Sequence[str], Sequence[str]]
"""A topic's two settings, its leaders' and its followers'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationLimits:
    """In bytes a second."""

    leader: int = UNLIMITED
    """`leader.replication.throttled.rate`"""
    follower: int = UNLIMITED
    """`follower.replication.throttled.rate`"""
    moves: int = UNLIMITED
    """`replica.alter.log.dirs.io.max.bytes.per.second`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationWindows:
    replication: QuotaWindow = QuotaWindow()  # noqa: RUF009 (frozen)
    """`replication.quota.window.*`"""
    moves: QuotaWindow = QuotaWindow()  # noqa: RUF009 (frozen)
    """`alter.log.dirs.replication.quota.window.*`"""


class ReplicationThrottles:
    __slots__ = ("_broker_id", "_replicas_of", "follower", "leader", "moves")

    def __init__(
        self,
        broker_id: int,
        windows: ReplicationWindows,
        registry: MetricRegistry,
        clock: Clock,
        replicas_of: Callable[[str], ThrottledReplicas],
    ) -> None:
        """`replicas_of` a topic are those that its settings name."""
        self._broker_id = broker_id
        self._replicas_of = replicas_of

        def quota(kind: QuotaKind, window: QuotaWindow) -> ReplicationQuota:
            return ReplicationQuota(window, QuotaMetrics(kind, registry, clock.monotonic_ms))

        self.leader = quota(QuotaKind.LEADER_REPLICATION, windows.replication)
        self.follower = quota(QuotaKind.FOLLOWER_REPLICATION, windows.replication)
        self.moves = quota(QuotaKind.ALTER_LOG_DIRS_REPLICATION, windows.moves)

    def change_limits(self, limits: ReplicationLimits) -> None:
        self.leader.change_limit(limits.leader)
        self.follower.change_limit(limits.follower)
        self.moves.change_limit(limits.moves)

    def reconfigure(self, topics: Sequence[str]) -> None:
        """The settings of topics have changed, or are there for the first time."""
        for topic in topics:
            of_leaders, of_followers = self._replicas_of(topic)
            self.leader.change_throttled(topic, throttled_on(self._broker_id, of_leaders))
            self.follower.change_throttled(topic, throttled_on(self._broker_id, of_followers))
