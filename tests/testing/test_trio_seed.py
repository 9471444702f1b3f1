"""The order of trio's tasks in this suite: drawn from --trio-seed and the name of the test."""

from __future__ import annotations

from random import Random

import pytest
from trio._core import _run as trio_run


@pytest.mark.parametrize("_again", range(2))
def test_a_test_begins_with_the_state_of_its_seed(
    request: pytest.FixtureRequest, _again: int
) -> None:
    seed = f"{request.config.getoption('--trio-seed')} {request.node.nodeid}"
    assert trio_run._r.getstate() == Random(seed).getstate()
