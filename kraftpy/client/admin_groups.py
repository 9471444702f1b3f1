"""What an admin client can do with groups: list, describe, delete, and move their offsets.

A group is administered by its coordinator, which is looked up first, and again when it has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kraftpy.client.admin_core import Ask, Operation
from kraftpy.client.admin_operations import (
    Outcomes,
    describe_cluster,
    describe_topics,
    list_topics,
)
from kraftpy.client.calls import TopicPartition
from kraftpy.client.errors import KafkaError, failure_of
from kraftpy.client.group_offsets import OffsetAndMetadata
from kraftpy.client.group_subscription import read_assignment
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema import k02_list_offsets as k02
from kraftpy.protocol.schema import k08_offset_commit as k08
from kraftpy.protocol.schema import k09_offset_fetch as k09
from kraftpy.protocol.schema import k15_describe_groups as k15
from kraftpy.protocol.schema import k69_consumer_group_describe as k69
from kraftpy.protocol.schema.k10_find_coordinator import FindCoordinatorRequest
from kraftpy.protocol.schema.k16_list_groups import ListGroupsRequest
from kraftpy.protocol.schema.k42_delete_groups import DeleteGroupsRequest
from kraftpy.protocol.tables import Request

__all__ = [
    "MOVED",
    "GroupDescription",
    "GroupListing",
    "MemberDescription",
    "alter_group_offsets",
    "delete_groups",
    "describe_group",
    "find_coordinator",
    "group_offsets",
    "list_groups",
    "list_offsets",
    "offsets_of_answer",
]

_CONSUMER = -1
MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
"""Another node coordinates, or soon will: it has to be looked up again."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """`protocol_type` is "consumer" for groups of consumers, of either protocol."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    group_type: str
    state: str
    assignor: str
    coordinator_id: int
    members: tuple[MemberDescription, ...]


def find_coordinator(group_id: str, *, is_again: bool = False) -> Operation[int]:
    """The node that coordinates the group; one of no members and offsets has one, too.

    Whoever asks again, because the node that was found does not, is made to wait a little.
    """
    waits = iter([ErrorCode.COORDINATOR_NOT_AVAILABLE] * is_again)
    answer = yield Ask(
        FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id]),
        # An error that passes is what the core waits after.
        lambda answer: [next(waits, each.error_code) for each in answer.coordinators],
    )
    [found] = answer.coordinators
    failure = failure_of(found.error_code, found.error_message)
    if failure is not None:
        raise failure
    node_id: int = found.node_id
    return node_id


def _ask_coordinator(
    group_id: str, request: Request, codes: Callable[[Any], Sequence[int]]
) -> Operation[tuple[int, Any]]:
    """The coordinator and its answer; another one is asked when it says that it isn't.

    One that has just been made, or moved, is found before it serves: there is time for it.
    """
    is_again = False
    while True:
        node_id = yield from find_coordinator(group_id, is_again=is_again)
        answer = yield Ask(
            request, lambda answer: [code for code in codes(answer) if code not in MOVED], node_id
        )
        if not any(code in MOVED for code in codes(answer)):
            return node_id, answer
        is_again = True


def list_groups() -> Operation[list[GroupListing]]:
    """All groups of all coordinators, by name."""
    cluster = yield from describe_cluster()
    found = []
    for broker in cluster.brokers:
        answer = yield Ask(ListGroupsRequest(), lambda answer: [answer.error_code], broker.node_id)
        failure = failure_of(answer.error_code)
        if failure is not None:
            raise failure
        found += [
            GroupListing(each.group_id, each.group_type, each.group_state, each.protocol_type)
            for each in answer.groups
        ]
    return sorted(found, key=lambda each: each.group_id)


def describe_group(group_id: str) -> Operation[GroupDescription]:
    """Raises KafkaError with GROUP_ID_NOT_FOUND if there is none."""
    node_id, answer = yield from _ask_coordinator(
        group_id, k69.ConsumerGroupDescribeRequest(group_ids=[group_id]), _codes_of_groups
    )
    [group] = answer.groups
    if group.error_code == ErrorCode.NONE:
        return _consumer_group(group, node_id)
    if group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        raise KafkaError(ErrorCode(group.error_code), group.error_message)
    node_id, answer = yield from _ask_coordinator(
        group_id, k15.DescribeGroupsRequest(groups=[group_id]), _codes_of_groups
    )
    [described] = answer.groups
    failure = failure_of(described.error_code, described.error_message)
    if failure is not None:
        raise failure
    if described.group_state == "Dead":
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
    return _classic_group(described, node_id)


def _codes_of_groups(answer: Any) -> Sequence[int]:
    return [each.error_code for each in answer.groups]


def _codes_of_offsets(answer: Any) -> Sequence[int]:
    """Those of the groups, and of offsets that a transaction may change."""
    unstable = [
        each.error_code
        for group in answer.groups
        for topic in group.topics
        for each in topic.partitions
        if each.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    ]
    return [*_codes_of_groups(answer), *unstable]


def _consumer_group(group: k69.DescribedGroup, node_id: int) -> GroupDescription:
    members = [
        MemberDescription(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            tuple(
                TopicPartition(topic.topic_name, partition)
                for topic in each.assignment.topic_partitions
                for partition in topic.partitions
            ),
        )
        for each in group.members
    ]
    return GroupDescription(
        group.group_id, "consumer", group.group_state, group.assignor_name, node_id, tuple(members)
    )


def _classic_group(group: k15.DescribedGroup, node_id: int) -> GroupDescription:
    is_of_consumers = group.protocol_type in ("consumer", "")
    members = [
        MemberDescription(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            _partitions_of(each) if is_of_consumers else (),
        )
        for each in group.members
    ]
    return GroupDescription(
        group.group_id, "classic", group.group_state, group.protocol_data, node_id, tuple(members)
    )


def _partitions_of(member: k15.DescribedGroupMember) -> tuple[TopicPartition, ...]:
    """None if the group's leader writes what only its own kind can read."""
    try:
        return tuple(read_assignment(member.member_assignment).partitions)
    except ValueError:
        return ()


def delete_groups(group_ids: Iterable[str]) -> Operation[Outcomes]:
    outcomes: Outcomes = {}
    for group_id in dict.fromkeys(group_ids):
        _, answer = yield from _ask_coordinator(
            group_id,
            DeleteGroupsRequest(groups_names=[group_id]),
            lambda answer: [each.error_code for each in answer.results],
        )
        for each in answer.results:
            outcomes[each.group_id] = failure_of(each.error_code)
    return outcomes


def group_offsets(
    group_id: str, *, is_stable: bool = False
) -> Operation[dict[TopicPartition, OffsetAndMetadata]]:
    """All that the group has committed, by topic and partition.

    With `is_stable` transactions that may change them are waited for.
    """
    topics = yield from list_topics(include_internal=True)
    names = {topic.topic_id: name for name, topic in topics.items()}
    group = k09.OffsetFetchRequestGroup(group_id=group_id, topics=None)
    _, answer = yield from _ask_coordinator(
        group_id,
        k09.OffsetFetchRequest(groups=[group], require_stable=is_stable),
        _codes_of_offsets if is_stable else _codes_of_groups,
    )
    [fetched] = answer.groups
    failure = failure_of(fetched.error_code)
    if failure is not None:
        raise failure
    return offsets_of_answer(fetched, names)


def offsets_of_answer(
    fetched: k09.OffsetFetchResponseGroup, names: Mapping[Uuid, str]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What one group has, without offsets that have errors; topics may go by their ids."""
    found = {}
    for topic in fetched.topics:
        name = topic.name or names.get(topic.topic_id)
        for each in topic.partitions:
            if name is not None and each.error_code == ErrorCode.NONE:
                found[TopicPartition(name, each.partition_index)] = OffsetAndMetadata(
                    each.committed_offset, each.committed_leader_epoch, each.metadata or ""
                )
    return dict(sorted(found.items()))


def alter_group_offsets(
    group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> Operation[dict[TopicPartition, KafkaError | None]]:
    """Commit for a group that has no members; one that has some refuses."""
    topics = yield from describe_topics({where.topic: None for where in offsets})
    of_topics: dict[str, k08.OffsetCommitRequestTopic] = {}
    for (name, partition), offset in offsets.items():
        topic = of_topics.get(name)
        if topic is None:
            topic_id = topics[name].topic_id
            topic = of_topics[name] = k08.OffsetCommitRequestTopic(name=name, topic_id=topic_id)
        topic.partitions.append(
            k08.OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    request = k08.OffsetCommitRequest(group_id=group_id, topics=list(of_topics.values()))
    _, answer = yield from _ask_coordinator(
        group_id,
        request,
        lambda answer: [each.error_code for topic in answer.topics for each in topic.partitions],
    )
    names = {topic.topic_id: name for name, topic in of_topics.items()}
    return {
        TopicPartition(topic.name or names[topic.topic_id], each.partition_index): failure_of(
            each.error_code
        )
        for topic in answer.topics
        for each in topic.partitions
    }


def list_offsets(
    timestamps: Mapping[TopicPartition, int], *, isolation_level: int = 0
) -> Operation[dict[TopicPartition, int]]:
    """The first offset of this time or later (-1: the end, -2: the beginning); -1: none is."""
    topics = yield from describe_topics({where.topic: None for where in timestamps})
    by_leader: dict[int, dict[str, k02.ListOffsetsTopic]] = {}
    for (name, partition), timestamp in timestamps.items():
        info = topics[name].partitions.get(partition)
        if info is None or info.leader_id < 0:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name}-{partition} has no leader")
        of_topics = by_leader.setdefault(info.leader_id, {})
        topic = of_topics.setdefault(name, k02.ListOffsetsTopic(name=name))
        topic.partitions.append(
            k02.ListOffsetsPartition(
                partition_index=partition,
                current_leader_epoch=info.leader_epoch,
                timestamp=timestamp,
            )
        )
    found = {}
    for leader_id, of_topics in by_leader.items():
        answer = yield Ask(
            k02.ListOffsetsRequest(
                replica_id=_CONSUMER,
                isolation_level=isolation_level,
                topics=list(of_topics.values()),
            ),
            lambda answer: [
                each.error_code for topic in answer.topics for each in topic.partitions
            ],
            leader_id,
        )
        for topic in answer.topics:
            for each in topic.partitions:
                failure = failure_of(each.error_code)
                if failure is not None:
                    raise failure
                found[TopicPartition(topic.name, each.partition_index)] = each.offset
    return {where: found[where] for where in timestamps}
