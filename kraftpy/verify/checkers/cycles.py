"""T1, T4, T5 and T6: cycles of dependencies, which no order of transactions explains.

By the edges that a cycle has (Adya's names):

    T1  G0          ww alone. Allowed: Kafka does not isolate writes from each other.
    T4  G1c-wr      wr alone: information went in a circle. Never allowed.
        G1c         wr and ww. Allowed, for the same reason as G0.
    T5  ...-process, ...-realtime   cycles that need the order of a process, or of real time, too.
                    Allowed with ww; without, somebody read what had not been sent yet.
    T6  G-single, G2   with one, or several, rw edges. Information: reads of several partitions
                    are not atomic in Kafka.

Cycles are in strongly connected components, found by Tarjan's algorithm without recursion, first
of the graph with all edges of interest: where that has none, no part of it has. Then for each kind,
on its own edges and only inside those components, shortest walks by breadth-first search from an
edge that the kind needs; a walk must pass all kinds of edges that are needed, so the search is
over pairs of a vertex and what was passed. The smallest ones are reported, with the evidence for
every edge.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kraftpy.verify.checkers.graph import DependencyGraph, EdgeKind
from kraftpy.verify.checkers.verdict import Anomaly
from kraftpy.verify.checkers.versions import Versions

__all__ = ["check_cycles", "components"]

MAX_CYCLES_OF_A_KIND: Final = 8
# Then no further search is begun; the one under way ends, so that a kind with cycles has one.
MAX_STEPS_OF_A_KIND: Final = 100_000


@dataclass(frozen=True, slots=True)
class _Kind:
    id: str
    name: str
    edges: tuple[EdgeKind, ...]
    needed: tuple[EdgeKind, ...]
    """Kinds of which a cycle has at least one edge; the search begins with the first."""
    is_bad: bool = False


def _kinds() -> tuple[_Kind, ...]:
    kinds = [
        _Kind("T1", "G0", ("ww",), ("ww",)),
        _Kind("T4", "G1c-wr", ("wr",), ("wr",), True),
        _Kind("T4", "G1c", ("ww", "wr"), ("wr", "ww")),
    ]
    extras: tuple[EdgeKind, ...] = ("process", "realtime")
    for extra in extras:
        kinds += [
            _Kind("T5", f"G0-{extra}", ("ww", extra), (extra,)),
            _Kind("T5", f"G1c-wr-{extra}", ("wr", extra), (extra,), True),
            _Kind("T5", f"G1c-{extra}", ("ww", "wr", extra), (extra, "wr", "ww")),
        ]
    return (*kinds, _Kind("T6", "G-single", ("ww", "wr", "rw"), ("rw",)))


KINDS: Final = _kinds()


def check_cycles(versions: Versions) -> Iterator[Anomaly]:
    graph = DependencyGraph(versions)
    everything = range(graph.size)
    of_interest = _components_of(graph, ("ww", "wr", "process", "realtime"), everything)
    # Process and realtime edges are of no use for T6, which is information only.
    with_anti = _components_of(graph, ("ww", "wr", "rw"), everything)
    for kind in KINDS:
        inside = with_anti if "rw" in kind.edges else of_interest
        yield from _Search(graph, kind).run(inside)


def components(successors: Sequence[Sequence[int]], vertices: Sequence[int]) -> list[list[int]]:
    """Strongly connected components of more than one vertex (Tarjan, with a stack of our own)."""
    unseen, closed = -1, len(successors)
    # A vertex's number, then `closed` once its component is known; and the lowest it reaches.
    number = [unseen] * len(successors)
    low = [0] * len(successors)
    stack: list[int] = []
    found: list[list[int]] = []
    count = 0
    for root in vertices:
        if number[root] != unseen:
            continue
        work = [(root, iter(successors[root]))]
        number[root] = low[root] = count
        count += 1
        stack.append(root)
        while work:
            vertex, rest = work[-1]
            for successor in rest:
                if number[successor] == unseen:
                    number[successor] = low[successor] = count
                    count += 1
                    stack.append(successor)
                    work.append((successor, iter(successors[successor])))
                    break
                low[vertex] = min(low[vertex], number[successor])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[vertex])
                if low[vertex] == number[vertex]:
                    place = len(stack) - 1
                    while stack[place] != vertex:
                        place -= 1
                    component = stack[place:]
                    del stack[place:]
                    for member in component:
                        number[member] = closed
                    if len(component) > 1:
                        found.append(sorted(component))
    return sorted(found)


def _components_of(
    graph: DependencyGraph, kinds: tuple[EdgeKind, ...], inside: Sequence[int]
) -> list[list[int]]:
    """Of the graph with these edges, among some vertices; the cost is theirs, not the graph's."""
    places = {vertex: place for place, vertex in enumerate(inside)}
    successors: list[list[int]] = [[] for _ in inside]
    for kind in kinds:
        edges = graph.edges[kind]
        for place, vertex in enumerate(inside):
            if vertex < len(edges):
                successors[place] += [places[to] for to in edges[vertex] if to in places]
    found = components(successors, range(len(inside)))
    return [[inside[place] for place in component] for component in found]


@dataclass(frozen=True, slots=True)
class _Walk:
    """A cycle: vertices of operations, and the kind of the edge to the next one."""

    vertices: tuple[int, ...]
    kinds: tuple[EdgeKind, ...]


class _Search:
    """For the shortest cycles of one kind."""

    def __init__(self, graph: DependencyGraph, kind: _Kind) -> None:
        self._graph = graph
        self._kind = kind
        self._bits = {name: 1 << place for place, name in enumerate(kind.needed)}
        self._steps = 0

    def run(self, inside: list[list[int]]) -> Iterator[Anomaly]:
        walks: dict[tuple[int, ...], _Walk] = {}
        for outer in inside:
            for component in _components_of(self._graph, self._kind.edges, outer):
                for walk in self._walks(component):
                    # A cycle has no beginning: it is named by its smallest vertex.
                    place = walk.vertices.index(min(walk.vertices))
                    name = walk.vertices[place:] + walk.vertices[:place]
                    kinds = walk.kinds[place:] + walk.kinds[:place]
                    walks.setdefault(name, _Walk(name, kinds))
        shortest = sorted(walks.values(), key=lambda walk: (len(walk.vertices), walk.vertices))
        for walk in shortest[:MAX_CYCLES_OF_A_KIND]:
            yield self._anomaly(walk)

    def _walks(self, component: list[int]) -> Iterator[_Walk]:
        members = frozenset(component)
        for source in component:
            if self._graph.is_instant(source):
                continue
            for target in self._after(source, self._kind.needed[0], members):
                if self._steps > MAX_STEPS_OF_A_KIND:
                    return
                walk = self._shortest(source, target, members)
                if walk is not None:
                    yield walk

    def _after(self, vertex: int, kind: EdgeKind, members: frozenset[int]) -> list[int]:
        edges = self._graph.edges[kind]
        if vertex >= len(edges):
            return []
        return [target for target in edges[vertex] if target in members]

    def _shortest(self, source: int, target: int, members: frozenset[int]) -> _Walk | None:
        """Back from the end of the first edge to its source, past all that is needed.

        Instants cost nothing, so the queue is served from both ends.
        """
        wanted = (1 << len(self._bits)) - 1
        start = (target, self._bits[self._kind.needed[0]])
        came: dict[tuple[int, int], tuple[tuple[int, int] | None, EdgeKind]] = {
            start: (None, self._kind.needed[0])
        }
        length = {start: 1}
        queue = deque([start])
        ways = [
            (kind, self._graph.edges[kind], self._bits.get(kind, 0)) for kind in self._kind.edges
        ]
        while queue:
            state = queue.popleft()
            vertex, passed = state
            if vertex == source and passed == wanted:
                return self._trace(source, state, came)
            costs = 0 if self._graph.is_instant(vertex) else 1
            for kind, edges, bit in ways:
                for successor in edges[vertex] if vertex < len(edges) else ():
                    if successor not in members:
                        continue
                    self._steps += 1
                    reached = (successor, passed | bit)
                    if reached not in length or length[state] + costs < length[reached]:
                        length[reached] = length[state] + costs
                        came[reached] = (state, kind)
                        (queue.append if costs else queue.appendleft)(reached)
        return None

    def _trace(
        self,
        source: int,
        end: tuple[int, int],
        came: dict[tuple[int, int], tuple[tuple[int, int] | None, EdgeKind]],
    ) -> _Walk | None:
        """The way back, with instants taken out; None if it passes an operation twice."""
        vertices: list[int] = []
        kinds: list[EdgeKind] = []
        state: tuple[int, int] | None = end
        while state is not None:
            previous, kind = came[state]
            if not self._graph.is_instant(state[0]):
                vertices.append(state[0])
                kinds.append(kind)
            state = previous
        vertices.reverse()
        kinds.reverse()
        # The first edge leads from the source to the first vertex, the last one back to it.
        ordered = (source, *vertices[:-1])
        if len(frozenset(ordered)) != len(ordered):
            return None
        return _Walk(ordered, tuple(kinds))

    def _anomaly(self, walk: _Walk) -> Anomaly:
        graph = self._graph
        names = [graph.operations[vertex] for vertex in walk.vertices]
        reasons = [
            graph.explain(kind, vertex, walk.vertices[(place + 1) % len(walk.vertices)])
            for place, (vertex, kind) in enumerate(zip(walk.vertices, walk.kinds, strict=True))
        ]
        circle = " -> ".join(operation.label for operation in (*names, names[0]))
        id_, name = self._kind.id, self._kind.name
        if name == "G-single" and walk.kinds.count("rw") > 1:
            name = "G2"
        return Anomaly(
            id_,
            name,
            tuple(operation.index for operation in names),
            f"{circle}: {'; '.join(reasons)}",
            is_bad=self._kind.is_bad,
        )
