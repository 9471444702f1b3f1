"""What a history implies about its logs: who wrote each value, where it is, in which order.

For each key, L maps offsets to the values that somebody saw there: acks of sends that must have
been committed, and polls of every operation, whatever became of the operation itself, because a
broker hands out committed data or none. The offsets of L in ascending order, numbered densely, are
the *version order* of the key. Holes are legal: markers, aborted data and compaction make them.

`committed`: an operation that is ok; a transaction of unknown outcome of which one value was read
by an ok operation, which proves all of it; and of other operations of unknown outcome those sends
that were acked before it became unknown. Reading proves nothing under read_uncommitted.

Where a configuration lets the cluster forget what it acked (acks=1, an unclean election, power
loss without flushing), an ack is no proof of what is in the log: there polls win over acks, and an
acked value whose place is taken is *displaced*.

Built in one pass over the history and a sort for each key.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from kraftpy.verify.checkers.expectations import Expectations
from kraftpy.verify.history import EventType, History, HistoryError, Operation, Process

__all__ = [
    "UNREADABLE",
    "DataOperation",
    "KeyVersions",
    "Record",
    "Sent",
    "Versions",
    "highest_offset",
]

DATA_KINDS: Final = ("send", "poll", "txn")
Record: TypeAlias = list[Any]
"""[offset, value], perhaps with a map of extras behind."""
OFFSET: Final = itemgetter(0)
UNREADABLE: Final = -1
"""In place of the value of a record that is damaged or another key's."""
EVERYTHING: Final = 2**63
"""The floor of keys that are compacted: any record may be gone."""


class Sent(NamedTuple):
    key: int
    offset: int | None
    value: int
    extras: dict[str, Any]


class DataOperation:
    """An operation of sends and polls, taken apart."""

    __slots__ = (
        "end",
        "index",
        "is_proven",
        "is_transactional",
        "meta",
        "operation",
        "polls",
        "process",
        "reads",
        "sends",
        "start",
        "type",
    )

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.index = operation.index
        self.process = operation.process
        self.type: EventType = operation.type
        self.meta = operation.meta
        self.is_transactional = bool(self.meta.get("transactional"))
        self.start = operation.index
        self.end = operation.end_index
        """The index of the event that ended it; None if it may still take effect."""
        self.is_proven = False
        """Whether it committed although nobody was told so."""
        self.sends: list[Sent] = []
        self.polls: list[dict[int, list[Record]]] = []
        """One map for each poll, in order."""
        for micro in operation.value or ():
            if micro[0] == "send":
                self.sends.append(_sent(micro))
            elif len(micro) > 1:
                self.polls.append(micro[1])
        self.reads = _joined(self.polls)
        """By key, in the order of reading."""

    @property
    def is_committed(self) -> bool:
        return self.type == "ok" or self.is_proven

    def has_committed(self, sent: Sent) -> bool:
        if self.type == "info" and not self.is_transactional:
            return sent.offset is not None
        return self.is_committed

    @property
    def label(self) -> str:
        """As people read it in a report."""
        return f"T{self.index}"


def highest_offset(records: list[Record]) -> int:
    """Not that of the last one: a reader may have gone back."""
    highest: int = max(map(OFFSET, records))
    return highest


def _sent(micro: list[Any]) -> Sent:
    """A send is `["send", key, value]` until something is known about it."""
    key, result = micro[1], micro[2]
    if not isinstance(result, list):
        return Sent(key, None, result, {})
    offset = result[0] if result[0] is None or result[0] >= 0 else None
    return Sent(key, offset, result[1], result[2] if len(result) > 2 else {})


def _joined(polls: list[dict[int, list[Record]]]) -> dict[int, list[Record]]:
    if len(polls) == 1:
        return polls[0]
    reads: dict[int, list[Record]] = {}
    for poll in polls:
        for key, records in poll.items():
            reads.setdefault(key, []).extend(records)
    return reads


class KeyVersions:
    """One key: its L, its version order, who wrote what, what was read."""

    __slots__ = (
        "conflicts",
        "displaced",
        "first",
        "floor",
        "key",
        "last",
        "newest_epoch",
        "occurrences",
        "offsets",
        "rank",
        "read_ok",
        "values",
        "writers",
    )

    def __init__(self, key: int) -> None:
        self.key = key
        self.writers: dict[int, DataOperation] = {}
        self.read_ok: set[int] = set()
        self.values: dict[int, int] = {}
        """L, as long as there is one value for an offset."""
        self.conflicts: dict[int, dict[int, None]] = {}
        """Further values for an offset, each once. A broker that acks everything with offset 0 has
        as many of them as there are values."""
        self.displaced: list[Sent] = []
        self.floor = 0
        """Below it records may be gone: deleted, or beyond their retention."""
        self.newest_epoch = -1
        self.offsets: list[int] = []
        """The version order."""
        self.rank: dict[int, int] = {}
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        """The lowest and the highest rank of a value."""
        self.occurrences: dict[int, list[int]] = {}
        """The offsets of those values that are at several."""

    def saw(self, offset: int, value: int) -> None:
        if self.values.setdefault(offset, value) != value:
            self.conflicts.setdefault(offset, {})[value] = None

    def acked(self, sent: Sent, *, is_firm: bool) -> None:
        """An ack of a committed send: a fact, or what the cluster was allowed to forget."""
        if sent.offset is None:
            return
        if is_firm:
            self.saw(sent.offset, sent.value)
        elif self.values.setdefault(sent.offset, sent.value) != sent.value:
            self.displaced.append(sent)

    def values_at(self, rank: int) -> list[int]:
        offset = self.offsets[rank]
        return [self.values[offset], *self.conflicts.get(offset, ())]

    def settle(self) -> None:
        """Put everything in order, once all has been seen."""
        self.offsets = sorted(self.values)
        self.rank = {offset: rank for rank, offset in enumerate(self.offsets)}
        first, last, occurrences = self.first, self.last, self.occurrences
        for rank, offset in enumerate(self.offsets):
            at_offset = self.values_at(rank) if offset in self.conflicts else (self.values[offset],)
            for value in at_offset:
                if value == UNREADABLE:
                    continue
                if value in first:
                    occurrences.setdefault(value, [self.offsets[first[value]]]).append(offset)
                else:
                    first[value] = rank
                last[value] = rank

    def rank_of(self, sent: Sent) -> int | None:
        """Where a send ended up, as far as anybody knows."""
        if sent.offset is not None and sent.offset in self.rank:
            return self.rank[sent.offset]
        return self.first.get(sent.value)

    def writer_at(self, rank: int) -> DataOperation | None:
        """Who wrote the value there; nobody where two values compete."""
        offset = self.offsets[rank]
        return None if offset in self.conflicts else self.writers.get(self.values[offset])


class Versions:
    """All keys, and all operations on data in the order of their invocations."""

    def __init__(self, history: History, expectations: Expectations) -> None:
        self.history = history
        self.expectations = expectations
        self.keys: dict[int, KeyVersions] = {}
        self.operations: list[DataOperation] = []
        self.others: dict[str, list[Operation]] = {}
        """The remaining operations by their kind."""
        for operation in history.operations:
            if operation.f in DATA_KINDS:
                self.operations.append(DataOperation(operation))
            else:
                self.others.setdefault(operation.f, []).append(operation)
        self._take_writers()
        self._take_reads()
        self._take_acks()
        self._take_floors()
        self.keys = dict(sorted(self.keys.items()))
        for versions in self.keys.values():
            versions.settle()

    def of(self, key: int) -> KeyVersions:
        found = self.keys.get(key)
        if found is None:
            found = self.keys[key] = KeyVersions(key)
        return found

    def sends(self) -> Iterator[tuple[DataOperation, Sent]]:
        for operation in self.operations:
            for sent in operation.sends:
                yield operation, sent

    def in_order(self) -> Iterator[tuple[Operation, DataOperation | None]]:
        """All operations as they were invoked, those on data also taken apart."""
        data = iter(self.operations)
        for operation in self.history.operations:
            yield operation, next(data) if operation.f in DATA_KINDS else None

    def moments(self) -> Iterator[tuple[bool, Operation, DataOperation | None]]:
        """All events of operations in their order: whether it is an end, and of which operation."""
        opened: dict[Process, tuple[Operation, DataOperation | None]] = {}
        begun = self.in_order()
        for event in self.history.events:
            if event.type == "invoke":
                opened[event.process] = pair = next(begun)
                yield False, *pair
            elif event.process in opened:
                yield True, *opened.pop(event.process)

    def acks_are_firm(self, key: int) -> bool:
        expected = self.expectations
        return (
            expected.acks == "all"
            and not expected.unclean_elections_enabled
            and not expected.lost_unsynced_data
            and key not in expected.recreated_keys
        )

    def _take_writers(self) -> None:
        for operation, sent in self.sends():
            writers = self.of(sent.key).writers
            if sent.value in writers:
                raise HistoryError(
                    f"value {sent.value} of key {sent.key} is sent twice, by operations "
                    f"{writers[sent.value].index} and {operation.index}"
                )
            writers[sent.value] = operation

    def _take_reads(self) -> None:
        for operation in self.operations:
            is_ok = operation.type == "ok"
            for key in operation.reads:
                records = operation.reads[key]
                versions = self.of(key)
                if records and max(map(len, records)) > 2:
                    records = self._with_extras(operation, versions)
                if is_ok:
                    versions.read_ok.update([record[1] for record in records])
                values = versions.values
                for record in records:
                    if values.setdefault(record[0], record[1]) != record[1]:
                        versions.saw(record[0], record[1])
        for versions in self.keys.values():
            versions.read_ok.discard(UNREADABLE)

    @staticmethod
    def _with_extras(operation: DataOperation, versions: KeyVersions) -> list[Record]:
        """The records, where those that are none of this key's have no value."""
        records = []
        for record in operation.reads[versions.key]:
            extras = record[2] if len(record) > 2 else {}
            versions.newest_epoch = max(versions.newest_epoch, extras.get("epoch", -1))
            if "damage" in extras or extras.get("key", versions.key) != versions.key:
                record = [record[0], UNREADABLE, extras]
            records.append(record)
        # The history itself stays as it is.
        operation.reads = {**operation.reads, versions.key: records}
        return records

    def _take_acks(self) -> None:
        reading_proves = self.expectations.isolation == "read_committed"
        for operation in self.operations:
            if reading_proves and operation.type == "info" and operation.is_transactional:
                operation.is_proven = any(
                    sent.value in self.keys[sent.key].read_ok for sent in operation.sends
                )
            for sent in operation.sends:
                versions = self.keys[sent.key]
                if operation.has_committed(sent):
                    versions.acked(sent, is_firm=self.acks_are_firm(sent.key))
                versions.newest_epoch = max(versions.newest_epoch, sent.extras.get("epoch", -1))

    def _take_floors(self) -> None:
        """How far records were removed with everybody's consent."""
        if self.expectations.compacted:
            for versions in self.keys.values():
                versions.floor = EVERYTHING
        for operation in self.others.get("delete_records", ()):
            if operation.type != "fail":
                for key, offset in operation.value.items():
                    self._raise_floor(key, offset)
        if not self.expectations.retention:
            return
        for operation in self.others.get("end_offsets", ()):
            if operation.type == "ok":
                for key, answer in operation.value.items():
                    self._raise_floor(key, answer[0])
        for replica in self.expectations.audit.replicas if self.expectations.audit else ():
            self._raise_floor(replica.key, replica.log_start)

    def _raise_floor(self, key: int, offset: int) -> None:
        versions = self.of(key)
        versions.floor = max(versions.floor, offset)
