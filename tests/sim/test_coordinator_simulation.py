"""Coordinators of groups and transactions under seeds (invariants 17 to 23 of testing.md 7.8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftpy.sim.coordinator_simulation import CoordinatorSimulation
from kraftpy.sim.coordinator_swarm import CoordinatorFault, CoordinatorSwarm

FIRST_SEED = 1
BLOCKS = 10
SEEDS_IN_A_BLOCK = 10
EVENTS = 400

MOVING = CoordinatorSwarm(
    classic=0,
    consumers=0,
    workers=3,
    faults=(CoordinatorFault.MOVE_WITH_LOSS, CoordinatorFault.ZOMBIE, CoordinatorFault.TWO_MOVES),
    nemesis_mean_us=400_000,
    late=0.05,
    duplication=0.1,
    transaction_timeout_ms=800,
)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_worlds(block: int) -> None:
    """GRP-86, CRT-19: a hundred worlds, each event checked; all come to rest in the end."""
    first = FIRST_SEED + block * SEEDS_IN_A_BLOCK
    for seed in range(first, first + SEEDS_IN_A_BLOCK):
        CoordinatorSimulation(seed).run(EVENTS)


def test_a_seed_is_one_run_only() -> None:
    """The digest covers every event and every answer."""
    first, again = (CoordinatorSimulation(9).run(EVENTS) for _ in range(2))
    assert first.trace == again.trace
    assert first.trace.digest != CoordinatorSimulation(10).run(EVENTS).trace.digest


def test_runs_are_not_empty() -> None:
    """A calm world in which everybody does something, so that rules have something to judge."""
    swarm = CoordinatorSwarm(classic=3, consumers=3, workers=2, unrest=0.02)
    run = CoordinatorSimulation(1, swarm).run(4_000)
    assert run.assignments >= 3
    assert min(run.commits, run.reads, run.transactions) >= 10


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_inputs_have_one_output_each_while_coordinators_move(seed: int, version: int) -> None:
    """F1, F12, F14: late and doubled requests, and leaders that lose what was not committed.

    Late requests of version 1 are left out: they do end transactions that are not their own, which
    is what version 2 is for (KAFKA-17754).
    """
    run = CoordinatorSimulation(seed, replace(MOVING, worker_version=version)).run(1_000)
    assert run.moves > 5


@pytest.mark.parametrize("seed", range(4))
def test_a_coordinator_that_hears_late_answers_nothing_new(seed: int) -> None:
    """F10, F15, F16: leaders are replaced all the time, and hear of it after seconds."""
    swarm = CoordinatorSwarm(
        classic=3,
        consumers=3,
        faults=(CoordinatorFault.ZOMBIE,),
        nemesis_mean_us=500_000,
        feed_mean_us=200_000,
        late=0.1,
    )
    run = CoordinatorSimulation(seed, swarm).run(1_000)
    assert run.moves > 5
    assert run.commits > 3
