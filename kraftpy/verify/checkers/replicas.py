"""A9, A10, A11, T8, T10, T11 and T12: what only the logs themselves can tell.

A9 `torn-txn`: of a transaction one value is visible and another is certainly not there. With the
audit, certainty is the leader's log; without, a value that was lost in the sense of A3.

A10 `replica-divergence`: two replicas differ at an offset below the high watermarks of both. A11
`wrong-definite-failure`: what a client was told to have failed for certain is in the log, for good.

T8 `lost-txn`: nothing is visible of a transaction whose commit was acked. T10 `fencing-violation`:
in a log, an older epoch of a producer comes after a newer one. T11 `cross-talk`: between the first
batch of a transaction and its marker lies a batch of another transaction of the same producer. T12
`marker-disagreement`: one transaction was committed in one partition and aborted in another, or
not as its coordinator had decided.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraftpy.verify.checkers.audit import AuditedBatch, ReplicaAudit
from kraftpy.verify.checkers.data import lost_values
from kraftpy.verify.checkers.logs import AuditedLogs, Transaction
from kraftpy.verify.checkers.verdict import Anomaly
from kraftpy.verify.checkers.versions import DataOperation, Sent, Versions

__all__ = ["check_logs", "check_torn"]


def check_torn(versions: Versions, logs: AuditedLogs | None) -> Iterator[Anomaly]:
    """A9 and T8."""
    lost = {key: frozenset(lost_values(found)) for key, found in versions.keys.items()}
    for operation in versions.operations:
        if not operation.is_transactional or not operation.sends or operation.type == "fail":
            continue
        present: list[Sent] = []
        absent: list[Sent] = []
        for sent in operation.sends:
            state = _is_visible(versions, logs, lost, sent)
            if state is not None:
                (present if state else absent).append(sent)
        if present and absent:
            yield _torn(operation, present[0], f"value {absent[0].value} of key {absent[0].key}")
        elif present:
            yield from _torn_offsets(versions, operation, present[0], logs)
        elif operation.type == "ok" and logs and len(absent) == len(operation.sends):
            yield Anomaly(
                "T8",
                "lost-txn",
                (operation.index,),
                f"{operation.label} committed, and none of its {len(absent)} values is visible",
                absent[0].key,
            )


def _is_visible(
    versions: Versions, logs: AuditedLogs | None, lost: dict[int, frozenset[int]], sent: Sent
) -> bool | None:
    """None where it can't be known."""
    if sent.key in versions.expectations.recreated_keys:
        return None
    if logs is not None and sent.key in logs.visible:
        if sent.value in logs.visible[sent.key]:
            return True
        key = versions.keys[sent.key]
        start = max(key.floor, logs.leaders[sent.key].log_start)
        # What was removed from the front, or by compaction, may have been there.
        is_gone = sent.offset is None or sent.offset < start
        if versions.expectations.compacted or (is_gone and start > 0):
            return None
        return False
    if sent.value in versions.keys[sent.key].read_ok:
        return True
    return False if sent.value in lost[sent.key] else None


def _torn(operation: DataOperation, present: Sent, missing: str) -> Anomaly:
    return Anomaly(
        "A9",
        "torn-txn",
        (operation.index,),
        f"of {operation.label} value {present.value} of key {present.key} is visible, and "
        f"{missing} is not there",
        present.key,
    )


def _torn_offsets(
    versions: Versions, operation: DataOperation, present: Sent, logs: AuditedLogs | None
) -> Iterator[Anomaly]:
    """Later commits may have moved an offset, but where none is at all, none was committed. Those
    of a topic go with it.
    """
    offsets = operation.meta.get("offsets")
    if logs is None or not offsets or not logs.audit.committed_offsets:
        return
    for key in offsets["offsets"]:
        is_kept = key not in versions.expectations.recreated_keys
        if is_kept and (offsets["group"], key) not in logs.audit.committed_offsets:
            yield _torn(operation, present, f"its offset of group {offsets['group']} for key {key}")
            return


def check_logs(versions: Versions, logs: AuditedLogs) -> Iterator[Anomaly]:
    for key, replicas in logs.replicas.items():
        leader = logs.leaders[key]
        for replica in replicas:
            if replica is not leader:
                yield from _divergence(leader, replica, versions.expectations.compacted)
        yield from _older_epochs(leader)
    yield from _wrong_failures(versions, logs)
    yield from _cross_talk(logs)
    yield from _marker_disagreement(versions, logs)


def _divergence(
    leader: ReplicaAudit, replica: ReplicaAudit, is_compacted: bool
) -> Iterator[Anomaly]:
    low = max(leader.log_start, replica.log_start)
    high = min(leader.high_watermark, replica.high_watermark)
    ours, theirs = _contents(leader, is_compacted), _contents(replica, is_compacted)
    # Replicas are cleaned by themselves: what both have must be the same, no more.
    offsets = ours.keys() & theirs.keys() if is_compacted else ours.keys() | theirs.keys()
    for offset in sorted(offsets):
        if low <= offset < high and ours.get(offset) != theirs.get(offset):
            yield Anomaly(
                "A10",
                "replica-divergence",
                (),
                f"at offset {offset} of key {leader.key} node {leader.node} has "
                f"{ours.get(offset)}, node {replica.node} has {theirs.get(offset)}",
                leader.key,
            )
            # Whatever follows differs because of this.
            return


def _contents(replica: ReplicaAudit, is_compacted: bool) -> dict[int, object]:
    if is_compacted:
        return {
            record.offset: record.value for batch in replica.batches for record in batch.records
        }
    return {batch.base_offset: batch.identity for batch in replica.batches}


def _older_epochs(leader: ReplicaAudit) -> Iterator[Anomaly]:
    newest: dict[int, AuditedBatch] = {}
    for batch in leader.batches:
        if batch.producer_id < 0:
            continue
        before = newest.setdefault(batch.producer_id, batch)
        if batch.producer_epoch >= before.producer_epoch:
            newest[batch.producer_id] = batch
        else:
            yield Anomaly(
                "T10",
                "fencing-violation",
                (),
                f"in key {leader.key} producer {batch.producer_id} wrote with epoch "
                f"{batch.producer_epoch} at offset {batch.base_offset}, after epoch "
                f"{before.producer_epoch} at offset {before.base_offset}",
                leader.key,
            )


def _wrong_failures(versions: Versions, logs: AuditedLogs) -> Iterator[Anomaly]:
    for operation, sent in versions.sends():
        if operation.type == "fail" and sent.value in logs.visible.get(sent.key, {}):
            completion = operation.operation.completion
            yield Anomaly(
                "A11",
                "wrong-definite-failure",
                (operation.index,),
                f"{operation.label} failed ({completion.error if completion else None}), and its "
                f"value {sent.value} is at offset {logs.visible[sent.key][sent.value]} of key "
                f"{sent.key}",
                sent.key,
            )


def _writers(transaction: Transaction) -> list[int]:
    """The operations that the records of a transaction in the log say they are from."""
    found = {
        record.operation: None
        for batch in transaction.batches
        for record in batch.records
        if record.operation is not None
    }
    return list(found)


def _cross_talk(logs: AuditedLogs) -> Iterator[Anomaly]:
    for key, transactions in logs.transactions.items():
        for transaction in transactions:
            writers = _writers(transaction)
            epochs = dict.fromkeys(batch.producer_epoch for batch in transaction.batches)
            if len(writers) > 1 or len(epochs) > 1:
                what = (
                    f"records of {' and '.join(f'T{writer}' for writer in writers)}"
                    if len(writers) > 1
                    else f"batches of the epochs {' and '.join(map(str, epochs))}"
                )
                yield Anomaly(
                    "T11",
                    "cross-talk",
                    tuple(writers),
                    f"one transaction of producer {transaction.producer_id} in key {key}, from "
                    f"offset {transaction.batches[0].base_offset}, has {what}",
                    key,
                )


def _marker_disagreement(versions: Versions, logs: AuditedLogs) -> Iterator[Anomaly]:
    """By the operation that wrote it, and by epoch where each transaction has one of its own."""
    by_operation: dict[int, Transaction] = {}
    by_epoch: dict[tuple[int, int], Transaction] = {}
    has_epochs = versions.expectations.epoch_per_transaction
    for transactions in logs.transactions.values():
        for transaction in transactions:
            marker = transaction.marker
            if marker is None:
                continue
            for writer in _writers(transaction):
                yield from _compare(by_operation.setdefault(writer, transaction), transaction)
            name = (transaction.producer_id, marker.producer_epoch)
            if has_epochs:
                if not _writers(transaction):
                    yield from _compare(by_epoch.setdefault(name, transaction), transaction)
                decided = logs.audit.decisions.get(name)
                if decided is not None and decided != marker.kind:
                    yield _disagreement(transaction, f"its coordinator decided to {decided}")


def _compare(first: Transaction, other: Transaction) -> Iterator[Anomaly]:
    if first.marker and other.marker and first.marker.kind != other.marker.kind:
        where = f"in key {first.key} the marker at offset {first.marker.base_offset} says"
        yield _disagreement(other, f"{where} {first.marker.kind}")


def _disagreement(transaction: Transaction, other: str) -> Anomaly:
    marker = transaction.marker
    said = "nothing" if marker is None else f"{marker.kind} at offset {marker.base_offset}"
    return Anomaly(
        "T12",
        "marker-disagreement",
        tuple(_writers(transaction)),
        f"the transaction of producer {transaction.producer_id} in key {transaction.key} has the "
        f"marker {said}, and {other}",
        transaction.key,
    )
