"""Bugs that are put into the product on purpose are seen by the rules on whole nodes (JEP-144).

The exam (tests/bugs) has the same bugs on the kernels alone; these say that the nodes' own state is
looked at, and that a failure can be shrunk and replayed.
"""

from __future__ import annotations

from dataclasses import replace

import log_bugs
import pytest
import replication_bugs
import server_bugs
from seeded_bugs import Bug, Suite

from kraftpy.sim.levels import run_case
from kraftpy.sim.whole.run import make_case
from kraftpy.sim.whole.swarm import WholeSwarm

WORLD = WholeSwarm(
    workloads=("queue-txn",),
    rate=60.0,
    keys=2,
    faults=("kill", "partition", "pause", "one-way"),
    fault_mean_seconds=1.5,
    overlaps=True,
)
# By a seed in which it shows: one of them needs a request whose answer gets lost.
FOUND = [
    (0, "leader alone commits", "candidate-behind"),
    (0, "acknowledged when the leader has it", "acknowledged-too-early"),
    (0, "one unstable record is shown", "unstable-shown"),
    (0, "repetition answered with offset 0", "inconsistent-offsets"),
]


# By the workload that shows it.
MORE_FOUND = [
    (server_bugs.SUITE, "connection count leaks", "queue-txn", "connections-miscounted"),
    (
        server_bugs.SUITE,
        "timer never fires beyond the first wheel",
        "queue-txn",
        "purgatory-miscounted",
    ),
    (
        log_bugs.SUITE,
        "aborted index skips the first batch",
        "abort-rewind",
        "aborted-index-differs",
    ),
]


def bug_of(suite: Suite, name: str) -> Bug:
    [bug] = [each for each in suite.bugs if each.name == name]
    return bug


@pytest.mark.parametrize(("seed", "name", "code"), FOUND)
def test_a_bug_is_found(seed: int, name: str, code: str) -> None:
    with bug_of(replication_bugs.SUITE, name).seeded():
        report = run_case(make_case(seed, seconds=5.0, swarm=WORLD))
    assert report.code == code
    assert report.timeline


@pytest.mark.parametrize(("suite", "name", "workload", "code"), MORE_FOUND)
def test_a_bug_of_a_nodes_health_or_index_is_found(
    suite: Suite, name: str, workload: str, code: str
) -> None:
    """Invariants 20, 24 and 25."""
    with bug_of(suite, name).seeded():
        swarm = replace(WORLD, workloads=(workload,))
        report = run_case(make_case(0, seconds=5.0, swarm=swarm))
    assert report.code == code
