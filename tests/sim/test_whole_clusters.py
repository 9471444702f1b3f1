"""Whole clusters with their clients under one seed: whatever befalls them, nothing is wrong."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kraftpy.sim.whole.run import make_case

SEEDS = range(1, 10)
SECONDS = 5.0
DIGEST = f"""
from kraftpy.sim.whole.run import make_case
print(make_case(7, seconds={SECONDS}).run().trace.digest)
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_wrong(seed: int) -> None:
    """REP-123, JEP-143 to JEP-146: kills, power cuts, partitions, pauses, bad disks and clocks, as
    the seed draws them; all invariants; the cluster gets well; all replicas are alike.
    """
    case = make_case(seed, seconds=SECONDS)
    outcome = case.run().value
    # A guard against runs in which nothing happened, no measure of anything.
    assert outcome.operations["ok"] > 0
    assert outcome.messages > 500


def test_a_seed_hangs_on_nothing_else_in_the_process() -> None:
    """JEP-140: the same digest twice, and in another interpreter with another hash seed."""
    first, second = (make_case(7, seconds=SECONDS).run() for _ in range(2))
    assert first.trace == second.trace
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DIGEST],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[-1] == first.trace.digest
