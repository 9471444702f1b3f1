"""The L2 simulation of the quorum: many seeds, the same seed twice, and scenarios of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kraftpy.raft.roles import Leader
from kraftpy.sim.kernel import EventHeap
from kraftpy.sim.quorum_run import main
from kraftpy.sim.quorum_simulation import QuorumSimulation, run_quorum
from kraftpy.sim.quorum_swarm import Fault, QuorumSwarm

# 200 seeds of 20,000 events: some four minutes of one core, spread over the workers.
GROUPS = 50
SEEDS_IN_GROUP = 4
EVENTS = 20_000


@pytest.mark.parametrize("group", range(GROUPS))
def test_seeds_keep_every_invariant(group: int) -> None:
    """KRF-85 to KRF-93, KRF-95, KRF-96: invariants after every event, progress after the heal"""
    first = 10_000 + group * SEEDS_IN_GROUP
    for seed in range(first, first + SEEDS_IN_GROUP):
        run = run_quorum(seed, EVENTS)
        assert run.event_count >= EVENTS
        assert run.committed_end > 0


def test_the_same_seed_gives_the_same_run() -> None:
    """KRF-97"""
    first, second = (run_quorum(3, 3_000) for _ in range(2))
    assert first == second
    assert run_quorum(4, 3_000).trace.digest != first.trace.digest


def test_a_seed_hangs_on_nothing_else_in_the_process() -> None:
    """KRF-97: another interpreter with another hash seed"""
    script = (
        "from kraftpy.sim.quorum_simulation import run_quorum;"
        "print(run_quorum(3, 3_000).trace.digest)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == run_quorum(3, 3_000).trace.digest


def test_every_fault_strikes_and_every_size_is_drawn() -> None:
    swarms = [QuorumSimulation(seed).swarm for seed in range(200)]
    drawn = {fault for swarm in swarms for fault in swarm.faults}
    assert drawn == set(Fault)
    assert {swarm.voters for swarm in swarms} == {1, 2, 3, 4, 5}


def elected(simulation: QuorumSimulation) -> list[tuple[int, int]]:
    return [
        (node.core.quorum.epoch, node.node_id)
        for node in simulation.network.nodes.values()
        if node.core is not None and isinstance(node.core.quorum.role, Leader)
    ]


def run_for(simulation: QuorumSimulation, seconds: float) -> None:
    end_us = simulation.heap.now_us + int(seconds * 1e6)
    while simulation.heap.now_us < end_us:
        simulation._run_event()


@pytest.mark.parametrize("seed", range(2))
def test_leadership_is_stable_under_a_partial_partition(seed: int) -> None:
    """KRF-94: A-C, B-D, C-D, C-E, D-E; without pre-votes, nodes without the leader unseat it"""
    simulation = QuorumSimulation(seed, QuorumSwarm(voters=5, proposal_mean_us=200_000))
    links = {(1, 3), (2, 4), (3, 4), (3, 5), (4, 5)}
    for one in range(1, 6):
        for other in range(1, 6):
            if one != other and (min(one, other), max(one, other)) not in links:
                simulation.network.cuts[one, other] = None
    for node in simulation.network.nodes.values():
        node.start()
    simulation._plan_proposal()
    run_for(simulation, 15)
    before = elected(simulation)
    assert len(before) == 1
    run_for(simulation, 30)
    assert elected(simulation) == before


@pytest.mark.parametrize("seed", range(10))
def test_the_first_election_takes_less_than_a_second(seed: int) -> None:
    """Decision 14: the quick first election"""
    simulation = QuorumSimulation(seed, QuorumSwarm(voters=3))
    for node in simulation.network.nodes.values():
        node.start()
    run_for(simulation, 0.5)
    assert len(elected(simulation)) == 1


@pytest.mark.parametrize("seed", range(10))
def test_a_quorum_that_went_down_as_a_whole_is_soon_led_again(seed: int) -> None:
    """Sooner than any election timeout: the old leader does not sit out a time of its own."""
    simulation = QuorumSimulation(seed, QuorumSwarm(voters=3))
    nodes = simulation.network.nodes.values()
    for node in nodes:
        node.start()
    run_for(simulation, 1)
    ((epoch, _),) = elected(simulation)
    for node in nodes:
        node.crash(kept_promises=1.0, kept_log=1.0)
    for node in nodes:
        node.start()
    run_for(simulation, 0.9)
    assert [found > epoch for found, _ in elected(simulation)] == [True]


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_leader_is_replaced_within_a_second(seed: int) -> None:
    """Decision 14: a dead leader with evidence"""
    simulation = QuorumSimulation(seed, QuorumSwarm(voters=3, evidence=1.0))
    for node in simulation.network.nodes.values():
        node.start()
    run_for(simulation, 1)
    ((epoch, leader_id),) = elected(simulation)
    simulation.network.nodes[leader_id].crash(kept_promises=0.0, kept_log=0.0)
    for node in simulation.network.nodes.values():
        simulation.network.report_death(leader_id, node)
    run_for(simulation, 0.8)
    ((new_epoch, new_leader),) = elected(simulation)
    assert new_epoch > epoch
    assert new_leader != leader_id


def test_a_failure_names_the_command_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(QuorumSimulation, "_heal", broken)
    with pytest.raises(RuntimeError) as caught:
        run_quorum(77, 300)
    assert any(
        "python -m kraftpy.sim.quorum_run --seed 77 --events 300" in note
        for note in caught.value.__notes__
    )


def test_the_command_prints_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "5", "--count", "2", "--events", "500", "--window", "10:13"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("seed ")]) == 2
    assert len(lines) == 2 + 1 + 2 * 3
    assert "2 seeds" in lines[-1]


def test_events_run_by_time_and_then_by_plan() -> None:
    heap = EventHeap()
    ran: list[str] = []
    for delay_us, name in ((5, "c"), (1, "a"), (5, "d"), (1, "b")):
        heap.plan(delay_us, lambda name=name: ran.append(name))  # type: ignore[misc]
    while heap.run_next():
        pass
    assert ran == ["a", "b", "c", "d"]
    assert heap.now_us == 5
