"""The order of trio's tasks in this suite: drawn from --trio-seed and the name of the test."""

from __future__ import annotations

from random import Random
from threading import Thread

import pytest
from trio._core import _run as trio_run


@pytest.mark.parametrize("_again", range(2))
def test_a_test_draws_what_its_seed_says(request: pytest.FixtureRequest, _again: int) -> None:
    expected = Random(f"{request.config.getoption('--trio-seed')} {request.node.nodeid}")
    assert [trio_run._r.random() for _ in range(3)] == [expected.random() for _ in range(3)]


def test_the_loop_of_another_thread_takes_nothing_from_it(request: pytest.FixtureRequest) -> None:
    expected = Random(f"{request.config.getoption('--trio-seed')} {request.node.nodeid}")
    other = Thread(target=trio_run._r.random)
    other.start()
    other.join()
    assert trio_run._r.random() == expected.random()
