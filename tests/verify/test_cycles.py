"""The search for cycles: components, real time in linear size, explanations, and depth."""

from __future__ import annotations

from random import Random

from verify.history_table import Table
from verify.simulated_history import Draw, valid_history

from kraftpy.verify.checkers import Expectations, check
from kraftpy.verify.checkers.cycles import components
from kraftpy.verify.checkers.graph import DependencyGraph
from kraftpy.verify.checkers.versions import Versions

JUDGED = Expectations(vacuity=None)


def reach(successors: list[list[int]], start: int) -> set[int]:
    """What a walk of at least one step comes to."""
    found: set[int] = set()
    todo = list(successors[start])
    while todo:
        vertex = todo.pop()
        if vertex not in found:
            found.add(vertex)
            todo += successors[vertex]
    return found


def test_components_are_mutually_reachable_vertices() -> None:
    """JEP-78."""
    for seed in range(300):
        random = Random(seed)
        size = random.randint(1, 12)
        successors = [
            [to for to in range(size) if to != vertex and random.random() < 1.2 / size]
            for vertex in range(size)
        ]
        reached = [reach(successors, vertex) for vertex in range(size)]
        expected = {
            tuple(
                other
                for other in range(size)
                if other == vertex or (other in reached[vertex] and vertex in reached[other])
            )
            for vertex in range(size)
        }
        found = components(successors, range(size))
        assert found == sorted(list(group) for group in expected if len(group) > 1), seed


def test_real_time_is_complete_and_linear() -> None:
    """JEP-79: instants lead from an operation to exactly those that began after its end."""
    for seed in range(30):
        history = valid_history(Draw(operations=40, processes=1 + seed % 8, keys=2), seed)
        graph = DependencyGraph(Versions(history, JUDGED))
        edges = graph.edges["realtime"]
        for vertex, operation in enumerate(graph.operations):
            found = {to for to in reach(edges, vertex) if not graph.is_instant(to)}
            expected = {
                number
                for number, other in enumerate(graph.operations)
                if operation.end is not None and operation.end < other.start
            }
            assert found == expected, seed
        # An operation has an edge out of it and one into it, an instant one to the next.
        assert sum(map(len, edges)) <= 3 * len(graph.operations)


def test_every_edge_of_a_cycle_is_explained() -> None:
    """JEP-78."""
    table = Table(["0 ( txn -2:0=1 +1:1@0 tx", "1 txn -1:0=1 +2:1@0 tx", "0 )"])
    (found,) = (
        anomaly for anomaly in check(table.history, JUDGED).anomalies if anomaly.name == "G1c-wr"
    )
    assert found.operations == (0, 1)
    assert found.text == (
        "T0 -> T1 -> T0: T0 sent 1 to key 1, which T1 polled at offset 0; "
        "T1 sent 1 to key 2, which T0 polled at offset 0"
    )


def test_all_kinds_of_edges_have_words() -> None:
    lines = [
        "0 send +1:1@1",
        "1 send +1:2@0",
        "2 poll -3:0=1",
        "2 send +3:1@0",
        "4 send +5:1@0 +6:1@0 tx",
        "4 send +5:2@1 +6:2@1 tx",
        "5 poll -5:0=1;6:0=1,1=2 tx",
    ]
    texts = "\n".join(anomaly.text for anomaly in check(Table(lines).history, JUDGED).anomalies)
    for words in (
        "T0 was over before T2 began",
        "T2 sent 2 to key 1 at offset 0, and T0 sent 1 right after it, at offset 1",
        "process 2 did T4, then T6",
        "T6 sent 1 to key 3, which T4 polled at offset 0",
        "T12 read key 5 up to offset 0, and not what T10 sent right after it, 2",
    ):
        assert words in texts


def test_with_and_without_writes() -> None:
    """JEP-78: a circle of information alone is told from one that needs the order of writes."""
    pure = Table(["0 ( txn -2:0=1 +1:1@0 tx", "1 txn -1:0=1 +2:1@0 tx", "0 )"])
    mixed = Table(["0 ( txn +1:1@0 +2:2@1 tx", "1 txn +2:1@0 -1:0=1 tx", "0 )"])
    names = [
        [(found.name, found.is_bad) for found in check(table.history, JUDGED).anomalies]
        for table in (pure, mixed)
    ]
    assert ("G1c-wr", True) in names[0]
    assert ("G1c", False) in names[1]
    assert not any(is_bad for _, is_bad in names[1])


def test_a_circle_of_thousands_needs_no_recursion() -> None:
    """Each operation reads what the next one sends, and the last one what the first sent."""
    count = 2_000
    begins = [f"{place} ( txn +{place}:1@0 -{(place + 1) % count}:0=1 tx" for place in range(count)]
    ends = [f"{place} )" for place in range(count)]
    verdict = check(Table([*begins, *ends]).history, JUDGED)
    (found,) = (anomaly for anomaly in verdict.anomalies if anomaly.name == "G1c-wr")
    assert len(found.operations) == count
