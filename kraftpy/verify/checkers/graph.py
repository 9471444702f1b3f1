"""The graph of dependencies between operations.

Over operations that must have committed:

    ww        the writer of a value -> the writer of the next one in the version order
    wr        a writer -> whoever polled what it sent
    rw        a reader -> the writer of the value right after the last that it read of a key
    process   an operation -> the next of its process
    realtime  one -> every other that began after it was over

Each is a list of successors for each vertex, and no vertex is its own. The realtime relation has
up to n²/4 pairs, and even its transitive reduction has n²/4 if half of the operations end
before the other half begins. It is kept in O(n) by *instants*: vertices without an operation, one
wherever an invocation follows a completion. An operation leads to the first instant after its
end, an instant to the next one and to the operations that began between them; so a path through
instants is one edge of the reduction.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from kraftpy.verify.checkers.versions import DataOperation, Versions, highest_offset
from kraftpy.verify.history import Process

__all__ = ["DependencyGraph", "EdgeKind"]

EdgeKind: TypeAlias = Literal["ww", "wr", "rw", "process", "realtime"]


class DependencyGraph:
    """Vertices are numbers: operations first, in the order of their invocations, then instants."""

    def __init__(self, versions: Versions) -> None:
        self.versions = versions
        self.operations = [operation for operation in versions.operations if operation.is_committed]
        self._vertices = {
            operation.index: number for number, operation in enumerate(self.operations)
        }
        self.edges: dict[EdgeKind, list[list[int]]] = {
            "ww": self._write_edges(),
            "wr": self._read_edges(),
            "process": self._process_edges(),
            "realtime": self._realtime_edges(),
            "rw": self._anti_edges(),
        }
        self.size = len(self.edges["realtime"])

    def is_instant(self, vertex: int) -> bool:
        return vertex >= len(self.operations)

    def _vertex(self, operation: DataOperation | None) -> int | None:
        return None if operation is None else self._vertices.get(operation.index)

    def _write_edges(self) -> list[list[int]]:
        edges: list[dict[int, None]] = [{} for _ in self.operations]
        for key in self.versions.keys.values():
            before: int | None = None
            for rank in range(len(key.offsets)):
                after = self._vertex(key.writer_at(rank))
                if before is not None and after is not None and before != after:
                    edges[before][after] = None
                before = after
        return [list(found) for found in edges]

    def _read_edges(self) -> list[list[int]]:
        edges: list[list[int]] = [[] for _ in self.operations]
        vertices = self._vertices
        for reader, operation in enumerate(self.operations):
            writers: dict[int, None] = {}
            for key, records in operation.reads.items():
                key_writers = self.versions.keys[key].writers
                for record in records:
                    writer = key_writers.get(record[1])
                    if writer is not None:
                        writers[writer.index] = None
            for index in writers:
                vertex = vertices.get(index)
                if vertex is not None and vertex != reader:
                    edges[vertex].append(reader)
        return edges

    def _anti_edges(self) -> list[list[int]]:
        edges: list[list[int]] = []
        for reader, operation in enumerate(self.operations):
            found: dict[int, None] = {}
            for key, records in operation.reads.items():
                if records:
                    writer = self._overwriter(key, highest_offset(records))
                    if writer is not None and writer != reader:
                        found[writer] = None
            edges.append(list(found))
        return edges

    def _overwriter(self, key: int, offset: int) -> int | None:
        versions = self.versions.keys[key]
        rank = versions.rank[offset] + 1
        return self._vertex(versions.writer_at(rank)) if rank < len(versions.offsets) else None

    def _process_edges(self) -> list[list[int]]:
        edges: list[list[int]] = [[] for _ in self.operations]
        last: dict[Process, int] = {}
        for vertex, operation in enumerate(self.operations):
            if operation.process in last:
                edges[last[operation.process]].append(vertex)
            last[operation.process] = vertex
        return edges

    def _realtime_edges(self) -> list[list[int]]:
        edges: list[list[int]] = [[] for _ in self.operations]
        moments: list[tuple[int, int]] = []
        for vertex, operation in enumerate(self.operations):
            moments.append((operation.start, vertex))
            if operation.end is not None:
                moments.append((operation.end, -vertex - 1))
        moments.sort()
        ended: list[int] = []
        instant: int | None = None
        for _, sign in moments:
            if sign < 0:
                ended.append(-sign - 1)
                continue
            if ended:
                following = len(edges)
                edges.append([])
                for vertex in ended:
                    edges[vertex].append(following)
                if instant is not None:
                    edges[instant].append(following)
                ended, instant = [], following
            if instant is not None:
                edges[instant].append(sign)
        return edges

    def explain(self, kind: EdgeKind, source: int, target: int) -> str:
        """The evidence for an edge, for people."""
        earlier, later = self.operations[source], self.operations[target]
        if kind == "process":
            return f"process {earlier.process} did {earlier.label}, then {later.label}"
        if kind == "realtime":
            return f"{earlier.label} was over before {later.label} began"
        if kind == "wr":
            return self._explain_read(earlier, later)
        if kind == "ww":
            return self._explain_write(earlier, later)
        return self._explain_anti(earlier, later)

    def _explain_read(self, writer: DataOperation, reader: DataOperation) -> str:
        for sent in writer.sends:
            for record in reader.reads.get(sent.key, ()):
                if record[1] == sent.value:
                    return (
                        f"{writer.label} sent {sent.value} to key {sent.key}, which "
                        f"{reader.label} polled at offset {record[0]}"
                    )
        return f"{reader.label} read from {writer.label}"

    def _explain_write(self, earlier: DataOperation, later: DataOperation) -> str:
        for sent in earlier.sends:
            key = self.versions.keys[sent.key]
            rank = key.rank_of(sent)
            if rank is None or rank + 1 == len(key.offsets):
                continue
            if key.writer_at(rank + 1) is later:
                value = key.values[key.offsets[rank + 1]]
                return (
                    f"{earlier.label} sent {sent.value} to key {sent.key} at offset "
                    f"{key.offsets[rank]}, and {later.label} sent {value} right after it, at "
                    f"offset {key.offsets[rank + 1]}"
                )
        return f"{later.label} wrote after {earlier.label}"

    def _explain_anti(self, reader: DataOperation, writer: DataOperation) -> str:
        for key, records in reader.reads.items():
            if not records:
                continue
            highest = highest_offset(records)
            versions = self.versions.keys[key]
            rank = versions.rank[highest] + 1
            if rank < len(versions.offsets) and versions.writer_at(rank) is writer:
                return (
                    f"{reader.label} read key {key} up to offset {highest}, and not what "
                    f"{writer.label} sent right after it, "
                    f"{versions.values[versions.offsets[rank]]}"
                )
        return f"{reader.label} missed {writer.label}"
