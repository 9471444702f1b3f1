"""The uniform assignor: loads that differ by at most one partition, and as few moves as possible.

Here for groups whose members all subscribe to the same topics, which nearly all groups are; others
go to uniform_heterogeneous.py. Balance comes before stickiness: with n partitions and m members
each gets n // m, and n % m of them one more.

1. Each member keeps what it has, up to that quota. Those who have more may keep one more, as long
   as there are such places; so no partition is taken away that balance does not ask for.
2. The others are dealt out in turn to those who lack some, so that each topic is spread as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from kraftpy.coordinator.assignors.assignor import (
    AssignorError,
    Partitions,
    Subscriber,
    has_one_subscription,
)
from kraftpy.coordinator.assignors.uniform_heterogeneous import assign_balanced
from kraftpy.protocol.ids import Uuid

__all__ = ["assign_uniformly"]


def assign_uniformly(
    subscribers: Collection[Subscriber], partition_counts: Mapping[Uuid, int]
) -> dict[str, Partitions]:
    ordered = sorted(subscribers, key=lambda subscriber: subscriber.member_id)
    for topic_ids in {subscriber.topic_ids: None for subscriber in ordered}:
        for topic_id in topic_ids:
            if topic_id not in partition_counts:
                raise AssignorError(f"a subscribed topic does not exist: {topic_id.hex()}")
    if not ordered:
        return {}
    if has_one_subscription(ordered):
        counts = {topic_id: partition_counts[topic_id] for topic_id in ordered[0].topic_ids}
        return _assign_to_equals(ordered, counts)
    return assign_balanced(ordered, partition_counts)


def _assign_to_equals(
    ordered: list[Subscriber], counts: Mapping[Uuid, int]
) -> dict[str, Partitions]:
    quota, extra = divmod(sum(counts.values()), len(ordered))
    free = {topic_id: set(range(count)) for topic_id, count in counts.items()}
    kept: dict[str, dict[Uuid, frozenset[int]]] = {}
    sizes: dict[str, int] = {}
    for subscriber in ordered:
        mine = _still_valid(subscriber.held, free)
        size = sum(map(len, mine.values()))
        if size > quota:
            limit = quota
            if extra:
                limit += 1
                extra -= 1
            if size > limit:
                mine, size = _first(mine, limit), limit
        for topic_id, partitions in mine.items():
            free[topic_id] -= partitions
        kept[subscriber.member_id] = mine
        sizes[subscriber.member_id] = size

    lacking: deque[tuple[str, int]] = deque()
    for member_id, size in sizes.items():
        lacks = quota - size
        if lacks >= 0 and extra:
            lacks += 1
            extra -= 1
        if lacks > 0:
            lacking.append((member_id, lacks))
    _deal(free, lacking, kept)
    return dict(kept)


def _still_valid(held: Partitions, free: Mapping[Uuid, set[int]]) -> dict[Uuid, frozenset[int]]:
    """What of `held` is still there to be had."""
    valid = {}
    for topic_id, partitions in held.items():
        available = free.get(topic_id)
        if available is not None and (mine := partitions & available):
            valid[topic_id] = mine
    return valid


def _first(held: Partitions, limit: int) -> dict[Uuid, frozenset[int]]:
    """As many as `limit`: those with the lowest numbers, so that each topic gives up its share."""
    numbered = sorted(
        (partition, topic_id) for topic_id, partitions in held.items() for partition in partitions
    )
    chosen: dict[Uuid, list[int]] = {}
    for partition, topic_id in numbered[:limit]:
        chosen.setdefault(topic_id, []).append(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in chosen.items()}


def _deal(
    free: Mapping[Uuid, set[int]],
    lacking: deque[tuple[str, int]],
    kept: Mapping[str, dict[Uuid, frozenset[int]]],
) -> None:
    """Deal the free partitions out in turn; there are as many as are lacking."""
    for topic_id, partitions in free.items():
        dealt: dict[str, list[int]] = {}
        for partition in sorted(partitions):
            member_id, lacks = lacking.popleft()
            dealt.setdefault(member_id, []).append(partition)
            if lacks > 1:
                lacking.append((member_id, lacks - 1))
        for member_id, added in dealt.items():
            mine = kept[member_id]
            mine[topic_id] = mine.get(topic_id, frozenset()).union(added)
