"""Topics, partitions and pending deletions under change: the part of a delta that is large.

A topic's partitions are a tuple in the image. The first record that touches a topic opens them as
a list, which later records change in place; `seal` makes tuples again. A delta that creates a topic
of 10,000 partitions therefore costs as much for each record as one that changes a single partition.
Pending deletions are opened the same way.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftpy.metadata.image import MetadataImage, TopicImage
from kraftpy.metadata.records import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    PendingDeletionRecord,
    PendingReplica,
    RemoveTopicRecord,
    ReplicaDeletedRecord,
    TopicRecord,
)
from kraftpy.metadata.replay_error import ReplayError
from kraftpy.metadata.sorted_map import Draft
from kraftpy.protocol.ids import Uuid, format_uuid

__all__ = ["TopicsDraft"]


class TopicsDraft:
    __slots__ = ("_open_deletions", "_open_partitions", "deletions", "names", "topics")

    def __init__(self, image: MetadataImage) -> None:
        self.topics = Draft(image.topics)
        self.names = Draft(image.topic_names)
        self.deletions = Draft(image.pending_deletions)
        self._open_partitions: dict[Uuid, list[PartitionRecord]] = {}
        # Dicts for their order: what remains keeps the order of the partitions.
        self._open_deletions: dict[Uuid, dict[PendingReplica, None]] = {}

    def seal(self) -> None:
        """Put what is open into the drafts of the maps."""
        for topic_id, partitions in self._open_partitions.items():
            name = self.names[topic_id]
            self.topics.put(name, TopicImage(name, topic_id, tuple(partitions)))
        for topic_id, replicas in self._open_deletions.items():
            if replicas:
                name = self.deletions[topic_id].name
                pending = PendingDeletionRecord(topic_id, name, tuple(replicas))
                self.deletions.put(topic_id, pending)
            else:
                self.deletions.remove(topic_id)
        self._open_partitions.clear()
        self._open_deletions.clear()

    def create(self, record: TopicRecord) -> None:
        if self.topics.get(record.name) is not None:
            raise ReplayError(record, f"topic {record.name} exists")
        self._check_new_id(record)
        self.topics.put(record.name, TopicImage(record.name, record.topic_id))
        self.names.put(record.topic_id, record.name)

    def add_partition(self, record: PartitionRecord) -> None:
        partitions = self._partitions(record)
        if record.partition_id != len(partitions):
            raise ReplayError(record, f"partition {record.partition_id} after {len(partitions)}")
        _check_directories(record, record)
        partitions.append(record)

    def change_partition(self, record: PartitionChangeRecord) -> None:
        partitions = self._partitions(record)
        number = record.partition_id
        if not 0 <= number < len(partitions):
            raise ReplayError(record, f"no partition {number}")
        changed = partitions[number].changed_by(record)
        if changed.directories:
            _check_directories(record, changed)
        partitions[number] = changed

    def clear_elr(self, record: ClearElrRecord) -> None:
        """Counts as a change of each partition that has eligible leader replicas."""
        self.seal()
        if record.topic_name:
            topic = self.topics.get(record.topic_name)
            if topic is None:
                raise ReplayError(record, f"no topic {record.topic_name}")
            topics = [topic]
        else:
            topics = list(self.topics.sealed().values())
        for topic in topics:
            for partition in topic.partitions:
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    self.change_partition(
                        PartitionChangeRecord(
                            partition.partition_id,
                            topic.topic_id,
                            eligible_leader_replicas=(),
                            last_known_elr=(),
                        )
                    )

    def remove(self, record: RemoveTopicRecord, is_registered: Callable[[int], bool]) -> str:
        """Remove a topic and return its name.

        Its deletion stays pending on every registered broker with a replica. Nobody would ever
        report for a broker that isn't registered, so those are not waited for.
        """
        partitions = self._partitions(record)
        name = self.names[record.topic_id]
        brokers = {broker_id for partition in partitions for broker_id in partition.replicas}
        registered = {broker_id for broker_id in brokers if is_registered(broker_id)}
        # One record for thousands of replicas can't be replayed in steps: it has to be quick.
        replicas = [
            PendingReplica(partition.partition_id, broker_id)
            for partition in partitions
            for broker_id in partition.replicas
            if broker_id in registered
        ]
        del self._open_partitions[record.topic_id]
        self.topics.remove(name)
        self.names.remove(record.topic_id)
        if replicas:
            pending = PendingDeletionRecord(record.topic_id, name, tuple(replicas))
            self.deletions.put(record.topic_id, pending)
        return name

    def add_deletion(self, record: PendingDeletionRecord) -> None:
        self._check_new_id(record)
        if not record.replicas:
            raise ReplayError(record, "nothing is pending")
        self.deletions.put(record.topic_id, record)

    def finish_replica(self, record: ReplicaDeletedRecord) -> None:
        replicas = self._open_deletions.get(record.topic_id)
        if replicas is None:
            pending = self.deletions.get(record.topic_id)
            if pending is None:
                raise ReplayError(record, "the topic isn't pending deletion")
            replicas = self._open_deletions[record.topic_id] = dict.fromkeys(pending.replicas)
        replica = PendingReplica(record.partition_id, record.broker_id)
        if replica not in replicas:
            raise ReplayError(record, "the replica isn't pending deletion")
        del replicas[replica]

    def forget_broker(self, broker_id: int) -> None:
        """Wait for nothing more from this broker."""
        self.seal()
        for topic_id, pending in self.deletions.sealed().items():
            if any(replica.broker_id == broker_id for replica in pending.replicas):
                self._open_deletions[topic_id] = {
                    replica: None for replica in pending.replicas if replica.broker_id != broker_id
                }
        self.seal()

    def _check_new_id(self, record: TopicRecord | PendingDeletionRecord) -> None:
        topic_id = record.topic_id
        if self.names.get(topic_id) is not None or self.deletions.get(topic_id) is not None:
            raise ReplayError(record, f"topic id {format_uuid(topic_id)} was given before")

    def _partitions(
        self, record: PartitionRecord | PartitionChangeRecord | RemoveTopicRecord
    ) -> list[PartitionRecord]:
        topic_id = record.topic_id
        partitions = self._open_partitions.get(topic_id)
        if partitions is None:
            name = self.names.get(topic_id)
            topic = None if name is None else self.topics.get(name)
            if topic is None:
                raise ReplayError(record, f"no topic has the id {format_uuid(topic_id)}")
            partitions = self._open_partitions[topic_id] = list(topic.partitions)
        return partitions


def _check_directories(
    record: PartitionRecord | PartitionChangeRecord, result: PartitionRecord
) -> None:
    if result.directories and len(result.directories) != len(result.replicas):
        raise ReplayError(
            record, f"{len(result.directories)} directories, {len(result.replicas)} replicas"
        )
