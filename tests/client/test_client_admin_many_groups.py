"""Many groups in few requests: by coordinator, and those that move are asked for again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kraftpy.client.admin_core import Ask, Operation
from kraftpy.client.admin_many_groups import offsets_of_groups, wait_for_decided
from kraftpy.client.calls import TopicPartition
from kraftpy.client.errors import KafkaError
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
from kraftpy.protocol.schema.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


def found(nodes: Mapping[str, int], code: int = 0) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=node_id, error_code=code) for key, node_id in nodes.items()
        ]
    )


def offsets(*group_ids: str, code: int = 0) -> OffsetFetchResponse:
    """Each has its own name as metadata."""
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(
                group_id=each,
                error_code=code,
                topics=[
                    OffsetFetchResponseTopics(
                        name="t",
                        partitions=[
                            OffsetFetchResponsePartitions(
                                partition_index=0, committed_offset=7, metadata=each
                            )
                        ],
                    )
                ],
            )
            for each in group_ids
        ]
    )


def states(code: int = 0, **of_ids: str) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(transactional_id=key, transaction_state=state, error_code=code)
            for key, state in of_ids.items()
        ]
    )


def groups_of(ask: Ask) -> tuple[int | None, list[str]]:
    assert isinstance(ask.message, OffsetFetchRequest)
    return ask.node_id, [group.group_id for group in ask.message.groups]


def begin(*group_ids: str) -> tuple[Operation[Any], Ask]:
    operation = offsets_of_groups(group_ids)
    next(operation)
    return operation, operation.send(MetadataResponse())


def test_each_coordinator_is_asked_once_for_all_its_groups() -> None:
    operation, ask = begin("a", "b", "c")
    assert isinstance(ask.message, FindCoordinatorRequest)
    assert (ask.message.key_type, ask.message.coordinator_keys) == (0, ["a", "b", "c"])
    assert groups_of(operation.send(found({"a": 1, "b": 2, "c": 1}))) == (1, ["a", "c"])
    assert groups_of(operation.send(offsets("a", "c"))) == (2, ["b"])
    with pytest.raises(StopIteration) as ended:
        operation.send(offsets("b"))
    where = TopicPartition("t", 0)
    assert {key: of[where].metadata for key, of in ended.value.value.items()} == {
        key: key for key in ("a", "b", "c")
    }


def test_without_groups_nobody_is_asked() -> None:
    operation = offsets_of_groups([])
    next(operation)
    with pytest.raises(StopIteration) as ended:
        operation.send(MetadataResponse())
    assert ended.value.value == {}


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_has_moved_is_looked_up_again_after_a_pause(code: ErrorCode) -> None:
    operation, _ = begin("a")
    ask = operation.send(found({"a": 1}))
    assert list(ask.codes(offsets("a", code=code))) == []
    ask = operation.send(offsets("a", code=code))
    assert isinstance(ask.message, FindCoordinatorRequest)
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE in ask.codes(found({"a": 2}))
    assert list(ask.codes(found({"a": 2}))) == [ErrorCode.NONE]
    assert groups_of(operation.send(found({"a": 2}))) == (2, ["a"])
    with pytest.raises(StopIteration):
        operation.send(offsets("a"))


def test_what_does_not_pass_is_raised() -> None:
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    operation, _ = begin("a")
    with pytest.raises(KafkaError):
        operation.send(found({"a": 1}, refused))
    operation, _ = begin("a")
    operation.send(found({"a": 1}))
    with pytest.raises(KafkaError):
        operation.send(offsets("a", code=refused))
    waiting = wait_for_decided(["a"])
    next(waiting)
    waiting.send(found({"a": 1}))
    with pytest.raises(KafkaError):
        waiting.send(states(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, a=""))


@pytest.mark.parametrize("decided", ["PrepareCommit", "PrepareAbort"])
def test_what_is_decided_and_not_told_is_waited_for(decided: str) -> None:
    """As an error that passes, after which the core asks again; and nothing else is."""
    operation = wait_for_decided(["a", "b", "c", "d"])
    ask = next(operation)
    assert isinstance(ask.message, FindCoordinatorRequest)
    assert ask.message.key_type == 1
    ask = operation.send(found(dict.fromkeys("abcd", 1)))
    assert isinstance(ask.message, DescribeTransactionsRequest)
    codes = ask.codes(states(a="Ongoing", b=decided, c="CompleteCommit"))
    assert set(codes) == {ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS}
    assert ErrorCode.CONCURRENT_TRANSACTIONS.retriable
    done = states(a="Ongoing", b="CompleteAbort", c="Empty")
    unknown = states(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, d="")
    done.transaction_states += unknown.transaction_states
    assert set(ask.codes(done)) == {ErrorCode.NONE}
    with pytest.raises(StopIteration):
        operation.send(done)
