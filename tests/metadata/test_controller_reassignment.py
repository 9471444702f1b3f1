"""Reassignment: starting, replacing, cancelling and listing moves, on a real timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from partition_cluster import Cluster, directory, placed, topic_id

from kraftpy.metadata import records as r
from kraftpy.metadata.controller import reassignment
from kraftpy.metadata.controller.alter_partition import AlterPartitionControl
from kraftpy.metadata.controller.reassignment import ReassignmentControl
from kraftpy.metadata.controller.result import Caller
from kraftpy.metadata.controller.transitions import ReplicaState
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kraftpy.protocol.schema.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from kraftpy.protocol.schema.k56_alter_partition import (
    AlterPartitionRequest,
    RequestPartitionData,
    RequestTopicData,
)

ASKER = Caller(api_version=1)
UNCLEAN = "unclean.leader.election.enable"

Targets = Mapping[int, Sequence[int] | None]


def reassign(
    cluster: Cluster, targets: Targets, *, topic: str = "t", may_resize: bool = True
) -> list[ErrorCode]:
    """Let it happen, and return the code of each partition."""
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_resize,
        topics=[
            ReassignableTopic(
                name=topic,
                partitions=[
                    ReassignablePartition(
                        partition_index=number, replicas=None if to is None else list(to)
                    )
                    for number, to in targets.items()
                ],
            )
        ],
    )
    result = ReassignmentControl(cluster.context).alter_reassignments(request, ASKER)
    assert result.answer.allow_replication_factor_change == may_resize
    assert result.answer.error_message is None
    cluster.happen(*result.records)
    answers = [answer for topic in result.answer.responses for answer in topic.partitions]
    for answer in answers:
        assert (answer.error_message is not None) == (answer.error_code != ErrorCode.NONE)
    return [ErrorCode(answer.error_code) for answer in answers]


def report_isr(cluster: Cluster, *isr: int) -> int:
    """The leader reports who is in sync; the error code that it gets."""
    partition = cluster.partition("t")
    data = RequestPartitionData(
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr=list(isr),
    )
    request = AlterPartitionRequest(
        broker_id=partition.leader,
        broker_epoch=100 + partition.leader,
        topics=[RequestTopicData(topic_id=topic_id("t"), partitions=[data])],
    )
    result = AlterPartitionControl(cluster.context).alter_partition(request, Caller(2))
    cluster.happen(*result.records)
    return result.answer.topics[0].partitions[0].error_code


def lists(partition: r.PartitionRecord) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return partition.replicas, partition.adding_replicas, partition.removing_replicas


def cluster_with(*partitions: r.PartitionRecord, **options: bool) -> Cluster:
    cluster = Cluster(8, **options)  # type: ignore[arg-type]
    cluster.topic("t", partitions)
    return cluster


def test_a_whole_move() -> None:
    """KRF-121, KRF-122, CTL-129, CTL-133: [1,2,3] to [4,5,6]."""
    cluster = cluster_with(placed((1, 2, 3)))
    assert reassign(cluster, {0: [4, 5, 6]}) == [ErrorCode.NONE]
    started = cluster.partition("t")
    assert lists(started) == ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    assert (started.leader, started.isr, started.leader_epoch) == (1, (1, 2, 3), 5)
    assert started.directories[:3] == tuple(map(directory, (4, 5, 6)))
    assert report_isr(cluster, 1, 2, 3, 4, 5) == ErrorCode.NONE
    assert lists(cluster.partition("t")) == lists(started)
    assert report_isr(cluster, 1, 2, 3, 4, 5, 6) == ErrorCode.NEW_LEADER_ELECTED
    done = cluster.partition("t")
    assert lists(done) == ((4, 5, 6), (), ())
    assert (done.leader, done.isr, done.leader_epoch) == (4, (4, 5, 6), 6)
    # The old replicas are being deleted.
    states = cluster.context.replica_states
    state = states.state(topic_id("t"), 0, 1)
    assert state is ReplicaState.DELETION_STARTED


def test_the_lists_are_sorted_and_the_target_keeps_its_order() -> None:
    """15.5: the first of the target will be preferred."""
    cluster = cluster_with(placed((3, 1, 2)))
    reassign(cluster, {0: [6, 2, 4]})
    assert lists(cluster.partition("t")) == ((6, 2, 4, 1, 3), (4, 6), (1, 3))


def test_a_new_order_is_done_at_once() -> None:
    """CTL-133: nobody has to catch up, and the leader stays in its epoch."""
    cluster = cluster_with(placed((1, 2, 3)))
    assert reassign(cluster, {0: [3, 2, 1]}) == [ErrorCode.NONE]
    partition = cluster.partition("t")
    assert lists(partition) == ((3, 2, 1), (), ())
    assert (partition.leader, partition.leader_epoch) == (1, 5)


def test_fewer_replicas_are_done_at_once_if_all_that_stay_are_in_sync() -> None:
    cluster = cluster_with(placed((1, 2, 3)), placed((1, 2, 3), (1, 3)))
    reassign(cluster, {0: [2, 1], 1: [1, 2]})
    assert lists(cluster.partition("t", 0)) == ((2, 1), (), ())
    assert lists(cluster.partition("t", 1)) == ((1, 2, 3), (), (3,))


def test_the_same_again_is_no_change() -> None:
    cluster = cluster_with(placed((1, 2)))
    before = cluster.context.image
    assert reassign(cluster, {0: [1, 2]}) == [ErrorCode.NONE]
    assert cluster.context.image is before


def test_a_newer_move_takes_the_place_of_an_older_one() -> None:
    """CTL-135, KRF-121: computed from the replicas there are; what isn't needed will go."""
    cluster = cluster_with(placed((1, 2, 3)))
    reassign(cluster, {0: [4, 5, 6]})
    reassign(cluster, {0: [7, 2, 4]})
    assert lists(cluster.partition("t")) == ((7, 2, 4, 1, 3, 5, 6), (7,), (1, 3, 5, 6))
    # More go than come, so that the whole target must be in sync.
    report_isr(cluster, 1, 2, 7)
    assert cluster.partition("t").removing_replicas == (1, 3, 5, 6)
    report_isr(cluster, 1, 2, 7, 4)
    assert lists(cluster.partition("t")) == ((7, 2, 4), (), ())


def test_moving_to_all_that_is_there_ends_a_move() -> None:
    cluster = cluster_with(placed((1, 2)))
    reassign(cluster, {0: [3, 1]})
    reassign(cluster, {0: [3, 1, 2]})
    assert lists(cluster.partition("t")) == ((3, 1, 2), (), ())


def test_cancelling_goes_back() -> None:
    """CTL-134, KRF-121: the replicas from before, under a new leader epoch."""
    cluster = cluster_with(placed((1, 2, 3)))
    reassign(cluster, {0: [4, 5, 3]})
    report_isr(cluster, 1, 2, 3, 4)
    assert reassign(cluster, {0: None}) == [ErrorCode.NONE]
    back = cluster.partition("t")
    assert sorted(back.replicas) == [1, 2, 3]
    assert lists(back)[1:] == ((), ())
    assert (back.isr, back.leader, back.leader_epoch) == ((1, 2, 3), 1, 6)
    assert len(back.directories) == 3


def test_cancelling_nothing_is_an_error() -> None:
    """CTL-134."""
    cluster = cluster_with(placed((1, 2)))
    assert reassign(cluster, {0: None}) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]


def cluster_to_cancel(*, elr: bool) -> Cluster:
    """Only what is being added is in sync, and broker 1 is dead."""
    cluster = cluster_with(placed((1, 2)), elr=elr)
    cluster.happen(
        r.PartitionChangeRecord(
            0,
            topic_id("t"),
            replicas=(3, 4, 1, 2),
            isr=(3,),
            leader=3,
            adding_replicas=(3, 4),
            removing_replicas=(1, 2),
            directories=tuple(map(directory, (3, 4, 1, 2))),
        ),
        cluster.change_broker(1, fenced=1),
    )
    return cluster


@pytest.mark.parametrize("elr", [False, True])
def test_cancelling_may_lose_records_only_with_permission(elr: bool) -> None:
    """KRF-121, 15.5: and the leader is marked as recovering."""
    cluster = cluster_to_cancel(elr=elr)
    before = cluster.context.image
    assert reassign(cluster, {0: None}) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert cluster.context.image is before
    cluster.configure("t", UNCLEAN, "true")
    assert reassign(cluster, {0: None}) == [ErrorCode.NONE]
    back = cluster.partition("t")
    assert lists(back) == ((1, 2), (), ())
    assert (back.leader, back.isr, back.leader_recovery_state) == (2, (2,), r.RECOVERING)


@pytest.mark.parametrize("elr", [False, True])
def test_cancelling_when_nobody_is_there(elr: bool) -> None:
    """The first replica waits to lead: an ISR is within the replicas, and not empty without ELR."""
    cluster = cluster_to_cancel(elr=elr)
    cluster.configure("t", UNCLEAN, "true")
    cluster.happen(cluster.change_broker(2, fenced=1))
    assert reassign(cluster, {0: None}) == [ErrorCode.NONE]
    back = cluster.partition("t")
    assert (back.replicas, back.leader, back.isr) == ((1, 2), -1, () if elr else (1,))
    cluster.unfence(1)
    after = cluster.partition("t")
    assert (after.leader, after.leader_recovery_state) == (1, r.RECOVERING)


def test_who_is_eligible_loses_nothing_when_a_move_is_cancelled() -> None:
    """15.2 before 15.5: with ELR, somebody that has everything leads, and nothing recovers."""
    cluster = cluster_to_cancel(elr=True)
    cluster.configure("t", UNCLEAN, "true")
    cluster.configure("t", "min.insync.replicas", "2")
    cluster.happen(r.PartitionChangeRecord(0, topic_id("t"), eligible_leader_replicas=(2,)))
    reassign(cluster, {0: None})
    back = cluster.partition("t")
    assert (back.leader, back.isr, back.leader_recovery_state) == (2, (2,), r.RECOVERED)


@pytest.mark.parametrize(
    "target",
    [[], [1, 1], [1, -1], [1, 99], [5, 5]],
    ids=["empty", "twice", "negative", "dead", "2"],
)
def test_impossible_targets(target: list[int]) -> None:
    """CTL-136: nothing happens to the partition; its neighbour is served."""
    cluster = cluster_with(placed((1, 2)), placed((1, 2)))
    before = cluster.partition("t", 0)
    codes = reassign(cluster, {0: target, 1: [2, 1]})
    assert codes == [ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.NONE]
    assert cluster.partition("t", 0) is before
    assert cluster.partition("t", 1).replicas == (2, 1)


def test_a_fenced_broker_is_a_possible_target() -> None:
    """15.5: it is registered, and may come back."""
    cluster = cluster_with(placed((1, 2)))
    cluster.happen(cluster.change_broker(3, fenced=1))
    assert reassign(cluster, {0: [1, 3]}) == [ErrorCode.NONE]
    assert cluster.partition("t").adding_replicas == (3,)


def test_a_cordoned_broker_gets_no_new_replicas() -> None:
    """14.2: but keeps those that it has."""
    cluster = cluster_with(placed((1, 2)))
    for broker_id in (2, 3):
        cordoned = (directory(broker_id),)
        cluster.happen(cluster.change_broker(broker_id, cordoned_log_dirs=cordoned))
    assert reassign(cluster, {0: [1, 3]}) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert reassign(cluster, {0: [2, 4]}) == [ErrorCode.NONE]


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ([3, 4], ErrorCode.NONE),
        ([3], ErrorCode.INVALID_REPLICATION_FACTOR),
        ([1, 2, 3], ErrorCode.INVALID_REPLICATION_FACTOR),
        ([], ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
@pytest.mark.parametrize("is_moving", [False, True])
def test_the_replication_factor_may_be_fixed(
    target: list[int], code: ErrorCode, is_moving: bool
) -> None:
    """15.5: a partition on the move has as many replicas as it will have."""
    cluster = cluster_with(placed((1, 2, 3) if is_moving else (1, 2)))
    if is_moving:
        reassign(cluster, {0: [5, 6]})
    assert reassign(cluster, {0: target}, may_resize=False) == [code]
    assert cluster.partition("t").partition_epoch == is_moving + (code is ErrorCode.NONE)


def test_unknown_partitions() -> None:
    """CTL-107: and those of removed topics, whose moves went with them."""
    cluster = cluster_with(placed((1, 2)))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(cluster, {1: [1], -1: None}) == [unknown, unknown]
    assert reassign(cluster, {0: [1]}, topic="none") == [unknown]
    reassign(cluster, {0: [3, 4]})
    cluster.happen(r.RemoveTopicRecord(topic_id("t")))
    assert reassign(cluster, {0: None}) == [unknown]
    assert cluster.context.partitions.reassigning_count == 0
    assert listed(cluster, None) == {}


def test_a_partition_named_twice_is_moved_once() -> None:
    cluster = cluster_with(placed((1, 2)))
    topic = ReassignableTopic(
        name="t",
        partitions=[
            ReassignablePartition(partition_index=0, replicas=[2, 1]),
            ReassignablePartition(partition_index=0, replicas=[3]),
        ],
    )
    request = AlterPartitionReassignmentsRequest(topics=[topic])
    result = ReassignmentControl(cluster.context).alter_reassignments(request, ASKER)
    codes = [answer.error_code for answer in result.answer.responses[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert len(result.records) == 1


def test_a_request_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """KRF-103: what is beyond it is refused, the rest is served."""
    monkeypatch.setattr(reassignment, "MAX_RECORDS_PER_REQUEST", 2)
    cluster = cluster_with(*[placed((1, 2))] * 4)
    codes = reassign(cluster, {number: [2, 1] for number in range(4)})
    assert codes == [*[ErrorCode.NONE] * 2, *[ErrorCode.POLICY_VIOLATION] * 2]


def test_a_move_goes_on_after_a_failover() -> None:
    """CTL-137: another controller, that has only the records, finishes it."""
    cluster = cluster_with(placed((1, 2)))
    reassign(cluster, {0: [3, 4]})
    other = Cluster(8)
    other.topic("t", [replace(cluster.partition("t"))])
    report_isr(other, 1, 2, 3, 4)
    assert lists(other.partition("t")) == ((3, 4), (), ())


# Listing.


def listed(
    cluster: Cluster, topics: Mapping[str, list[int]] | None
) -> dict[str, dict[int, tuple[list[int], list[int], list[int]]]]:
    asked = None
    if topics is not None:
        asked = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
            for name, numbers in topics.items()
        ]
    request = ListPartitionReassignmentsRequest(topics=asked)
    result = ReassignmentControl(cluster.context).list_reassignments(request, ASKER)
    assert result.records == ()
    return {
        topic.name: {
            each.partition_index: (each.replicas, each.adding_replicas, each.removing_replicas)
            for each in topic.partitions
        }
        for topic in result.answer.topics
    }


def test_moves_are_listed() -> None:
    """All of them, or those of the partitions asked for; what doesn't exist is left out."""
    cluster = cluster_with(placed((1, 2)), placed((1, 2)), placed((1, 2)))
    cluster.topic("still", [placed((1, 2))])
    reassign(cluster, {0: [3, 1], 2: [4, 2]})
    first, last = ([3, 1, 2], [3], [2]), ([4, 2, 1], [4], [1])
    assert listed(cluster, None) == {"t": {0: first, 2: last}}
    assert listed(cluster, {"t": [1, 2, 2, 9, -1], "none": [0]}) == {"t": {2: last}}
    assert listed(cluster, {"still": [0], "t": [1]}) == {}
    assert listed(cluster, {}) == {}


def test_only_committed_moves_are_listed() -> None:
    cluster = cluster_with(placed((1, 2)))
    cluster.append(
        r.PartitionChangeRecord(
            0,
            topic_id("t"),
            replicas=(1, 2, 3),
            adding_replicas=(3,),
            directories=tuple(map(directory, (1, 2, 3))),
        )
    )
    assert listed(cluster, None) == {}
    cluster.context.commit(cluster.context.image)
    assert list(listed(cluster, None)) == ["t"]


BROKER_IDS = st.integers(0, 7)
TARGETS = st.lists(BROKER_IDS, min_size=1, max_size=4, unique=True)


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("move"), TARGETS),
            st.tuples(st.just("cancel"), st.none()),
            st.tuples(st.just("sync"), TARGETS),
            st.tuples(st.just("fence"), BROKER_IDS),
            st.tuples(st.just("unfence"), BROKER_IDS),
        ),
        max_size=25,
    ),
    elr=st.booleans(),
    unclean=st.booleans(),
)
def test_moves_never_break_a_partition(
    steps: list[tuple[str, object]], elr: bool, unclean: bool
) -> None:
    """KRF-121, CTL-133 to CTL-135: among deaths and returns, the lists always fit."""
    cluster = Cluster(8, elr=elr)
    cluster.topic("t", [placed((0, 1, 2))])
    cluster.configure("t", UNCLEAN, str(unclean).lower())
    for step, argument in steps:
        partition = cluster.partition("t")
        match step, argument:
            case "move", list(target):
                assert reassign(cluster, {0: target}) == [ErrorCode.NONE]
                after = cluster.partition("t")
                assert set(after.replicas) - set(after.removing_replicas) == set(target)
            case "cancel", _:
                reassign(cluster, {0: None})
            case "sync", list(joining) if partition.leader >= 0:
                candidates = [*partition.isr, *joining]
                report_isr(cluster, *[each for each in partition.replicas if each in candidates])
            case "fence", int(broker_id):
                cluster.fence(broker_id)
            case "unfence", int(broker_id):
                cluster.unfence(broker_id)
        check_partition(cluster, elr=elr, unclean=unclean)


def check_partition(cluster: Cluster, *, elr: bool, unclean: bool) -> None:
    partition = cluster.partition("t")
    replicas = set(partition.replicas)
    assert len(replicas) == len(partition.replicas)
    assert set(partition.isr) <= replicas
    assert partition.isr or elr
    assert partition.leader == r.NO_LEADER or partition.leader in partition.isr
    assert set(partition.eligible_leader_replicas) <= replicas - set(partition.isr)
    assert set(partition.adding_replicas) | set(partition.removing_replicas) <= replicas
    assert not set(partition.adding_replicas) & set(partition.removing_replicas)
    assert unclean or partition.leader_recovery_state == r.RECOVERED
    # The directories are those of the brokers that they stand for.
    for broker_id in partition.replicas:
        known = (directory(broker_id), r.DIRECTORY_MIGRATING)
        assert partition.directory_of(broker_id) in known
