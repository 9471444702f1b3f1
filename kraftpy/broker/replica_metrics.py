"""How replication is doing, under Kafka's names.

Counts are taken from the replicas when somebody reads them; nothing has to be kept in step. A
topic's meters go when the role that they speak of has gone from this broker (REP-107): else a
broker would show for ever what it once led.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kraftpy.broker.delayed_produce import expired_produce
from kraftpy.broker.hosted import HostedPartitions
from kraftpy.broker.isr import IsrAnswer, IsrProposal
from kraftpy.broker.partition import Partition
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.observe.metrics import MetricName, MetricRegistry
from kraftpy.observe.topic_metrics import TopicMetrics
from kraftpy.protocol.errors import ErrorCode
from kraftpy.world import Clock

__all__ = ["ReplicaMetrics"]

# Of the meters of BrokerTopicMetrics: what leaders do, and what followers do.
_LEADERS: Final = (
    "MessagesInPerSec",
    "BytesInPerSec",
    "BytesRejectedPerSec",
    "FailedProduceRequestsPerSec",
    "ProduceMessageConversionsPerSec",
    "ReplicationBytesOutPerSec",
    "ReassignmentBytesOutPerSec",
)
_FOLLOWERS: Final = ("ReplicationBytesInPerSec", "ReassignmentBytesInPerSec")
_BOTH: Final = (
    "BytesOutPerSec",
    "FailedFetchRequestsPerSec",
    "TotalProduceRequestsPerSec",
    "TotalFetchRequestsPerSec",
    "FetchMessageConversionsPerSec",
    "InvalidMessageCrcRecordsPerSec",
)


def _name(name: str) -> MetricName:
    return MetricName("kafka.server", "ReplicaManager", name)


_EXPANDS: Final = _name("IsrExpandsPerSec")
_SHRINKS: Final = _name("IsrShrinksPerSec")
_FAILED: Final = _name("FailedIsrUpdatesPerSec")


class ReplicaMetrics:
    def __init__(
        self,
        registry: MetricRegistry,
        hosted: HostedPartitions,
        clock: Clock,
        topic_metrics: TopicMetrics,
    ) -> None:
        self._registry = registry
        self._topic_metrics = topic_metrics
        self._hosted = hosted
        self._clock = clock
        now = clock.monotonic()
        self._meters = {name: registry.meter(name, now) for name in (_EXPANDS, _SHRINKS, _FAILED)}
        self._gauges: dict[str, Callable[[], int]] = {
            "PartitionCount": lambda: len(hosted),
            "OfflineReplicaCount": lambda: hosted.offline_count,
            "LeaderCount": lambda: self._count(lambda partition: partition.is_leader),
            "UnderReplicatedPartitions": lambda: len(self.under_replicated()),
            "UnderMinIsrPartitionCount": lambda: self._count(
                lambda partition: partition.is_leader and partition.is_under_min_isr
            ),
            "AtMinIsrPartitionCount": lambda: self._count(_is_at_min_isr),
        }
        for name, read in self._gauges.items():
            registry.gauge(_name(name), read)

    def _count(self, is_wanted: Callable[[Partition], bool]) -> int:
        return sum(map(is_wanted, self._hosted.partitions()))

    def under_replicated(self) -> list[Partition]:
        """The partitions led here that miss somebody (REP-119)."""
        return [each for each in self._hosted.partitions() if each.is_under_replicated]

    def proposal_answered(self, proposal: IsrProposal, answer: IsrAnswer) -> None:
        if answer.error is not ErrorCode.NONE:
            name = _FAILED
        elif len(proposal.isr) > len(proposal.base.isr):
            name = _EXPANDS
        else:
            name = _SHRINKS
        self._meters[name].mark(self._clock.monotonic())

    def roles_changed(self, concerned: Sequence[TopicPartition]) -> None:
        """Remove what no longer has a subject from among the meters of these and their topics."""
        topics = [topic for topic, _ in concerned]
        for name in concerned:
            partition = self._hosted.online(name)
            if partition is None or not partition.is_leader:
                self._registry.remove(expired_produce(name))
        led, followed = dict.fromkeys(topics, False), dict.fromkeys(topics, False)
        for partition in self._hosted.partitions():
            topic = partition.topic_partition[0]
            if topic in led:
                (led if partition.is_leader else followed)[topic] = True
        for topic in led:
            gone: list[str] = []
            if not led[topic]:
                gone += _LEADERS
            if not followed[topic]:
                gone += _FOLLOWERS
            if not led[topic] and not followed[topic]:
                gone += _BOTH
            self._topic_metrics.forget(topic, gone)

    def close(self) -> None:
        for name in self._gauges:
            self._registry.remove(_name(name))
        for meter in self._meters:
            self._registry.remove(meter)


def _is_at_min_isr(partition: Partition) -> bool:
    return partition.is_leader and len(partition.isr) == partition.min_insync_replicas
