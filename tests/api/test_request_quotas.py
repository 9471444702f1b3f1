"""Quotas of clients, seen by their requests: how long they must wait, and what they get."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing
from api.data_rig import (
    PRODUCE_VERSION,
    Asked,
    Broker,
    broker_on,
    followed,
    told,
)
from api.recording import RecordingAnswer, RecordingChannel, lone_node, payload
from broker.replica_rig import Rig, topic

from kraftpy.api.dispatch import Dispatcher
from kraftpy.api.handler import ApiError, Handler, RequestContext
from kraftpy.api.request_quotas import RequestQuotas
from kraftpy.observe.metrics import Gauge, MetricName, MetricRegistry
from kraftpy.observe.request_metrics import RequestMetrics
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import decode_response
from kraftpy.protocol.schema.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kraftpy.protocol.schema.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftpy.protocol.schema.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kraftpy.protocol.schema.k60_describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kraftpy.records.builder import BatchBuilder
from kraftpy.security.limits import ANY, NOT_NAMED, LimitSubject
from kraftpy.world.memory_clock import MemoryClock

LIMIT = 1_000.0
# What a client that comes anew may use at once: ten seconds of its limit.
AT_ONCE = 10_000
TEST = LimitSubject(NOT_NAMED, "test")


def batch(value: bytes) -> bytes:
    builder = BatchBuilder()
    builder.append(None, value, timestamp_ms=1_767_225_600_000)
    return bytes(builder.build())


def delay_of(size_bytes: int) -> int:
    """For what is used at once, by a client that has used nothing before."""
    return int(max(0.0, (size_bytes / 10 - LIMIT) / LIMIT * 10_000) + 0.5)


@pytest.fixture
def quotas() -> RequestQuotas:
    return RequestQuotas(MetricRegistry(), MemoryClock())


@pytest.fixture
async def broker(quotas: RequestQuotas) -> AsyncIterator[Broker]:
    """Topic t has a partition on broker 1 only."""
    rig = Rig()
    async with broker_on(rig, quotas=quotas) as broker:
        await rig.apply(*topic("t", 1, replicas=(1,)), *topic("shared", 1, replicas=(1, 2)))
        yield broker


def size_of_produce(value: bytes, acks: int = 1) -> int:
    """Of the frame that `produce` makes."""
    data = PartitionProduceData(index=0, records=batch(value))
    topics = [TopicProduceData(name="t", partition_data=[data])]
    request = ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=topics)
    return len(payload(request, PRODUCE_VERSION))


def produce(broker: Broker, value: bytes, **terms: Any) -> Asked:
    return broker.begin_produce({("t", 0): batch(value)}, **terms)


# Produce.


async def test_without_a_limit_nobody_waits(
    broker: Broker, quotas: RequestQuotas, autojump_clock: trio.testing.MockClock
) -> None:
    """NET-82: 0."""
    assert not quotas.are_set
    asked = produce(broker, bytes(100_000))
    assert (asked.response.throttle_time_ms, asked.answer.throttled_ms) == (0, 0)


async def test_a_producer_waits_for_the_size_of_its_requests(
    broker: Broker, quotas: RequestQuotas, autojump_clock: trio.testing.MockClock
) -> None:
    """NET-82: the answer is there at once and says how long; the connection isn't served."""
    quotas.change("producer_byte_rate", TEST, LIMIT)
    overhead = size_of_produce(b"") + 1
    within = produce(broker, bytes(AT_ONCE - overhead - 10))
    assert (within.response.throttle_time_ms, within.answer.throttled_ms) == (0, 0)
    await trio.sleep(12)
    size = size_of_produce(bytes(15_000))
    beyond = produce(broker, bytes(15_000))
    assert beyond.response.throttle_time_ms == delay_of(size) > 5_000
    assert beyond.answer.throttled_ms == delay_of(size)
    assert beyond.response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    other = produce(broker, bytes(15_000), client_id="other")
    assert other.response.throttle_time_ms == 0


async def test_without_acks_the_connection_waits_all_the_same(
    broker: Broker, quotas: RequestQuotas, autojump_clock: trio.testing.MockClock
) -> None:
    """NET-85."""
    quotas.change("producer_byte_rate", TEST, LIMIT)
    asked = produce(broker, bytes(15_000), acks=0)
    assert asked.answer.outcome == "nothing"
    assert asked.answer.throttled_ms == delay_of(size_of_produce(bytes(15_000), acks=0))


async def test_a_producer_that_waits_for_others_is_charged_once(
    broker: Broker, quotas: RequestQuotas, autojump_clock: trio.testing.MockClock
) -> None:
    quotas.change("producer_byte_rate", TEST, LIMIT)
    asked = broker.begin_produce({("shared", 0): batch(bytes(15_000))}, acks=-1, timeout_ms=100)
    assert not asked.is_answered
    await trio.sleep(0.2)
    assert asked.response.throttle_time_ms > 5_000
    assert asked.response.throttle_time_ms == asked.answer.throttled_ms
    again = produce(broker, b"")
    # A small one more, in a window that is a little older, and nothing twice.
    assert abs(again.response.throttle_time_ms - asked.response.throttle_time_ms) < 300


async def test_quotas_are_for_users_too(
    broker: Broker, quotas: RequestQuotas, autojump_clock: trio.testing.MockClock
) -> None:
    """Without authentication everybody is ANONYMOUS."""
    quotas.change("producer_byte_rate", LimitSubject("ANONYMOUS", NOT_NAMED), LIMIT)
    produce(broker, bytes(5_000), client_id="a")
    assert produce(broker, bytes(5_000), client_id="b").response.throttle_time_ms > 0
    quotas.change("producer_byte_rate", LimitSubject("ANONYMOUS", "b"), 1e9)
    assert produce(broker, bytes(5_000), client_id="b").response.throttle_time_ms == 0
    quotas.change("producer_byte_rate", LimitSubject(ANY, ANY), 1.0)
    assert produce(broker, bytes(5_000), client_id="c").response.throttle_time_ms > 0


# Fetch.


def fetch(broker: Broker, offset: int = 0, **terms: Any) -> Asked:
    return broker.begin_fetch({("t", 0): offset}, **terms)


async def filled(broker: Broker, quotas: RequestQuotas, *values: bytes) -> None:
    for value in values or (bytes(15_000),):
        produce(broker, value)
    quotas.change("consumer_byte_rate", TEST, LIMIT)


async def test_a_consumer_gets_nothing_beyond_its_limit(
    broker: Broker, quotas: RequestQuotas, autojump_clock: trio.testing.MockClock
) -> None:
    """NET-84: no partitions, no charge; so it may have it as soon as if it hadn't asked."""
    await filled(broker, quotas, bytes(9_000))
    first = fetch(broker)
    assert first.response.throttle_time_ms == 0
    assert len(told(first.response)[("t", 0)].records) > 9_000  # type: ignore[arg-type]
    for _ in range(3):
        asked = fetch(broker)
        assert asked.response.responses == []
        assert 8_000 < asked.response.throttle_time_ms < 9_000
        assert asked.answer.throttled_ms == asked.response.throttle_time_ms
        assert asked.response.error_code == ErrorCode.NONE
    await trio.sleep(11)
    assert told(fetch(broker).response) != {}


async def test_a_fetch_is_no_larger_than_what_a_limit_allows_at_once(
    broker: Broker, quotas: RequestQuotas, autojump_clock: trio.testing.MockClock
) -> None:
    """Otherwise it could never be answered. As in Kafka, what stands around the records comes on
    top: so it must wait for a moment, until the window is a little longer.
    """
    began = trio.current_time()
    await filled(broker, quotas, *[bytes(4_000)] * 5)
    asked = fetch(broker, max_bytes=1 << 20)
    assert 0 < asked.response.throttle_time_ms < 100
    while not asked.response.responses:
        assert trio.current_time() - began < 1
        await trio.sleep(max(0.3, asked.response.throttle_time_ms / 1000))
        asked = fetch(broker, max_bytes=1 << 20)
    assert len(told(asked.response)[("t", 0)].records) == AT_ONCE  # type: ignore[arg-type]


async def test_a_session_that_would_begin_does_not(
    broker: Broker, quotas: RequestQuotas, autojump_clock: trio.testing.MockClock
) -> None:
    await filled(broker, quotas, bytes(9_000))
    fetch(broker)
    held_back = fetch(broker, session_epoch=0)
    assert held_back.response.throttle_time_ms > 0
    assert held_back.response.session_id == 0
    assert len(broker.sessions) == 0
    await trio.sleep(11)
    assert fetch(broker, session_epoch=0).response.session_id != 0


async def test_a_session_goes_on_where_it_was(
    broker: Broker, quotas: RequestQuotas, autojump_clock: trio.testing.MockClock
) -> None:
    await filled(broker, quotas, bytes(9_000))
    first = fetch(broker, session_epoch=0, max_wait_ms=0)
    session_id = first.response.session_id
    assert session_id != 0
    held_back = fetch(broker, session_id=session_id, session_epoch=1)
    assert held_back.response.throttle_time_ms > 0
    assert held_back.response.session_id == session_id
    await trio.sleep(11)
    asked = broker.begin_fetch({}, session_id=session_id, session_epoch=2)
    assert len(told(asked.response)[("t", 0)].records) > 9_000  # type: ignore[arg-type]


async def test_what_a_session_was_not_told_it_is_told_later(
    broker: Broker, quotas: RequestQuotas, autojump_clock: trio.testing.MockClock
) -> None:
    """That a log begins later, of which there will be no other news."""
    produce(broker, b"a")
    session_id = fetch(broker, 1, session_epoch=0, max_wait_ms=0).response.session_id
    partition = DeleteRecordsPartition(partition_index=0, offset=1)
    deletion = DeleteRecordsTopic(name="t", partitions=[partition])
    broker.ask(DeleteRecordsRequest(topics=[deletion], timeout_ms=1_000), 2)
    quotas.change("consumer_byte_rate", TEST, 1.0)
    terms = {"session_id": session_id, "max_wait_ms": 0}
    held_back = broker.begin_fetch({}, session_epoch=1, **terms)
    assert held_back.response.throttle_time_ms > 0
    quotas.change("consumer_byte_rate", TEST, 1e9)
    asked = broker.begin_fetch({}, session_epoch=2, **terms)
    assert told(asked.response)[("t", 0)].log_start_offset == 1


async def test_followers_are_exempt(
    broker: Broker, quotas: RequestQuotas, autojump_clock: trio.testing.MockClock
) -> None:
    """NET-83."""
    for key in ("consumer_byte_rate", "request_percentage"):
        quotas.change(key, LimitSubject(ANY, ANY), 0.001)
    broker.begin_produce({("shared", 0): batch(bytes(15_000))})
    for _ in range(2):
        asked = broker.begin_fetch({("shared", 0): followed(0)}, replica_id=2)
        assert len(told(asked.response)[("shared", 0)].records) > 15_000  # type: ignore[arg-type]
        assert (asked.response.throttle_time_ms, asked.answer.throttled_ms) == (0, 0)


# Time.


class BusyHandler(Handler):
    """Takes a while, and then answers, fails, or answers later."""

    api_key = 60

    def __init__(self, clock: trio.testing.MockClock) -> None:
        self.clock = clock
        self.seconds = 0.0
        self.fails = False
        self.later: list[RequestContext] = []
        self.is_late = False

    def handle(self, request: Any, context: RequestContext) -> DescribeClusterResponse | None:
        self.clock.jump(self.seconds)
        if self.fails:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if self.is_late:
            self.later.append(context)
            return None
        return DescribeClusterResponse()


class Desk:
    """A dispatcher with one handler."""

    def __init__(self, handler: Handler, quotas: RequestQuotas) -> None:
        self.dispatcher = Dispatcher(
            [handler],
            features=lone_node(),
            metrics=RequestMetrics(MetricRegistry()),
            clock=MemoryClock(),
            quotas=quotas,
        )

    def begin(self, client_id: str | None = "test") -> RecordingAnswer:
        answer = RecordingAnswer()
        frame = payload(DescribeClusterRequest(), 2, client_id=client_id)
        self.dispatcher.serve(RecordingChannel(), memoryview(frame), answer)
        return answer

    def delay(self, client_id: str | None = "test") -> int:
        return told_delay(self.begin(client_id))


def told_delay(answer: RecordingAnswer) -> int:
    """What the answer says, which is what the connection does."""
    _, response = decode_response(DescribeClusterResponse, 2, answer.sent[4:])
    assert response.throttle_time_ms == answer.throttled_ms
    return response.throttle_time_ms


@pytest.fixture
def busy(mock_clock: trio.testing.MockClock) -> BusyHandler:
    return BusyHandler(mock_clock)


async def test_the_time_that_requests_take(
    busy: BusyHandler, quotas: RequestQuotas, mock_clock: trio.testing.MockClock
) -> None:
    """10 percent are a second of the ten that a window has; a delay is no longer than a sample."""
    desk = Desk(busy, quotas)
    quotas.change("request_percentage", TEST, 10.0)
    busy.seconds = 0.5
    assert desk.delay() == 0
    assert desk.delay() == 0
    # The first sample began when the first request was done: 106 in 10.56 s.
    busy.seconds = 0.06
    assert desk.delay() == 40
    busy.seconds = 5.0
    assert desk.delay() == 1_000
    assert desk.delay("other") == 0


async def test_failures_take_time_too(
    busy: BusyHandler, quotas: RequestQuotas, mock_clock: trio.testing.MockClock
) -> None:
    desk = Desk(busy, quotas)
    quotas.change("request_percentage", TEST, 10.0)
    busy.seconds, busy.fails = 3.0, True
    assert desk.delay() == 1_000


async def test_waiting_takes_no_time(
    busy: BusyHandler, quotas: RequestQuotas, mock_clock: trio.testing.MockClock
) -> None:
    desk = Desk(busy, quotas)
    quotas.change("request_percentage", TEST, 10.0)
    busy.is_late = True
    answer = desk.begin()
    mock_clock.jump(100)
    busy.later[0].respond(DescribeClusterResponse())
    assert told_delay(answer) == 0


async def test_what_nodes_ask_is_exempt_and_shown(
    busy: BusyHandler, mock_clock: trio.testing.MockClock
) -> None:
    """NET-83."""
    registry = MetricRegistry()
    quotas = RequestQuotas(registry, MemoryClock())
    busy.is_exempt = True
    desk = Desk(busy, quotas)
    quotas.change("request_percentage", LimitSubject(ANY, NOT_NAMED), 0.001)
    busy.seconds = 0.5
    assert desk.delay() == 0
    gauge = registry.get(
        MetricName("kafka.server", "Request", "exempt-request-time", is_attribute=True)
    )
    assert isinstance(gauge, Gauge)
    assert gauge.read() == pytest.approx(5.0)


async def test_an_answer_that_can_not_say_it(
    busy: BusyHandler, quotas: RequestQuotas, mock_clock: trio.testing.MockClock
) -> None:
    """Version 0 of ApiVersions has no field for it; the connection waits all the same."""
    desk = Desk(busy, quotas)
    quotas.change("request_percentage", TEST, 10.0)
    busy.seconds = 3.0
    desk.begin()
    answer = RecordingAnswer()
    frame = payload(ApiVersionsRequest(), 0)
    desk.dispatcher.serve(RecordingChannel(), memoryview(frame), answer)
    assert answer.throttled_ms > 0
    _, response = decode_response(ApiVersionsResponse, 0, answer.sent[4:])
    assert response.throttle_time_ms == 0


async def test_the_longer_delay_counts(
    broker: Broker, quotas: RequestQuotas, autojump_clock: trio.testing.MockClock
) -> None:
    quotas.change("producer_byte_rate", TEST, LIMIT)
    quotas.change("request_percentage", TEST, 1e-9)
    asked = produce(broker, bytes(15_000))
    assert asked.response.throttle_time_ms == delay_of(size_of_produce(bytes(15_000)))
