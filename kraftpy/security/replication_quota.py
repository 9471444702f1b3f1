"""Bytes a second between replicas, of those partitions that somebody wants throttled (KIP-73).

One for what a leader sends, one for what a follower fetches, one for moves between directories.
Bytes of throttled partitions are counted, whoever they are for; above the rate, those who do the
work leave out throttled partitions whose replica is not in sync. One that is in sync is never held
back, for it would leave the ISR.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import Final, TypeAlias

from kraftpy.security.quota_metrics import QuotaMetrics
from kraftpy.security.windows import QuotaWindow, ReplicationRate

__all__ = ["ALL_PARTITIONS", "UNLIMITED", "ReplicationQuota", "Throttled", "throttled_on"]

# Kafka's word for "no limit".
UNLIMITED: Final = (1 << 63) - 1

ALL_PARTITIONS: Final = None
Throttled: TypeAlias = frozenset[int] | None
"""Partitions of a topic, by number; None for all of them."""


def throttled_on(broker_id: int, replicas: Collection[str]) -> Throttled:
    """Which of a topic's partitions are throttled on a broker, by the topic's setting."""
    if "".join(replicas) == "*":
        return ALL_PARTITIONS
    pairs = (each.split(":") for each in replicas if each)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)


class ReplicationQuota:
    __slots__ = ("_limit", "_rate", "_throttled")

    def __init__(self, window: QuotaWindow, metrics: QuotaMetrics) -> None:
        self._limit = inf
        self._rate = ReplicationRate(window)
        self._throttled: dict[str, Throttled] = {}
        metrics.show("byte-rate", self._rate.rate)

    def change_limit(self, bytes_per_second: int) -> None:
        self._limit = inf if bytes_per_second == UNLIMITED else bytes_per_second

    def change_throttled(self, topic: str, partitions: Throttled) -> None:
        if partitions is ALL_PARTITIONS or partitions:
            self._throttled[topic] = partitions
        else:
            self._throttled.pop(topic, None)

    @property
    def is_used(self) -> bool:
        """Whether any partition is throttled: while none is, this is all that anybody asks."""
        return bool(self._throttled)

    def is_throttled(self, topic: str, partition: int) -> bool:
        partitions = self._throttled.get(topic, _NOTHING)
        return partitions is ALL_PARTITIONS or partition in partitions

    def is_exceeded(self, now_ms: int) -> bool:
        return self._limit < inf and self._rate.rate(now_ms) > self._limit

    def record(self, byte_count: int, now_ms: int) -> None:
        self._rate.record(byte_count, now_ms)


_NOTHING: Final[frozenset[int]] = frozenset()
