"""Questions to a group's coordinator: one that moves, and offsets that are not final."""

from __future__ import annotations

from typing import Any

import pytest

from kraftpy.client.admin_core import Ask, Operation
from kraftpy.client.admin_groups import describe_group, group_offsets
from kraftpy.client.calls import TopicPartition
from kraftpy.client.group_subscription import write_assignment
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k15_describe_groups as k15
from kraftpy.protocol.schema import k69_consumer_group_describe as k69
from kraftpy.protocol.schema.k03_metadata import MetadataResponse
from kraftpy.protocol.schema.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kraftpy.protocol.schema.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)


def found(node_id: int) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=node_id)])


def offsets(code: ErrorCode = ErrorCode.NONE, of_offset: int = 0) -> OffsetFetchResponse:
    offset = OffsetFetchResponsePartitions(
        partition_index=0, committed_offset=7, metadata="m", error_code=of_offset
    )
    topics = [OffsetFetchResponseTopics(name="t", partitions=[offset])]
    group = OffsetFetchResponseGroup(group_id="g", error_code=code, topics=topics)
    return OffsetFetchResponse(groups=[group])


def asked_for_offsets(operation: Operation[Any], node_id: int) -> Ask:
    """Go on until a coordinator is asked."""
    ask = operation.send(found(node_id))
    assert isinstance(ask.message, OffsetFetchRequest)
    assert ask.node_id == node_id
    return ask


def begin(*, is_stable: bool) -> Operation[dict[TopicPartition, Any]]:
    operation = group_offsets("g", is_stable=is_stable)
    next(operation)
    ask = operation.send(MetadataResponse())
    assert isinstance(ask.message, FindCoordinatorRequest)
    assert ask.codes(found(1)) == [ErrorCode.NONE]
    return operation


def test_a_coordinator_that_is_not_yet_one_is_asked_again_after_a_pause() -> None:
    """However often; the core ends it when its time is over."""
    operation = begin(is_stable=False)
    for node_id in range(1, 40):
        asked_for_offsets(operation, node_id)
        ask = operation.send(offsets(ErrorCode.NOT_COORDINATOR))
        assert isinstance(ask.message, FindCoordinatorRequest)
        # The first answer counts as an error that passes, so that the core waits and asks again.
        assert ask.codes(found(1)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert ask.codes(found(1)) == [ErrorCode.NONE]


def test_offsets_that_a_transaction_may_change_are_waited_for() -> None:
    unstable = offsets(of_offset=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    for is_stable in (False, True):
        operation = begin(is_stable=is_stable)
        ask = asked_for_offsets(operation, 1)
        assert isinstance(ask.message, OffsetFetchRequest)
        assert ask.message.require_stable == is_stable
        assert (ErrorCode.UNSTABLE_OFFSET_COMMIT in ask.codes(unstable)) == is_stable
        assert list(ask.codes(offsets())) == [ErrorCode.NONE]
        with pytest.raises(StopIteration) as ended:
            operation.send(offsets())
        assert ended.value.value[TopicPartition("t", 0)].metadata == "m"


def test_an_assignment_that_cannot_be_read_is_described_as_none() -> None:
    """Anybody may lead a group, and write what only its own kind understands."""
    operation = describe_group("g")
    next(operation)
    operation.send(found(1))
    absent = k69.DescribedGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    operation.send(k69.ConsumerGroupDescribeResponse(groups=[absent]))
    operation.send(found(1))
    members = [
        k15.DescribedGroupMember(member_id="odd", member_assignment=b"{}: nothing"),
        k15.DescribedGroupMember(
            member_id="even", member_assignment=write_assignment([TopicPartition("t", 2)])
        ),
    ]
    group = k15.DescribedGroup(
        group_id="g", group_state="Stable", protocol_type="consumer", members=members
    )
    with pytest.raises(StopIteration) as end:
        operation.send(k15.DescribeGroupsResponse(groups=[group]))
    assert [(each.member_id, each.assignment) for each in end.value.value.members] == [
        ("odd", ()),
        ("even", (TopicPartition("t", 2),)),
    ]
