"""When faults strike: drawn from the seed alone, often enough, and with times to recover."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from statistics import mean

import pytest

from jepsen_tests.nemeses.schedule import (
    LONGEST_SECONDS,
    MEAN_SECONDS,
    PERIOD_SECONDS,
    Window,
    draw_schedule,
    flip_flop,
    rotation,
)

SEEDS = range(40)
NAMES = ["partition", "kill", "pause", "clock", "slow-disk"]


@pytest.mark.parametrize("seconds", [5.0, 20.0, 60.0, 600.0])
def test_the_same_seed_gives_the_same_schedule(seconds: float) -> None:
    first, again, other = (draw_schedule(Random(seed), NAMES, seconds) for seed in (7, 7, 8))
    assert first == again
    assert first != other


@pytest.mark.parametrize("seconds", [5.0, 20.0, 60.0, 300.0])
def test_a_kind_strikes_at_least_twice_within_the_run_and_not_twice_at_a_time(
    seconds: float,
) -> None:
    """The least that counts as a trial (section 3.9)."""
    for seed in SEEDS:
        windows = flip_flop(Random(seed), "kill", seconds)
        assert len(windows) >= 2
        assert all(0 < window.start < window.end < seconds for window in windows)
        assert all(a.end < b.start for a, b in pairwise(windows))


def test_times_on_and_off_are_exponential() -> None:
    """Section 5.3: a mean of 10 to 15 s, many short ones, a few long ones."""
    windows = flip_flop(Random(1), "kill", 100_000)
    lengths = [window.end - window.start for window in windows]
    pauses = [b.start - a.end for a, b in pairwise(windows)]
    for found in (lengths, pauses):
        assert 10 < mean(found) < 15
        assert sum(each < MEAN_SECONDS / 2 for each in found) > len(found) / 4
        assert sum(each > 2 * MEAN_SECONDS for each in found) > len(found) / 20
        assert max(found) <= LONGEST_SECONDS


def test_several_kinds_overlap() -> None:
    windows = draw_schedule(Random(3), ["partition", "kill"], 120)
    assert {window.name for window in windows} == {"partition", "kill"}
    assert any(_overlap(a, b) for a in windows for b in windows if a.name < b.name)


def test_long_runs_rotate_with_calm_periods() -> None:
    """JEP-128: some kinds in each period, none in a quarter of them; every kind has its turn."""
    calm = periods = 0
    for seed in SEEDS:
        windows = rotation(Random(seed), NAMES, 900)
        assert {window.name for window in windows} == set(NAMES)
        for number in range(30):
            start = number * PERIOD_SECONDS
            inside = [each for each in windows if start <= each.start < start + PERIOD_SECONDS]
            assert all(each.end < start + PERIOD_SECONDS for each in inside)
            assert len({each.name for each in inside}) <= 3
            periods += 1
            calm += not inside
    assert 0.2 < calm / periods < 0.3


def test_long_runs_of_one_kind_need_no_rotation() -> None:
    assert draw_schedule(Random(1), ["kill"], 900) == flip_flop(Random(1), "kill", 900)


def _overlap(a: Window, b: Window) -> bool:
    return a.start < b.end and b.start < a.end
