"""Topics that come into being because Metadata asks for them, and the storms that don't."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from api.forwarding_rig import Cluster, forwarding_cluster, register_broker
from api.image_cluster import broker, topic, view_of
from api.recording import Bench, RecordingChannel

from kraftpy.api.k03_metadata import MetadataHandler
from kraftpy.broker.envelope import Sender
from kraftpy.broker.forwarder import ForwardingReply
from kraftpy.broker.topic_creation import AutoTopicCreation, TopicTemplate
from kraftpy.observe.metrics import Histogram, MetricName
from kraftpy.protocol.codec import decode
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import decode_request_header, encode_response
from kraftpy.protocol.schema import k03_metadata as k03
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.world import Buffer
from kraftpy.world.memory_clock import MemoryClock

TEMPLATE = TopicTemplate(num_partitions=3, replication_factor=1)
OFFSETS = TopicTemplate(50, 1, {"cleanup.policy": "compact"})
ANN = Sender("User:ann", "192.0.2.7")
WAIT = ErrorCode.LEADER_NOT_AVAILABLE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def about(*names: str, may_create: bool = True) -> k03.MetadataRequest:
    return k03.MetadataRequest(
        topics=[k03.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=may_create,
    )


@asynccontextmanager
async def creating_cluster(template: TopicTemplate = TEMPLATE) -> AsyncIterator[Cluster]:
    async with forwarding_cluster(template) as cluster:
        await trio.sleep(10)
        await register_broker(cluster, await cluster.at_controller())
        yield cluster


async def test_a_topic_is_there_when_it_is_asked_for_again(autojump_clock: object) -> None:
    """NET-77"""
    async with creating_cluster() as cluster:
        client = await cluster.client()
        first = await client.request(about("new", "bad name"))
        assert [(each.name, each.error_code, each.partitions) for each in first.topics] == [
            ("new", WAIT, []),
            ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION, []),
        ]
        await trio.sleep(0.5)
        [found] = (await client.request(about("new"))).topics
        assert found.error_code == ErrorCode.NONE
        assert [each.leader_id for each in found.partitions] == [1, 1, 1]


async def test_neither_without_leave_nor_for_all_topics(autojump_clock: object) -> None:
    """NET-78: from the request, or from the node."""
    async with creating_cluster() as cluster:
        client = await cluster.client()
        [found] = (await client.request(about("new", may_create=False))).topics
        assert found.error_code == UNKNOWN
        assert (await client.request(k03.MetadataRequest(topics=None))).topics == []
        await trio.sleep(1)
        assert list(cluster.context.stable.topics) == []


async def test_a_thousand_questions_are_one_creation(autojump_clock: object) -> None:
    async with creating_cluster() as cluster:
        clients = [await cluster.client(f"client-{number}") for number in range(10)]

        async def ask(client: Any) -> None:
            for _ in range(20):
                await client.request(about("new"))

        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(ask, client)
        name = MetricName(
            "kafka.network", "RequestMetrics", "TotalTimeMs", (("request", "Envelope"),)
        )
        times = cluster.registry.get(name)
        assert isinstance(times, Histogram)
        assert times.count == 1
        assert list(cluster.context.stable.topics) == ["new"]


async def test_the_error_of_a_creation_is_told_for_a_while(autojump_clock: object) -> None:
    """Three replicas on one broker; there is no second attempt within a second."""
    async with creating_cluster(TopicTemplate(1, 3)) as cluster:
        client = await cluster.client()
        codes = []
        for _ in range(4):
            [found] = (await client.request(about("new"))).topics
            codes.append(found.error_code)
            await trio.sleep(0.4)
        refused = ErrorCode.INVALID_REPLICATION_FACTOR
        assert codes == [WAIT, refused, refused, WAIT]


class HandForwarder:
    """Keeps what is to be forwarded, for the test to answer."""

    def __init__(self) -> None:
        self.sent: list[tuple[k19.CreateTopicsRequest, Sender | None, Any]] = []

    def forward(
        self, frame: Buffer, sender: Sender, reply: ForwardingReply, *, timeout_ms: int
    ) -> None:
        header, position = decode_request_header(frame)
        assert header.request_api_key == 19
        request = decode(k19.CreateTopicsRequest, header.request_api_version, frame[position:])
        self.sent.append((request, sender, reply))

    def ask(
        self, request: k19.CreateTopicsRequest, reply: ForwardingReply, *, timeout_ms: int
    ) -> None:
        self.sent.append((request, None, reply))

    @property
    def names(self) -> list[list[str]]:
        return [[each.name for each in request.topics] for request, _, _ in self.sent]

    def answer(self, **codes: ErrorCode) -> None:
        response = k19.CreateTopicsResponse(
            topics=[
                k19.CreatableTopicResult(name=name, error_code=code) for name, code in codes.items()
            ]
        )
        parts = encode_response(response, 7, 0)
        self.sent[-1][2](b"".join(bytes(part) for part in parts)[4:])  # type: ignore[arg-type]


def by_hand() -> tuple[AutoTopicCreation, HandForwarder]:
    forwarder = HandForwarder()
    creation = AutoTopicCreation(
        forwarder,  # type: ignore[arg-type]
        MemoryClock(),
        TEMPLATE,
        {"__consumer_offsets": OFFSETS},
    )
    return creation, forwarder


async def test_topics_of_one_request_are_created_together(autojump_clock: object) -> None:
    creation, forwarder = by_hand()
    assert creation.create(["a", "b", "a"], ANN) == {"a": WAIT, "b": WAIT}
    assert creation.create(["b", "c"], ANN) == {"b": WAIT, "c": WAIT}
    assert forwarder.names == [["a", "b"], ["c"]]
    assert all(sender == ANN for _, sender, _ in forwarder.sent)
    assert creation.create([], ANN) == {}
    assert len(forwarder.sent) == 2


async def test_internal_topics_have_their_own_template(autojump_clock: object) -> None:
    creation, forwarder = by_hand()
    creation.create(["__consumer_offsets", "plain"], ANN)
    internal, plain = forwarder.sent[0][0].topics
    assert (internal.num_partitions, internal.replication_factor) == (50, 1)
    assert [(each.name, each.value) for each in internal.configs] == [("cleanup.policy", "compact")]
    assert (plain.num_partitions, plain.replication_factor, plain.configs) == (3, 1, [])


async def test_after_a_creation_the_next_question_may_create(autojump_clock: object) -> None:
    """A topic that somebody else was quicker with is no failure."""
    creation, forwarder = by_hand()
    for number, code in enumerate((ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)):
        assert creation.create(["a"], ANN) == {"a": WAIT}
        assert len(forwarder.sent) == number + 1
        forwarder.answer(a=code)
    assert creation.create(["a"], ANN) == {"a": WAIT}


async def test_failures_of_all_kinds(autojump_clock: object) -> None:
    creation, forwarder = by_hand()
    creation.create(["a", "b", "c"], ANN)
    forwarder.answer(a=ErrorCode.NONE, b=ErrorCode.POLICY_VIOLATION)
    assert creation.create(["b", "c"], ANN) == {
        "b": ErrorCode.POLICY_VIOLATION,
        "c": ErrorCode.UNKNOWN_SERVER_ERROR,
    }
    creation.create(["d"], ANN)
    forwarder.sent[-1][2](ErrorCode.REQUEST_TIMED_OUT)
    assert creation.create(["d"], ANN) == {"d": ErrorCode.REQUEST_TIMED_OUT}
    creation.create(["e"], ANN)
    forwarder.sent[-1][2](b"\xff\xff")
    assert creation.create(["e"], ANN) == {"e": ErrorCode.UNKNOWN_SERVER_ERROR}
    await trio.sleep(1.001)
    assert creation.create(["b", "d", "e"], ANN) == {"b": WAIT, "d": WAIT, "e": WAIT}


async def test_invented_names_fill_no_memory(autojump_clock: object) -> None:
    """A thousand are remembered and one more isn't, until some are forgotten."""
    creation, forwarder = by_hand()
    names = [f"t{number}" for number in range(1_001)]
    codes = creation.create(names, ANN)
    assert list(codes.values()) == [WAIT] * 1_000 + [UNKNOWN]
    forwarder.sent[0][2](ErrorCode.REQUEST_TIMED_OUT)
    assert creation.create(["more"], ANN) == {"more": UNKNOWN}
    await trio.sleep(1.001)
    assert creation.create(["more"], ANN) == {"more": WAIT}


async def test_the_client_is_known_to_the_controller(autojump_clock: object) -> None:
    creation, forwarder = by_hand()
    view = view_of(broker(1), *topic("a", (1,)))
    channel = RecordingChannel(principal="User:bob", client_host="192.0.2.9")
    bench = Bench([MetadataHandler(view, creation)], channel=channel)
    bench.ask(about("a", "new"), 13)
    assert forwarder.names == [["new"]]
    assert forwarder.sent[0][1] == Sender("User:bob", "192.0.2.9")


async def test_what_the_broker_needs_it_asks_for_itself(autojump_clock: object) -> None:
    creation, forwarder = by_hand()
    assert creation.create(["__consumer_offsets"]) == {"__consumer_offsets": WAIT}
    [(request, sender, reply)] = forwarder.sent
    assert sender is None
    assert request.topics[0].num_partitions == OFFSETS.num_partitions
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    result = k19.CreatableTopicResult(name="__consumer_offsets", error_code=refused)
    reply(k19.CreateTopicsResponse(topics=[result]))
    assert creation.create(["__consumer_offsets"]) == {"__consumer_offsets": refused}
    await trio.sleep(1.001)
    assert creation.create(["__consumer_offsets"]) == {"__consumer_offsets": WAIT}
    forwarder.sent[-1][2](ErrorCode.REQUEST_TIMED_OUT)
    assert creation.create(["__consumer_offsets"]) == {
        "__consumer_offsets": ErrorCode.REQUEST_TIMED_OUT
    }
