"""Whole nodes in one simulated world: whatever befalls them, one seed is one run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from node_system import MISFORTUNES, run_nodes

SCRIPT = Path(__file__).with_name("node_system.py")
TESTS = SCRIPT.parents[1]


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_one_seed_is_one_run(seed: int) -> None:
    """JEP-140: twice in one process, where the second finds everything imported and generated."""
    first, second = run_nodes(seed), run_nodes(seed)
    assert first == second
    assert first.trace.event_count > 100 * MISFORTUNES
    assert first.trace.digest != run_nodes(seed + 100).trace.digest


def test_new_interpreters_and_other_hash_seeds_change_nothing() -> None:
    """JEP-140: no order of a set, of an id or of imports shows."""
    digests = [run_nodes(14).trace.digest]
    for hash_seed in ("0", "4711"):
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "14"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(TESTS)},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.append(done.stdout.strip())
    assert digests == digests[:1] * 3
