"""What many groups have committed, in a few requests; and what transactions have decided.

A transaction is committed when its coordinator says so; the partitions and groups that it has
written to are told a little later. Until then a reader of a group sees the offsets of before, and
if there were none, nothing says that some are on their way: also not to readers that ask for stable
offsets of all topics. `wait_for_decided` waits for those that are told, so that afterwards
`offsets_of_groups` has all that was committed before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from kraftpy.client.admin_core import Ask, Operation
from kraftpy.client.admin_groups import MOVED, offsets_of_answer
from kraftpy.client.admin_operations import list_topics
from kraftpy.client.calls import TopicPartition
from kraftpy.client.errors import failure_of
from kraftpy.client.group_offsets import OffsetAndMetadata
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k09_offset_fetch as k09
from kraftpy.protocol.schema.k10_find_coordinator import FindCoordinatorRequest
from kraftpy.protocol.schema.k65_describe_transactions import DescribeTransactionsRequest
from kraftpy.protocol.tables import Request

__all__ = ["offsets_of_groups", "wait_for_decided"]

_OF_GROUPS = 0
_OF_TRANSACTIONS = 1
_DECIDED = ("PrepareCommit", "PrepareAbort")


def offsets_of_groups(
    group_ids: Collection[str],
) -> Operation[dict[str, dict[TopicPartition, OffsetAndMetadata]]]:
    """All that these groups have committed; a group that is not there has nothing."""
    topics = yield from list_topics(include_internal=True)
    names = {topic.topic_id: name for name, topic in topics.items()}
    answers = yield from _ask_coordinators(
        _OF_GROUPS,
        group_ids,
        lambda of_node: k09.OffsetFetchRequest(
            groups=[k09.OffsetFetchRequestGroup(group_id=each, topics=None) for each in of_node]
        ),
        lambda answer: [group.error_code for group in answer.groups],
    )
    found = {}
    for group in (group for answer in answers for group in answer.groups):
        failure = failure_of(group.error_code)
        if failure is not None:
            raise failure
        found[group.group_id] = offsets_of_answer(group, names)
    return found


def wait_for_decided(transactional_ids: Collection[str]) -> Operation[None]:
    """Until none of these is committed, or aborted, without everybody knowing it.

    Transactions that are open are not waited for, and ids that nobody knows have none.
    """
    answers = yield from _ask_coordinators(
        _OF_TRANSACTIONS,
        transactional_ids,
        lambda of_node: DescribeTransactionsRequest(transactional_ids=of_node),
        _codes_of_transactions,
    )
    for state in (state for answer in answers for state in answer.transaction_states):
        if state.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            failure = failure_of(state.error_code)
            if failure is not None:
                raise failure


def _codes_of_transactions(answer: Any) -> Sequence[int]:
    """What is decided and not told counts as an error that passes: the core waits after it."""
    return [
        ErrorCode.CONCURRENT_TRANSACTIONS
        if state.transaction_state in _DECIDED
        else state.error_code
        for state in answer.transaction_states
        if state.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    ]


def _ask_coordinators(
    key_type: int,
    keys: Collection[str],
    request_of: Callable[[list[str]], Request],
    codes: Callable[[Any], Sequence[int]],
) -> Operation[list[Any]]:
    """Each coordinator once, for all keys that it has; all of them again if one has moved."""
    is_again = False
    while True:
        nodes = yield from _find_coordinators(key_type, keys, is_again=is_again)
        answers = []
        for node_id, of_node in nodes.items():
            answer = yield Ask(
                request_of(of_node),
                lambda answer: [code for code in codes(answer) if code not in MOVED],
                node_id,
            )
            answers.append(answer)
        if not any(code in MOVED for answer in answers for code in codes(answer)):
            return answers
        is_again = True


def _find_coordinators(
    key_type: int, keys: Collection[str], *, is_again: bool
) -> Operation[dict[int, list[str]]]:
    """Whose coordinators they are. Who asks again waits a little: see `find_coordinator`."""
    if not keys:
        return {}
    waits = iter([ErrorCode.COORDINATOR_NOT_AVAILABLE] * is_again)
    answer = yield Ask(
        FindCoordinatorRequest(key_type=key_type, coordinator_keys=sorted(keys)),
        lambda answer: [*waits, *(each.error_code for each in answer.coordinators)],
    )
    nodes: dict[int, list[str]] = {}
    for each in answer.coordinators:
        failure = failure_of(each.error_code, each.error_message)
        if failure is not None:
            raise failure
        nodes.setdefault(each.node_id, []).append(each.key)
    return nodes
