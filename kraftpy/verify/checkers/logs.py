"""Logs as the audit found them: the leader's copy of each key, and what a reader of it would see.

`visible` is what read_committed shows: everything below the high watermark that is in no
transaction, or in one whose commit marker is there too. A transaction of a producer goes from its
first batch to the next marker of that producer.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraftpy.verify.checkers.audit import Audit, AuditedBatch, ReplicaAudit

__all__ = ["AuditedLogs", "Transaction"]


@dataclass(slots=True)
class Transaction:
    """A producer's batches in one log, up to the marker that ends them, if one does."""

    key: int
    producer_id: int
    batches: list[AuditedBatch]
    marker: AuditedBatch | None = None


class AuditedLogs:
    """The audit by key."""

    def __init__(self, audit: Audit) -> None:
        self.audit = audit
        self.replicas: dict[int, list[ReplicaAudit]] = {}
        for replica in sorted(audit.replicas, key=lambda found: (found.key, found.node)):
            self.replicas.setdefault(replica.key, []).append(replica)
        self.leaders = {key: _leader(replicas) for key, replicas in self.replicas.items()}
        self.visible: dict[int, dict[int, int]] = {}
        """By key, from value to offset."""
        self.transactions: dict[int, list[Transaction]] = {}
        for key, leader in self.leaders.items():
            self._walk(key, leader)

    def _walk(self, key: int, leader: ReplicaAudit) -> None:
        visible: dict[int, int] = {}
        opened: dict[int, Transaction] = {}
        transactions: list[Transaction] = []
        for batch in leader.batches:
            if batch.base_offset >= leader.high_watermark:
                break
            if batch.kind != "data":
                transaction = opened.pop(batch.producer_id, None)
                if transaction is not None:
                    transaction.marker = batch
                    if batch.kind == "commit":
                        for member in transaction.batches:
                            _show(visible, member)
            elif not batch.is_transactional:
                _show(visible, batch)
            elif batch.producer_id in opened:
                opened[batch.producer_id].batches.append(batch)
            else:
                transaction = Transaction(key, batch.producer_id, [batch])
                opened[batch.producer_id] = transaction
                transactions.append(transaction)
        self.visible[key] = visible
        self.transactions[key] = transactions


def _show(visible: dict[int, int], batch: AuditedBatch) -> None:
    for record in batch.records:
        if record.value is not None:
            visible.setdefault(record.value, record.offset)


def _leader(replicas: list[ReplicaAudit]) -> ReplicaAudit:
    """The leader's copy; if nobody leads, the one that knows most."""
    return max(replicas, key=lambda replica: (replica.is_leader, replica.high_watermark))
