"""What simulations ask of the product (rules of design decisions 2 and 3, and rule 13 of testing):
cores without I/O, which simulations run as they are, and settings that may be extreme.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import kraftpy
from kraftpy.sim.whole.run import WholeCase
from kraftpy.sim.whole.swarm import WholeSwarm

ROOT = Path(kraftpy.__file__).parent
CORES = [
    "raft.core",
    "metadata.controller.controller",
    "broker.partition",
    "broker.fetcher_core",
    "coordinator.groups.machine",
    "coordinator.transactions.machine",
    "purgatory.purgatory",
]
EXTREMES = {
    "internal.metadata.log.segment.bytes": "1024",
    "metadata.log.max.record.bytes.between.snapshots": "1000",
    "replica.fetch.max.bytes": "1",
    "fetch.max.bytes": "1024",
    "producer.purgatory.purge.interval.requests": "1",
    "fetch.purgatory.purge.interval.requests": "1",
    "offsets.topic.segment.bytes": "1000",
    "transaction.state.log.segment.bytes": "1000",
    "num.replica.fetchers": "3",
}
TOPIC_EXTREMES = {
    "internal.segment.bytes": "1024",
    "index.interval.bytes": "1",
    "segment.index.bytes": "120",
}


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@pytest.fixture(scope="module")
def simulated() -> set[str]:
    """What simulations of single rooms import."""
    return {
        node.module
        for path in ROOT.glob("sim/*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.module is not None
    }


@pytest.mark.parametrize("core", CORES)
def test_a_core_has_no_io_and_is_simulated_as_it_is(core: str, simulated: set[str]) -> None:
    """JEP-132: nothing in it waits, and it is the node's own module that simulations run."""
    tree = tree_of(ROOT / f"{core.replace('.', '/')}.py")
    waiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    assert not any(isinstance(node, waiting) for node in ast.walk(tree))
    imported = {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }
    assert "trio" not in imported
    assert f"kraftpy.{core}" in simulated


def test_settings_may_be_extreme() -> None:
    """JEP-136: all at once. Segments of a kilobyte, an index entry for each batch, a purge for each
    request, a batch for each fetch, a snapshot every few records: it is slow, but all is well.
    """
    swarm = WholeSwarm(faults=(), node_extremes=EXTREMES, topic_extremes=TOPIC_EXTREMES)
    outcome = WholeCase(1, swarm, (), seconds=3.0).run().value
    assert outcome.operations["ok"] > 0
