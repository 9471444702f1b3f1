"""Removed topics whose files are not all gone yet.

Removing a topic takes it from clients at once; its files go when its brokers get to it. The image
lists the replicas that no broker has reported as gone, so this survives failovers and snapshots,
and a topic leaves the list with its last replica. What is derived here is who can't delete at the
moment: replicas on fenced brokers are ineligible, and nothing has to be retried when such a broker
returns, for it finds the topic missing in its image, deletes its files and reports.

Invariants: the counts equal those of the image's pending deletions; an ineligible topic has a
pending replica on a broker that can't delete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.controller.replica_states import can_delete
from kraftpy.metadata.image import EMPTY_IMAGE
from kraftpy.metadata.records import PendingDeletionRecord, ReplicaDeletedRecord
from kraftpy.protocol.ids import Uuid

__all__ = ["TopicDeletion"]


class TopicDeletion:
    """Follows the image's pending deletions."""

    __slots__ = ("_by_broker", "_image", "_ineligible", "replicas_to_delete_count")

    def __init__(self) -> None:
        self._image = EMPTY_IMAGE
        # For each broker, removed topics and how many of their replicas it still has.
        self._by_broker: dict[int, dict[Uuid, int]] = {}
        # For each removed topic with such, how many of its brokers can't delete now.
        self._ineligible: dict[Uuid, int] = {}
        self.replicas_to_delete_count = 0

    @property
    def topics_to_delete(self) -> Iterator[PendingDeletionRecord]:
        """Topics whose deletion has begun and isn't complete, by id: names may come twice."""
        return self._image.pending_deletions.values()

    @property
    def topics_ineligible(self) -> Iterator[PendingDeletionRecord]:
        """Those of them that wait for a broker which isn't there."""
        for topic_id in sorted(self._ineligible):
            yield self._image.pending_deletions[topic_id]

    @property
    def topics_to_delete_count(self) -> int:
        return len(self._image.pending_deletions)

    @property
    def topics_ineligible_count(self) -> int:
        return len(self._ineligible)

    @property
    def replicas_ineligible_count(self) -> int:
        if not self._ineligible:
            # The rule; it is asked for after every event.
            return 0
        return sum(
            sum(topics.values())
            for broker_id, topics in self._by_broker.items()
            if not can_delete(self._image, broker_id)
        )

    def pending_on(self, broker_id: int) -> list[Uuid]:
        """Removed topics that wait for this broker."""
        return sorted(self._by_broker.get(broker_id, ()))

    def reported(
        self, broker_id: int, topic_ids: Sequence[Uuid]
    ) -> tuple[ReplicaDeletedRecord, ...]:
        """What a broker's report, that it has unlinked these topics' files, is news about.

        Brokers repeat themselves until they see the effect, and report logs that they found
        without anybody waiting for it.
        """
        waiting = self._by_broker.get(broker_id, {})
        return tuple(
            ReplicaDeletedRecord(topic_id, replica.partition_id, broker_id)
            for topic_id in dict.fromkeys(topic_ids)
            if topic_id in waiting
            for replica in self._image.pending_deletions[topic_id].replicas
            if replica.broker_id == broker_id
        )

    def update(self, changes: ImageChanges) -> None:
        self._image = changes.after
        for broker in changes.brokers:
            could = can_delete(changes.before, broker.key)
            can = can_delete(changes.after, broker.key)
            if could is not can:
                for topic_id in self._by_broker.get(broker.key, ()):
                    self._add_ineligible(topic_id, -1 if can else 1)
        for pending in changes.pending_deletions:
            self._follow(pending.key, pending.before, pending.after)

    def _follow(
        self,
        topic_id: Uuid,
        before: PendingDeletionRecord | None,
        after: PendingDeletionRecord | None,
    ) -> None:
        old, new = _count_by_broker(before), _count_by_broker(after)
        self.replicas_to_delete_count += new.total() - old.total()
        for broker_id in sorted(old | new):
            had, has = old[broker_id], new[broker_id]
            topics = self._by_broker.setdefault(broker_id, {})
            if has:
                topics[topic_id] = has
            else:
                del topics[topic_id]
            if not topics:
                del self._by_broker[broker_id]
            if bool(had) is not bool(has) and not can_delete(self._image, broker_id):
                self._add_ineligible(topic_id, 1 if has else -1)

    def _add_ineligible(self, topic_id: Uuid, count: int) -> None:
        total = self._ineligible.get(topic_id, 0) + count
        if total:
            self._ineligible[topic_id] = total
        else:
            del self._ineligible[topic_id]


def _count_by_broker(pending: PendingDeletionRecord | None) -> Counter[int]:
    return Counter(replica.broker_id for replica in pending.replicas) if pending else Counter()
