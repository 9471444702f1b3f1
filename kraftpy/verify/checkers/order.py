"""A13 to A22: values are read and written in the order of the log, by everybody.

All of it is about *ranks*, positions in the version order of a key. The next record has the next
rank, whatever lies between their offsets; so a delta of 1 is right, more is a skip, less is a
repeat or a step back. A delta with an unknown end counts as 1.

Inside one operation: A13 `int-poll-skip`, A14 `int-nonmonotonic-poll`, A17 `int-send-skip` (others
may send in between, so it is information), A18 `int-nonmonotonic-send`. Not for keys that were
moved by a rebalance while the operation ran.

Between operations of a process: A15 `poll-skip` and A16 `nonmonotonic-poll` from the last read of
its previous ok operation, or from the beginning if it went there; A19 `nonmonotonic-send`.
Operations that are not ok do not move the position, because clients rewind. `assign` and
`subscribe` forget keys that are not in the new list, and all when one follows the other: who leaves
a group, or joins it, goes on where the group is. A rebalance forgets the keys that it moves. A
process that subscribes may find its position moved at any time, so A15 and A16 are allowed to it.

Between processes: A20 `realtime-send`, a send landed at or below an offset that had been acked or
polled before the send began. One running maximum for each key.

A21 `epoch-order`: leader epochs decrease along offsets, or one offset has two. A22
`timestamp-order`: timestamps that brokers give decrease along offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from kraftpy.verify.checkers.logs import AuditedLogs
from kraftpy.verify.checkers.verdict import Anomaly
from kraftpy.verify.checkers.versions import (
    DataOperation,
    KeyVersions,
    Record,
    Sent,
    Versions,
    highest_offset,
)
from kraftpy.verify.history import Operation, Process

__all__ = ["check_order", "check_stored_order"]

# The position before the first record, wherever that is.
BEGINNING: Final = -1


def check_order(versions: Versions) -> Iterator[Anomaly]:
    for operation in versions.operations:
        if operation.reads:
            yield from _reads_inside(operation, versions)
        if len(operation.sends) > 1:
            yield from _sends_inside(operation, versions)
    yield from _between_operations(versions)
    yield from _realtime_sends(versions)


def _reads_inside(operation: DataOperation, versions: Versions) -> Iterator[Anomaly]:
    moved = operation.operation.rebalanced_keys
    for key, records in operation.reads.items():
        if key in moved or not records:
            continue
        previous = records[0][0]
        for record in records:
            offset = record[0]
            # Neighbours are the rule, and what has no record between has the next rank.
            if offset != previous + 1 and record is not records[0]:
                yield from _judge_reads(
                    (operation, operation), versions.keys[key], (previous, offset), is_inside=True
                )
            previous = offset


def _judge_reads(
    operations: tuple[DataOperation, DataOperation],
    key: KeyVersions,
    offsets: tuple[int, int],
    *,
    is_inside: bool,
    is_bad: bool = True,
) -> Iterator[Anomaly]:
    """What is wrong with reading these offsets one after the other, if anything."""
    earlier, later = operations
    before = -1 if offsets[0] == BEGINNING else key.rank[offsets[0]]
    after = key.rank[offsets[1]]
    delta = after - before
    involved = (later.index,) if earlier is later else (earlier.index, later.index)
    if delta > 1:
        # What was removed by consent is not skipped.
        if key.offsets[after - 1] < key.floor:
            return
        id_, name = ("A13", "int-poll-skip") if is_inside else ("A15", "poll-skip")
        skipped = [
            key.values[offset] for offset in key.offsets[before + 1 : min(after, before + 9)]
        ]
        detail = f"and skipped the values {', '.join(map(str, skipped))}"
        detail += "" if delta - 1 <= len(skipped) else f" and {delta - 1 - len(skipped)} more"
    elif delta < 1:
        id_, name = ("A14", "int-nonmonotonic-poll") if is_inside else ("A16", "nonmonotonic-poll")
        detail = "again" if delta == 0 else "which is a step back"
    else:
        return
    start = f"polled offset {offsets[0]} of key {key.key} in {earlier.label}"
    if offsets[0] == BEGINNING:
        start = f"went to the beginning of key {key.key}"
    yield Anomaly(
        id_,
        name,
        involved,
        f"process {later.process} {start}, then polled offset {offsets[1]} in {later.label}, "
        f"{detail}",
        key.key,
        is_bad=is_bad,
    )


def _sends_inside(operation: DataOperation, versions: Versions) -> Iterator[Anomaly]:
    previous: dict[int, Sent] = {}
    for sent in operation.sends:
        if sent.key in previous:
            yield from _judge_sends(
                (operation, operation), versions.keys[sent.key], (previous[sent.key], sent)
            )
        previous[sent.key] = sent


def _judge_sends(
    operations: tuple[DataOperation, DataOperation], key: KeyVersions, sends: tuple[Sent, Sent]
) -> Iterator[Anomaly]:
    earlier, later = operations
    before, after = key.rank_of(sends[0]), key.rank_of(sends[1])
    if before is None or after is None:
        return
    involved = (later.index,) if earlier is later else (earlier.index, later.index)
    text = (
        f"process {later.process} sent value {sends[0].value} to key {key.key} in "
        f"{earlier.label}, then value {sends[1].value} in {later.label}; they are at the offsets "
        f"{key.offsets[before]} and {key.offsets[after]}"
    )
    if after <= before:
        is_inside = earlier is later
        id_, name = ("A18", "int-nonmonotonic-send") if is_inside else ("A19", "nonmonotonic-send")
        yield Anomaly(id_, name, involved, text, key.key)
    elif after > before + 1 and earlier is later:
        yield Anomaly("A17", "int-send-skip", involved, text, key.key, is_bad=False)


class _Positions:
    """Where one process is: by key, its last read and its last send."""

    __slots__ = ("is_subscribed", "reads", "sends")

    def __init__(self) -> None:
        self.reads: dict[int, tuple[int, DataOperation | None]] = {}
        self.sends: dict[int, tuple[Sent, DataOperation]] = {}
        self.is_subscribed = False

    def take_subscription(self, operation: Operation) -> None:
        if operation.type == "fail":
            return
        was_subscribed, self.is_subscribed = self.is_subscribed, operation.f == "subscribe"
        if operation.meta.get("seek_to_beginning"):
            self.reads = dict.fromkeys(operation.value, (BEGINNING, None))
        elif was_subscribed != self.is_subscribed:
            self.reads = {}
        else:
            kept = frozenset(operation.value)
            self.reads = {key: read for key, read in self.reads.items() if key in kept}


def _between_operations(versions: Versions) -> Iterator[Anomaly]:
    processes: dict[Process, _Positions] = {}
    for operation, data in versions.in_order():
        positions = processes.get(operation.process)
        if positions is None:
            positions = processes[operation.process] = _Positions()
        if operation.f in ("assign", "subscribe"):
            positions.take_subscription(operation)
        elif data is not None:
            yield from _advance(positions, data, versions)


def _advance(
    positions: _Positions, operation: DataOperation, versions: Versions
) -> Iterator[Anomaly]:
    for key in operation.operation.rebalanced_keys:
        positions.reads.pop(key, None)
    if operation.type == "ok":
        for key, records in operation.reads.items():
            if not records:
                continue
            last = positions.reads.get(key)
            if last is not None and records[0][0] != last[0] + 1:
                yield from _judge_reads(
                    (last[1] or operation, operation),
                    versions.keys[key],
                    (last[0], records[0][0]),
                    is_inside=False,
                    is_bad=not positions.is_subscribed,
                )
            positions.reads[key] = (records[-1][0], operation)
    if operation.type != "fail":
        first: dict[int, Sent] = {}
        for sent in operation.sends:
            first.setdefault(sent.key, sent)
        for key, sent in first.items():
            if key in positions.sends:
                before, earlier = positions.sends[key]
                yield from _judge_sends((earlier, operation), versions.keys[key], (before, sent))
        for sent in operation.sends:
            positions.sends[sent.key] = (sent, operation)


def _realtime_sends(versions: Versions) -> Iterator[Anomaly]:
    """A20: events in their order, with the highest offset that anybody had been told."""
    known: dict[int, tuple[int, DataOperation]] = {}
    for is_end, _, data in versions.moments():
        if data is None:
            continue
        if is_end:
            _learn(known, data)
            continue
        for sent in data.sends:
            if sent.key in known:
                yield from _judge_realtime(data, sent, versions, known[sent.key])


def _learn(known: dict[int, tuple[int, DataOperation]], operation: DataOperation) -> None:
    for key, records in operation.reads.items():
        if records:
            highest = highest_offset(records)
            if key not in known or highest > known[key][0]:
                known[key] = (highest, operation)
    for sent in operation.sends:
        if sent.offset is not None and (sent.key not in known or sent.offset > known[sent.key][0]):
            known[sent.key] = (sent.offset, operation)


def _judge_realtime(
    operation: DataOperation, sent: Sent, versions: Versions, known: tuple[int, DataOperation]
) -> Iterator[Anomaly]:
    key = versions.keys[sent.key]
    highest, witness = known
    places = [] if sent.offset is None else [sent.offset]
    if sent.value in key.first:
        places.append(key.offsets[key.first[sent.value]])
    if places and min(places) <= highest:
        yield Anomaly(
            "A20",
            "realtime-send",
            (witness.index, operation.index),
            f"{operation.label} sent value {sent.value} to key {sent.key}, and it is at offset "
            f"{min(places)}; before {operation.label} began, {witness.label} had seen offset "
            f"{highest}",
            sent.key,
        )


def check_stored_order(versions: Versions, logs: AuditedLogs | None) -> Iterator[Anomaly]:
    """A21 and A22, from what readers were told and from what the audit found."""
    epochs = _Along("A21", "epoch-order", "leader epoch")
    stamps = _Along("A22", "timestamp-order", "timestamp")
    for operation in versions.operations:
        for key, records in operation.reads.items():
            if records and max(map(len, records)) > 2:
                epochs.take(key, records, operation, lambda extras: extras.get("epoch"))
                if versions.expectations.log_append_time:
                    stamps.take(key, records, operation, lambda extras: extras.get("timestamp"))
    yield from epochs.judge()
    yield from stamps.judge()
    for key, leader in logs.leaders.items() if logs is not None else ():
        for earlier, later in zip(leader.batches, leader.batches[1:], strict=False):
            if later.leader_epoch < earlier.leader_epoch:
                yield Anomaly(
                    "A21",
                    "epoch-order",
                    (),
                    f"in key {key} leader epoch {later.leader_epoch} at offset "
                    f"{later.base_offset} comes after epoch {earlier.leader_epoch}",
                    key,
                )


class _Along:
    """A number that goes with each record and may not decrease along the offsets."""

    def __init__(self, id_: str, name: str, word: str) -> None:
        self._id = id_
        self._name = name
        self._word = word
        self._seen: dict[int, dict[int, tuple[int, int]]] = {}
        self._conflicts: list[Anomaly] = []

    def take(
        self,
        key: int,
        records: list[Record],
        operation: DataOperation,
        number_of: Callable[[dict[str, Any]], int | None],
    ) -> None:
        seen = self._seen.setdefault(key, {})
        for record in records:
            number = number_of(record[2]) if len(record) > 2 else None
            if number is None:
                continue
            before = seen.setdefault(record[0], (number, operation.index))
            if before[0] != number:
                self._conflicts.append(
                    self._anomaly(
                        (before[1], operation.index),
                        f"offset {record[0]} of key {key} was read with the {self._word}s "
                        f"{before[0]} and {number}",
                        key,
                    )
                )

    def judge(self) -> Iterator[Anomaly]:
        yield from self._conflicts
        for key, seen in sorted(self._seen.items()):
            highest, where, reader = -1, -1, -1
            for offset in sorted(seen):
                number, operation = seen[offset]
                if number < highest:
                    yield self._anomaly(
                        (reader, operation),
                        f"in key {key} offset {offset} has {self._word} {number}, below {highest} "
                        f"of offset {where}",
                        key,
                    )
                else:
                    highest, where, reader = number, offset, operation

    def _anomaly(self, operations: tuple[int, ...], text: str, key: int) -> Anomaly:
        return Anomaly(self._id, self._name, operations, text, key)
