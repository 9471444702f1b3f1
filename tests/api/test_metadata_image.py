"""Metadata, DescribeCluster and ApiVersions of a cluster with several brokers and topics."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from api.image_cluster import (
    CLUSTER_ID,
    FAILED_DIRECTORY,
    bench_of,
    broker,
    image_of,
    topic,
    topic_id,
    view_of,
)
from api.recording import Bench

from kraftpy.api.k03_metadata import MetadataHandler
from kraftpy.api.k60_describe_cluster import DescribeBrokersHandler, DescribeControllersHandler
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.metadata import records as r
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema import k03_metadata as k03
from kraftpy.protocol.schema import k18_api_versions as k18
from kraftpy.protocol.schema import k60_describe_cluster as k60
from kraftpy.world import Random

ALL_VERSIONS = range(14)


def ask(
    view: BrokerMetadata,
    *names: str,
    version: int = 13,
    listener: str = "PLAINTEXT",
    **rest: bool,
) -> k03.MetadataResponse:
    topics = [k03.MetadataRequestTopic(name=name) for name in names] or None
    if version == 0 and topics is None:
        topics = []
    request = k03.MetadataRequest(topics=topics, **rest)
    response = bench_of(MetadataHandler(view), listener).ask(request, version)
    assert isinstance(response, k03.MetadataResponse)
    return response


def three_brokers() -> BrokerMetadata:
    return view_of(
        broker(1, rack="r1"),
        broker(2),
        broker(3),
        *topic("a", (1, 2), (2, 3)),
        *topic("__consumer_offsets", (3,)),
    )


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_all_topics(version: int) -> None:
    """NET-79, NET-81, CTL-146: in the order of names, with every field that the version has."""
    response = ask(three_brokers(), version=version)
    assert [node.node_id for node in response.brokers] == [1, 2, 3]
    internal, plain = response.topics
    assert (internal.name, internal.is_internal) == ("__consumer_offsets", version >= 1)
    assert (plain.name, plain.is_internal) == ("a", False)
    assert plain.topic_id == (topic_id("a") if version >= 10 else Uuid(bytes(16)))
    assert [
        (each.partition_index, each.leader_id, each.replica_nodes, each.isr_nodes)
        for each in plain.partitions
    ] == [(0, 1, [1, 2], [1, 2]), (1, 2, [2, 3], [2, 3])]
    epochs = [3, 4] if version >= 7 else [-1, -1]
    assert [each.leader_epoch for each in plain.partitions] == epochs
    assert response.cluster_id == (CLUSTER_ID if version >= 2 else None)


def test_topics_by_name_in_the_order_of_the_request() -> None:
    response = ask(three_brokers(), "nope", "a", "a", "__consumer_offsets")
    assert [(each.name, each.error_code) for each in response.topics] == [
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", ErrorCode.NONE),
        ("__consumer_offsets", ErrorCode.NONE),
    ]


@pytest.mark.parametrize("version", [12, 13])
def test_topics_by_id(version: int) -> None:
    unknown = Uuid(b"x" * 16)
    ids = [unknown, topic_id("a"), unknown]
    topics = [k03.MetadataRequestTopic(name=None, topic_id=each) for each in ids]
    bench = bench_of(MetadataHandler(three_brokers()))
    response = bench.ask(k03.MetadataRequest(topics=topics), version)
    assert isinstance(response, k03.MetadataResponse)
    assert [(each.name, each.topic_id, each.error_code) for each in response.topics] == [
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
        ("a", topic_id("a"), ErrorCode.NONE),
    ]
    assert len(response.topics[1].partitions) == 2


def test_a_random_live_broker_is_named_as_controller() -> None:
    """KRF-130, CTL-145: never the controller itself, whose number is 300; all in turn."""
    view = view_of(broker(1), broker(2), broker(3, fenced=True), broker(4, "INSIDE"))
    named = Counter(ask(view).controller_id for _ in range(200))
    assert sorted(named) == [1, 2]
    assert min(named.values()) > 50
    assert ask(view_of(broker(3, fenced=True))).controller_id == -1
    assert ask(view_of()).controller_id == -1


def test_fenced_brokers_are_not_told_of() -> None:
    response = ask(view_of(broker(1), broker(2, fenced=True)))
    assert [node.node_id for node in response.brokers] == [1]


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_leaders_that_clients_can_t_reach(version: int) -> None:
    """NET-80, CTL-144: no such broker; fenced; without this listener."""
    view = view_of(
        broker(1),
        broker(2, fenced=True),
        broker(3, "INSIDE"),
        *topic("t", (9, 1), (2, 1), (3, 1), (1, 3)),
    )
    [found] = ask(view, "t", version=version).topics
    missing = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    reached = ErrorCode.NONE if version >= 1 else ErrorCode.REPLICA_NOT_AVAILABLE
    assert [(each.leader_id, each.error_code) for each in found.partitions] == [
        (-1, ErrorCode.LEADER_NOT_AVAILABLE),
        (-1, missing),
        (-1, missing),
        (1, reached),
    ]
    assert found.error_code == ErrorCode.NONE
    # Version 0 leaves out who is away, the others list them.
    replicas = [[9, 1], [2, 1], [3, 1], [1, 3]] if version else [[1]] * 4
    assert [each.replica_nodes for each in found.partitions] == replicas
    assert [each.isr_nodes for each in found.partitions] == replicas
    offline = [[9], [2], [3], [3]] if version >= 5 else [[]] * 4
    assert [each.offline_replicas for each in found.partitions] == offline


def test_a_replica_on_a_failed_directory_is_offline() -> None:
    records = topic("t", (1, 2))
    partition = records[1]
    assert isinstance(partition, r.PartitionRecord)
    records[1] = replace(partition, directories=(partition.directories[0], FAILED_DIRECTORY))
    [found] = ask(view_of(broker(1), broker(2), *records), "t").topics
    assert found.partitions[0].offline_replicas == [2]


@pytest.mark.parametrize("version", range(8, 14))
def test_authorized_operations_when_asked_for(version: int) -> None:
    asked = ask(
        three_brokers(), "a", "nope", version=version, include_topic_authorized_operations=True
    )
    assert [each.topic_authorized_operations for each in asked.topics] == [
        0b1101_1111_1000,
        -(2**31),
    ]
    [plain] = ask(three_brokers(), "a", version=version).topics
    assert plain.topic_authorized_operations == -(2**31)


def test_a_new_image_takes_the_place_of_the_old_one() -> None:
    """CTL-141: whole, and at once."""
    view = view_of(broker(1))
    loaded = image_of(*topic("new", (1,)), base=view.image)
    view.publish(None, loaded, None)  # type: ignore[arg-type]
    assert [each.name for each in ask(view).topics] == ["new"]


def describe(view: BrokerMetadata, version: int, **rest: bool) -> k60.DescribeClusterResponse:
    bench = bench_of(DescribeBrokersHandler(view))
    response = bench.ask(k60.DescribeClusterRequest(**rest), version)
    assert isinstance(response, k60.DescribeClusterResponse)
    return response


def test_fenced_brokers_are_described_on_demand() -> None:
    view = view_of(broker(1), broker(2, fenced=True), broker(3, "INSIDE", fenced=True))
    assert [each.broker_id for each in describe(view, 2).brokers] == [1]
    response = describe(view, 2, include_fenced_brokers=True)
    assert [(each.broker_id, each.is_fenced) for each in response.brokers] == [
        (1, False),
        (2, True),
    ]
    assert response.controller_id == 1


def test_controllers_are_described_from_their_registrations() -> None:
    registrations = [
        r.RegisterControllerRecord(
            number, Uuid(bytes([number % 256] * 16)), (r.Endpoint("C", f"c{number}", 9093, 0),)
        )
        for number in (300, 301)
    ]
    view = view_of(broker(1), *registrations)
    bench = bench_of(DescribeControllersHandler(view), "C")
    response = bench.ask(k60.DescribeClusterRequest(endpoint_type=2), 2)
    assert isinstance(response, k60.DescribeClusterResponse)
    assert [(each.broker_id, each.host) for each in response.brokers] == [
        (300, "c300"),
        (301, "c301"),
    ]
    assert response.controller_id == 300


def test_features_come_from_the_image_and_from_raft() -> None:
    """With the offset of the metadata as their epoch; those at level 0 are left out."""
    view = view_of(
        broker(1),
        r.FeatureLevelRecord("metadata.version", 30),
        r.FeatureLevelRecord("group.version", 1),
    )
    request = k18.ApiVersionsRequest(client_software_name="t", client_software_version="1")
    response = Bench([], features=view).ask(request, 4)
    assert isinstance(response, k18.ApiVersionsResponse)
    assert [(each.name, each.max_version_level) for each in response.finalized_features] == [
        ("group.version", 1),
        ("metadata.version", 30),
        ("kraft.version", 1),
    ]
    assert response.finalized_features_epoch == 2
    supported = {each.name: each.max_version for each in response.supported_features}
    assert supported["metadata.version"] == 30
    assert supported["transaction.version"] == 2


def test_nothing_is_known_before_the_first_image() -> None:
    view = BrokerMetadata(cluster_id=CLUSTER_ID, random=Random(1))
    response = ask(view)
    assert (response.brokers, response.topics, response.controller_id) == ([], [], -1)
    assert view.active_controller() == -1
    assert view.finalized_features_epoch() == -1
