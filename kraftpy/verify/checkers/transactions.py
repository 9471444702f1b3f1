"""T3, T9, T10, T13 and T14: transactions are whole, final, fenced, exact; money stays the same.

T3 `G1b`, intermediate read: a reader that went past the end of a transaction in some key missed a
value of the transaction there. It also shows as a skip; here the transaction has a name.

T9 `resurrected-txn`: something is visible of a transaction that was told that it was aborted, or
that its commit was refused for good.

T10 `fencing-violation`: an operation of a producer succeeded that was begun after a newer producer
of the same transactional id had been told its identity. The audit sees it in the log as well.

T13 `eos-dup`, `eos-loss`, `eos-order`, `eos-stuck`: of a copy that is to be exact, an input value
has several committed outputs, or none, or outputs are in another order than their inputs, or the
copying does not come to its end. Outputs say what they were copied from.

T14 `bank-sum`: readers add up the newest balances. Kafka's reads are not atomic over partitions,
so a sum counts only where what was read contains every transaction wholly or not at all.

T2 and T7 of the catalogue are A5 and A9. T8, T11 and T12 need the audit: see `replicas`. Cycles
(T1, T4 to T6) are in `cycles`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from kraftpy.verify.checkers.data import was_finally_read
from kraftpy.verify.checkers.logs import AuditedLogs
from kraftpy.verify.checkers.verdict import Anomaly
from kraftpy.verify.checkers.versions import DataOperation, KeyVersions, Versions
from kraftpy.verify.history import Operation, Process

__all__ = ["check_bank", "check_copies", "check_transactions"]

REFUSED: Final = ("aborted", "commit-refused")
# A reader that skips half of a log is found by A13; here it may not cost half of the log each time.
MAX_MISSED: Final = 1_000


def check_transactions(versions: Versions, logs: AuditedLogs | None) -> Iterator[Anomaly]:
    """T3, T9 and T10."""
    if any(operation.is_transactional for operation in versions.operations):
        for operation in versions.operations:
            if operation.type == "ok" and operation.reads:
                yield from _missed_parts(operation, versions)
        yield from _resurrected(versions, logs)
    yield from _fenced(versions)


def _missed_parts(reader: DataOperation, versions: Versions) -> Iterator[Anomaly]:
    """T3, within one operation: what it read is a piece of the version order without holes."""
    moved = reader.operation.rebalanced_keys
    for key, records in reader.reads.items():
        # As many as there are numbers between the ends: nothing is missing.
        if key in moved or len(records) < 2 or records[-1][0] - records[0][0] == len(records) - 1:
            continue
        key_versions = versions.keys[key]
        read = {record[0] for record in records}
        low, high = key_versions.rank[min(read)], key_versions.rank[max(read)]
        if high - low + 1 == len(read):
            continue
        for offset in key_versions.offsets[low : min(high, low + len(read) + MAX_MISSED)]:
            if offset in read or offset < key_versions.floor:
                continue
            writer = key_versions.writers.get(key_versions.values[offset])
            if writer is None or not writer.is_transactional or not writer.is_committed:
                continue
            end = _last_offset(writer, key_versions)
            if end < key_versions.offsets[high]:
                yield Anomaly(
                    "T3",
                    "G1b",
                    (writer.index, reader.index),
                    f"{reader.label} read key {key} up to offset {key_versions.offsets[high]}, "
                    f"past all that {writer.label} sent there, and missed its value "
                    f"{key_versions.values[offset]} at offset {offset}",
                    key,
                )
                # One for a reader and a key says it.
                break


def _last_offset(writer: DataOperation, key: KeyVersions) -> float:
    """Of what it sent there; beyond everything if that is not known."""
    ranks = [key.rank_of(sent) for sent in writer.sends if sent.key == key.key]
    return max(float("inf") if rank is None else key.offsets[rank] for rank in ranks)


def _resurrected(versions: Versions, logs: AuditedLogs | None) -> Iterator[Anomaly]:
    for operation, sent in versions.sends():
        outcome = operation.meta.get("outcome")
        if not operation.is_transactional or outcome not in REFUSED:
            continue
        is_read = sent.value in versions.keys[sent.key].read_ok
        is_visible = logs is not None and sent.value in logs.visible.get(sent.key, {})
        if is_read or is_visible:
            told = "was aborted" if outcome == "aborted" else "could not commit"
            yield Anomaly(
                "T9",
                "resurrected-txn",
                (operation.index,),
                f"{operation.label} was told that it {told}, and its value {sent.value} of key "
                f"{sent.key} {'was read' if is_read else 'is in the log, committed'}",
                sent.key,
            )


def _fenced(versions: Versions) -> Iterator[Anomaly]:
    """T10: identities handed out for each transactional id, in the order of their answers."""
    handed = sorted(
        (operation.end_index or 0, operation)
        for operation in versions.others.get("init_producer", ())
        if operation.type == "ok"
    )
    by_id: dict[str, list[Operation]] = {}
    for _, operation in handed:
        by_id.setdefault(operation.value["transactional_id"], []).append(operation)
    ends = {name: [found.end_index or 0 for found in answers] for name, answers in by_id.items()}
    for data in versions.operations:
        name = data.meta.get("transactional_id")
        if data.type != "ok" or name not in by_id or "producer_epoch" not in data.meta:
            continue
        count = bisect_right(ends[name], data.start)
        if not count:
            continue
        newest = by_id[name][count - 1]
        if _is_fenced(data, newest.value, by_id[name][:count]):
            yield Anomaly(
                "T10",
                "fencing-violation",
                (newest.index, data.index),
                f"{data.label} succeeded as producer {data.meta.get('producer_id')} with epoch "
                f"{data.meta['producer_epoch']}, begun after {name!r} had become producer "
                f"{newest.value['producer_id']} with epoch {newest.value['producer_epoch']}",
            )


def _is_fenced(operation: DataOperation, newest: dict[str, int], handed: list[Operation]) -> bool:
    producer_id = operation.meta.get("producer_id")
    if producer_id == newest["producer_id"]:
        return bool(operation.meta["producer_epoch"] < newest["producer_epoch"])
    # Another producer id for one transactional id: one of them is past.
    return any(found.value["producer_id"] == producer_id for found in handed)


def check_copies(versions: Versions) -> Iterator[Anomaly]:
    """T13, for runs that name the inputs of a copy."""
    inputs = versions.expectations.copy_inputs
    if not inputs:
        return
    outputs = _outputs(versions)
    is_drained = versions.expectations.is_drained
    if not is_drained:
        yield Anomaly("T13", "eos-stuck", (), "what was left to copy was not, though all was well")
    # What was not copied in time may still be: it is not lost.
    is_complete = is_drained and was_finally_read(versions)
    for key in inputs:
        if key not in versions.keys:
            continue
        key_versions = versions.keys[key]
        for value, rank in key_versions.first.items():
            writer = key_versions.writers.get(value)
            copies = outputs.get((key, value), [])
            origin = () if writer is None else (writer.index,)
            if len(copies) > 1:
                places = ", ".join(f"offset {offset} of key {out}" for out, offset in copies)
                text = f"value {value} of key {key} was copied {len(copies)} times: {places}"
                yield Anomaly("T13", "eos-dup", origin, text, key)
            is_input = value in key_versions.read_ok or (writer is not None and writer.is_committed)
            if not copies and is_complete and is_input:
                text = f"value {value} at offset {key_versions.offsets[rank]} of key {key} has "
                yield Anomaly("T13", "eos-loss", origin, text + "no copy", key)
        yield from _copies_in_order(key_versions, outputs)


def _outputs(versions: Versions) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """From (input key, value) to the places (output key, offset) of copies that ok polls saw."""
    places: dict[tuple[int, int], dict[tuple[int, int], None]] = {}
    for operation in versions.operations:
        if operation.type != "ok":
            continue
        for key, records in operation.reads.items():
            for record in records:
                origin = record[2].get("from") if len(record) > 2 else None
                if origin is not None:
                    places.setdefault((origin[0], origin[1]), {})[key, record[0]] = None
    return {origin: sorted(found) for origin, found in places.items()}


def _copies_in_order(
    key: KeyVersions, outputs: dict[tuple[int, int], list[tuple[int, int]]]
) -> Iterator[Anomaly]:
    """Within each output, what comes from one input is in the input's order."""
    highest: dict[int, tuple[int, int]] = {}
    for offset in key.offsets:
        value = key.values[offset]
        for out, place in outputs.get((key.key, value), ())[:1]:
            before, earlier = highest.get(out, (-1, -1))
            if place < before:
                writer = key.writers.get(value)
                yield Anomaly(
                    "T13",
                    "eos-order",
                    () if writer is None else (writer.index,),
                    f"value {value} of key {key.key} comes after {earlier} there, and its copy in "
                    f"key {out} is at offset {place}, before {before}",
                    key.key,
                )
            else:
                highest[out] = (place, value)


class _Ledger:
    """What one reader knows of the accounts, and which transactions it knows in part."""

    __slots__ = ("_partial", "_sizes", "balances", "positions", "total")

    def __init__(self, sizes: dict[int, int]) -> None:
        self._sizes = sizes
        self._partial: dict[int, int] = {}
        self.positions: dict[int, int] = {}
        self.balances: dict[str, int] = {}
        self.total = 0

    def read(self, key: int, record: list[object], writer: DataOperation | None) -> None:
        """Each record once, in order; going back reads nothing new."""
        offset, extras = record[0], record[2] if len(record) > 2 else {}
        if not isinstance(offset, int) or not isinstance(extras, dict):
            return
        if offset <= self.positions.get(key, -1) or "account" not in extras:
            return
        self.positions[key] = offset
        account, balance = extras["account"], extras["balance"]
        self.total += balance - self.balances.get(account, 0)
        self.balances[account] = balance
        if writer is not None:
            seen = self._partial.pop(writer.index, 0) + 1
            if seen < self._sizes[writer.index]:
                self._partial[writer.index] = seen

    @property
    def is_closed(self) -> bool:
        return not self._partial


def check_bank(versions: Versions) -> Iterator[Anomaly]:
    """T14, for runs with a bank. A reader that does not begin at the beginning knows too little,
    so only those count that did. One that has come to the end knows everything, even where
    compaction took the older half of a transaction.
    """
    total = versions.expectations.bank_total
    if total is None:
        return
    sizes = {operation.index: len(operation.sends) for operation in versions.operations}
    accounts: dict[str, int] = {}
    for operation, sent in versions.sends():
        if operation.is_committed and "account" in sent.extras:
            accounts[sent.extras["account"]] = sent.key
    ends = {key: versions.keys[key].offsets[-1:] for key in accounts.values()}
    ledgers: dict[Process, _Ledger] = {}
    for begun, polled in versions.in_order():
        if begun.f == "assign" and begun.meta.get("seek_to_beginning"):
            ledgers[begun.process] = _Ledger(sizes)
        ledger = ledgers.get(begun.process)
        if ledger is None or polled is None or polled.type != "ok":
            continue
        for key, records in polled.reads.items():
            writers = versions.keys[key].writers
            for record in records:
                ledger.read(key, record, writers.get(record[1]))
        is_at_end = all([ledger.positions.get(key, -1)] == end for key, end in ends.items())
        knows_all = len(ledger.balances) == len(accounts)
        if knows_all and (ledger.is_closed or is_at_end) and ledger.total != total:
            yield Anomaly(
                "T14",
                "bank-sum",
                (polled.index,),
                f"process {polled.process} has read whole transactions only, and the accounts "
                f"have {ledger.total} together instead of {total}",
            )
            # What follows from a wrong sum is wrong too.
            ledgers.pop(begun.process)
