"""Which partitions a broker has, which it leads, and which partitions need somebody's care.

Fencing a broker must find its partitions without looking at everybody else's. A set of partitions
is a bit mask for each topic: a topic of 1,000 partitions costs a broker one integer of 133 bytes,
and the partitions themselves stay where they are, in the image. ISR membership has no sets of its
own: it nearly always equals having a replica, and is asked for only when all of a broker's
partitions are visited anyway.

Invariants: each set is a function of the image that the index was last told of; a topic without a
member has no mask; partitions come in the order of topic names, then of numbers, so that the
records that operations write don't depend on how the index came about.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from kraftpy.metadata.changes import ImageChanges, PartitionChange
from kraftpy.metadata.image import EMPTY_IMAGE, TopicImage
from kraftpy.metadata.records import NO_LEADER, PartitionRecord
from kraftpy.protocol.ids import Uuid

__all__ = ["IndexedPartition", "PartitionIndex", "PartitionSet"]

IndexedPartition: TypeAlias = tuple[TopicImage, PartitionRecord]


class PartitionSet:
    """A set of partitions: for each topic the numbers of its members as bits of an integer."""

    __slots__ = ("_length", "masks")

    def __init__(self) -> None:
        self.masks: dict[Uuid, int] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __contains__(self, partition: tuple[Uuid, int]) -> bool:
        topic_id, partition_id = partition
        return bool(self.masks.get(topic_id, 0) >> partition_id & 1)

    def put(self, topic_id: Uuid, partition_id: int, *, is_member: bool) -> None:
        old = self.masks.get(topic_id, 0)
        bit = 1 << partition_id
        if bool(old & bit) is is_member:
            return
        self._length += 1 if is_member else -1
        new = old ^ bit
        if new:
            self.masks[topic_id] = new
        else:
            del self.masks[topic_id]


class PartitionIndex:
    """Partitions of the newest image by what is special about them."""

    __slots__ = ("_by_leader", "_by_replica", "_image", "_not_preferred", "_reassigning", "_total")

    def __init__(self) -> None:
        self._image = EMPTY_IMAGE
        self._by_replica: dict[int, PartitionSet] = {}
        # Those without a leader are led by NO_LEADER.
        self._by_leader: dict[int, PartitionSet] = {}
        self._reassigning = PartitionSet()
        self._not_preferred = PartitionSet()
        self._total = 0

    def update(self, changes: ImageChanges) -> None:
        self._image = changes.after
        for change in changes.partitions():
            self._follow(change)

    @property
    def topic_count(self) -> int:
        return len(self._image.topics)

    @property
    def partition_count(self) -> int:
        return self._total

    @property
    def leaderless_count(self) -> int:
        return self.led_count(NO_LEADER)

    @property
    def reassigning_count(self) -> int:
        return len(self._reassigning)

    @property
    def not_preferred_count(self) -> int:
        return len(self._not_preferred)

    def replica_count(self, broker_id: int) -> int:
        """How many replicas a broker has."""
        return len(self._by_replica.get(broker_id, ()))

    def led_count(self, broker_id: int) -> int:
        """How many partitions a broker leads."""
        return len(self._by_leader.get(broker_id, ()))

    def partitions_on(self, broker_id: int) -> Iterator[IndexedPartition]:
        """Every partition whose replicas contain the broker."""
        return self._members(self._by_replica.get(broker_id))

    def with_isr_member(self, broker_id: int) -> Iterator[IndexedPartition]:
        """Those of the broker's partitions in whose ISR it is."""
        return (item for item in self.partitions_on(broker_id) if broker_id in item[1].isr)

    def led_by(self, broker_id: int) -> Iterator[IndexedPartition]:
        return self._members(self._by_leader.get(broker_id))

    def leaderless(self) -> Iterator[IndexedPartition]:
        return self.led_by(NO_LEADER)

    def reassigning(self, broker_id: int | None = None) -> Iterator[IndexedPartition]:
        """Partitions to which replicas are being added, or from which they are being removed.

        With a broker, only those of which it has a replica.
        """
        if broker_id is None:
            return self._members(self._reassigning)
        return self._members(self._reassigning, self._by_replica.get(broker_id, PartitionSet()))

    def not_preferred(self) -> Iterator[IndexedPartition]:
        """Partitions that aren't led by their first replica; those without a leader too."""
        return self._members(self._not_preferred)

    def _members(
        self, members: PartitionSet | None, others: PartitionSet | None = None
    ) -> Iterator[IndexedPartition]:
        if members is None:
            return
        image = self._image
        chosen = members.masks.items()
        if others is not None:
            smaller, larger = sorted((members.masks, others.masks), key=len)
            chosen = {topic: mask & larger.get(topic, 0) for topic, mask in smaller.items()}.items()
        # The masks are taken now: a change of the index doesn't disturb a walk that has begun.
        for name, mask in sorted((image.topic_names[topic_id], mask) for topic_id, mask in chosen):
            topic = image.topics[name]
            rest = mask
            while rest:
                lowest = rest & -rest
                yield topic, topic.partitions[lowest.bit_length() - 1]
                rest ^= lowest

    def _follow(self, change: PartitionChange) -> None:
        topic_id, partition_id = change.topic.topic_id, change.partition_id
        before, after = change.before, change.after
        self._total += (after is not None) - (before is not None)
        old_replicas = before.replicas if before else ()
        new_replicas = after.replicas if after else ()
        if old_replicas != new_replicas:
            for broker_id in old_replicas:
                if broker_id not in new_replicas:
                    _put(self._by_replica, broker_id, topic_id, partition_id, is_member=False)
            for broker_id in new_replicas:
                _put(self._by_replica, broker_id, topic_id, partition_id, is_member=True)
        if before is not None and (after is None or before.leader != after.leader):
            _put(self._by_leader, before.leader, topic_id, partition_id, is_member=False)
        if after is not None:
            _put(self._by_leader, after.leader, topic_id, partition_id, is_member=True)
        is_reassigning = after is not None and _is_reassigning(after)
        self._reassigning.put(topic_id, partition_id, is_member=is_reassigning)
        is_misled = after is not None and after.replicas[:1] != (after.leader,)
        self._not_preferred.put(topic_id, partition_id, is_member=is_misled)


def _is_reassigning(partition: PartitionRecord) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def _put(
    sets: dict[int, PartitionSet],
    broker_id: int,
    topic_id: Uuid,
    partition_id: int,
    *,
    is_member: bool,
) -> None:
    members = sets.get(broker_id)
    if members is None:
        members = sets[broker_id] = PartitionSet()
    members.put(topic_id, partition_id, is_member=is_member)
    if not members.masks:
        del sets[broker_id]
