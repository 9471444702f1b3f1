"""Who coordinates a group or a transactional id: the leader of the partition that its name is in.

The number of partitions is that of the topic, once it exists; it may have been created by hand.
"""

from __future__ import annotations

from kraftpy.broker.metadata_view import BrokerMetadata, NodeEndpoint
from kraftpy.coordinator.hashing import partition_for

__all__ = ["CoordinatorLookup"]


class CoordinatorLookup:
    """Of one internal topic; `partition_count` is what it is created with."""

    __slots__ = ("_cluster", "_partition_count", "topic")

    def __init__(self, topic: str, cluster: BrokerMetadata, partition_count: int) -> None:
        self.topic = topic
        self._cluster = cluster
        self._partition_count = partition_count

    @property
    def is_created(self) -> bool:
        return self.topic in self._cluster.image.topics

    def partition_of(self, name: str) -> int:
        """The partition that holds this group, or this transactional id."""
        topic = self._cluster.image.topics.get(self.topic)
        count = self._partition_count if topic is None else len(topic.partitions)
        return partition_for(name, count)

    def coordinator_of(self, name: str, listener_name: str) -> NodeEndpoint | None:
        """The node to ask, by the address on this listener; None while there is none."""
        topic = self._cluster.image.topics.get(self.topic)
        if topic is None:
            return None
        leader = topic.partitions[partition_for(name, len(topic.partitions))].leader
        brokers = self._cluster.brokers(listener_name)
        return next((broker for broker in brokers if broker.node_id == leader), None)
