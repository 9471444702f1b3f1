"""Operations on many partitions leave the loop free: in parts, or in the steps of one batch.

`whole` and `in_twos` are active controllers on a log of one node; one that looks at two partitions
at once has more than one step to go for any of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from controller_core_rig import Rig
from test_controller_core_operations import broker, heartbeat, in_twos, many_partitions, whole

from kraftpy.metadata import records as r
from kraftpy.metadata.controller.result import Caller
from kraftpy.metadata.controller.settings import ControllerSettings
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.protocol.schema import k20_delete_topics as k20
from kraftpy.protocol.schema import k37_create_partitions as k37
from kraftpy.protocol.schema import k43_elect_leaders as k43
from kraftpy.protocol.schema import k56_alter_partition as k56
from kraftpy.sim.cluster_derived import check_derived

CALLER = Caller(3)
TOPIC_ID = Uuid(b"." * 15 + b"a")


def create(name: str, count: int) -> k19.CreateTopicsRequest:
    topic = k19.CreatableTopic(name=name, num_partitions=count, replication_factor=2)
    return k19.CreateTopicsRequest(topics=[topic])


def create_two(*names: str) -> k19.CreateTopicsRequest:
    topics = [topic for name in names for topic in create(name, 4).topics]
    return k19.CreateTopicsRequest(topics=topics)


def create_by_hand(name: str, count: int) -> k19.CreateTopicsRequest:
    assignments = [
        k19.CreatableReplicaAssignment(partition_index=number, broker_ids=[1, 3])
        for number in range(count)
    ]
    topic = k19.CreatableTopic(
        name=name, num_partitions=-1, replication_factor=-1, assignments=assignments
    )
    return k19.CreateTopicsRequest(topics=[topic])


def grow(name: str, count: int) -> k37.CreatePartitionsRequest:
    return k37.CreatePartitionsRequest(
        topics=[k37.CreatePartitionsTopic(name=name, count=count, assignments=None)]
    )


def delete(*names: str) -> k20.DeleteTopicsRequest:
    return k20.DeleteTopicsRequest(topic_names=list(names))


def shrink_isr(count: int) -> k56.AlterPartitionRequest:
    partitions = [
        k56.RequestPartitionData(
            partition_index=number,
            leader_epoch=5,
            new_isr_with_epochs=[k56.BrokerState(broker_id=1, broker_epoch=1)],
        )
        for number in range(count)
    ]
    # One that is not there, and one that comes twice, in the midst.
    partitions[3:3] = [k56.RequestPartitionData(partition_index=99), partitions[0]]
    topic = k56.RequestTopicData(topic_id=TOPIC_ID, partitions=partitions)
    return k56.AlterPartitionRequest(broker_id=1, broker_epoch=1, topics=[topic])


def elect(*partitions: int) -> k43.ElectLeadersRequest:
    topic = k43.TopicPartitions(topic="a", partitions=list(partitions))
    return k43.ElectLeadersRequest(election_type=0, topic_partitions=[topic])


def polls_of(rig: Rig, request: Any) -> int:
    """Submit, and poll until nothing is to be done; how many polls that took."""
    rig.submit(1, request, CALLER)
    count = 0
    while (due_ms := rig.controller.next_deadline_ms()) is not None and due_ms <= rig.now_ms:
        rig.poll()
        count += 1
    return count


def brokers() -> tuple[r.RegisterBrokerRecord, ...]:
    return broker(1), broker(3)


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize(
    ("records", "request_"),
    [
        (brokers(), create("b", 7)),
        (brokers(), create_by_hand("b", 7)),
        (
            brokers(),
            k19.CreateTopicsRequest(topics=[*create("b", 3).topics, *create("c", 4).topics]),
        ),
        ((*brokers(), *many_partitions(3)), grow("a", 9)),
        ((*brokers(), *many_partitions(7)), delete("a")),
        ((*brokers(), *many_partitions(7)), delete("a", "unknown", "b")),
    ],
    ids=["create", "by hand", "two topics", "grow", "delete", "delete two"],
)
def test_what_is_atomic_is_one_batch_in_many_steps(
    records: tuple[r.MetadataRecord, ...], request_: Any, size: int
) -> None:
    """The same records and answer as in one go."""

    def carry_out(at_once: int) -> tuple[int, Rig]:
        settings = ControllerSettings(1, "cluster", partitions_at_once=at_once)
        rig = whole(*records, settings=settings)
        rig.effects.clear()
        polls = polls_of(rig, request_)
        check_derived(1, rig.context)
        rig.commit()
        rig.run()
        check_derived(1, rig.context)
        return polls, rig

    polls, rig = carry_out(size)
    reference_polls, reference = carry_out(1_000_000)
    assert [each.records for each in rig.appended] == [each.records for each in reference.appended]
    assert len(rig.appended) == 1
    assert rig.answers == reference.answers
    assert len(rig.answers) == 1
    assert reference_polls == 1
    assert polls == 1 if size == 1000 else polls > 7 // size


@pytest.mark.parametrize("size", [2, 1000])
def test_isrs_are_changed_in_parts(size: int) -> None:
    settings = ControllerSettings(1, "cluster", partitions_at_once=size)
    rig = whole(*brokers(), *many_partitions(5), settings=settings)
    rig.effects.clear()
    polls_of(rig, shrink_isr(5))
    counts = [len(each.records) for each in rig.appended]
    assert counts == ([2, 1, 1, 1] if size == 2 else [5])
    rig.commit()
    rig.run()
    [(_, answer)] = rig.answers
    assert isinstance(answer, k56.AlterPartitionResponse)
    [topic] = answer.topics
    found = [
        (each.partition_index, ErrorCode(each.error_code), each.isr) for each in topic.partitions
    ]
    unknown, twice = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST
    changed = [(number, ErrorCode.NONE, [1]) for number in range(5)]
    changed[3:3] = [(99, unknown, []), (0, twice, [])]
    assert found == changed
    assert {each.isr for each in rig.context.stable.topics["a"].partitions} == {(1,)}


def test_leaders_are_elected_in_parts() -> None:
    rig = in_twos(broker(1), broker(3), *many_partitions(5, leader=3))
    polls_of(rig, elect(0, 1, 9, 2, 0, 3, 4))
    assert [len(each.records) for each in rig.appended] == [2, 1, 1, 1]
    rig.commit()
    rig.run()
    [(_, answer)] = rig.answers
    assert isinstance(answer, k43.ElectLeadersResponse)
    [topic] = answer.replica_election_results
    codes = [ErrorCode(each.error_code) for each in topic.partition_result]
    none = ErrorCode.NONE
    unknown, twice = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST
    assert codes == [none, none, unknown, none, twice, none, none]
    assert rig.context.partitions.led_count(1) == 5


def test_nobody_is_served_between_the_steps_of_a_batch() -> None:
    rig = in_twos(*brokers())
    rig.submit(1, create("b", 9), CALLER)
    rig.submit(2, heartbeat(3, offset=rig.end_offset - 1, want_fence=True), CALLER)
    while not rig.appended:
        assert rig.context.image.topics.get("b") is None
        rig.poll()
    # All of it is in the log, and what is derived from it has only begun to follow.
    assert len(rig.appended[0].records) == 10
    assert rig.context.partitions.partition_count < 9
    rig.run()
    assert rig.context.partitions.led_count(3) == 0
    assert rig.context.partitions.partition_count == 9
    check_derived(1, rig.context)


def polls_until_done() -> int:
    return polls_of(in_twos(*brokers()), create("b", 9))


def lose(rig: Rig) -> None:
    rig.controller.leadership_lost(2, rig.now_ms)


def follow_another(rig: Rig) -> None:
    rig.controller.leader_changed(3, 5, rig.now_ms)


@pytest.mark.parametrize("end", [lose, follow_another])
@pytest.mark.parametrize("polls", range(1, polls_until_done()))
def test_a_leadership_may_end_at_any_step(polls: int, end: Callable[[Rig], None]) -> None:
    """Memory is then what is committed, and the asker is told, once."""
    rig = in_twos(*brokers())
    before = rig.context.stable
    rig.submit(1, create("b", 9), CALLER)
    for _ in range(polls):
        rig.poll()
    end(rig)
    rig.truncate()
    rig.run()
    assert rig.refusals == [(1, ErrorCode.NOT_CONTROLLER)]
    assert rig.context.image is before
    check_derived(1, rig.context)
    # The next leadership finds everything in order.
    rig.lead(4)
    rig.run()
    polls_of(rig, create("b", 4))
    rig.commit()
    rig.run()
    assert rig.context.partitions.partition_count == 4
    check_derived(1, rig.context)


@pytest.mark.parametrize("polls", range(1, polls_until_done()))
def test_a_commit_may_come_at_any_step(polls: int) -> None:
    """An earlier one changes nothing that is under way, its own ends with the last step."""
    rig = in_twos(*brokers())
    polls_of(rig, create("a", 1))
    rig.submit(2, create("b", 9), CALLER)
    for _ in range(polls):
        rig.poll()
    rig.commit()
    rig.run()
    check_derived(1, rig.context)
    rig.commit()
    rig.run()
    assert [request_id for request_id, _ in rig.answers] == [1, 2]
    assert rig.context.image is rig.context.stable
    assert rig.context.partitions.partition_count == 10
    check_derived(1, rig.context)
    assert rig.fold() == rig.context.stable


def test_a_batch_has_its_place_where_the_log_ends_when_it_is_whole() -> None:
    """Raft may append records of its own between the steps."""
    rig = in_twos(*brokers())
    rig.submit(1, create("b", 9), CALLER)
    rig.poll()
    rig.append_control(2)
    rig.run()
    rig.commit()
    rig.run()
    assert [request_id for request_id, _ in rig.answers] == [1]
    assert rig.fold() == rig.context.stable


def test_too_many_records_are_refused_after_many_steps_as_well() -> None:
    rig = whole(*brokers(), settings=ControllerSettings(1, "cluster", partitions_at_once=5_000))
    rig.effects.clear()
    polls_of(rig, create("b", 10_000))
    assert rig.refusals == [(1, ErrorCode.POLICY_VIOLATION)]
    assert not rig.appended
    assert rig.controller.is_active
