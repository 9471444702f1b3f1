"""The states of partitions, derived from their leaders.

A partition with a leader is Online. Without one it is New if it never had one, which its leader
epoch tells, and Offline otherwise. Nothing is remembered but the number of offline partitions,
which is kept exact by walking each change over the legal ways: a removed topic's partitions go
Offline and then out of existence, so that a topic's deletion leaves no trace in the count.

Also counted are unclean elections: leaders that were neither in the ISR nor eligible before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from kraftpy.metadata.changes import ImageChanges, PartitionChange
from kraftpy.metadata.controller.partition_index import IndexedPartition, PartitionIndex
from kraftpy.metadata.controller.transitions import PARTITION_WAYS, PartitionState
from kraftpy.metadata.image import EMPTY_IMAGE
from kraftpy.metadata.records import NO_LEADER, PartitionRecord
from kraftpy.protocol.ids import Uuid

__all__ = ["PartitionState", "PartitionStateMachine", "partition_state"]

_log = logging.getLogger(__name__)


class PartitionStateMachine:
    """Follows the image; the index that it is given must be told of changes first."""

    __slots__ = ("_image", "_partitions", "offline_count", "unclean_election_count")

    def __init__(self, partitions: PartitionIndex) -> None:
        self._partitions = partitions
        self._image = EMPTY_IMAGE
        self.offline_count = 0
        # Since this node started; what is not committed counts as long as it may still be.
        self.unclean_election_count = 0

    def state(self, topic_id: Uuid, partition_id: int) -> PartitionState:
        return partition_state(self._image.partition(topic_id, partition_id))

    def to_bring_online(self, topic_name: str | None = None) -> Iterator[IndexedPartition]:
        """The partitions, of one topic or of all, that wait for a leader: New and Offline ones."""
        if topic_name is None:
            yield from self._partitions.leaderless()
        elif (topic := self._image.topics.get(topic_name)) is not None:
            for partition in topic.partitions:
                if partition.leader == NO_LEADER:
                    yield topic, partition

    def update(self, changes: ImageChanges) -> None:
        self._image = changes.after
        offset = changes.after.provenance.last_offset
        is_return = offset < changes.before.provenance.last_offset
        for change in changes.partitions():
            before, after = partition_state(change.before), partition_state(change.after)
            if is_return:
                self._count(before, after)
                self.unclean_election_count -= _is_unclean(change.after, change.before)
            else:
                self._walk(change, before, after, offset)
                self.unclean_election_count += _is_unclean(change.before, change.after)

    def _walk(
        self, change: PartitionChange, before: PartitionState, after: PartitionState, offset: int
    ) -> None:
        if before is after:
            return
        way = PARTITION_WAYS.get((before, after))
        if way is None:
            # The image is the truth nevertheless, and the count is the image's.
            _log.error(
                "offset %d: partition %s-%d can't go from %s to %s",
                offset,
                change.topic.name,
                change.partition_id,
                before.name,
                after.name,
            )
            way = (after,)
        for state in way:
            self._count(before, state)
            before = state

    def _count(self, before: PartitionState, after: PartitionState) -> None:
        self.offline_count += after is PartitionState.OFFLINE
        self.offline_count -= before is PartitionState.OFFLINE


def partition_state(partition: PartitionRecord | None) -> PartitionState:
    if partition is None:
        return PartitionState.NON_EXISTENT
    if partition.leader != NO_LEADER:
        return PartitionState.ONLINE
    return PartitionState.NEW if partition.leader_epoch == 0 else PartitionState.OFFLINE


def _is_unclean(before: PartitionRecord | None, after: PartitionRecord | None) -> bool:
    """Whether a new leader could have lacked records that clients were promised."""
    if before is None or after is None or after.leader in (before.leader, NO_LEADER):
        return False
    return after.leader not in before.isr and after.leader not in before.eligible_leader_replicas
