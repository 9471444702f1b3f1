"""Partition states: derived from leaders, and the number of offline ones exact at any time."""

from __future__ import annotations

from random import Random

import pytest
from controller_runs import Life, broker, partition, topic_id
from hypothesis import given
from hypothesis import strategies as st
from metadata_sequences import RecordSource

from kraftpy.metadata import records as r
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.controller.partition_index import PartitionIndex
from kraftpy.metadata.controller.partition_states import PartitionState, PartitionStateMachine
from kraftpy.metadata.controller.transitions import PARTITION_PREDECESSORS, PARTITION_WAYS

BASE = (broker(1), broker(2), r.TopicRecord("a", topic_id(1)), r.TopicRecord("b", topic_id(2)))
NEW, ONLINE, OFFLINE, GONE = range(4)


def leader(topic: int, number: int, broker_id: int) -> r.PartitionChangeRecord:
    return r.PartitionChangeRecord(number, topic_id(topic), leader=broker_id)


def leaderless(topic: int, number: int) -> r.PartitionRecord:
    """A partition that never had a leader."""
    return r.PartitionRecord(number, topic_id(topic), (1, 2), (1, 2))


def test_states_and_legal_predecessors_are_those_of_the_specification() -> None:
    """CTL-118: four states, who may precede whom, and only legal steps on every way."""
    assert {state: set(PARTITION_PREDECESSORS[state]) for state in PartitionState} == {
        NEW: {GONE},
        ONLINE: {NEW, ONLINE, OFFLINE},
        OFFLINE: {NEW, ONLINE, OFFLINE},
        GONE: {OFFLINE},
    }
    for (start, end), way in PARTITION_WAYS.items():
        assert way[-1] is end
        for before, after in zip((start, *way), way, strict=False):
            assert before in PARTITION_PREDECESSORS[after], (start, end)
    # A topic's partitions go over Offline, so that counters see it.
    for state in (PartitionState.NEW, PartitionState.ONLINE):
        way = PARTITION_WAYS[state, PartitionState.NON_EXISTENT]
        assert way == (PartitionState.OFFLINE, PartitionState.NON_EXISTENT)


def test_a_partition_through_its_life() -> None:
    """CTL-124, CTL-34: absent, new, online, offline, and again."""
    life = Life(*BASE)
    machine = life.context.partition_states
    seen = [(machine.state(topic_id(1), 0), machine.offline_count)]
    for record in (
        leaderless(1, 0),
        leader(1, 0, 1),
        leader(1, 0, 2),
        leader(1, 0, -1),
        leader(1, 0, -1),
        r.PartitionChangeRecord(0, topic_id(1), isr=(1,)),
        leader(1, 0, 1),
        leader(1, 0, -1),
        r.RemoveTopicRecord(topic_id(1)),
    ):
        life.append(record)
        seen.append((machine.state(topic_id(1), 0), machine.offline_count))
    assert seen == [
        *((GONE, 0), (NEW, 0), (ONLINE, 0), (ONLINE, 0), (OFFLINE, 1), (OFFLINE, 1)),
        *((OFFLINE, 1), (ONLINE, 0), (OFFLINE, 1), (GONE, 0)),
    ]


def test_deleting_nets_to_zero_whatever_the_state() -> None:
    """CTL-35: an online, a new and an offline partition go, and one of another topic stays."""
    life = Life(*BASE, partition(1, 0, 1), leaderless(1, 1), partition(1, 2, 1), partition(2, 0, 1))
    life.append(leader(1, 2, -1), leader(2, 0, -1))
    assert life.context.partition_states.offline_count == 2
    life.append(r.RemoveTopicRecord(topic_id(1)))
    assert life.context.partition_states.offline_count == 1
    life.revert()
    assert life.context.partition_states.offline_count == 0


def test_to_bring_online_is_new_and_offline_ones_of_living_topics() -> None:
    """CTL-123, CTL-108: not online ones, not those of a removed topic."""
    life = Life(*BASE, partition(1, 0, 1), leaderless(1, 1), partition(1, 2, 1), leaderless(2, 0))
    life.append(leader(1, 2, -1))
    machine = life.context.partition_states

    def waiting(topic: str | None = None) -> list[tuple[str, int]]:
        return [(found.name, each.partition_id) for found, each in machine.to_bring_online(topic)]

    assert waiting() == [("a", 1), ("a", 2), ("b", 0)]
    assert waiting("a") == [("a", 1), ("a", 2)]
    assert waiting("nobody's") == []
    life.append(r.RemoveTopicRecord(topic_id(1)))
    assert waiting() == [("b", 0)]
    assert waiting("a") == []


def test_unclean_elections_are_counted() -> None:
    """CTL-126: a leader from outside the ISR and the eligible replicas, once for each."""
    life = Life(*BASE, partition(1, 0, 1, 2))
    machine = life.context.partition_states
    life.append(leader(1, 0, 2))
    life.append(r.PartitionChangeRecord(0, topic_id(1), isr=(2,), leader=-1))
    assert machine.unclean_election_count == 0
    life.commit()
    life.append(r.PartitionChangeRecord(0, topic_id(1), isr=(1,), leader=1))
    assert machine.unclean_election_count == 1
    life.revert()
    assert machine.unclean_election_count == 0
    life.append(r.PartitionChangeRecord(0, topic_id(1), isr=(), eligible_leader_replicas=(1,)))
    life.append(r.PartitionChangeRecord(0, topic_id(1), isr=(1,), leader=1))
    assert machine.unclean_election_count == 0


def test_an_illegal_move_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """CTL-118: leader epochs only grow, so no record does this; a wrong image might."""
    before, after = Life(*BASE, partition(1, 0, 1)), Life(*BASE, leaderless(1, 0))
    machine = PartitionStateMachine(PartitionIndex())
    machine.update(ImageChanges(before.images[0], before.context.image))
    machine.update(ImageChanges(before.context.image, after.context.image))
    assert [each.getMessage() for each in caplog.records] == [
        f"offset {after.offset}: partition a-0 can't go from ONLINE to NEW"
    ]
    assert machine.offline_count == 0


@given(seed=st.integers(0, 1 << 32))
def test_states_and_count_equal_a_look_at_the_whole_image(seed: int) -> None:
    """CTL-124, CTL-34: after each step, forward and back."""
    random = Random(seed)
    source, life = RecordSource(random, transactions=False), Life()
    for step in range(81):
        if step == 80:
            life.revert()
        else:
            life.append(next(source))
        if random.random() < 0.1:
            life.commit(random.randrange(4))
        machine, offline = life.context.partition_states, 0
        for topic in life.context.image.topics.values():
            for each in topic.partitions:
                state = machine.state(topic.topic_id, each.partition_id)
                assert (state == ONLINE) is (each.leader >= 0)
                assert state != GONE
                offline += each.leader == -1 and each.leader_epoch > 0
            assert machine.state(topic.topic_id, len(topic.partitions)) == GONE
        assert machine.offline_count == offline
