"""Counts what followers copy (REP-78), and holds throttled ones to their quota (REP-70)."""

from __future__ import annotations

from typing import Final

from kraftpy.broker.hosted import HostedPartitions
from kraftpy.broker.partition import Partition
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.observe.topic_metrics import TopicMetrics
from kraftpy.security.replication_quota import ReplicationQuota
from kraftpy.world import Clock

__all__ = ["CountedTraffic"]

_REPLICATED: Final = "ReplicationBytesInPerSec"
_REASSIGNED: Final = "ReassignmentBytesInPerSec"


class CountedTraffic:
    """Kafka does not break these two down by topics."""

    def __init__(
        self,
        hosted: HostedPartitions,
        metrics: TopicMetrics,
        clock: Clock,
        quota: ReplicationQuota | None = None,
    ) -> None:
        self._hosted = hosted
        self._metrics = metrics
        self._clock = clock
        self._quota = quota

    def is_exceeded(self) -> bool:
        quota = self._quota
        return quota is not None and quota.is_used and quota.is_exceeded(self._clock.monotonic_ms())

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        return self._quota is not None and self._quota.is_throttled(*topic_partition)

    def replicated(self, partition: Partition, byte_count: int) -> None:
        now = self._clock.monotonic()
        self._metrics.mark_all(_REPLICATED, now, byte_count)
        record = self._hosted.image.partition(partition.topic_id, partition.topic_partition[1])
        if record is not None and partition.broker_id in record.adding_replicas:
            self._metrics.mark_all(_REASSIGNED, now, byte_count)
        quota = self._quota
        if quota is not None and quota.is_used and quota.is_throttled(*partition.topic_partition):
            quota.record(byte_count, self._clock.monotonic_ms())
