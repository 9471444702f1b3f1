"""Logs on a disk that loses power, and requests on their way, under seeds (testing.md 7.8)."""

from __future__ import annotations

import pytest

from kraftpy.sim.levels import Size, find_level
from kraftpy.sim.server_simulation import ServerSimulation
from kraftpy.sim.storage_simulation import StorageSimulation

STEPS = 200
CONNECTIONS = 40


# Among them one that found something (docs/findings.md).
@pytest.mark.parametrize("seed", [*range(20), 161297825])
def test_logs_of_random_worlds(seed: int) -> None:
    """Invariants 14 and 20: nothing durable is lost, and readers see what was decided."""
    StorageSimulation(seed).run(STEPS)


def test_a_seed_of_a_disk_is_one_run_only() -> None:
    first, again = (StorageSimulation(3).run(100) for _ in range(2))
    assert first.trace == again.trace
    assert first.trace.digest != StorageSimulation(4).run(100).trace.digest


def test_runs_of_logs_are_not_empty() -> None:
    """They see restarts, and what was written survives some of them."""
    runs = [StorageSimulation(seed).run(STEPS) for seed in range(4)]
    assert sum(run.lives for run in runs) > 10
    assert sum(run.batches for run in runs) > 100
    assert sum(run.recovered for run in runs) > 100


@pytest.mark.parametrize("seed", range(15))
def test_requests_of_random_worlds(seed: int) -> None:
    """Invariant 24: no lost wake-up, no timer overdue, answers in order, connections counted."""
    run = ServerSimulation(seed).run(CONNECTIONS)
    assert run.answered > 10


def test_a_seed_of_a_server_is_one_run_only() -> None:
    first, again = (ServerSimulation(3).run(CONNECTIONS) for _ in range(2))
    assert first.trace == again.trace
    assert first.trace.digest != ServerSimulation(4).run(CONNECTIONS).trace.digest


@pytest.mark.parametrize("name", ["logs", "requests"])
def test_a_report_counts_what_happened_and_shows_it(name: str) -> None:
    reports = [find_level(name).run(seed, Size(events=10), range(2)) for seed in (3, 4)]
    assert all(report.steps > 10 and len(report.window) == 2 for report in reports)
    assert reports[0].digest != reports[1].digest
