"""Seeded bugs of transactions, each one replacing one method of the product (testing.md 10.5).

Random runs of the coordinator with partition logs and producers must find every one of them; see
seeded_bugs.py for how.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from seeded_bugs import Suite, named

from kraftpy.broker.marker_queues import MarkerQueues
from kraftpy.coordinator.outcome import Outcome
from kraftpy.coordinator.transactions import machine as machines
from kraftpy.coordinator.transactions.machine import TransactionMachine
from kraftpy.log.producers import ProducerState, ProducerUpdate
from kraftpy.log.verifications import Verifications

# Deciding.

_decide = TransactionMachine._decide


def markers_before_the_decision_is_committed(
    self: TransactionMachine, old: Any, new: Any, answer: Any
) -> Any:
    self._carry_out(new)
    return _decide(self, old, new, answer)._replace(settled=None)


_end = TransactionMachine.end


def end_accepted_for_any_epoch(self: TransactionMachine, ending: Any, fresh_id: Any) -> Any:
    found = self.transactions.get(ending.transactional_id)
    if found is not None:
        ending = replace(ending, producer_id=found.producer_id, epoch=found.epoch)
    return _end(self, ending, fresh_id)


def no_epoch_bump(self: TransactionMachine, ending: Any, fresh_id: Any) -> Any:
    prepared = machines.prepared
    machines.prepared = lambda old, **terms: replace(prepared(old, **terms), epoch=old.epoch)
    try:
        return _end(self, ending, fresh_id)
    finally:
        machines.prepared = prepared


def nobody_is_pending(self: TransactionMachine, transactional_id: str) -> bool:
    return False


def fencing_forgets_the_epoch(
    self: TransactionMachine, old: Any, answer: Any, fresh_id: Any
) -> Any:
    new = replace(
        machines.fenced(old, cluster_version=2, now_ms=self._context.clock.wall_ms()),
        epoch=old.epoch,
    )
    return self._decide(old, new, answer)


# Going on.


def decision_not_carried_out_after_loading(
    self: TransactionMachine, transactional_id: str
) -> Outcome[Any]:
    return Outcome()


def loaded_decision_taken_for_committed(
    self: TransactionMachine, transactional_id: str
) -> Outcome[Any]:
    self._carry_out(self.transactions[transactional_id])
    return Outcome()


_complete = TransactionMachine._complete


def complete_not_tried_again(self: TransactionMachine, transactional_id: str, identity: Any) -> Any:
    return _complete(self, transactional_id, identity)._replace(settled=None)


def nobody_times_out(self: TransactionMachine) -> Outcome[Any]:
    return Outcome()


# Markers.

_answered = MarkerQueues._answered


def marker_taken_for_written(
    self: MarkerQueues, each: Any, name: Any, code: int, now_ms: int
) -> None:
    _answered(self, each, name, 0, now_ms)


def lost_request_taken_for_written(self: MarkerQueues, batch: Any, now_ms: int) -> None:
    self._end_batch(batch)
    for each, name in batch.items():
        if not each.is_over:
            _answered(self, each, name, 0, now_ms)


_add_marker = ProducerUpdate.add_marker


def late_marker_ends_the_next_transaction(
    self: ProducerUpdate, producer_id: int, epoch: int, **fields: Any
) -> None:
    self._transaction_version = min(self._transaction_version, 1)
    _add_marker(self, producer_id, epoch, **fields)


def older_epoch_accepted(self: ProducerUpdate, old: Any, epoch: int, *, is_fenced: bool) -> None:
    return None


# Verification.


def any_guard_fits(self: ProducerState, producer_id: int, guard: Any) -> bool:
    return True


def marker_leaves_what_was_verified(self: Verifications, producer_id: int, epoch: int) -> None:
    return None


BUGS = [
    named(TransactionMachine, "_decide", markers_before_the_decision_is_committed),
    named(TransactionMachine, "end", end_accepted_for_any_epoch),
    named(TransactionMachine, "end", no_epoch_bump),
    named(TransactionMachine, "_must_wait", nobody_is_pending),
    named(TransactionMachine, "_fence", fencing_forgets_the_epoch),
    named(TransactionMachine, "_go_on", decision_not_carried_out_after_loading),
    named(TransactionMachine, "_go_on", loaded_decision_taken_for_committed),
    named(TransactionMachine, "_complete", complete_not_tried_again),
    named(TransactionMachine, "_abort_timed_out", nobody_times_out),
    named(MarkerQueues, "_answered", marker_taken_for_written),
    named(MarkerQueues, "failed", lost_request_taken_for_written),
    named(ProducerUpdate, "add_marker", late_marker_ends_the_next_transaction),
    named(ProducerUpdate, "_check_epoch", older_epoch_accepted),
    named(ProducerState, "accepts_guard", any_guard_fits),
    named(Verifications, "marker_written", marker_leaves_what_was_verified),
]


def run(seed: int) -> None:
    from coordinator.transaction_world import simulate

    simulate(seed)


SUITE = Suite("transaction", "L2, transactions", BUGS, run)
