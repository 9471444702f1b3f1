"""The controller's metrics, under Kafka's names.

What counts things of the cluster is a copy that is refreshed after every event and every published
image, and is zero while this controller isn't active. Readers thus never look into a half-done
event, and the sum over all nodes is the cluster's number.

Kafka 4 still has the queue lengths towards each broker in its names, though nothing is sent there:
brokers read the log at their own pace. QueueSize of a broker is here how many records it is behind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.event_queue import ControllerState
from kraftpy.metadata.image import EMPTY_IMAGE
from kraftpy.metadata.records import RegisterBrokerRecord
from kraftpy.metadata.sorted_map import SortedMap
from kraftpy.observe.metrics import Histogram, Meter, MetricName, MetricRegistry

__all__ = ["ControllerMetrics"]

_DOMAIN: Final = "kafka.controller"

# Of the active controller.
_CLUSTER: Final = (
    "OfflinePartitionsCount",
    "PreferredReplicaImbalanceCount",
    "GlobalTopicCount",
    "GlobalPartitionCount",
    "TopicsToDeleteCount",
    "ReplicasToDeleteCount",
    "TopicsIneligibleToDeleteCount",
    "ReplicasIneligibleToDeleteCount",
    "FencedBrokerCount",
    "ActiveBrokerCount",
    "ActiveControllerCount",
)
# Of every node with the controller's role.
_NODE: Final = (
    "ControllerState",
    "EventQueueSize",
    "LastAppliedRecordOffset",
    "LastAppliedRecordTimestamp",
    "LastCommittedRecordOffset",
    "EventQueueOperationsStartedCount",
    "EventQueueOperationsTimedOutCount",
    "TimedOutBrokerHeartbeatCount",
    "NewActiveControllersCount",
    "MetadataErrorCount",
)


def _name(name: str) -> MetricName:
    if name == "EventQueueSize":
        return MetricName(_DOMAIN, "ControllerEventManager", name)
    return MetricName(_DOMAIN, "KafkaController", name)


_GAUGES: Final = {name: _name(name) for name in (*_CLUSTER, *_NODE)}
_TIMERS: Final = {
    state: MetricName(_DOMAIN, "ControllerStats", timer_name)
    for state in ControllerState
    if (timer_name := state.timer_name) is not None
}


class ControllerMetrics:
    """One for each node with the controller's role."""

    __slots__ = (
        "_brokers",
        "_processing",
        "_queue_time",
        "_read_wall_ms",
        "_registry",
        "_state",
        "_timers",
        "_unclean",
        "_unclean_count",
        "values",
    )

    def __init__(
        self, registry: MetricRegistry, now_ms: int, read_wall_ms: Callable[[], int]
    ) -> None:
        """`read_wall_ms` is asked by who reads a metric, never by an event."""
        self._registry = registry
        self._read_wall_ms = read_wall_ms
        # By Kafka's names; the gauges read from here.
        self.values: dict[str, float] = dict.fromkeys(_GAUGES, 0)
        for name, metric_name in _GAUGES.items():
            registry.gauge(metric_name, partial(self.values.__getitem__, name))
        registry.gauge(_name("LastAppliedRecordLagMs"), self._read_lag_ms)
        manager = partial(MetricName, _DOMAIN, "ControllerEventManager")
        self._queue_time: Histogram = registry.histogram(manager("EventQueueTimeMs"))
        self._processing: Histogram = registry.histogram(manager("EventQueueProcessingTimeMs"))
        self._timers: dict[ControllerState, Histogram] = {
            state: registry.histogram(timer_name) for state, timer_name in _TIMERS.items()
        }
        unclean = MetricName(_DOMAIN, "ControllerStats", "UncleanLeaderElectionsPerSec")
        self._unclean: Meter = registry.meter(unclean, now_ms / 1000)
        self._unclean_count = 0
        self._brokers: SortedMap[int, RegisterBrokerRecord] = EMPTY_IMAGE.brokers
        # Of the event that was handled last, for the time that it took.
        self._state = ControllerState.IDLE

    def event_started(self, state: ControllerState, queue_ms: int) -> None:
        self._state = state
        self.values["ControllerState"] = state
        self._queue_time.update(queue_ms)
        self.values["EventQueueOperationsStartedCount"] += 1

    def event_ended(self) -> None:
        self.values["ControllerState"] = ControllerState.IDLE

    def event_took(self, duration_ms: float) -> None:
        """How long the last event took; only who drives the controller has a clock for that."""
        self._processing.update(duration_ms)
        timer = self._timers.get(self._state)
        if timer is not None:
            timer.update(duration_ms)

    def count_timed_out(self) -> None:
        self.values["EventQueueOperationsTimedOutCount"] += 1

    def count_late_heartbeat(self) -> None:
        self.values["TimedOutBrokerHeartbeatCount"] += 1

    def count_activation(self) -> None:
        self.values["NewActiveControllersCount"] += 1

    def count_fault(self) -> None:
        self.values["MetadataErrorCount"] += 1

    def refresh(self, context: ControllerContext, queue_size: int, now_ms: int) -> None:
        """Copy what there is to count."""
        values = self.values
        image = context.image
        applied = image.provenance
        values["EventQueueSize"] = queue_size
        values["LastAppliedRecordOffset"] = applied.last_offset
        values["LastAppliedRecordTimestamp"] = applied.timestamp_ms
        values["LastCommittedRecordOffset"] = context.stable.provenance.last_offset
        if context.partition_states.unclean_election_count != self._unclean_count:
            self._count_unclean(context, now_ms)
        if context.epoch == 0:
            if values["ActiveControllerCount"]:
                values.update(dict.fromkeys(_CLUSTER, 0))
                self._follow_brokers(context, EMPTY_IMAGE.brokers)
            return
        self._count_cluster(context)
        if image.brokers is not self._brokers:
            self._follow_brokers(context, image.brokers)

    def _read_lag_ms(self) -> float:
        """How old the newest replayed record is; the active controller lags behind nobody."""
        if self.values["ActiveControllerCount"]:
            return 0
        return max(0, self._read_wall_ms() - self.values["LastAppliedRecordTimestamp"])

    def _count_cluster(self, context: ControllerContext) -> None:
        values, deletions, partitions = self.values, context.deletions, context.partitions
        values["ActiveControllerCount"] = 1
        values["OfflinePartitionsCount"] = context.partition_states.offline_count
        values["PreferredReplicaImbalanceCount"] = partitions.not_preferred_count
        values["GlobalTopicCount"] = partitions.topic_count
        values["GlobalPartitionCount"] = partitions.partition_count
        values["TopicsToDeleteCount"] = deletions.topics_to_delete_count
        values["ReplicasToDeleteCount"] = deletions.replicas_to_delete_count
        values["TopicsIneligibleToDeleteCount"] = deletions.topics_ineligible_count
        values["ReplicasIneligibleToDeleteCount"] = deletions.replicas_ineligible_count

    def _count_unclean(self, context: ControllerContext, now_ms: int) -> None:
        """Only the controller that held them counts elections; taken back, they stay counted."""
        count = context.partition_states.unclean_election_count
        if context.epoch and count > self._unclean_count:
            self._unclean.mark(now_ms / 1000, count - self._unclean_count)
        self._unclean_count = count

    def _follow_brokers(
        self, context: ControllerContext, brokers: SortedMap[int, RegisterBrokerRecord]
    ) -> None:
        """Count brokers, and have one gauge for each that is registered."""
        for change in self._brokers.differences(brokers):
            name = MetricName(
                _DOMAIN, "ControllerChannelManager", "QueueSize", (("broker-id", str(change.key)),)
            )
            if change.after is None:
                self._registry.remove(name)
            elif change.before is None:
                self._registry.gauge(name, _lag_reader(context, change.key))
        self._brokers = brokers
        fenced = sum(1 for broker in context.image.brokers.values() if broker.fenced)
        active = context.epoch != 0
        self.values["FencedBrokerCount"] = fenced if active else 0
        self.values["ActiveBrokerCount"] = len(brokers) - fenced if active else 0


def _lag_reader(context: ControllerContext, broker_id: int) -> Callable[[], float]:
    def read() -> float:
        heartbeats = context.heartbeats
        if heartbeats is None or context.image.brokers.get(broker_id) is None:
            return 0
        behind = context.stable.provenance.last_offset - heartbeats.metadata_offset(broker_id)
        return max(0, behind)

    return read
