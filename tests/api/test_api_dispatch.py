"""Dispatch: what is refused, what is answered, and what a handler's failure turns into."""

from __future__ import annotations

import logging
import struct

import pytest
from api.every_handler import on_brokers, on_controllers
from api.recording import Bench, lone_node, payload
from support.lone_node import broker_handlers

from kraftpy.api.api_keys import CONTROLLER_LISTENER_APIS, METADATA_APIS
from kraftpy.api.handler import ApiError, Handler, RequestContext
from kraftpy.net.service import BadRequest
from kraftpy.observe.metrics import Meter, MetricName
from kraftpy.protocol.codec import decode
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import decode_response, encode_response
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema.k00_produce import ProduceRequest, ProduceResponse
from kraftpy.protocol.schema.k03_metadata import MetadataRequest, MetadataResponse
from kraftpy.protocol.schema.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftpy.protocol.schema.k60_describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kraftpy.protocol.tables import Response
from kraftpy.world import InternalInvariant

DESCRIBE = payload(DescribeClusterRequest(), 2)


class Failing(Handler):
    """DescribeCluster, failing with what it was made with."""

    api_key = 60

    def __init__(self, failure: Exception) -> None:
        self.failure = failure

    def handle(self, request: DescribeClusterRequest, context: RequestContext) -> Response | None:
        raise self.failure


class Remembering(Handler):
    """DescribeCluster, answered when the test says so."""

    api_key = 60

    def __init__(self) -> None:
        self.contexts: list[RequestContext] = []

    def handle(self, request: DescribeClusterRequest, context: RequestContext) -> None:
        self.contexts.append(context)


class FailingProduce(Handler):
    """A Produce that fails; with acks=0 nobody could be told."""

    api_key = 0

    def handle(self, request: ProduceRequest, context: RequestContext) -> Response | None:
        raise RuntimeError("no log")

    def error_answer(
        self,
        request: ProduceRequest,
        context: RequestContext,
        code: ErrorCode,
        message: str,
    ) -> ProduceResponse | None:
        return None if request.acks == 0 else ProduceResponse()

    def error_codes(self, response: ProduceResponse) -> list[int]:
        return []


@pytest.fixture
def bench() -> Bench:
    return Bench(broker_handlers(lone_node()))


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        pytest.param(b"", "header cut short", id="empty"),
        pytest.param(DESCRIBE[:7], "header cut short", id="half a header"),
        pytest.param(DESCRIBE[:9], "malformed request", id="no client id"),
        pytest.param(DESCRIBE[:-1], "malformed request", id="body cut"),
        pytest.param(struct.pack(">hhih", 999, 0, 1, -1), "API not served", id="unknown key"),
        pytest.param(struct.pack(">hhih", -1, 0, 1, -1), "API not served", id="negative key"),
        pytest.param(struct.pack(">hhih", 6, 0, 1, -1), "API not served", id="retired key"),
        pytest.param(struct.pack(">hhih", 1, 4, 1, -1), "API not served", id="not implemented"),
        pytest.param(struct.pack(">hhih", 60, 3, 1, -1), "version not served", id="one above"),
        pytest.param(struct.pack(">hhih", 60, -1, 1, -1), "version not served", id="one below"),
    ],
)
def test_what_is_no_request_costs_the_connection(bench: Bench, frame: bytes, reason: str) -> None:
    """NET-31, NET-32, NET-33."""
    with pytest.raises(BadRequest, match=reason) as refused:
        bench.serve(frame)
    if len(frame) >= 8:
        key, version = struct.unpack_from(">hh", frame)
        assert f"api_key={key} api_version={version}" in str(refused.value)


def test_bytes_behind_a_request_are_passed_over(bench: Bench) -> None:
    """librdkafka 2.16 asks for all topics so, in every flexible version: golden bytes."""
    frame = bytes.fromhex("0003 000d 00000003 0007 72646b61666b61 00 00 000000 010000")
    answer = bench.serve(frame)
    _, response = decode_response(MetadataResponse, 13, answer.sent[4:])
    assert (response.error_code, len(response.brokers), response.topics) == (0, 1, [])


@pytest.mark.parametrize("correlation_id", [0, -1, 2**31 - 1, -(2**31)])
def test_correlation_id_comes_back(bench: Bench, correlation_id: int) -> None:
    """NET-34."""
    bench.ask(DescribeClusterRequest(), 2, correlation_id)


@pytest.mark.parametrize("client_id", [None, "", "Zoë-€"])
def test_any_client_id(client_id: str | None) -> None:
    """NET-35, NET-65: handlers see it, and who sent the request how."""
    handler = Remembering()
    bench = Bench([handler])
    bench.serve(payload(DescribeClusterRequest(), 2, 77, client_id))
    [context] = handler.contexts
    assert context.client_id == client_id
    assert (context.api_key, context.api_version, context.correlation_id) == (60, 2, 77)
    assert context.channel is bench.channel


def test_handler_may_answer_later() -> None:
    handler = Remembering()
    bench = Bench([handler])
    answer = bench.serve(DESCRIBE)
    assert answer.outcome == ""
    handler.contexts[0].respond(DescribeClusterResponse(cluster_id="later"))
    expected = encode_response(DescribeClusterResponse(cluster_id="later"), 2, 5)
    assert answer.sent == b"".join(expected)  # type: ignore[arg-type]
    assert handler.contexts[0].is_answered


def test_second_answer_is_our_own_fault() -> None:
    handler = Remembering()
    bench = Bench([handler])
    bench.serve(DESCRIBE)
    [context] = handler.contexts
    context.respond_nothing()
    with pytest.raises(InternalInvariant, match="request-answered-twice"):
        context.respond(DescribeClusterResponse())


def test_handler_may_disconnect_and_throttle() -> None:
    """NET-40."""
    handler = Remembering()
    bench = Bench([handler])
    answer = bench.serve(DESCRIBE)
    handler.contexts[0].throttle(250)
    handler.contexts[0].disconnect()
    assert (answer.outcome, answer.throttled_ms) == ("disconnected", 250)


def test_handler_failure_is_answered_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """NET-67."""
    bench = Bench([Failing(RuntimeError("broken inside"))])
    response = bench.ask(DescribeClusterRequest(), 2)
    assert isinstance(response, DescribeClusterResponse)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert "api=DescribeCluster api_version=2 correlation_id=5" in record.getMessage()
    assert record.exc_info is not None
    assert "broken inside" in str(record.exc_info[1])
    # What went wrong inside is for the log, not for the peer.
    assert response.error_message == ErrorCode.UNKNOWN_SERVER_ERROR.message


def test_api_error_is_the_answer_and_not_worth_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """NET-67: the mapped code."""
    failure = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")
    response = Bench([Failing(failure)]).ask(DescribeClusterRequest(), 2)
    assert isinstance(response, DescribeClusterResponse)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert response.error_message == "not you"
    assert caplog.records == []


def test_failure_after_the_answer_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The peer has its answer; a second one would be worse than none."""

    class AnswersAndFails(Handler):
        api_key = 60

        def __init__(self, failure: Exception) -> None:
            self.failure = failure

        def handle(self, request: object, context: RequestContext) -> None:
            context.respond(DescribeClusterResponse(cluster_id="answered"))
            raise self.failure

    for failure in (RuntimeError("late"), ApiError(ErrorCode.INVALID_REQUEST, "late")):
        response = Bench([AnswersAndFails(failure)]).ask(DescribeClusterRequest(), 2)
        assert isinstance(response, DescribeClusterResponse)
        assert (response.error_code, response.cluster_id) == (ErrorCode.NONE, "answered")
    assert len(caplog.records) == 2


def test_failure_that_nobody_can_be_told_closes_the_connection() -> None:
    """NET-68."""
    bench = Bench([FailingProduce()])
    assert bench.serve(payload(ProduceRequest(acks=0), 9)).outcome == "disconnected"
    assert bench.serve(payload(ProduceRequest(acks=1), 9)).outcome == "sent"


def test_error_answer_that_fails_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever reports the error, in whatever task, is not disturbed by it."""

    class CannotReport(Remembering):
        def error_answer(
            self, request: object, context: RequestContext, code: ErrorCode, message: str
        ) -> Response | None:
            raise LookupError(message)

    handler = CannotReport()
    answer = Bench([handler]).serve(DESCRIBE)
    handler.contexts[0].respond_error(ErrorCode.REQUEST_TIMED_OUT)
    assert answer.outcome == "disconnected"
    assert "error answer can't be made" in caplog.text


def test_answer_that_cannot_be_encoded_becomes_an_error(caplog: pytest.LogCaptureFixture) -> None:
    handler = Remembering()
    bench = Bench([handler])
    answer = bench.serve(DESCRIBE)
    handler.contexts[0].respond(DescribeClusterResponse(cluster_id="c", controller_id=2**40))
    response = decode(DescribeClusterResponse, 2, answer.sent[9:])
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(caplog.records) == 1


def test_broken_invariant_is_not_answered() -> None:
    """NET-53: it rises to the root, which stops the node."""
    bench = Bench([Failing(InternalInvariant("two leaders"))])
    with pytest.raises(InternalInvariant, match="two leaders"):
        bench.serve(DESCRIBE)


def test_only_produce_runs_ahead() -> None:
    """Decision 5; on listeners between nodes the network does not ask."""
    dispatcher = Bench([]).dispatcher
    assert dispatcher.may_run_ahead(memoryview(payload(ProduceRequest(), 9)))
    assert not dispatcher.may_run_ahead(memoryview(payload(MetadataRequest(), 9)))
    assert not dispatcher.may_run_ahead(memoryview(b""))
    assert not dispatcher.may_run_ahead(memoryview(b"\0"))


def test_requests_are_measured_once_and_errors_counted() -> None:
    """NET-61, NET-62: the recorder is handed over before the answer; codes are counted by name."""
    handlers = broker_handlers(lone_node())
    bench = Bench(handlers)
    answer = bench.serve(payload(MetadataRequest(topics=[]), 12))
    assert len(answer.recorders) == 1
    wrong_endpoint = payload(DescribeClusterRequest(endpoint_type=2), 2)
    bench.serve(wrong_endpoint)
    bench.serve(wrong_endpoint)
    assert error_count(bench, "DescribeCluster", "MISMATCHED_ENDPOINT_TYPE") == 2
    assert error_count(bench, "Metadata", "NONE") == 1


def test_peers_cannot_invent_metrics() -> None:
    """Each version that is asked for would otherwise leave a meter behind for good."""
    bench = Bench([])
    for version in range(5, 500):
        bench.serve(struct.pack(">hhih", 18, version, version, -1))
    assert len(list(bench.registry)) < 20


def test_every_handler_can_report_an_error_in_every_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NET-67, for all that is served: the error answer of each version can be encoded."""

    def fail(request: object, context: object) -> None:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)

    for handler in (*on_brokers(), *on_controllers()):
        monkeypatch.setattr(handler, "handle", fail)
        api = API[handler.api_key]
        for version in range(api.min_version, api.max_version + 1):
            Bench([handler]).ask(api.request_class(), version)


def test_listeners_serve_what_is_meant_for_them() -> None:
    """NET-66: what is listed is served, what is served is listed, and belongs on that listener."""
    for kind, handlers, keys in (
        ("broker", on_brokers(), METADATA_APIS),
        ("controller", on_controllers(), CONTROLLER_LISTENER_APIS),
    ):
        assert sorted(keys) == sorted(handler.api_key for handler in handlers)
        bench = Bench(handlers)
        response = bench.ask(ApiVersionsRequest(), 0)
        assert isinstance(response, ApiVersionsResponse)
        listed = [entry.api_key for entry in response.api_keys]
        assert listed == sorted([18, *(handler.api_key for handler in handlers)])
        assert all(kind in API[key].listeners for key in listed)


def error_count(bench: Bench, api: str, error: str) -> float:
    tags = (("request", api), ("error", error))
    meter = bench.registry.get(MetricName("kafka.network", "RequestMetrics", "ErrorsPerSec", tags))
    assert isinstance(meter, Meter)
    return meter.count
