"""The range assignor: of each topic, each of its subscribers gets one stretch of partitions.

The members stand in one order for all topics: static ones first, by instance id, then dynamic ones
by member id. Of n partitions and m subscribers each gets n // m, the first n % m one more. Topics
with equal counts and equal subscribers are therefore cut at the same places, and a member reads the
same partition numbers of each of them, which is what joins of streams need.

What members had before plays no part: a static member keeps its place by its instance id.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kraftpy.coordinator.assignors.assignor import AssignorError, Partitions, Subscriber
from kraftpy.protocol.ids import Uuid

__all__ = ["assign_ranges"]


def assign_ranges(
    subscribers: Collection[Subscriber], partition_counts: Mapping[Uuid, int]
) -> dict[str, Partitions]:
    readers: dict[Uuid, list[str]] = {}
    for subscriber in sorted(subscribers, key=_place):
        for topic_id in subscriber.topic_ids:
            readers.setdefault(topic_id, []).append(subscriber.member_id)

    assigned: dict[str, dict[Uuid, frozenset[int]]] = {
        subscriber.member_id: {} for subscriber in subscribers
    }
    for topic_id, member_ids in readers.items():
        if topic_id not in partition_counts:
            raise AssignorError(f"a subscribed topic does not exist: {topic_id.hex()}")
        quota, extra = divmod(partition_counts[topic_id], len(member_ids))
        start = 0
        for position, member_id in enumerate(member_ids):
            end = start + quota + (position < extra)
            if end > start:
                assigned[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(assigned)


def _place(subscriber: Subscriber) -> tuple[bool, str]:
    instance_id = subscriber.instance_id
    if instance_id is None:
        return True, subscriber.member_id
    return False, instance_id
