"""Each seeded bug is found by the seed that was recorded for it, as what it is.

That any 500 seeds find each is for `python tests/bugs/coordinator_bugs.py --first-seed N`.
"""

from __future__ import annotations

import json

import pytest
from coordinator_bugs import BUGS, SEEDS, run
from seeded_bugs import Bug, failure_of

RECORDED = json.loads(SEEDS.read_text())


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_simulation_finds(bug: Bug) -> None:
    recorded = RECORDED[bug.name]
    with bug.seeded():
        code = failure_of(run, recorded["seed"])
    assert code == recorded["code"], "shifted: python tests/bugs/coordinator_bugs.py --record"


@pytest.mark.parametrize("seed", sorted({each["seed"] for each in RECORDED.values()}))
def test_the_same_seed_is_clean_without_the_bug(seed: int) -> None:
    assert failure_of(run, seed) is None
