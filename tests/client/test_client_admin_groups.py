"""Questions to a group's coordinator: one that moves, and offsets that are not final."""

from __future__ import annotations

from typing import Any

import pytest

from kraftpy.client.admin_core import Ask, Operation
from kraftpy.client.admin_groups import group_offsets
from kraftpy.client.calls import TopicPartition
from kraftpy.protocol.errors import ErrorCode
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
