"""Each seeded bug is found by the seed that was recorded for it, as what it is.

That any 500 seeds find each is for `python tests/bugs/raft_bugs.py --first-seed N`.
"""

from __future__ import annotations

import pytest
from raft_bugs import BUGS, Bug, failure_of


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_simulation_finds(bug: Bug) -> None:
    with bug.seeded():
        assert failure_of(bug.seed) == bug.code


@pytest.mark.parametrize("seed", sorted({bug.seed for bug in BUGS}))
def test_the_same_seed_is_clean_without_the_bug(seed: int) -> None:
    assert failure_of(seed) is None
