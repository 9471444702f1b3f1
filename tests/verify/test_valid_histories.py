"""Histories that are right by construction are found to be right."""

from __future__ import annotations

import pytest
from verify.simulated_history import Draw, valid_history

from kraftpy.verify.checkers import Expectations, check

# Nobody asks these small histories whether they did enough.
JUDGED = Expectations(vacuity=None)


@pytest.mark.parametrize("transactional", [False, True])
def test_no_false_alarms(transactional: bool) -> None:
    """JEP-84: the originals of all mutants, and more of them, are clean."""
    for seed in range(150):
        draw = Draw(operations=30 + seed % 60, processes=2 + seed % 5, keys=1 + seed % 4)
        draw.transactional = transactional
        verdict = check(valid_history(draw, seed), JUDGED)
        assert verdict.state == "valid", (seed, verdict.bad)
