"""What a cluster says about itself: who leads, since which epoch, with whom in sync."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kraftpy.client.admin import Admin
from kraftpy.client.admin_operations import describe_quorum, list_topics
from kraftpy.client.calls import TopicPartition

__all__ = ["Inspection", "PartitionState", "inspect"]


@dataclass(frozen=True, slots=True)
class PartitionState:
    leader: int
    """-1: nobody."""
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Inspection:
    """As one broker knows it, at one moment."""

    controller: int
    controller_epoch: int
    voters: tuple[int, ...]
    partitions: Mapping[TopicPartition, PartitionState] = field(default_factory=dict)

    @property
    def leaders(self) -> tuple[int, ...]:
        """Of at least one partition of a user's topic."""
        found = {
            state.leader
            for where, state in self.partitions.items()
            if state.leader >= 0 and not where.topic.startswith("__")
        }
        return tuple(sorted(found))

    def led_internally(self, topic: str) -> tuple[int, ...]:
        """The leaders of an internal topic: coordinators."""
        found = {
            state.leader
            for where, state in self.partitions.items()
            if state.leader >= 0 and where.topic == topic
        }
        return tuple(sorted(found))


async def inspect(admin: Admin) -> Inspection:
    """Raises KafkaError when nobody answers in time."""
    quorum = await admin.run(describe_quorum())
    topics = await admin.run(list_topics(include_internal=True))
    partitions = {
        TopicPartition(name, number): PartitionState(
            each.leader_id, each.leader_epoch, tuple(each.replicas), tuple(each.isr)
        )
        for name, topic in sorted(topics.items())
        for number, each in sorted(topic.partitions.items())
    }
    voters = tuple(sorted(each.replica_id for each in quorum.current_voters))
    return Inspection(quorum.leader_id, quorum.leader_epoch, voters, partitions)
