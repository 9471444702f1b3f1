"""Metadata of a cluster of one node without topics, in every version."""

from __future__ import annotations

import pytest
from api.recording import Bench, RecordingChannel, lone_node

from kraftpy.api.handler import RequestContext
from kraftpy.api.k03_metadata import MetadataHandler
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

ALL_VERSIONS = range(14)
SOME_ID = Uuid(bytes(range(16)))


def ask(version: int, request: MetadataRequest, listener: str = "PLAINTEXT") -> MetadataResponse:
    bench = Bench([MetadataHandler(lone_node())], channel=RecordingChannel(listener_name=listener))
    response = bench.ask(request, version)
    assert isinstance(response, MetadataResponse)
    return response


def everything(version: int) -> MetadataRequest:
    return MetadataRequest(topics=[] if version == 0 else None)


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_all_topics_of_an_empty_cluster(version: int) -> None:
    """NET-79, NET-81: fields appear from their version on."""
    response = ask(version, everything(version))
    [broker] = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "broker.test", 9092)
    assert broker.rack == (None if version < 1 else "r1")
    assert response.controller_id == (-1 if version < 1 else 1)
    assert response.cluster_id == (None if version < 2 else "Iy1sbGZzVmVUc2VjcmV0IQ")
    assert response.topics == []
    assert response.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_no_topics_still_lists_brokers(version: int) -> None:
    """NET-79."""
    response = ask(version, MetadataRequest(topics=[]))
    assert len(response.brokers) == 1
    assert response.topics == []


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_missing_topics_are_unknown(version: int) -> None:
    """NET-78: each name once, in the order of the request."""
    names = ["logs", "__consumer_offsets", "logs", "bad name", ""]
    topics = [MetadataRequestTopic(name=name) for name in names]
    response = ask(version, MetadataRequest(topics=topics))
    assert [(topic.name, topic.error_code, topic.is_internal) for topic in response.topics] == [
        ("logs", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        ("__consumer_offsets", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, version >= 1),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION, False),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION, False),
    ]
    assert all(topic.partitions == [] for topic in response.topics)


@pytest.mark.parametrize(
    ("name", "is_possible"),
    [
        ("a" * 249, True),
        ("a" * 250, False),
        (".", False),
        ("..", False),
        ("...", True),
        ("a.b_c-D7", True),
        ("a/b", False),
        ("ü", False),
        ("a\n", False),
    ],
)
def test_names_that_no_topic_can_have(name: str, *, is_possible: bool) -> None:
    response = ask(9, MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
    [topic] = response.topics
    assert (topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) == is_possible


@pytest.mark.parametrize("version", [12, 13])
def test_missing_topics_by_id(version: int) -> None:
    """Names beside ids are not looked at."""
    topics = [
        MetadataRequestTopic(name=None, topic_id=SOME_ID),
        MetadataRequestTopic(name="logs"),
        MetadataRequestTopic(name=None, topic_id=SOME_ID),
    ]
    [topic] = ask(version, MetadataRequest(topics=topics)).topics
    assert (topic.topic_id, topic.name) == (SOME_ID, None)
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize(
    "topic",
    [MetadataRequestTopic(name="logs", topic_id=SOME_ID), MetadataRequestTopic(name=None)],
    ids=["id", "null name"],
)
def test_ids_before_they_had_a_meaning(version: int, topic: MetadataRequestTopic) -> None:
    [answered] = ask(version, MetadataRequest(topics=[topic])).topics
    assert answered.error_code == ErrorCode.INVALID_REQUEST


def test_brokers_have_the_address_of_the_listener() -> None:
    """NET-80."""
    [broker] = ask(12, everything(12), "INSIDE").brokers
    assert (broker.host, broker.port) == ("10.0.0.1", 9094)
    assert ask(12, everything(12), "ELSEWHERE").brokers == []


@pytest.mark.parametrize("version", [8, 9, 10])
def test_authorized_operations_when_asked_for(version: int) -> None:
    request = MetadataRequest(topics=None, include_cluster_authorized_operations=True)
    assert ask(version, request).cluster_authorized_operations == 0b1_1111_1010_0000
    assert ask(version, everything(version)).cluster_authorized_operations == -(2**31)


class FailingMetadata(MetadataHandler):
    def handle(self, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        raise RuntimeError("no image")


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_error_answer_names_every_topic(version: int) -> None:
    """NET-67: and from version 13 on there is a code for the whole."""
    bench = Bench([FailingMetadata(lone_node())])
    request = MetadataRequest(topics=[MetadataRequestTopic(name="logs")])
    response = bench.ask(request, version)
    assert isinstance(response, MetadataResponse)
    expected = MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, name="logs")
    assert response.topics == [expected]
    assert response.error_code == (0 if version < 13 else ErrorCode.UNKNOWN_SERVER_ERROR)
