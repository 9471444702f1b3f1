"""Where to go instead: who leads a partition, for those who asked the wrong broker (KIP-951).

With the error comes what the client would otherwise have to ask for: the leader, its epoch, and
where it listens. A hosted replica knows best; of others the metadata tells.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from kraftpy.broker.hosted_replicas import HostedReplicas
from kraftpy.broker.metadata_view import BrokerMetadata, endpoint_of
from kraftpy.broker.partition import Partition
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID, Uuid

__all__ = ["LeaderHints", "NodeAddress"]


class NodeAddress(Protocol):
    """The NodeEndpoint of Produce's and Fetch's answers."""

    node_id: int
    host: str
    port: int
    rack: str | None


_Address = TypeVar("_Address", bound=NodeAddress)


class LeaderHints:
    def __init__(self, replicas: HostedReplicas, cluster: BrokerMetadata) -> None:
        self._replicas = replicas
        self._cluster = cluster

    def leader_of(self, topic: str, topic_id: Uuid, index: int) -> tuple[int, int]:
        """The leader and its epoch, each -1 if unknown. The topic is named by one of the two."""
        image = self._cluster.image
        if topic_id != ZERO_UUID:
            hosted = self._replicas.lookup_by_id(topic_id, index)
            found = image.topic_by_id(topic_id)
        else:
            hosted = self._replicas.lookup((topic, index))
            found = image.topics.get(topic)
        if isinstance(hosted, Partition):
            return hosted.leader_id, hosted.leader_epoch
        if found is None or not 0 <= index < len(found.partitions):
            return -1, -1
        record = found.partitions[index]
        return record.leader, record.leader_epoch

    def name_of(self, topic: str, topic_id: Uuid) -> str | None:
        """A topic's name, by which its permissions go; None for an id that is not known."""
        if topic_id == ZERO_UUID:
            return topic
        found = self._cluster.image.topic_by_id(topic_id)
        return None if found is None else found.name

    def endpoints(
        self, leader_ids: Iterable[int], listener_name: str, make: type[_Address]
    ) -> list[_Address]:
        """Where each of these that is alive is reached by clients of this listener, once."""
        found = []
        for leader_id in dict.fromkeys(leader_ids):
            broker = self._cluster.image.brokers.get(leader_id)
            if broker is None or broker.fenced:
                continue
            endpoint = endpoint_of(broker.end_points, listener_name)
            if endpoint is not None:
                address = make()
                address.node_id = leader_id
                address.host = endpoint.host
                address.port = endpoint.port
                address.rack = broker.rack
                found.append(address)
        return found


def is_misdirected(code: int) -> bool:
    """Whether the error tells that somebody else should be asked."""
    return code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
