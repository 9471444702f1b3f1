"""The L2 simulation of a cluster: many seeds, the same seed twice, and what a seed can show."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from kraftpy.metadata import records as r
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.features import ELIGIBLE_LEADER_REPLICAS
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kraftpy.protocol.ids import Uuid
from kraftpy.sim.cluster_rules import ClusterRules
from kraftpy.sim.cluster_run import main
from kraftpy.sim.cluster_simulation import ClusterSimulation, run_cluster
from kraftpy.sim.cluster_swarm import ClusterSwarm, Wish
from kraftpy.sim.quorum_invariants import InvariantViolated
from kraftpy.sim.quorum_swarm import Fault, QuorumSwarm

# 100 seeds of 8,000 events: about a minute of one core, spread over the workers.
GROUPS = 25
SEEDS_IN_GROUP = 4
EVENTS = 8_000


@pytest.mark.parametrize("group", range(GROUPS))
def test_seeds_keep_every_invariant(group: int) -> None:
    """Invariants 1 to 9 of testing.md 7.8 after every event, order after the heal"""
    first = 50_000 + group * SEEDS_IN_GROUP
    runs = [run_cluster(seed, EVENTS) for seed in range(first, first + SEEDS_IN_GROUP)]
    assert all(run.event_count >= EVENTS for run in runs)
    assert sum(run.topics_created for run in runs) > 0
    assert sum(run.partition_changes for run in runs) > 20


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = (run_cluster(3, 2_000) for _ in range(2))
    assert first == second
    assert run_cluster(4, 2_000).trace.digest != first.trace.digest


def test_a_seed_hangs_on_nothing_else_in_the_process() -> None:
    """Another interpreter with another hash seed"""
    script = (
        "from kraftpy.sim.cluster_simulation import run_cluster;"
        "print(run_cluster(3, 2_000).trace.digest)"
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
    assert done.stdout.strip() == run_cluster(3, 2_000).trace.digest


def test_every_fault_wish_and_size_is_drawn() -> None:
    swarms = [ClusterSimulation(seed).swarm for seed in range(150)]
    drawn = {fault for swarm in swarms for fault in swarm.quorum.faults}
    assert drawn == set(Fault) - {Fault.CHANGE_VOTERS, Fault.LOSE_DISK}
    assert {wish for swarm in swarms for wish in swarm.wishes} == set(Wish)
    assert {swarm.quorum.voters for swarm in swarms} == {1, 3, 5}
    assert {swarm.has_elr for swarm in swarms} == {True, False}


def run_for(simulation: ClusterSimulation, seconds: float) -> None:
    end_us = simulation.heap.now_us + int(seconds * 1e6)
    while simulation.heap.now_us < end_us:
        simulation._run_event()


def calm_cluster(seed: int, brokers: int = 3) -> ClusterSimulation:
    """Three controllers and some brokers that have come up, and nobody who asks for anything."""
    quorum = QuorumSwarm(voters=3, observers=brokers, dynamic=False, evidence=1.0)
    swarm = ClusterSwarm(quorum, brokers=brokers, session_timeout_ms=9_000)
    simulation = ClusterSimulation(seed, swarm)
    for node in simulation.network.nodes.values():
        node.start()
    for broker in simulation.brokers.values():
        broker.is_calm = True
    run_for(simulation, 5)
    return simulation


def unfenced(simulation: ClusterSimulation) -> list[int]:
    simulation.truth.advance()
    brokers = simulation.truth.image.brokers.values()
    return [broker.broker_id for broker in brokers if not broker.fenced]


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_broker_is_fenced_within_a_second(seed: int) -> None:
    """Decision 14: its connection broke, and its port refuses; the session would last nine"""
    simulation = calm_cluster(seed)
    assert unfenced(simulation) == [4, 5, 6]
    simulation.network.nodes[5].crash(kept_promises=1.0, kept_log=1.0)
    run_for(simulation, 1)
    assert unfenced(simulation) == [4, 6]


@pytest.mark.parametrize("seed", range(3))
def test_a_paused_broker_keeps_its_session_to_the_end(seed: int) -> None:
    """Decision 14: silence is no evidence"""
    simulation = calm_cluster(seed)
    simulation.network.nodes[5].paused = True
    run_for(simulation, 8)
    assert unfenced(simulation) == [4, 5, 6]
    run_for(simulation, 4)
    assert unfenced(simulation) == [4, 6]


def test_a_broker_that_asks_to_stop_may_and_comes_back() -> None:
    simulation = calm_cluster(1)
    broker = simulation.brokers[5]
    epoch = broker.broker_epoch
    broker.wants_to_stop = True
    run_for(simulation, 15)
    assert unfenced(simulation) == [4, 5, 6]
    assert broker.broker_epoch > epoch
    assert not simulation.truth.rules.is_unclean[5, broker.incarnation_id]


def test_a_failure_names_the_command_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(ClusterSimulation, "_heal", broken)
    with pytest.raises(RuntimeError) as caught:
        run_cluster(77, 300)
    assert any(
        "python -m kraftpy.sim.cluster_run --seed 77 --events 300" in note
        for note in caught.value.__notes__
    )


def test_the_command_prints_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "5", "--count", "2", "--events", "500", "--window", "10:13"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("seed ")]) == 2
    assert len(lines) == 2 + 1 + 2 * 3
    assert "2 seeds" in lines[-1]


# The rules themselves, one by one.

TOPIC_ID = Uuid(b"t" * 16)


def broker(broker_id: int, *, fenced: bool = False) -> r.RegisterBrokerRecord:
    return r.RegisterBrokerRecord(broker_id, Uuid(b"i" * 16), 10 + broker_id, (), fenced=fenced)


def partition(**fields: object) -> r.PartitionRecord:
    given = {"replicas": (1, 2, 3), "isr": (1, 2, 3), "leader": 1, **fields}
    return r.PartitionRecord(partition_id=0, topic_id=TOPIC_ID, **given)  # type: ignore[arg-type]


def image_of(*records: r.MetadataRecord) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in records:
        delta.replay(record)
    return delta.apply(Provenance(1, 1, 1))


def judge(
    before: r.PartitionRecord | None, after: r.PartitionRecord, *others: r.MetadataRecord
) -> str:
    """The code of the rule that a step from one state of a partition to another breaks."""
    rules = ClusterRules(allows_unclean=False)
    base: list[r.MetadataRecord] = list(others) or [broker(1), broker(2), broker(3)]
    base.append(r.TopicRecord("t", TOPIC_ID))
    old = image_of(*base, *([] if before is None else [before]))
    try:
        rules.check(ImageChanges(old, image_of(*base, after)))
    except InvariantViolated as violation:
        return violation.code
    return ""


ELR = r.FeatureLevelRecord(ELIGIBLE_LEADER_REPLICAS, 1)
THERE = (broker(1), broker(2), broker(3))


@pytest.mark.parametrize(
    ("before", "after", "others", "code"),
    [
        (None, partition(), (), ""),
        (None, partition(isr=(1, 4)), (), "outside-replicas"),
        (None, partition(isr=(1, 1)), (), "member-twice"),
        (None, partition(isr=(2, 3)), (), "leader-outside-isr"),
        (None, partition(isr=(), leader=-1), (), "empty-isr"),
        (None, partition(isr=(), leader=-1), (*THERE, ELR), ""),
        (None, partition(isr=(1,), eligible_leader_replicas=(2,)), (), "elr-without-feature"),
        (None, partition(eligible_leader_replicas=(1,)), (*THERE, ELR), "isr-and-elr"),
        (
            None,
            partition(isr=(1,), eligible_leader_replicas=(2,)),
            (*THERE, ELR),
            "elr-beside-isr",
        ),
        (
            None,
            partition(isr=(1,), eligible_leader_replicas=(2,)),
            (*THERE, ELR, r.ConfigRecord(4, "", "min.insync.replicas", "2")),
            "",
        ),
        (None, partition(), (broker(1, fenced=True), broker(2), broker(3)), "leader-absent"),
        (None, partition(), (broker(1), broker(2), broker(3, fenced=True)), "absent-in-isr"),
        (None, partition(isr=(1,), leader=-1), (broker(1, fenced=True),), ""),
        (None, partition(isr=(1,), leader=-1), (broker(1, fenced=True), ELR), "absent-in-isr"),
        (partition(), partition(isr=(1, 2), partition_epoch=1), (), ""),
        (partition(), partition(isr=(1, 2)), (), "epoch-falls"),
        (
            partition(leader_epoch=2),
            partition(leader_epoch=1, partition_epoch=1),
            (),
            "epoch-falls",
        ),
        (
            partition(),
            partition(replicas=(1, 2), isr=(1, 2), partition_epoch=1),
            (),
            "epoch-after-removal",
        ),
        (
            partition(isr=(1, 2)),
            partition(leader=3, isr=(3,), leader_epoch=1, partition_epoch=1),
            (),
            "unclean-unmarked",
        ),
        (
            partition(isr=(1, 2)),
            partition(
                leader=3, isr=(3,), leader_epoch=1, partition_epoch=1, leader_recovery_state=1
            ),
            (),
            "unclean-uncalled",
        ),
        (
            partition(isr=(1,), leader=1),
            partition(isr=(1,), leader=1, eligible_leader_replicas=(2,), partition_epoch=1),
            (*THERE, ELR, r.ConfigRecord(4, "", "min.insync.replicas", "2")),
            "elr-invented",
        ),
        (
            partition(isr=(1, 2), removing_replicas=(1,), adding_replicas=(3,)),
            partition(replicas=(2, 3), isr=(2,), leader=2, leader_epoch=1, partition_epoch=1),
            (),
            "move-ends-early",
        ),
        (
            partition(isr=(1, 2), removing_replicas=(1,), adding_replicas=(3,)),
            partition(replicas=(2, 3), isr=(2, 3), leader=2, leader_epoch=1, partition_epoch=1),
            (),
            "",
        ),
    ],
)
def test_each_rule_about_partitions(
    before: r.PartitionRecord | None,
    after: r.PartitionRecord,
    others: tuple[r.MetadataRecord, ...],
    code: str,
) -> None:
    """Invariant 9: the checker itself"""
    assert judge(before, after, *others) == code


def test_an_epoch_has_one_leader_for_ever() -> None:
    rules = ClusterRules(allows_unclean=False)
    base = (*THERE, r.TopicRecord("t", TOPIC_ID))
    one = image_of(*base, partition())
    other = image_of(*base, partition(leader=2, partition_epoch=1))
    without = replace(one, topics=EMPTY_IMAGE.topics, topic_names=EMPTY_IMAGE.topic_names)
    rules.check(ImageChanges(without, one))
    with pytest.raises(InvariantViolated, match="leader-epoch"):
        rules.check(ImageChanges(one, other))
