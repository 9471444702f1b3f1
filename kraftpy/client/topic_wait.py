"""Waiting until a topic is known, or known not to exist."""

from __future__ import annotations

from kraftpy.client.calls import TopicPartition
from kraftpy.client.cluster import Cluster, TopicInfo
from kraftpy.client.errors import KafkaError
from kraftpy.protocol.errors import ErrorCode

__all__ = ["TopicWait"]


class TopicWait:
    """Wants the topic and tells when the cluster has an answer.

    A topic that does not exist is an answer: a topic that was just made may need a second attempt
    of the caller's.
    """

    __slots__ = ("_cluster", "_topic", "_updates")

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._updates = cluster.updates
        cluster.want(topic)
        cluster.refresh()

    @property
    def is_done(self) -> bool:
        return self._cluster.updates > self._updates and self._info is not None

    def result(self) -> list[TopicPartition]:
        """The topic's partitions; raises KafkaError why there are none."""
        info = self._info
        if info is None or not self.is_done:
            why = f"no node could be asked about topic {self._topic}: {self._cluster.failure}"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, why)
        if info.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise KafkaError(info.error, f"there is no topic {self._topic}")
        if info.error != ErrorCode.NONE:
            raise KafkaError(info.error, f"topic {self._topic}: {info.error.message}")
        return [TopicPartition(self._topic, partition) for partition in info.partitions]

    @property
    def _info(self) -> TopicInfo | None:
        return self._cluster.topic(self._topic)
