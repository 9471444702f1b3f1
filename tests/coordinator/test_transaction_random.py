"""Random runs of coordinator, logs and producers: all or nothing, and nothing hangs."""

from __future__ import annotations

import pytest
from coordinator.transaction_world import simulate


@pytest.mark.parametrize("seed", range(8))
def test_version_2(seed: int) -> None:
    """F1, F12, T7 to T12: with late and repeated requests of all kinds."""
    world = simulate(seed, versions=(2, 2, 2))
    assert sum(wanted.outcome is True for wanted in world.wanted) > 3
    assert world.rig.leader_epoch > 10


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("seed", range(3))
def test_version_1(seed: int, level: int) -> None:
    """TXN-24, TXN-26; nothing comes late, which version 1 can't stand."""
    simulate(seed, versions=(0, 0, 0), level=level)


@pytest.mark.parametrize("seed", range(3))
def test_both(seed: int) -> None:
    """TV-2."""
    simulate(seed)
