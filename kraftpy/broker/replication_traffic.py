"""Counts what followers copy, for all topics and for each (REP-78)."""

from __future__ import annotations

from typing import Final

from kraftpy.broker.fetcher_steps import UnlimitedTraffic
from kraftpy.broker.hosted import HostedPartitions
from kraftpy.broker.partition import Partition
from kraftpy.observe.topic_metrics import TopicMetrics
from kraftpy.world import Clock

__all__ = ["CountedTraffic"]

_REPLICATED: Final = "ReplicationBytesInPerSec"
_REASSIGNED: Final = "ReassignmentBytesInPerSec"


class CountedTraffic(UnlimitedTraffic):
    """Kafka does not break these two down by topics."""

    def __init__(self, hosted: HostedPartitions, metrics: TopicMetrics, clock: Clock) -> None:
        self._hosted = hosted
        self._metrics = metrics
        self._clock = clock

    def replicated(self, partition: Partition, byte_count: int) -> None:
        now = self._clock.monotonic()
        self._metrics.mark_all(_REPLICATED, now, byte_count)
        record = self._hosted.image.partition(partition.topic_id, partition.topic_partition[1])
        if record is not None and partition.broker_id in record.adding_replicas:
            self._metrics.mark_all(_REASSIGNED, now, byte_count)
