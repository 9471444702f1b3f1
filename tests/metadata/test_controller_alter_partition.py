"""AlterPartition: every check in its order, and what a leader is told."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from partition_cluster import Cluster, placed, topic_id

from kraftpy.metadata import records as r
from kraftpy.metadata.controller.alter_partition import AlterPartitionControl
from kraftpy.metadata.controller.result import Caller, ControllerError, ControllerResult
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k56_alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)

NOWHERE = Uuid(b"no such topic...")


def wanted(
    isr: list[int],
    *,
    index: int = 0,
    leader_epoch: int = 5,
    partition_epoch: int = 0,
    recovery: int = r.RECOVERED,
    epochs: dict[int, int] | None = None,
) -> RequestPartitionData:
    """In both forms; broker n has the epoch 100 + n."""
    known = epochs or {}
    return RequestPartitionData(
        partition_index=index,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        new_isr=isr,
        new_isr_with_epochs=[
            BrokerState(broker_id=each, broker_epoch=known.get(each, 100 + each)) for each in isr
        ],
        leader_recovery_state=recovery,
    )


def alter(
    cluster: Cluster,
    *partitions: RequestPartitionData,
    sender: int = 0,
    sender_epoch: int | None = None,
    topic: Uuid | None = None,
    version: int = 3,
) -> ControllerResult[AlterPartitionResponse]:
    request = AlterPartitionRequest(
        broker_id=sender,
        broker_epoch=100 + sender if sender_epoch is None else sender_epoch,
        topics=[RequestTopicData(topic_id=topic or topic_id("t"), partitions=list(partitions))],
    )
    return AlterPartitionControl(cluster.context).alter_partition(request, Caller(version))


def answers(result: ControllerResult[AlterPartitionResponse]) -> list[ResponsePartitionData]:
    return [partition for topic in result.answer.topics for partition in topic.partitions]


def cluster_with(*partitions: r.PartitionRecord) -> Cluster:
    cluster = Cluster()
    cluster.topic("t", partitions)
    return cluster


@pytest.mark.parametrize("version", [2, 3])
def test_a_leader_changes_its_isr(version: int) -> None:
    """CTL-93, KRF-120: the answer is what the partition then is."""
    cluster = cluster_with(placed((0, 1, 2), (0, 1)))
    result = alter(cluster, wanted([0, 1, 2]), version=version)
    assert result.records == (r.PartitionChangeRecord(0, topic_id("t"), isr=(0, 1, 2)),)
    (answer,) = answers(result)
    cluster.happen(*result.records)
    after = cluster.partition("t")
    assert answer == ResponsePartitionData(
        partition_index=0,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=list(after.isr),
        partition_epoch=after.partition_epoch,
    )
    assert (after.isr, after.leader_epoch, after.partition_epoch) == ((0, 1, 2), 5, 1)


def test_an_unchanged_isr_is_a_success_without_a_record() -> None:
    cluster = cluster_with(placed((0, 1, 2), (0, 1)))
    result = alter(cluster, wanted([0, 1]))
    assert result.records == ()
    assert [(each.error_code, each.partition_epoch) for each in answers(result)] == [(0, 0)]


@pytest.mark.parametrize(("sender", "epoch"), [(0, 99), (0, 101), (0, -1), (9, 109)])
def test_the_sender_must_be_a_living_incarnation(sender: int, epoch: int) -> None:
    """CTL-54: the whole request is refused."""
    with pytest.raises(ControllerError) as refusal:
        alter(cluster_with(placed((0, 1))), wanted([0]), sender=sender, sender_epoch=epoch)
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


# Each line breaks one rule, in the order in which they are checked.
BROKEN_RULES: list[tuple[str, dict[str, object], ErrorCode]] = [
    ("partition", {"index": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ("newer leader epoch", {"leader_epoch": 6}, ErrorCode.NOT_CONTROLLER),
    ("newer partition epoch", {"partition_epoch": 1}, ErrorCode.NOT_CONTROLLER),
    ("older leader epoch", {"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
    ("not the leader", {"sender": 1}, ErrorCode.INVALID_REQUEST),
    ("older partition epoch", {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
    ("duplicates", {"isr": [0, 1, 1]}, ErrorCode.INVALID_REQUEST),
    ("not a replica", {"isr": [0, 5]}, ErrorCode.INVALID_REQUEST),
    ("without the leader", {"isr": [1]}, ErrorCode.INVALID_REQUEST),
    ("empty", {"isr": []}, ErrorCode.INVALID_REQUEST),
    ("recovering", {"recovery": r.RECOVERING}, ErrorCode.INVALID_REQUEST),
    ("alone", {"recovery": r.RECOVERING, "isr": [0]}, ErrorCode.INVALID_REQUEST),
    ("no such state", {"recovery": 2}, ErrorCode.INVALID_REQUEST),
    ("fenced", {"isr": [0, 3]}, ErrorCode.INELIGIBLE_REPLICA),
    ("stopping", {"isr": [0, 4]}, ErrorCode.INELIGIBLE_REPLICA),
    ("not registered", {"isr": [0, 8]}, ErrorCode.INELIGIBLE_REPLICA),
    ("earlier incarnation", {"epochs": {1: 99}}, ErrorCode.INELIGIBLE_REPLICA),
]


def strict_cluster() -> Cluster:
    cluster = cluster_with(placed((0, 1, 2, 3, 4, 8), (0, 1)))
    cluster.happen(cluster.change_broker(3, fenced=1))
    cluster.happen(cluster.change_broker(4, in_controlled_shutdown=True))
    return cluster


def refused_with(fields: dict[str, object]) -> ErrorCode:
    given_fields = {"isr": [0, 1], **fields}
    sender = given_fields.pop("sender", 0)
    isr = given_fields.pop("isr")
    assert isinstance(sender, int)
    assert isinstance(isr, list)
    result = alter(strict_cluster(), wanted(isr, **given_fields), sender=sender)  # type: ignore[arg-type]
    assert result.records == ()
    (answer,) = answers(result)
    return ErrorCode(answer.error_code)


@pytest.mark.parametrize(("rule", "fields", "code"), BROKEN_RULES)
def test_each_check(rule: str, fields: dict[str, object], code: ErrorCode) -> None:
    """CTL-94, CTL-95, KRF-120."""
    assert refused_with(fields) is code, rule


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (first, second)
        for first, second in combinations(BROKEN_RULES, 2)
        if not first[1].keys() & second[1].keys()
    ],
)
def test_the_first_broken_rule_is_the_answer(
    first: tuple[str, dict[str, object], ErrorCode],
    second: tuple[str, dict[str, object], ErrorCode],
) -> None:
    """CTL-94, KRF-120: two rules broken at once, in different fields."""
    assert refused_with({**first[1], **second[1]}) is first[2]


def test_an_unknown_topic_id() -> None:
    """KRF-120: each of its partitions is told; the topics beside it are served."""
    cluster = cluster_with(placed((0, 1)))
    request = AlterPartitionRequest(
        broker_id=0,
        broker_epoch=100,
        topics=[
            RequestTopicData(topic_id=NOWHERE, partitions=[wanted([0]), wanted([0], index=1)]),
            RequestTopicData(topic_id=topic_id("t"), partitions=[wanted([0])]),
        ],
    )
    result = AlterPartitionControl(cluster.context).alter_partition(request, Caller(3))
    codes = [each.error_code for each in answers(result)]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE]
    assert len(result.records) == 1


def test_broker_epochs_are_of_version_3_and_may_be_left_unchecked() -> None:
    cluster = cluster_with(placed((0, 1, 2), (0,)))
    assert len(alter(cluster, wanted([0, 1], epochs={1: 99}), version=2).records) == 1
    assert len(alter(cluster, wanted([0, 1], epochs={1: -1})).records) == 1
    assert alter(cluster, wanted([0, 1], epochs={1: 99})).records == ()


def test_a_partition_named_twice_is_changed_once() -> None:
    """The second was made from a state that the first ends."""
    cluster = cluster_with(placed((0, 1, 2)))
    result = alter(cluster, wanted([0]), wanted([0, 1]))
    assert [each.error_code for each in answers(result)] == [0, ErrorCode.INVALID_REQUEST]
    assert len(result.records) == 1


@pytest.mark.parametrize(
    ("isr", "recovery", "code"),
    [
        ([0], r.RECOVERING, ErrorCode.NONE),
        ([0], r.RECOVERED, ErrorCode.NONE),
        ([0, 1], r.RECOVERED, ErrorCode.NONE),
        ([0, 1], r.RECOVERING, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_recovering_leader(isr: list[int], recovery: int, code: ErrorCode) -> None:
    """CTL-127, KRF-120: nobody joins before it says that it has recovered."""
    partition = replace(placed((0, 1), (0,)), leader_recovery_state=r.RECOVERING)
    cluster = cluster_with(partition)
    result = alter(cluster, wanted(isr, recovery=recovery))
    (answer,) = answers(result)
    assert answer.error_code == code
    if code is ErrorCode.NONE:
        assert answer.leader_recovery_state == recovery
        cluster.happen(*result.records)
        assert cluster.partition("t").leader_recovery_state == recovery


def test_an_isr_that_ends_a_reassignment_without_its_leader() -> None:
    """KRF-122, CTL-133: an error, and a record all the same; nothing else is answered."""
    cluster = cluster_with(placed((0, 1)))
    cluster.happen(
        r.PartitionChangeRecord(
            0, topic_id("t"), replicas=(2, 1, 0), adding_replicas=(2,), removing_replicas=(0,)
        )
    )
    result = alter(cluster, wanted([0, 1, 2], partition_epoch=1))
    assert answers(result) == [
        ResponsePartitionData(partition_index=0, error_code=ErrorCode.NEW_LEADER_ELECTED)
    ]
    cluster.happen(*result.records)
    after = cluster.partition("t")
    assert (after.replicas, after.isr, after.leader) == ((2, 1), (1, 2), 2)
    assert (after.leader_epoch, after.adding_replicas, after.removing_replicas) == (6, (), ())


def test_an_isr_that_ends_a_reassignment_with_its_leader() -> None:
    """The leader stays under a new epoch, of which it is told."""
    cluster = cluster_with(placed((0, 1)))
    cluster.happen(
        r.PartitionChangeRecord(
            0, topic_id("t"), replicas=(2, 0, 1), adding_replicas=(2,), removing_replicas=(1,)
        )
    )
    (answer,) = answers(alter(cluster, wanted([0, 1, 2], partition_epoch=1)))
    assert (answer.error_code, answer.leader_id, answer.leader_epoch) == (0, 0, 6)
    assert (answer.isr, answer.partition_epoch) == ([0, 2], 2)


def test_the_minimum_decides_who_stays_eligible() -> None:
    """KRF-119: shrinking below min.insync.replicas keeps who leaves as eligible."""
    cluster = Cluster(elr=True)
    cluster.topic("t", [placed((0, 1, 2))])
    cluster.configure("t", "min.insync.replicas", "2")
    result = alter(cluster, wanted([0]))
    cluster.happen(*result.records)
    assert cluster.partition("t").eligible_leader_replicas == (1, 2)
    cluster.happen(*alter(cluster, wanted([0, 1], partition_epoch=1)).records)
    assert cluster.partition("t").eligible_leader_replicas == ()


@given(
    isr=st.lists(st.integers(-1, 6), max_size=5),
    leader_epoch=st.integers(4, 6),
    partition_epoch=st.integers(-1, 1),
    sender=st.integers(0, 1),
    recovery=st.integers(-1, 2),
    elr=st.booleans(),
)
def test_whatever_comes_leaves_a_partition_that_makes_sense(
    *,
    isr: list[int],
    leader_epoch: int,
    partition_epoch: int,
    sender: int,
    recovery: int,
    elr: bool,
) -> None:
    """CTL-94, CTL-95: a record exactly with success, and only who is there and alive joins."""
    cluster = Cluster(elr=elr)
    cluster.topic("t", [placed((0, 1, 2, 3), (0, 1))])
    cluster.happen(cluster.change_broker(3, fenced=1))
    data = wanted(
        isr, leader_epoch=leader_epoch, partition_epoch=partition_epoch, recovery=recovery
    )
    result = alter(cluster, data, sender=sender)
    (answer,) = answers(result)
    if answer.error_code != ErrorCode.NONE:
        assert result.records == ()
        return
    cluster.happen(*result.records)
    after = cluster.partition("t")
    assert sorted(after.isr) == sorted(isr) == sorted(answer.isr)
    assert 0 in isr
    assert not {-1, 3, 4, 5, 6} & set(isr)
    assert (answer.leader_id, answer.leader_epoch) == (0, 5)
