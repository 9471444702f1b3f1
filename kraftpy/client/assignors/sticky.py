"""Sticky: as even as possible, and then with as few moves as possible.

1. Who had a partition keeps it, if it still may. Of two who claim one, the later generation is
   right: the other has slept through a rebalance.
2. Partitions without an owner go, those with the fewest candidates first, to the candidate with
   the fewest partitions.
3. As long as an owner has at least two more than some candidate for one of its partitions, that
   partition moves there. Each move makes the sum of the squares of the loads smaller, so this ends.

Under the eager protocol a member gives everything back before it joins, so the leader learns what
it had from its `user_data`, in the format of Kafka's StickyAssignor. Under the cooperative one it
names what it still has. There a partition that has to change hands is given to nobody at first: its
owner revokes it and joins again, and only the next round gives it to the new one. So no partition
ever has two owners, although nobody stops.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from kraftpy.client.assignors.assignor import Assignment, CountingAssignor, MemberSubscription
from kraftpy.client.calls import TopicPartition
from kraftpy.protocol.codec import DecodeError, decode, encode_bytes
from kraftpy.protocol.schema.consumer_protocol import TopicPartition as PartitionsOfTopic
from kraftpy.protocol.tables import Message, array, int32

__all__ = ["CooperativeStickyAssignor", "StickyAssignor", "balance"]

_GENERATION = struct.Struct(">i")


class StickyUserData(Message, versions="0-1", flexible="none"):
    """What a member had, and since when."""

    previous_assignment: list[PartitionsOfTopic] = array(PartitionsOfTopic)
    generation: int = int32("1+", default=-1)


class StickyAssignor(CountingAssignor):
    name = "sticky"

    def __init__(self) -> None:
        self._previous: Sequence[TopicPartition] = ()
        self._generation = -1

    def user_data(self) -> bytes | None:
        if not self._previous:
            return None
        topics: dict[str, PartitionsOfTopic] = {}
        for topic, partition in self._previous:
            topics.setdefault(topic, PartitionsOfTopic(topic=topic)).partitions.append(partition)
        data = StickyUserData(
            previous_assignment=list(topics.values()), generation=self._generation
        )
        return encode_bytes(data, 1)

    def assigned(
        self,
        partitions: Sequence[TopicPartition],
        generation: int,
        user_data: bytes | None = None,
    ) -> None:
        self._previous = partitions
        self._generation = generation

    def assign(
        self, partition_counts: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> Assignment:
        return balance(partition_counts, [_with_previous(member) for member in members])


class CooperativeStickyAssignor(CountingAssignor):
    name = "cooperative-sticky"
    is_cooperative = True

    def __init__(self) -> None:
        self._generation = -1

    def user_data(self) -> bytes | None:
        return _GENERATION.pack(self._generation)

    def assigned(
        self,
        partitions: Sequence[TopicPartition],
        generation: int,
        user_data: bytes | None = None,
    ) -> None:
        self._generation = generation

    def assign(
        self, partition_counts: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> Assignment:
        assignment = balance(partition_counts, members)
        owners: dict[TopicPartition, list[str]] = {}
        for member in members:
            for where in member.owned:
                owners.setdefault(where, []).append(member.member_id)
        for member_id, partitions in assignment.items():
            assignment[member_id] = [
                where
                for where in partitions
                if all(owner == member_id for owner in owners.get(where, ()))
            ]
        return assignment


def _with_previous(member: MemberSubscription) -> MemberSubscription:
    """The member with what its own data says that it had; data that can't be read says nothing."""
    if not member.user_data:
        return member
    for version in (1, 0):
        try:
            data = decode(StickyUserData, version, member.user_data)
        except DecodeError:
            continue
        owned = tuple(
            TopicPartition(each.topic, partition)
            for each in data.previous_assignment
            for partition in each.partitions
        )
        return MemberSubscription(member.member_id, member.topics, None, owned, data.generation)
    return member


def balance(
    partition_counts: Mapping[str, int], members: Sequence[MemberSubscription]
) -> Assignment:
    """Everybody's partitions, first those kept, then those gained."""
    ordered = sorted(members, key=lambda each: each.member_id)
    candidates = {
        topic: [each.member_id for each in ordered if topic in each.topics]
        for topic in sorted(partition_counts)
    }
    held: dict[str, dict[TopicPartition, None]] = {each.member_id: {} for each in ordered}
    owner_of: dict[TopicPartition, str] = {}
    for member in sorted(ordered, key=lambda each: -each.generation):
        for where in member.owned:
            is_there = 0 <= where.partition < partition_counts.get(where.topic, 0)
            if is_there and where.topic in member.topics and where not in owner_of:
                owner_of[where] = member.member_id
                held[member.member_id][where] = None
    partitions = [
        TopicPartition(topic, partition)
        for topic, members_of_topic in candidates.items()
        if members_of_topic
        for partition in range(partition_counts[topic])
    ]
    partitions.sort(key=lambda where: (len(candidates[where.topic]), where))

    def least_loaded(topic: str) -> str:
        return min(candidates[topic], key=lambda each: (len(held[each]), each))

    for where in partitions:
        if where not in owner_of:
            owner_of[where] = taker = least_loaded(where.topic)
            held[taker][where] = None
    has_moved = True
    while has_moved:
        has_moved = False
        for where in partitions:
            owner, taker = owner_of[where], least_loaded(where.topic)
            if len(held[owner]) > len(held[taker]) + 1:
                del held[owner][where]
                held[taker][where] = None
                owner_of[where] = taker
                has_moved = True
    return {member_id: list(partitions) for member_id, partitions in held.items()}
