"""What an operator is told of transactions: ListTransactions and DescribeTransactions.

Committed state only. Both are reads of a machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.coordinator.transactions.machine import TransactionMachine
from kraftpy.coordinator.transactions.state import Transaction, TransactionState
from kraftpy.protocol.errors import ErrorCode

__all__ = ["ListFilter", "describe_transaction", "list_transactions"]

# Kafka has one more state, which is never seen here.
_STATES: Final = {state.title: state for state in TransactionState}
_NEVER_SEEN: Final = "PrepareEpochFence"
_NO_DURATION: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFilter:
    """Which transactions to list; an empty list lets everything through."""

    state_names: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    longer_than_ms: int = _NO_DURATION

    @property
    def unknown_states(self) -> list[str]:
        return [name for name in self.state_names if name not in _STATES and name != _NEVER_SEEN]

    def lets_through(self, transaction: Transaction, wall_ms: int) -> bool:
        return (
            (not self.state_names or transaction.state.title in self.state_names)
            and (not self.producer_ids or transaction.producer_id in self.producer_ids)
            and (self.longer_than_ms < 0 or wall_ms - transaction.start_ms > self.longer_than_ms)
        )


def list_transactions(
    machine: TransactionMachine, wanted: ListFilter, wall_ms: int
) -> list[Transaction]:
    return [
        transaction
        for _, transaction in machine.transactions.committed_items()
        if wanted.lets_through(transaction, wall_ms)
    ]


def describe_transaction(machine: TransactionMachine, transactional_id: str) -> Transaction:
    transaction = machine.transactions.committed_get(transactional_id)
    if transaction is None:
        raise CoordinatorError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return transaction
