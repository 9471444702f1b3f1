"""Three whole nodes with their clients under one seed: nothing acknowledged is lost or repeated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from replicated_system import PARTITIONS, run_cluster

SCRIPT = Path(__file__).with_name("replicated_system.py")
SEEDS = 20


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_acknowledged_is_there(seed: int) -> None:
    """REP-123: a minute of kills, power cuts, partitions, pauses and stops, one node at a time."""
    result = run_cluster(seed)
    assert len(result.value) == PARTITIONS
    # A guard against runs in which nothing happened, no measure of anything.
    assert min(result.value.values()) > 50


def test_a_seed_hangs_on_nothing_else_in_the_process() -> None:
    """JEP-140: the same digest twice, and in another interpreter with another hash seed."""
    first, second = run_cluster(3), run_cluster(3)
    assert first == second
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "3"],
        env={**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": str(SCRIPT.parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[-1] == first.trace.digest
