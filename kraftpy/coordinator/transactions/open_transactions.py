"""Since when transactions are open, on the monotonic clock. Memory only.

An entry belongs to a transaction by its start in the record. One that no longer fits is dropped
when it is looked at; so nothing has to be put back when a record is lost.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kraftpy.coordinator.timeline import TimelineMap
from kraftpy.coordinator.transactions.state import Transaction, TransactionState

__all__ = ["OpenTransactions"]

# The timeout of transactions that an outside coordinator ends (two-phase commit).
_UNLIMITED_MS: Final = 2**31 - 1


class _Open(NamedTuple):
    start_ms: int
    opened_ms: int


class OpenTransactions:
    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def replayed(self, transaction: Transaction, now_ms: int) -> None:
        """A record of a shard that is being served."""
        if transaction.state is not TransactionState.ONGOING:
            return
        known = self._open.get(transaction.transactional_id)
        if known is None or known.start_ms != transaction.start_ms:
            self._open[transaction.transactional_id] = _Open(transaction.start_ms, now_ms)

    def loaded(
        self, transactions: TimelineMap[str, Transaction], *, now_ms: int, wall_ms: int
    ) -> None:
        """Those of a coordinator before this one: their records tell how old they are."""
        self._open = {
            each.transactional_id: _Open(each.start_ms, now_ms - max(0, wall_ms - each.start_ms))
            for each in transactions.values()
            if each.state is TransactionState.ONGOING
        }

    def timed_out(self, transactions: TimelineMap[str, Transaction], now_ms: int) -> list[str]:
        """Whose time is over; those that are no longer open are forgotten."""
        found = []
        for transactional_id, known in list(self._open.items()):
            transaction = transactions.get(transactional_id)
            if transaction is None or transaction.state is not TransactionState.ONGOING:
                # Unless that may still be taken back.
                if not transactions.is_uncommitted(transactional_id):
                    del self._open[transactional_id]
            elif _is_over(transaction, known, now_ms):
                found.append(transactional_id)
        return found

    def is_timed_out(self, transaction: Transaction, now_ms: int) -> bool:
        known = self._open.get(transaction.transactional_id)
        return known is not None and _is_over(transaction, known, now_ms)


def _is_over(transaction: Transaction, known: _Open, now_ms: int) -> bool:
    return (
        transaction.start_ms == known.start_ms
        and transaction.timeout_ms != _UNLIMITED_MS
        and now_ms - known.opened_ms > transaction.timeout_ms
    )
