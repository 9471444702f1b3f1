"""AssignReplicasToDirs: what is noted, what is refused, and replicas on disks that are gone."""

from __future__ import annotations

import pytest
from partition_cluster import Cluster, directory, placed, topic_id

from kraftpy.metadata import records as r
from kraftpy.metadata.controller.elections import ElectionControl
from kraftpy.metadata.controller.replica_directories import ReplicaDirectories
from kraftpy.metadata.controller.result import Caller, ControllerError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k73_assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)

NOWHERE = Uuid(b"no such topic...")
GONE = Uuid(b"directory-is-off")
Places = list[tuple[Uuid, Uuid, list[int]]]


def assign(
    cluster: Cluster, places: Places, *, broker_id: int = 0, epoch: int | None = None
) -> tuple[tuple[r.MetadataRecord, ...], list[ErrorCode]]:
    """Places are (directory, topic id, partitions); let it happen, and return the codes."""
    request = AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=100 + broker_id if epoch is None else epoch,
        directories=[
            RequestDirectoryData(
                id=where,
                topics=[
                    RequestTopicData(
                        topic_id=topic,
                        partitions=[RequestPartitionData(partition_index=n) for n in numbers],
                    )
                ],
            )
            for where, topic, numbers in places
        ],
    )
    result = ReplicaDirectories(cluster.context).assign_replicas(request, Caller(0))
    cluster.happen(*result.records)
    answered = [
        (where.id, topic.topic_id, [each.partition_index for each in topic.partitions])
        for where in result.answer.directories
        for topic in where.topics
    ]
    assert answered == places
    codes = [
        ErrorCode(each.error_code)
        for where in result.answer.directories
        for topic in where.topics
        for each in topic.partitions
    ]
    return result.records, codes


def cluster_with(*partitions: r.PartitionRecord, level: int = 30) -> Cluster:
    cluster = Cluster(3, directories=2, level=level)
    cluster.topic("t", partitions)
    return cluster


def test_a_broker_says_where_its_replicas_are() -> None:
    """15.8: nothing else of the partition changes, and nothing at all the second time."""
    cluster = cluster_with(placed((1, 0)), placed((0, 1)), placed((0, 2)))
    places: Places = [
        (directory(0, 0), topic_id("t"), [0, 2]),
        (directory(0, 1), topic_id("t"), [1]),
    ]
    _, codes = assign(cluster, places)
    assert codes == [ErrorCode.NONE] * 3
    for number, where in ((0, directory(0, 0)), (1, directory(0, 1)), (2, directory(0, 0))):
        partition = cluster.partition("t", number)
        assert partition.directory_of(0) == where
        assert (partition.leader_epoch, partition.partition_epoch) == (5, 1)
        assert partition.isr == partition.replicas
    records, codes = assign(cluster, places)
    assert (records, codes) == ((), [ErrorCode.NONE] * 3)


def test_what_is_refused() -> None:
    """15.8: each for itself; the others are noted."""
    cluster = cluster_with(placed((0, 1)), placed((1, 2)))
    _, codes = assign(
        cluster,
        [
            (directory(0), NOWHERE, [0, 1]),
            (directory(0), topic_id("t"), [2, -1, 1, 0]),
            (directory(0, 1), topic_id("t"), [0]),
        ],
    )
    assert codes == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NONE,
        # A replica is in one place.
        ErrorCode.INVALID_REQUEST,
    ]
    assert cluster.partition("t").directory_of(0) == directory(0)


@pytest.mark.parametrize(("broker_id", "epoch"), [(0, 99), (9, 109)])
def test_the_sender_must_be_a_living_incarnation(broker_id: int, epoch: int) -> None:
    with pytest.raises(ControllerError) as refusal:
        assign(cluster_with(placed((0, 1))), [], broker_id=broker_id, epoch=epoch)
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_there_are_no_directories_before_3_7() -> None:
    """Section 17: level 17 brings them."""
    with pytest.raises(ControllerError) as refusal:
        assign(cluster_with(placed((0, 1)), level=16), [])
    assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert assign(cluster_with(placed((0, 1)), level=17), []) == ((), [])


@pytest.mark.parametrize("where", [GONE, r.DIRECTORY_LOST])
def test_a_replica_on_a_disk_that_is_gone(where: Uuid) -> None:
    """15.8, KRF-115, CTL-45: it leaves leadership and ISR in the same change."""
    cluster = cluster_with(placed((0, 1)), placed((1, 0)), placed((0,)), placed((0, 1), (1,)))
    records, codes = assign(cluster, [(where, topic_id("t"), [0, 1, 2, 3])])
    assert codes == [ErrorCode.NONE] * 4
    assert len(records) == 4
    after = [cluster.partition("t", number) for number in range(4)]
    assert [each.leader for each in after] == [1, 1, -1, 1]
    assert [each.isr for each in after] == [(1,), (1,), (0,), (1,)]
    assert all(each.directory_of(0) == where for each in after)
    # Elections know it, too.
    assert ElectionControl(cluster.context).bring_online().records == ()


def test_a_replica_that_has_moved_to_a_good_disk_may_lead() -> None:
    """The election in the same change judges by the new place."""
    cluster = cluster_with(placed((0,)))
    assign(cluster, [(GONE, topic_id("t"), [0])])
    assert cluster.partition("t").leader == -1
    assign(cluster, [(directory(0, 1), topic_id("t"), [0])])
    assert cluster.partition("t").leader == 0


def test_a_fenced_broker_may_report_but_not_lead() -> None:
    cluster = cluster_with(placed((0,)))
    cluster.fence(0)
    assign(cluster, [(directory(0, 1), topic_id("t"), [0])])
    partition = cluster.partition("t")
    assert (partition.leader, partition.directory_of(0)) == (-1, directory(0, 1))
