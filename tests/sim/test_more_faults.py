"""Whole clusters with damaged logs and voters that come and go (N10, N12, N18 at level L3)."""

from __future__ import annotations

import pytest
from support.simulated_nodes import make_batch

from kraftpy.faults.language import FlipBits, RemoveVoter, StrayWrite
from kraftpy.sim.quorum_invariants import InvariantViolated
from kraftpy.sim.whole.more_faults import Voters, damage_log, draw_more_faults
from kraftpy.sim.whole.run import WholeCase, make_case
from kraftpy.sim.whole.schedule import PlannedFault
from kraftpy.sim.whole.swarm import MORE_FAULTS, WholeSwarm, draw_more, draw_swarm
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_rng import MemoryRng

SEED = 154


def run(kind: str, *, seed: int = SEED, faults: tuple[str, ...] = ()) -> WholeCase:
    """Eight seconds of a plain world in which little else happens."""
    swarm = WholeSwarm(faults=faults, more_faults=(kind,), rate=20.0)
    case = make_case(seed, seconds=8, swarm=swarm)
    print(f"seed {seed}: {', '.join(map(str, case.plan))}")
    outcome = case.run().value
    assert outcome.operations["ok"] > 0
    return case


@pytest.mark.parametrize("kind", ["flip-bits", "stray-write"])
def test_a_damaged_log_costs_nobody_anything(kind: str) -> None:
    """JEP-154: all invariants hold, and the replica is as the others in the end."""
    case = run(kind)
    texts = [note.text for note in case.system.outcome.notes]
    assert any(" is wrong at " in text for text in texts), texts


def test_voters_come_and_go_while_nodes_are_killed() -> None:
    """JEP-107: AddRaftVoter and RemoveRaftVoter, under load and faults."""
    case = run("remove-voter", seed=3, faults=("kill",))
    texts = [note.text for note in case.system.outcome.notes]
    assert "votes no more" in texts
    assert "votes" in texts[texts.index("votes no more") :]


def test_a_voter_that_never_comes_back_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """JEP-107: whether the quorum is whole again is judged, too."""

    async def never(voters: Voters, node: int) -> None:
        pass

    monkeypatch.setattr(Voters, "bring_back", never)
    with pytest.raises(InvariantViolated, match=r"not-live: .*no other voters than"):
        run("remove-voter", seed=3, faults=("kill",))


@pytest.mark.parametrize("at", [3.94, 3.95, 3.96])
def test_a_removal_that_the_end_of_the_faults_cuts_off_is_undone(at: float) -> None:
    """JEP-107: around the moment in which the quorum has taken it and nobody was told."""
    swarm = WholeSwarm(faults=(), more_faults=("remove-voter",), rate=20.0)
    case = WholeCase(1, swarm, [PlannedFault(0, at, 3.0, RemoveVoter(3))], seconds=4)
    case.run()
    assert "votes" in [note.text for note in case.system.outcome.notes]


def test_every_world_may_have_them_and_others_stay_as_they_were() -> None:
    """JEP-146: drawn apart; nobody is taken out where a node stays behind."""
    seen = dict.fromkeys(MORE_FAULTS, 0)
    for seed in range(200):
        random = MemoryRng(seed, "whole")
        before = draw_swarm(random.stream("swarm"))
        swarm = draw_more(random.stream("more"), before)
        assert swarm.faults == before.faults
        for name in swarm.more_faults:
            seen[name] += 1
        if swarm.left_behind:
            assert "remove-voter" not in swarm.more_faults
        plan = draw_more_faults(random.stream("more faults"), swarm, 60, 100)
        assert bool(plan) <= bool(swarm.more_faults)
        assert [each.number for each in plan] == list(range(100, 100 + len(plan)))
        assert {each.fault.name for each in plan} <= set(swarm.more_faults)
    assert all(seen.values())


async def test_nothing_is_damaged_where_there_is_nothing() -> None:
    disk = MemoryDisk()
    assert damage_log(disk, FlipBits(1)) is None
    await disk.make_directory("/data/__transaction_state-0")
    await disk.make_directory("/data/t-0")
    for path in ("/data/__transaction_state-0/0.log", "/data/t-0/0.log"):
        disk.open(path, write=True, create=True).pwrite([b"no batch"], 0)
    assert damage_log(disk, StrayWrite(1)) is None


async def test_a_segment_that_was_closed_is_not_damaged() -> None:
    """Nobody looks there when a node starts: the log was rolled, and nothing came after."""
    disk = MemoryDisk()
    await disk.make_directory("/data/t-0")
    closed = disk.open("/data/t-0/00000000000000000000.log", write=True, create=True)
    closed.pwrite([make_batch(b"value", timestamp_ms=0)], 0)
    assert damage_log(disk, FlipBits(1)) is not None
    disk.open("/data/t-0/00000000000000000001.log", write=True, create=True)
    assert damage_log(disk, FlipBits(1)) is None
