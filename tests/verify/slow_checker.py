"""The catalogue's definitions word for word, by trying all pairs: slow, and obvious.

It shares nothing with the product but the events. `findings` returns what is comparable: (id, key,
operations) for values and order, and the lengths of the shortest cycles of each kind.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kraftpy.verify.history import Event, History

Finding = tuple[str, int, tuple[int, ...]]


@dataclass
class Op:
    """One operation on data."""

    invoke: Event
    end: Event | None
    sends: list[tuple[int, int | None, int]]
    reads: list[tuple[int, int, int]]
    """(key, offset, value) in the order of reading."""

    @property
    def index(self) -> int:
        return self.invoke.index

    @property
    def type(self) -> str:
        return "info" if self.end is None else self.end.type

    @property
    def transactional(self) -> bool:
        return bool(self.invoke.meta.get("transactional"))

    def reads_of(self, key: int) -> list[int]:
        return [offset for k, offset, _ in self.reads if k == key]

    def precedes(self, other: Op) -> bool:
        """In real time."""
        return self.type in ("ok", "fail") and bool(self.end) and self.end.index < other.index


def operations(history: History) -> list[Op]:
    found = []
    for event in history.events:
        if event.type != "invoke" or event.f not in ("send", "poll", "txn"):
            continue
        later = [
            other
            for other in history.events[event.index + 1 :]
            if other.process == event.process and other.type != "invoke"
        ]
        end = later[0] if later else None
        value = event.value if end is None or end.value is None else end.value
        sends: list[tuple[int, int | None, int]] = []
        reads: list[tuple[int, int, int]] = []
        for micro in value:
            if micro[0] == "send":
                told = micro[2] if isinstance(micro[2], list) else [None, micro[2]]
                sends.append((micro[1], told[0], told[1]))
            elif len(micro) > 1:
                reads += [(k, o, v) for k, records in micro[1].items() for o, v in records]
        found.append(Op(event, end, sends, reads))
    return found


class SlowChecker:
    def __init__(self, history: History) -> None:
        self.history = history
        self.ops = operations(history)
        self.keys = sorted(
            {k for op in self.ops for k, _, _ in op.sends}
            | {k for op in self.ops for k, _, _ in op.reads}
        )

    def writer(self, key: int, value: int) -> Op | None:
        for op in self.ops:
            for k, _, v in op.sends:
                if (k, v) == (key, value):
                    return op
        return None

    def read_ok(self, key: int) -> set[int]:
        return {v for op in self.ops if op.type == "ok" for k, _, v in op.reads if k == key}

    def committed(self, op: Op) -> bool:
        if op.type == "info" and op.transactional:
            return any(v in self.read_ok(k) for k, _, v in op.sends)
        return op.type == "ok"

    def committed_send(self, op: Op, offset: int | None) -> bool:
        if op.type == "info" and not op.transactional:
            return offset is not None
        return self.committed(op)

    def log(self, key: int) -> dict[int, set[int]]:
        """L."""
        found: dict[int, set[int]] = {}
        for op in self.ops:
            for k, offset, value in op.reads:
                if k == key:
                    found.setdefault(offset, set()).add(value)
            for k, told, value in op.sends:
                if k == key and told is not None and self.committed_send(op, told):
                    found.setdefault(told, set()).add(value)
        return found

    def ranks(self, key: int, value: int) -> list[int]:
        log = self.log(key)
        return [rank for rank, offset in enumerate(sorted(log)) if value in log[offset]]

    def rank_of_offset(self, key: int, offset: int) -> int:
        return sorted(self.log(key)).index(offset)

    def rank_of_send(self, key: int, offset: int | None, value: int) -> int | None:
        log = self.log(key)
        if offset is not None and offset in log:
            return sorted(log).index(offset)
        return self.ranks(key, value)[0] if self.ranks(key, value) else None

    def findings(self) -> Counter[Finding]:
        found: Counter[Finding] = Counter()
        for key in self.keys:
            found.update(self.of_key(key))
        for op in self.ops:
            found.update(self.of_operation(op))
        found.update(self.between_operations())
        return found

    def of_key(self, key: int) -> list[Finding]:
        found: list[Finding] = []
        log = self.log(key)
        found += [("A1", key, ()) for values in log.values() if len(values) > 1]
        values = sorted({value for at in log.values() for value in at})
        found += [("A2", key, ()) for value in values if len(self.ranks(key, value)) > 1]
        read = [value for value in values if value in self.read_ok(key)]
        bound = max((self.ranks(key, value)[0] for value in read), default=-1)
        for op in self.ops:
            for k, offset, value in op.sends:
                ranks = self.ranks(key, value)
                if (
                    k == key
                    and ranks
                    and ranks[-1] <= bound
                    and value not in read
                    and self.committed_send(op, offset)
                ):
                    found.append(("A3", key, (op.index,)))
        return found

    def of_operation(self, op: Op) -> list[Finding]:
        found: list[Finding] = []
        for key, _, value in op.reads:
            writer = self.writer(key, value)
            if writer is None:
                found.append(("A6", key, (op.index,)))
            elif op.type == "ok" and writer.type == "fail":
                found.append(("A5", key, (writer.index, op.index)))
            if op.transactional and writer is op:
                found.append(("A8", key, (op.index,)))
        for key in self.keys:
            for before, after in pairwise(op.reads_of(key)):
                delta = self.rank_of_offset(key, after) - self.rank_of_offset(key, before)
                if delta != 1:
                    found.append(("A13" if delta > 1 else "A14", key, (op.index,)))
            mine = [send for send in op.sends if send[0] == key]
            for one, other in pairwise(mine):
                ranks = self.rank_of_send(*one), self.rank_of_send(*other)
                if None not in ranks and ranks[1] - ranks[0] != 1:  # type: ignore[operator]
                    skips = ranks[1] - ranks[0] > 1  # type: ignore[operator]
                    found.append(("A17" if skips else "A18", key, (op.index,)))
            for send in mine:
                found += self.against_real_time(op, send)
        return found

    def against_real_time(self, op: Op, send: tuple[int, int | None, int]) -> list[Finding]:
        key, offset, value = send
        known = [
            told
            for other in self.ops
            if other.end is not None and other.end.index < op.index
            for told in (
                *other.reads_of(key),
                *(o for k, o, _ in other.sends if k == key and o is not None),
            )
        ]
        log = self.log(key)
        places = [place for place in log if value in log[place]]
        places += [] if offset is None else [offset]
        if known and places and min(places) <= max(known):
            return [("A20", key, (op.index,))]
        return []

    def between_operations(self) -> list[Finding]:
        found: list[Finding] = []
        for later in self.ops:
            before = [
                op
                for op in self.ops
                if op.invoke.process == later.invoke.process and op.index < later.index
            ]
            for key in self.keys:
                read = [op for op in before if op.type == "ok" and op.reads_of(key)]
                if read and later.type == "ok" and later.reads_of(key):
                    ends = read[-1].reads_of(key)[-1], later.reads_of(key)[0]
                    delta = self.rank_of_offset(key, ends[1]) - self.rank_of_offset(key, ends[0])
                    if delta != 1:
                        name = "A15" if delta > 1 else "A16"
                        found.append((name, key, (read[-1].index, later.index)))
                sent = [
                    (op, send)
                    for op in before
                    if op.type != "fail"
                    for send in op.sends
                    if send[0] == key
                ]
                mine = [send for send in later.sends if send[0] == key]
                if sent and mine and later.type != "fail":
                    ranks = self.rank_of_send(*sent[-1][1]), self.rank_of_send(*mine[0])
                    if None not in ranks and ranks[1] <= ranks[0]:  # type: ignore[operator]
                        found.append(("A19", key, (sent[-1][0].index, later.index)))
        return found

    def edges(self) -> dict[str, set[tuple[int, int]]]:
        vertices = [op for op in self.ops if self.committed(op)]
        edges: dict[str, set[tuple[int, int]]] = {
            kind: set() for kind in ("ww", "wr", "process", "realtime")
        }
        for one in vertices:
            for other in vertices:
                if one is other:
                    continue
                pair = (one.index, other.index)
                if one.precedes(other):
                    edges["realtime"].add(pair)
                if any(self.writer(k, v) is one for k, _, v in other.reads):
                    edges["wr"].add(pair)
                if self.writes_right_after(one, other):
                    edges["ww"].add(pair)
                same = one.invoke.process == other.invoke.process
                between = [op for op in vertices if one.index < op.index < other.index]
                nearer = any(op.invoke.process == one.invoke.process for op in between)
                if same and one.index < other.index and not nearer:
                    edges["process"].add(pair)
        return edges

    def writes_right_after(self, one: Op, other: Op) -> bool:
        for key in self.keys:
            log = self.log(key)
            for before, after in pairwise(sorted(log)):
                if len(log[before]) == 1 and len(log[after]) == 1:
                    first, second = min(log[before]), min(log[after])
                    if self.writer(key, first) is one and self.writer(key, second) is other:
                        return True
        return False

    def shortest_cycles(self) -> dict[str, int]:
        """By kind, the number of edges of its shortest cycle."""
        edges = self.edges()
        kinds: dict[str, tuple[tuple[str, ...], str]] = {
            "G0": (("ww",), "ww"),
            "G1c-wr": (("wr",), "wr"),
        }
        for extra in ("process", "realtime"):
            kinds[f"G0-{extra}"] = (("ww", extra), extra)
            kinds[f"G1c-wr-{extra}"] = (("wr", extra), extra)
        found = {}
        for name, (used, needed) in kinds.items():
            union = {pair for kind in used for pair in edges[kind]}
            lengths = self.distances(union)
            cycles = [
                1 + lengths[target, source]
                for source, target in edges[needed]
                if (target, source) in lengths
            ]
            if cycles:
                found[name] = min(cycles)
        return found

    def distances(self, union: set[tuple[int, int]]) -> dict[tuple[int, int], int]:
        """Floyd and Warshall."""
        length: dict[tuple[int, int], int] = dict.fromkeys(union, 1)
        vertices = sorted({vertex for pair in union for vertex in pair})
        far: Any = float("inf")
        for middle in vertices:
            for source in vertices:
                for target in vertices:
                    way = length.get((source, middle), far) + length.get((middle, target), far)
                    if way < length.get((source, target), far):
                        length[source, target] = way
        return length
