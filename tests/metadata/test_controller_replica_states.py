"""Replica states: derived ones equal an explicit machine's, and illegal moves aren't followed."""

from __future__ import annotations

from copy import deepcopy
from random import Random

import pytest
from controller_runs import (
    GONE,
    INELIGIBLE,
    LEGAL,
    NEW,
    OFFLINE,
    ONLINE,
    STARTED,
    SUCCESSFUL,
    ClusterSource,
    ExplicitRun,
    Life,
    broker,
    directory,
    led_along,
    partition,
    topic_id,
)
from hypothesis import given
from hypothesis import strategies as st
from metadata_sequences import RecordSource

from kraftpy.metadata import records as r
from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.leader_and_isr import leader_and_isr_changes
from kraftpy.metadata.controller.replica_states import has_online_directory
from kraftpy.metadata.controller.transitions import (
    REPLICA_PREDECESSORS,
    REPLICA_WAYS,
    ReplicaState,
)

BROKERS = (broker(1), broker(2), broker(3), broker(4))
TOPIC = (r.TopicRecord("orders", topic_id(1)), partition(1, 0, 1, 2, 3))


def fence(broker_id: int, epoch: int = 10) -> r.BrokerRegistrationChangeRecord:
    return r.BrokerRegistrationChangeRecord(broker_id, epoch, fenced=1)


def unfence(broker_id: int, epoch: int = 10) -> r.BrokerRegistrationChangeRecord:
    return r.BrokerRegistrationChangeRecord(broker_id, epoch, fenced=-1)


def adding(broker_id: int, **fields: object) -> r.PartitionChangeRecord:
    """Partition 0 of the topic gets a replica more, by a reassignment."""
    places = tuple(directory(each * 2) for each in (1, 2, 3, broker_id))
    values = {"replicas": (1, 2, 3, broker_id), "adding_replicas": (broker_id,)} | fields
    return r.PartitionChangeRecord(0, topic_id(1), directories=places, **values)  # type: ignore[arg-type]


def without(*replicas: int) -> r.PartitionChangeRecord:
    """Partition 0 of the topic keeps these replicas only."""
    places = tuple(directory(each * 2) for each in replicas)
    return r.PartitionChangeRecord(
        *(0, topic_id(1), replicas),
        replicas=replicas,
        directories=places,
        adding_replicas=(),
        removing_replicas=(),
    )


def test_states_and_legal_predecessors_are_those_of_the_specification() -> None:
    """CTL-110: seven states with their values, and who may precede whom."""
    assert {state: set(REPLICA_PREDECESSORS[state]) for state in ReplicaState} == LEGAL
    assert [state.value for state in ReplicaState] == list(range(1, 8))


def test_every_way_is_made_of_legal_steps() -> None:
    """CTL-110: no way hides an illegal step, and it ends where it says."""
    for (start, end), way in REPLICA_WAYS.items():
        assert way[-1] is end
        for before, after in zip((start, *way), way, strict=False):
            assert before in REPLICA_PREDECESSORS[after], (start, end)
    for illegal in ((STARTED, ONLINE), (ONLINE, NEW), (OFFLINE, NEW), (GONE, STARTED)):
        assert illegal not in REPLICA_WAYS


def test_unknown_replicas_do_not_exist() -> None:
    """CTL-111."""
    life = Life(*BROKERS, *TOPIC)
    assert life.state(1, 0, 4) == life.state(1, 7, 1) == life.state(9, 0, 1) == GONE


def test_new_until_the_broker_has_replayed_its_creation() -> None:
    """NonExistent, New, Online; on a standby nobody acknowledges, and nothing is New."""
    life = Life(*BROKERS)
    life.activate()
    life.append(*TOPIC)
    life.commit()
    assert [life.state(1, 0, each) for each in (1, 2, 3)] == [NEW] * 3
    life.context.replica_states.acknowledge(1, life.offset - 1)
    assert life.state(1, 0, 1) == NEW
    life.context.replica_states.acknowledge(1, life.offset)
    assert [life.state(1, 0, each) for each in (1, 2, 3)] == [ONLINE, NEW, NEW]
    life.context.replica_states.forget_acknowledgements(None)
    assert [life.state(1, 0, each) for each in (1, 2, 3)] == [ONLINE] * 3


def test_an_added_replica_is_new_until_it_is_in_the_isr_and_acknowledged() -> None:
    life = Life(*BROKERS, *TOPIC)
    life.activate()
    life.append(adding(4))
    life.commit()
    life.context.replica_states.acknowledge(4, life.offset)
    assert life.state(1, 0, 4) == NEW
    life.append(r.PartitionChangeRecord(0, topic_id(1), isr=(1, 2, 3, 4)))
    assert life.state(1, 0, 4) == ONLINE


def test_after_a_failover_new_is_what_the_image_says() -> None:
    """A controller that has just become active knows no acknowledgements."""
    life = Life(*BROKERS, *TOPIC, adding(4))
    life.activate()
    assert [life.state(1, 0, each) for each in (1, 4)] == [ONLINE, NEW]


def test_what_went_offline_comes_back_online_and_never_new() -> None:
    life = Life(*BROKERS, *TOPIC)
    life.activate()
    life.append(adding(4))
    life.append(fence(4))
    assert life.state(1, 0, 4) == OFFLINE
    life.append(unfence(4))
    assert life.state(1, 0, 4) == ONLINE


def test_a_replica_that_moves_to_a_failed_directory_and_away_is_not_new() -> None:
    """Its broker says where a replica lies; this is no change of the broker."""
    life = Life(*BROKERS)
    life.activate()
    life.append(*TOPIC)
    for place, expected in ((r.DIRECTORY_LOST, OFFLINE), (directory(2), ONLINE)):
        places = (place, directory(4), directory(6))
        life.append(r.PartitionChangeRecord(0, topic_id(1), directories=places))
        assert life.state(1, 0, 1) == expected


def test_offline_by_every_reason() -> None:
    """Fenced, shutting down, unregistered, or on a failed directory: CTL-32's counterpart."""
    for record in (
        fence(2),
        r.FenceBrokerRecord(2, 10),
        r.BrokerRegistrationChangeRecord(2, 10, in_controlled_shutdown=True),
        r.UnregisterBrokerRecord(2, 10),
        r.BrokerRegistrationChangeRecord(2, 10, log_dirs=(directory(5),)),
    ):
        life = Life(*BROKERS, *TOPIC)
        part = life.context.image.topics["orders"].partitions[0]
        assert life.context.replica_states.is_online(part, 2)
        life.append(record)
        assert life.state(1, 0, 2) == OFFLINE
        assert not life.context.replica_states.is_online(part, 2)
        assert life.context.replica_states.is_online(part, 1)


def test_directories_that_count_as_online() -> None:
    """KRF 15: unassigned and migrating do, lost doesn't; none registered judges nothing."""
    part = partition(1, 0, 2)
    for place, expected in (
        (r.DIRECTORY_UNASSIGNED, True),
        (r.DIRECTORY_MIGRATING, True),
        (r.DIRECTORY_LOST, False),
        (directory(4), True),
        (directory(99), False),
    ):
        placed = part.changed_by(
            r.PartitionChangeRecord(0, part.topic_id, directories=(place,), leader=2)
        )
        assert has_online_directory(broker(2), placed) is expected
    old = r.RegisterBrokerRecord(2, topic_id(9), 1, ())
    assert has_online_directory(old, part)
    lost = part.changed_by(
        r.PartitionChangeRecord(0, part.topic_id, directories=(r.DIRECTORY_LOST,), leader=2)
    )
    assert not has_online_directory(old, lost)
    assert not has_online_directory(broker(3), part)


def test_a_removed_replica_is_deleted_when_its_broker_has_replayed_that() -> None:
    """CTL-116: Online, Offline, Started, Successful, NonExistent."""
    life = Life(*BROKERS, *TOPIC)
    life.activate()
    life.append(without(1, 2))
    life.commit()
    assert life.state(1, 0, 3) == STARTED
    life.append(fence(3))
    assert life.state(1, 0, 3) == INELIGIBLE
    life.append(unfence(3))
    assert life.state(1, 0, 3) == STARTED
    life.context.replica_states.acknowledge(3, life.offset - 2)
    assert life.state(1, 0, 3) == GONE


def test_removed_from_a_failed_directory_or_a_broker_that_is_gone() -> None:
    life = Life(*BROKERS, *TOPIC)
    life.append(without(1, 2))
    life.append(r.BrokerRegistrationChangeRecord(3, 10, log_dirs=(directory(7),)))
    assert life.state(1, 0, 3) == INELIGIBLE
    life.append(r.UnregisterBrokerRecord(3, 10))
    assert life.state(1, 0, 3) == GONE
    life.append(r.UnregisterBrokerRecord(2, 10), without(1))
    assert life.state(1, 0, 2) == GONE


def test_a_removed_replica_that_comes_again_is_new() -> None:
    life = Life(*BROKERS, *TOPIC)
    life.activate()
    life.append(without(1, 2))
    life.append(
        r.PartitionChangeRecord(
            *(0, topic_id(1)),
            replicas=(1, 2, 3),
            directories=tuple(directory(each * 2) for each in (1, 2, 3)),
        )
    )
    assert life.state(1, 0, 3) == NEW
    assert life.context.replica_states._removed.on(3) == []
    life.commit()
    life.context.replica_states.acknowledge(3, life.offset)
    assert life.state(1, 0, 3) == ONLINE


def test_an_illegal_move_is_logged_once_and_not_followed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """CTL-110, 111: Online can't become New; another replica of the same record does move."""
    life = Life(*BROKERS, *TOPIC)
    life.append(adding(4, adding_replicas=(3, 4), isr=(1, 2)))
    assert [life.state(1, 0, each) for each in (3, 4)] == [ONLINE, NEW]
    life.append(r.PartitionChangeRecord(0, topic_id(1), leader=2))
    assert [each.getMessage() for each in caplog.records] == [
        f"offset {life.offset - 1}: the replica of orders-0 on broker 3 can't go from ONLINE to NEW"
    ]


def test_a_replica_being_added_that_leaves_the_isr_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """CTL-111: it was New once; that it is out of sync is no news for anybody to worry about."""
    life = Life(*BROKERS, *TOPIC)
    life.append(adding(4))
    assert life.state(1, 0, 4) == NEW
    for isr in ((1, 2, 3, 4), (1, 2, 3), (1, 2, 3, 4), (1, 2)):
        life.append(r.PartitionChangeRecord(0, topic_id(1), isr=isr))
        assert life.state(1, 0, 4) == ONLINE
    assert not caplog.records


def test_a_leader_can_not_become_new(caplog: pytest.LogCaptureFixture) -> None:
    """CTL-112: logged, and it is what the image says that it is: online."""
    life = Life(*BROKERS, *TOPIC)
    life.activate()
    life.append(adding(4, leader=4))
    assert life.state(1, 0, 4) == ONLINE
    assert len(caplog.records) == 1


def test_nobody_comes_online_who_is_not_assigned() -> None:
    """CTL-113 has no counterpart: the assignment is the record's, and nothing is appended to it.

    There is no New replica without an assignment to come from. A record that names another broker
    as in sync, or as the leader, makes it no replica; as the leader it is lost at the next change.
    """
    life = Life(*BROKERS, *TOPIC)
    life.activate()
    life.append(r.PartitionChangeRecord(0, topic_id(1), isr=(1, 2, 3, 4), leader=4))
    partition = life.context.image.partition(topic_id(1), 0)
    assert partition is not None
    assert partition.replicas == (1, 2, 3)
    assert life.state(1, 0, 4) == GONE
    assert not life.context.replica_states.is_online(partition, 4)
    life.commit()
    life.context.replica_states.acknowledge(4, life.offset)
    assert life.state(1, 0, 4) == GONE
    [record] = elected_anew(life, partition)
    assert record.leader == 1


def elected_anew(life: Life, partition: r.PartitionRecord) -> list[r.PartitionChangeRecord]:
    topic = life.context.image.topics["orders"]
    changes = leader_and_isr_changes(life.context, partitions=[(topic, partition)])
    return [change for change in changes if change is not None]


def test_going_back_restores_what_was_remembered(caplog: pytest.LogCaptureFixture) -> None:
    """CTL-36: with the records that are lost, everything that they caused is."""
    life = Life(*BROKERS, *TOPIC)
    life.activate()
    life.append(adding(4))
    life.commit()
    life.append(fence(4))
    life.append(unfence(4))
    life.append(without(1, 2))
    assert [life.state(1, 0, each) for each in (3, 4)] == [STARTED, STARTED]
    life.revert()
    assert [life.state(1, 0, each) for each in (3, 4)] == [ONLINE, NEW]
    assert not caplog.records


def test_what_was_acknowledged_stays_so_when_an_older_mark_returns() -> None:
    life = Life(*BROKERS)
    life.activate()
    life.append(*TOPIC)
    life.commit()
    life.append(fence(2))
    life.context.replica_states.acknowledge(2, life.offset - 1)
    life.revert()
    assert life.state(1, 0, 2) == ONLINE


@given(seed=st.integers(0, 1 << 32))
def test_derived_states_equal_an_explicit_run(seed: int) -> None:
    """CTL-117, CTL-36: with acknowledgements, failovers and records that are lost."""
    random = Random(seed)
    source, life, run = ClusterSource(random), Life(), ExplicitRun()
    stable, model = run.copy(), deepcopy(source.model)
    for step in range(120):
        event = random.randrange(12)
        if event == 0 and run.is_active:
            broker_id, offset = random.randrange(5), life.context.stable.provenance.last_offset
            life.context.replica_states.acknowledge(broker_id, offset)
            run.acknowledge(broker_id, offset)
            stable.acknowledge(broker_id, offset)
        elif event == 1:
            life.commit()
            stable, model = run.copy(), deepcopy(source.model)
        elif event == 2 and random.random() < 0.3:
            is_active = random.random() < 0.7
            life.revert()
            source.model = deepcopy(model)
            life.context.replica_states.forget_acknowledgements(life.offset if is_active else None)
            run = stable.copy()
            run.activate(is_active)
            stable = run.copy()
        else:
            record = next(source)
            life.append(record)
            run.replay(record, life.offset)
        compare(life, run, f"seed {seed}, step {step}")


def compare(life: Life, run: ExplicitRun, where: str) -> None:
    for (topic, number, broker_id), expected in run.states.items():
        found = life.context.replica_states.state(topic, number, broker_id)
        assert found == expected, f"{where}: {topic!r}-{number} on {broker_id}"


@given(seed=st.integers(0, 1 << 32))
def test_incremental_equals_led_along_the_surviving_images(seed: int) -> None:
    """Whatever was appended and lost, the states are those of a machine that never saw it.

    The records are any valid ones, sane or not.
    """
    random = Random(seed)
    source, life = RecordSource(random, transactions=False), Life()
    records = source.take(150)
    for record in records:
        life.append(record)
        if random.random() < 0.1:
            life.commit(random.randrange(4))
    for _ in range(2):
        reference = led_along(life.images)
        assert all_states(life.context, records) == all_states(reference, records)
        life.revert()


def all_states(context: ControllerContext, records: list[r.MetadataRecord]) -> list[ReplicaState]:
    topics = [record.topic_id for record in records if isinstance(record, r.TopicRecord)]
    machine = context.replica_states
    return [
        machine.state(topic, number, broker_id)
        for topic in topics
        for number in range(4)
        for broker_id in range(6)
    ]


@given(seed=st.integers(0, 1 << 32))
def test_every_move_has_a_way(seed: int) -> None:
    """CTL-110: what a record does to a replica is made of legal steps."""
    source, life = ClusterSource(Random(seed)), Life()
    states: dict[tuple[object, ...], int] = {}
    for step in range(100):
        record = next(source)
        life.append(record)
        for topic in range(1, source.topics + 1):
            for number in range(3):
                for broker_id in range(5):
                    key = (topic, number, broker_id)
                    after = life.state(*key)
                    before = states.get(key, GONE)
                    if before in (STARTED, INELIGIBLE) and after in (NEW, ONLINE, OFFLINE):
                        # Added again: the deletion ends first.
                        assert (before, GONE) in REPLICA_WAYS
                        before = GONE
                    is_legal = before == after or (before, after) in REPLICA_WAYS
                    assert is_legal, f"seed {seed}, step {step}: from {before} to {after}"
                    assert after != SUCCESSFUL
                    states[key] = after
