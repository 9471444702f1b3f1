"""The replicas that a broker hosts, found by name or by id.

A replica is online, with its Partition, or offline because its data directory has failed. What is
neither is not hosted; why not, the metadata tells.
"""

from __future__ import annotations

from typing import TypeAlias

from kraftpy.broker.partition import Partition
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid

__all__ = ["HostedPartitions"]

# An offline replica is kept as the error that everybody is answered with.
_Hosted: TypeAlias = Partition | ErrorCode
_OFFLINE = ErrorCode.KAFKA_STORAGE_ERROR


class HostedPartitions:
    """Owned by the replica manager; everybody may look."""

    __slots__ = ("_by_id", "_by_name", "_ids", "_online", "image")

    def __init__(self) -> None:
        self._by_name: dict[TopicPartition, _Hosted] = {}
        self._by_id: dict[tuple[Uuid, int], _Hosted] = {}
        self._ids: dict[TopicPartition, Uuid] = {}
        # Those of them that are online; None after a change, until somebody asks.
        self._online: tuple[Partition, ...] | None = ()
        # The newest, which may be ahead of what is hosted.
        self.image: MetadataImage = EMPTY_IMAGE

    def __len__(self) -> int:
        return len(self._by_name)

    def lookup(self, topic_partition: TopicPartition) -> Partition | ErrorCode:
        """The replica, or what to answer to who asks for it (REP-9, REP-10)."""
        found = self._by_name.get(topic_partition)
        return found if found is not None else self._absence(topic_partition)

    def lookup_by_id(self, topic_id: Uuid, partition_id: int) -> Partition | ErrorCode:
        found = self._by_id.get((topic_id, partition_id))
        if found is not None:
            return found
        name = self.image.topic_names.get(topic_id)
        return ErrorCode.UNKNOWN_TOPIC_ID if name is None else self._absence((name, partition_id))

    def _absence(self, topic_partition: TopicPartition) -> ErrorCode:
        """Elsewhere, not here yet, or nowhere."""
        topic = self.image.topics.get(topic_partition[0])
        if topic is None or not 0 <= topic_partition[1] < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def online(self, topic_partition: TopicPartition) -> Partition | None:
        found = self._by_name.get(topic_partition)
        return found if isinstance(found, Partition) else None

    def partitions(self) -> tuple[Partition, ...]:
        """Those that are online, now."""
        online = self._online
        if online is None:
            hosted = self._by_name.values()
            online = self._online = tuple(each for each in hosted if isinstance(each, Partition))
        return online

    @property
    def offline_count(self) -> int:
        return sum(found is _OFFLINE for found in self._by_name.values())

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        return self._by_name.get(topic_partition) is _OFFLINE

    def is_awaited(self, topic: str, topic_id: Uuid, partition_id: int, broker_id: int) -> bool:
        """Whether the newest metadata says that this broker leads what it does not host yet."""
        name = topic or self.image.topic_names.get(topic_id) or ""
        found = self.image.topics.get(name)
        return (
            found is not None
            and 0 <= partition_id < len(found.partitions)
            and found.partitions[partition_id].leader == broker_id
            and (name, partition_id) not in self._by_name
        )

    def host(self, partition: Partition) -> None:
        self._put(partition.topic_partition, partition.topic_id, partition)

    def take_offline(self, topic_partition: TopicPartition, topic_id: Uuid) -> None:
        self._put(topic_partition, topic_id, _OFFLINE)

    def _put(self, topic_partition: TopicPartition, topic_id: Uuid, hosted: _Hosted) -> None:
        self.remove(topic_partition)
        self._by_name[topic_partition] = hosted
        self._by_id[topic_id, topic_partition[1]] = hosted
        self._ids[topic_partition] = topic_id
        self._online = None

    def topic_id(self, topic_partition: TopicPartition) -> Uuid | None:
        """Of the topic that the hosted replica belongs to."""
        return self._ids.get(topic_partition)

    def remove(self, topic_partition: TopicPartition) -> None:
        topic_id = self._ids.pop(topic_partition, None)
        if topic_id is not None:
            del self._by_name[topic_partition]
            del self._by_id[topic_id, topic_partition[1]]
            self._online = None
