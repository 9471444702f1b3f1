"""Bugs that are put into the product on purpose are seen by the rules on whole nodes (JEP-144).

The exam (tests/bugs) has the same bugs on the kernels alone; these say that the nodes' own state is
looked at, and that a failure can be shrunk and replayed.
"""

from __future__ import annotations

import pytest
from replication_bugs import SUITE

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
FOUND = [
    ("leader alone commits", "candidate-behind"),
    ("acknowledged when the leader has it", "acknowledged-too-early"),
    ("one unstable record is shown", "unstable-shown"),
    ("repetition answered with offset 0", "inconsistent-offsets"),
]


@pytest.mark.parametrize(("name", "code"), FOUND)
def test_a_bug_is_found(name: str, code: str) -> None:
    [bug] = [each for each in SUITE.bugs if each.name == name]
    with bug.seeded():
        report = run_case(make_case(0, seconds=5.0, swarm=WORLD))
    assert report.code == code
    assert report.timeline
