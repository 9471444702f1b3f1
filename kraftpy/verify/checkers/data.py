"""A1 to A8 and A12: what happened to the values themselves.

A1 `inconsistent-offsets`: an offset with two values. Whoever saw the first has seen something that
the log does not say any more.

A2 `duplicate`: a value at two offsets; a retry was appended twice. `duplicate-nonzero` if at least
two of them are not 0, to tell it from a broker that answers 0 where it knows no offset.

A3 `lost-write`: committed, not read, although something behind it was. With b the highest first
rank of a value that was read, whatever has its *last* rank at or below b had to be read. First and
last, so that a value at two offsets can't make others look lost.

A4 `unseen`: committed, and never polled although a final read took place. The audit tells
`unseen-lost` (it is in no leader's log) from `unseen-stuck` (it is there and is not delivered).

A5 `G1a`, aborted read: polled by an ok operation, sent by one that failed for certain.

A6 `phantom`: polled, and nobody sent it, or it arrived damaged. A7 `misrouted`: a record or an ack
in another partition than it was meant for. A8 `precommitted-read`: a transaction polled what it
sent itself, before it could have committed.

A12 `compaction-loss`, `lost-tombstone`: the newest committed value of a record key is gone, or an
older one came back; what final reads return last for a record key must be the newest.

All are single passes over operations or over the version order of a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftpy.verify.checkers.logs import AuditedLogs
from kraftpy.verify.checkers.verdict import Anomaly
from kraftpy.verify.checkers.versions import UNREADABLE, DataOperation, KeyVersions, Sent, Versions

__all__ = ["check_compaction", "check_values", "lost_values", "was_finally_read"]

# Of the values of one offset.
MAX_NAMED: Final = 8


def check_values(versions: Versions, logs: AuditedLogs | None) -> Iterator[Anomaly]:
    for key_versions in versions.keys.values():
        yield from _inconsistent_offsets(key_versions)
        yield from _duplicates(key_versions)
        if not versions.expectations.compacted:
            yield from _lost_writes(key_versions)
    if not versions.expectations.compacted and was_finally_read(versions):
        yield from _unseen(versions, logs)
    for operation in versions.operations:
        if operation.reads:
            yield from _strange_reads(operation, versions)
        if operation.sends:
            yield from _strange_acks(operation)


def was_finally_read(versions: Versions) -> bool:
    return any(operation.meta.get("final") for operation in reversed(versions.operations))


def _inconsistent_offsets(key: KeyVersions) -> Iterator[Anomaly]:
    for offset in sorted(key.conflicts):
        values = [key.values[offset], *key.conflicts[offset]]
        named = values[:MAX_NAMED]
        writers = [key.writers[value].index for value in named if value in key.writers]
        more = f" and {len(values) - MAX_NAMED} more" if len(values) > MAX_NAMED else ""
        yield Anomaly(
            "A1",
            "inconsistent-offsets",
            tuple(writers),
            f"offset {offset} of key {key.key} was seen with the values "
            f"{', '.join(map(str, named))}{more}",
            key.key,
        )


def _duplicates(key: KeyVersions) -> Iterator[Anomaly]:
    for value, offsets in key.occurrences.items():
        nonzero = sum(1 for offset in offsets if offset != 0)
        yield Anomaly(
            "A2",
            "duplicate-nonzero" if nonzero > 1 else "duplicate",
            _writer(key, value),
            f"value {value} of key {key.key} is at the offsets {', '.join(map(str, offsets))}",
            key.key,
        )


def lost_values(key: KeyVersions) -> list[int]:
    """Committed values that had to be read and were not (A3)."""
    last = key.last
    read_ok = key.read_ok
    # Not what was read at an offset that is known: a value read is a value in `first`.
    bound = max((key.first[value] for value in read_ok if value in key.first), default=-1)
    return [
        value
        for value in key.first
        if value not in read_ok
        and last[value] <= bound
        and key.offsets[last[value]] >= key.floor
        and _is_committed(key, value)
    ]


def _is_committed(key: KeyVersions, value: int) -> bool:
    writer = key.writers.get(value)
    return writer is not None and any(
        writer.has_committed(sent)
        for sent in writer.sends
        if sent.key == key.key and sent.value == value
    )


def _lost_writes(key: KeyVersions) -> Iterator[Anomaly]:
    lost = lost_values(key)
    if lost:
        reader_rank, seen = max((key.first[value], value) for value in key.read_ok & set(key.first))
        for value in lost:
            yield Anomaly(
                "A3",
                "lost-write",
                _writer(key, value),
                f"value {value} of key {key.key}, at offset {key.offsets[key.last[value]]}, was "
                f"never read, though value {seen} at offset {key.offsets[reader_rank]} was",
                key.key,
            )
    for sent in key.displaced:
        if sent.value not in key.read_ok:
            yield Anomaly(
                "A3",
                "lost-write",
                _writer(key, sent.value),
                f"value {sent.value} of key {key.key} was acked at offset {sent.offset}, where "
                f"value {key.values[sent.offset or 0]} was read",
                key.key,
                is_bad=sent.extras.get("epoch", -1) == key.newest_epoch != -1,
            )


def _unseen(versions: Versions, logs: AuditedLogs | None) -> Iterator[Anomaly]:
    for operation, sent in versions.sends():
        key = versions.keys[sent.key]
        if sent.value in key.read_ok or not operation.has_committed(sent):
            continue
        if operation.type != "ok" and operation.is_transactional:
            # Proven by another of its values; whether this one is missing is A3's and A9's matter.
            continue
        if sent.offset is not None and sent.offset < key.floor:
            continue
        name = "unseen"
        if logs is not None and sent.key in logs.visible:
            is_there = sent.value in logs.visible[sent.key]
            name = "unseen-stuck" if is_there else "unseen-lost"
        yield Anomaly(
            "A4",
            name,
            (operation.index,),
            f"value {sent.value} of key {sent.key} was acked, at offset {sent.offset}, and is in "
            f"no poll, not even in the final read",
            sent.key,
        )


def _strange_reads(operation: DataOperation, versions: Versions) -> Iterator[Anomaly]:
    is_ok = operation.type == "ok"
    own = (
        {(sent.key, sent.value) for sent in operation.sends}
        if operation.is_transactional and operation.sends
        else frozenset()
    )
    for key, records in operation.reads.items():
        writers = versions.keys[key].writers
        for record in records:
            value = record[1]
            writer = writers.get(value)
            if writer is None:
                yield _nobodys(operation, key, record)
            elif is_ok and writer.type == "fail":
                yield Anomaly(
                    "A5",
                    "G1a",
                    (writer.index, operation.index),
                    f"{operation.label} polled value {value} of key {key} at offset {record[0]}, "
                    f"which {writer.label} sent; that failed: {_error(writer)}",
                    key,
                )
            if own and (key, value) in own:
                yield Anomaly(
                    "A8",
                    "precommitted-read",
                    (operation.index,),
                    f"{operation.label} polled value {value} of key {key} at offset {record[0]}, "
                    f"which it had sent itself and not yet committed",
                    key,
                )


def _nobodys(operation: DataOperation, key: int, record: list[object]) -> Anomaly:
    offset, value, extras = record[0], record[1], record[2] if len(record) > 2 else {}
    where = f"{operation.label} polled at offset {offset} of key {key}"
    if value == UNREADABLE and isinstance(extras, dict):
        if "damage" not in extras:
            text = f"{where} a record that was sent to key {extras.get('key')}"
            return Anomaly("A7", "misrouted", (operation.index,), text, key)
        text = f"{where} a damaged record: {extras['damage']}"
    else:
        text = f"{where} value {value}, which nobody sent"
    return Anomaly("A6", "phantom", (operation.index,), text, key)


def _strange_acks(operation: DataOperation) -> Iterator[Anomaly]:
    for sent in operation.sends:
        named = sent.extras.get("key", sent.key)
        if named != sent.key:
            yield Anomaly(
                "A7",
                "misrouted",
                (operation.index,),
                f"{operation.label} sent value {sent.value} to key {sent.key}, and the ack named "
                f"key {named}",
                sent.key,
            )


def _error(operation: DataOperation) -> str:
    completion = operation.operation.completion
    return "unknown" if completion is None or completion.error is None else completion.error


def _writer(key: KeyVersions, value: int) -> tuple[int, ...]:
    writer = key.writers.get(value)
    return () if writer is None else (writer.index,)


def check_compaction(versions: Versions) -> Iterator[Anomaly]:
    """A12: what final reads return last for each record key is the newest committed value."""
    newest = _newest_by_record_key(versions)
    for key, latest in newest.items():
        found = _finally_read(versions, key)
        if found is None:
            continue
        for record_key, (writer, sent) in sorted(latest.items()):
            got = found.get(record_key)
            is_tombstone = bool(sent.extras.get("tombstone"))
            if got == sent.value or (is_tombstone and got is None):
                continue
            shown = "nothing" if got is None else f"value {got}"
            yield Anomaly(
                "A12",
                "lost-tombstone" if is_tombstone else "compaction-loss",
                (writer.index,),
                f"the newest value of record key {record_key!r} in key {key} is {sent.value}, at "
                f"offset {sent.offset}; the final read ends with {shown}",
                key,
            )


def _newest_by_record_key(
    versions: Versions,
) -> dict[int, dict[str, tuple[DataOperation, Sent]]]:
    """The send with the highest rank; those whose place nobody knows leave it open."""
    newest: dict[int, dict[str, tuple[DataOperation, Sent]]] = {}
    ranks: dict[tuple[int, str], int] = {}
    unclear = set()
    for operation, sent in versions.sends():
        record_key = sent.extras.get("record_key")
        if record_key is None or operation.type == "fail":
            continue
        name = (sent.key, record_key)
        rank = versions.keys[sent.key].rank_of(sent)
        if rank is None:
            # It may be the newest one, be it that it is ok without an offset or unknown.
            unclear.add(name)
        elif rank > ranks.get(name, -1):
            ranks[name] = rank
            newest.setdefault(sent.key, {})[record_key] = (operation, sent)
    return {
        key: {name: found for name, found in latest.items() if (key, name) not in unclear}
        for key, latest in sorted(newest.items())
    }


def _finally_read(versions: Versions, key: int) -> dict[str, int] | None:
    """The last value for each record key in the final reads of the key; None if there were none.

    Several processes may have read finally; all read the same log, so the highest offset counts.
    """
    found: dict[str, tuple[int, int]] = {}
    was_read = False
    for operation in versions.operations:
        if operation.type != "ok" or not operation.meta.get("final") or key not in operation.reads:
            continue
        was_read = True
        for record in operation.reads[key]:
            extras = record[2] if len(record) > 2 else {}
            record_key = extras.get("record_key")
            if record_key is not None and record[0] >= found.get(record_key, (-1, 0))[0]:
                found[record_key] = (record[0], record[1])
    return {name: value for name, (_, value) in found.items()} if was_read else None
