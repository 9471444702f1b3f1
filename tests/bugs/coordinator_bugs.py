"""Seeded bugs of coordinators, each one replacing one method of the product (testing.md 10.5).

The simulation of coordinators must find every one of them; see seeded_bugs.py for how. Bugs of
transactions alone are in transaction_bugs.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from seeded_bugs import Suite, named

from kraftpy.coordinator.groups.classic_group import ClassicGroup
from kraftpy.coordinator.groups.classic_rebalance import ClassicRebalances
from kraftpy.coordinator.groups.classic_sync import ClassicAssignments
from kraftpy.coordinator.groups.consumer_draft import GroupDraft
from kraftpy.coordinator.groups.consumer_group import ConsumerGroup
from kraftpy.coordinator.groups.consumer_timers import ConsumerTimers
from kraftpy.coordinator.groups.offsets import Offsets
from kraftpy.coordinator.groups.offsets_state import OffsetState
from kraftpy.coordinator.groups.reconciler import Reconciliation
from kraftpy.coordinator.outcome import CoordinatorError, Outcome
from kraftpy.coordinator.runtime import CoordinatorRuntime
from kraftpy.coordinator.shard import Shard, ShardState
from kraftpy.coordinator.shard_writing import CollectingShard
from kraftpy.coordinator.transactions.machine import TransactionMachine
from kraftpy.sim.coordinator_simulation import CoordinatorSimulation

EVENTS = 1_500


# The runtime.

_append = CollectingShard._append


def answers_before_the_high_watermark(self: Shard[Any], *given: Any, **terms: Any) -> Any:
    error = _append(self, *given, **terms)
    while self._deferred:
        self._deferred.popleft()[1].committed()
    return error


def what_the_log_refused_stays(self: Shard[Any], writes: list[Any], error: Any) -> Any:
    self._batch = None
    for write in writes:
        write.failed(error)
    return error


def what_was_seen_is_not_waited_for(self: Shard[Any], write: Any) -> None:
    write.committed()


def loaded_means_committed(self: Shard[Any]) -> None:
    self.state = ShardState.ACTIVE
    self._commit(self.timeline.last_written)
    self._enqueue(self.machine.loaded)


def stale_coordinator_answers(self: CoordinatorRuntime[Any], partition: int, epoch: Any) -> None:
    return None


# The classic protocol.


def generation_not_persisted(self: ClassicAssignments, group: Any, request: Any) -> Outcome[Any]:
    given = {each.member_id: bytes(each.assignment) for each in request.assignments}
    group.is_storing_assignment = True
    return Outcome(settled=partial(self._stored, group, group.generation, given))


_hand_out = ClassicAssignments._hand_out


def two_members_get_one_partition(self: ClassicAssignments, group: Any, assignments: Any) -> None:
    longest = max(assignments.values(), key=len)
    _hand_out(self, group, dict.fromkeys(assignments, longest))


def commit_without_generation_check(self: ClassicGroup, *given: Any, **terms: Any) -> None:
    return None


def sessions_not_started_on_load(self: ClassicRebalances, group: Any, max_size: int) -> None:
    return None


def assignment_handed_out_in_a_later_generation(
    self: ClassicAssignments,
    group: ClassicGroup,
    generation: int,
    assignments: Any,
    error: CoordinatorError | None,
) -> None:
    if group.members and error is None:
        for member in list(group.members.values()):
            member.assignment = assignments.get(member.member_id, b"")
        if group.state.name == "COMPLETING":
            _hand_out(self, group, assignments)


# KIP-848.


def owned_not_said_taken_for_nothing(self: Reconciliation, partitions: Any) -> bool:
    owned = self.owned or {}
    return any(
        not owned.get(topic_id, frozenset()).isdisjoint(epochs)
        for topic_id, epochs in partitions.items()
    )


def everything_is_free(self: GroupDraft, topic_id: Any, partition: int, member_id: str) -> bool:
    return True


def consumers_sessions_not_started_on_load(self: ConsumerTimers, group: Any) -> None:
    return None


def strangers_may_commit(self: ConsumerGroup, *given: Any, **terms: Any) -> None:
    return None


def holders_not_kept(self: ConsumerGroup, member_id: str, old: Any, new: Any, **terms: Any) -> None:
    for key in new.partitions():
        self.holders[key] = member_id


# Offsets in transactions.

_end_transaction = OffsetState.end_transaction


def offsets_of_an_aborted_transaction_kept(
    self: OffsetState, producer_id: int, *, is_commit: bool
) -> None:
    _end_transaction(self, producer_id, is_commit=True)


def offsets_visible_before_the_marker(
    self: OffsetState, producer_id: int, group_id: str, partition: Any, stored: Any
) -> None:
    self.put(group_id, partition, stored)


def pending_offsets_not_waited_for(self: OffsetState, group_id: str, partition: Any) -> bool:
    return False


def transactional_commit_of_anybody(self: Offsets, request: Any, api_version: int) -> None:
    return None


_decide = TransactionMachine._decide


def markers_before_the_decision_is_committed(
    self: TransactionMachine, old: Any, new: Any, answer: Any
) -> Any:
    self._carry_out(new)
    return _decide(self, old, new, answer)._replace(settled=None)


def decision_not_carried_out_after_loading(self: TransactionMachine, name: str) -> Outcome[Any]:
    return Outcome()


BUGS = [
    named(CollectingShard, "_append", answers_before_the_high_watermark),
    named(CollectingShard, "_drop", what_the_log_refused_stays),
    named(CollectingShard, "_wait_for_others", what_was_seen_is_not_waited_for),
    named(Shard, "activate", loaded_means_committed),
    named(CoordinatorRuntime, "resigned", stale_coordinator_answers),
    named(ClassicAssignments, "_store", generation_not_persisted),
    named(ClassicAssignments, "_hand_out", two_members_get_one_partition),
    named(ClassicAssignments, "_stored", assignment_handed_out_in_a_later_generation),
    named(ClassicGroup, "validate_offset_commit", commit_without_generation_check),
    named(ClassicRebalances, "loaded", sessions_not_started_on_load),
    named(Reconciliation, "_may_own", owned_not_said_taken_for_nothing),
    named(GroupDraft, "is_free", everything_is_free),
    named(ConsumerTimers, "start_all", consumers_sessions_not_started_on_load),
    named(ConsumerGroup, "validate_offset_commit", strangers_may_commit),
    named(ConsumerGroup, "_hold", holders_not_kept),
    named(OffsetState, "end_transaction", offsets_of_an_aborted_transaction_kept),
    named(OffsetState, "put_pending", offsets_visible_before_the_marker),
    named(OffsetState, "is_pending", pending_offsets_not_waited_for),
    named(Offsets, "_check_transactional_commit", transactional_commit_of_anybody),
    named(TransactionMachine, "_decide", markers_before_the_decision_is_committed),
    named(TransactionMachine, "_go_on", decision_not_carried_out_after_loading),
]


def run(seed: int) -> None:
    CoordinatorSimulation(seed).run(EVENTS)


SUITE = Suite("coordinator", "L2, coordinators", BUGS, run)
