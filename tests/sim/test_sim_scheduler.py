"""JEP-138: the seeded scheduler adapter and its canary."""

from __future__ import annotations

from random import Random

import pytest
import trio
from trio._core import _run as trio_run

from kraftpy.sim import scheduler
from kraftpy.sim.scheduler import (
    RandomOfThisThread,
    UnsupportedTrio,
    require_deterministic_trio,
    schedule_trace,
    seeded_scheduler,
)


def trace_of(seed: int) -> tuple[tuple[int, int], ...]:
    with seeded_scheduler(Random(seed)):
        return trio.run(schedule_trace)


def test_canary_same_seed_same_schedule() -> None:
    """JEP-138."""
    assert len({trace_of(7) for _ in range(5)}) == 1


def test_canary_seeds_explore_schedules() -> None:
    """JEP-138: no two of twenty seeds give one order, and every order has every step."""
    traces = {trace_of(seed) for seed in range(20)}
    assert len(traces) == 20
    assert len({tuple(sorted(trace)) for trace in traces}) == 1


def test_trio_is_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    flag, random = trio_run._ALLOW_DETERMINISTIC_SCHEDULING, Random(2)
    # Other threads may have a loop that draws, too.
    monkeypatch.setattr(trio_run, "_r", RandomOfThisThread(random, Random(3)))
    before = trio_run._r
    with seeded_scheduler(Random(1)):
        assert trio_run._ALLOW_DETERMINISTIC_SCHEDULING
        assert trio_run._r.random() == Random(1).random()
    assert flag == trio_run._ALLOW_DETERMINISTIC_SCHEDULING
    assert trio_run._r is before
    assert random.getstate() == Random(2).getstate()


def test_an_old_trio_is_refused() -> None:
    with pytest.raises(UnsupportedTrio, match=r"0\.29\.0"):
        require_deterministic_trio("0.29.0")


def test_an_untried_trio_must_pass_the_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    require_deterministic_trio("0.99.0")
    # A trio that looks the same but shuffles with something else, so that seeds have no influence.
    monkeypatch.setattr(scheduler.RandomOfThisThread, "shuffle", lambda self, batch: None)
    with pytest.raises(UnsupportedTrio, match=r"0\.99\.0"):
        require_deterministic_trio("0.99.0")


@pytest.mark.parametrize("name", ["_ALLOW_DETERMINISTIC_SCHEDULING", "_r"])
def test_missing_private_names_give_a_clear_error(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delattr(trio_run, name)
    with pytest.raises(UnsupportedTrio, match=name):
        require_deterministic_trio()
