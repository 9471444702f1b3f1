"""The price of a step of each simulation, in calls of functions (JEP-150)."""

from __future__ import annotations

import pytest
from simulation_costs import PYTHON, RUNS, calls_of_a_step, recorded, verdict


@pytest.mark.parametrize("name", RUNS)
def test_a_step_takes_as_many_calls_as_recorded(name: str) -> None:
    """JEP-150: a fifth more is a regression, a fifth less is to be written down."""
    figures = recorded()
    if figures is None:
        pytest.skip(f"not part of a clone: how many calls it takes with Python {PYTHON}")
    assert verdict(name, calls_of_a_step(RUNS[name]), figures[name]) is None


def test_what_is_too_much_of_a_change() -> None:
    assert verdict("quorum", 120.0, 100.0) is None
    assert verdict("quorum", 80.0, 100.0) is None
    told = verdict("quorum", 120.1, 100.0)
    assert told is not None
    assert "120.1 calls, and took 100.0" in told
    assert verdict("quorum", 79.9, 100.0) is not None
