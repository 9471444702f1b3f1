"""The opaque bytes of classic groups: what a member subscribes to, and what it is assigned.

An int16 of the version stands before either. Newer versions only add at the end, so that one which
is newer than we are is read as the newest that we know.
"""

from __future__ import annotations

import struct
from collections.abc import Collection

from kraftpy.client.assignors import MemberAssignment, MemberSubscription
from kraftpy.client.calls import TopicPartition
from kraftpy.protocol.codec import DecodeError, decode, encode_bytes
from kraftpy.protocol.schema.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kraftpy.protocol.schema.consumer_protocol import TopicPartition as PartitionsOfTopic
from kraftpy.protocol.schema.k11_join_group import JoinGroupResponseMember

__all__ = ["read_assignment", "read_subscription", "write_assignment", "write_subscription"]

_VERSION = struct.Struct(">h")
_NEWEST = 3


def write_subscription(
    topics: Collection[str],
    user_data: bytes | None,
    owned: Collection[TopicPartition],
    generation: int,
    rack: str,
) -> bytes:
    subscription = ConsumerProtocolSubscription(
        topics=list(topics),
        user_data=user_data,
        owned_partitions=_by_topic(owned),
        generation_id=generation,
        rack_id=rack or None,
    )
    return _VERSION.pack(_NEWEST) + encode_bytes(subscription, _NEWEST)


def _by_topic(partitions: Collection[TopicPartition]) -> list[PartitionsOfTopic]:
    topics: dict[str, PartitionsOfTopic] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, PartitionsOfTopic(topic=topic)).partitions.append(partition)
    return list(topics.values())


def write_assignment(
    partitions: Collection[TopicPartition], user_data: bytes | None = None
) -> bytes:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=_by_topic(partitions), user_data=user_data
    )
    return _VERSION.pack(_NEWEST) + encode_bytes(assignment, _NEWEST)


def _partitions(topics: list[PartitionsOfTopic]) -> list[TopicPartition]:
    return [TopicPartition(each.topic, number) for each in topics for number in each.partitions]


def read_assignment(data: bytes) -> MemberAssignment:
    """None is an assignment too: of members for whom the leader had nothing.

    Raises ValueError for words of a leader that are none.
    """
    if not data:
        return MemberAssignment([])
    try:
        version = min(_VERSION.unpack_from(data)[0], _NEWEST)
        rest = memoryview(data)[_VERSION.size :]
        answer = decode(ConsumerProtocolAssignment, version, rest, may_have_rest=True)
    except (DecodeError, struct.error) as error:
        raise ValueError(f"the leader's assignment can't be read: {error}") from error
    return MemberAssignment(_partitions(answer.assigned_partitions), answer.user_data)


def read_subscription(member: JoinGroupResponseMember) -> MemberSubscription:
    """Another client's words: what can't be read subscribes to nothing."""
    data = member.metadata
    try:
        version = min(_VERSION.unpack_from(data)[0], _NEWEST)
        rest = memoryview(data)[_VERSION.size :]
        read = decode(ConsumerProtocolSubscription, version, rest, may_have_rest=True)
    except (DecodeError, struct.error):
        return MemberSubscription(member.member_id, frozenset())
    return MemberSubscription(
        member.member_id,
        frozenset(read.topics),
        read.user_data,
        tuple(_partitions(read.owned_partitions)),
        read.generation_id,
        read.rack_id or "",
    )
