"""The Envelope on a controller: what may be in it, for whom it is served, how it is answered."""

from __future__ import annotations

from typing import Any

import pytest
from api.every_handler import on_controllers
from api.recording import Bench, RecordingChannel, payload
from api.scripted_controller import ScriptedController

from kraftpy.api.api_keys import FORWARDABLE_APIS
from kraftpy.api.handler import Handler
from kraftpy.api.k58_envelope import EnvelopeHandler
from kraftpy.broker.envelope import Sender, open_envelope, seal
from kraftpy.observe.metrics import Meter, MetricName, MetricRegistry
from kraftpy.observe.request_metrics import RequestMetrics
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import decode_response
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.protocol.schema import k58_envelope as k58
from kraftpy.protocol.schema import k63_broker_heartbeat as k63
from kraftpy.world.real_clock import RealClock

ANN = Sender("User:ann", "192.0.2.7")
CREATE = k19.CreateTopicsRequest(topics=[k19.CreatableTopic(name="a")])
CREATED = k19.CreateTopicsResponse(topics=[k19.CreatableTopicResult(name="a")])


def bench_of(controller: ScriptedController) -> Bench:
    registry = MetricRegistry()
    channel = RecordingChannel(listener_name="CONTROLLER", client_host="10.0.0.9")
    return Bench(on_controllers(controller, registry), channel=channel, registry=registry)


def send(bench: Bench, envelope: k58.EnvelopeRequest) -> k58.EnvelopeResponse:
    response = bench.ask(envelope, 0)
    assert isinstance(response, k58.EnvelopeResponse)
    return response


@pytest.mark.parametrize("version", range(2, 8))
def test_a_request_is_served_for_the_client_who_sent_it(version: int) -> None:
    """KRF-130: with its principal, host, client id and version; its bytes come back."""
    controller = ScriptedController(answer=CREATED)
    frame = payload(CREATE, version, correlation_id=4711, client_id="ann's laptop")
    answer = send(bench_of(controller), seal(frame, ANN))
    assert answer.error_code == ErrorCode.NONE
    assert answer.response_data is not None
    correlation_id, response = decode_response(
        k19.CreateTopicsResponse, version, answer.response_data
    )
    assert (correlation_id, response.topics[0].name) == (4711, "a")
    [(request, caller)] = controller.asked
    assert [each.name for each in request.topics] == ["a"]
    assert (caller.principal, caller.client_host) == ("User:ann", "192.0.2.7")
    assert (caller.client_id, caller.api_version) == ("ann's laptop", version)


@pytest.mark.parametrize("host", ["192.0.2.7", "2001:db8::7", "::1"])
@pytest.mark.parametrize("principal", ["User:ann", "User:a:b", "Group:", "User:ü"])
def test_who_sent_it_survives_the_journey(host: str, principal: str) -> None:
    assert open_envelope(seal(b"x", Sender(principal, host))) == Sender(principal, host)


def test_the_principal_is_in_kafka_s_form() -> None:
    """Golden bytes: version, then type and name with their lengths, no token, no tags."""
    envelope = seal(b"x", ANN)
    assert envelope.request_principal == b"\0\0" + b"\x05User" + b"\x04ann" + b"\0\0"
    assert envelope.client_host_address == bytes([192, 0, 2, 7])


def test_a_node_that_is_not_the_controller_says_so_to_the_broker() -> None:
    """The broker must look elsewhere; the client must not hear of it."""
    answer = send(bench_of(ScriptedController(ErrorCode.NOT_CONTROLLER)), sealed())
    assert (answer.error_code, answer.response_data) == (ErrorCode.NOT_CONTROLLER, None)


def test_so_does_an_item_of_an_answer() -> None:
    result = k19.CreatableTopicResult(name="a", error_code=ErrorCode.NOT_CONTROLLER)
    controller = ScriptedController(answer=k19.CreateTopicsResponse(topics=[result]))
    answer = send(bench_of(controller), sealed())
    assert (answer.error_code, answer.response_data) == (ErrorCode.NOT_CONTROLLER, None)


def test_other_refusals_are_the_client_s() -> None:
    bench = bench_of(ScriptedController(ErrorCode.POLICY_VIOLATION))
    answer = send(bench, sealed())
    assert answer.error_code == ErrorCode.NONE
    assert answer.response_data is not None
    _, response = decode_response(k19.CreateTopicsResponse, 7, answer.response_data)
    assert [each.error_code for each in response.topics] == [ErrorCode.POLICY_VIOLATION]
    tags = (("request", "CreateTopics"), ("error", "POLICY_VIOLATION"))
    meter = bench.registry.get(MetricName("kafka.network", "RequestMetrics", "ErrorsPerSec", tags))
    assert isinstance(meter, Meter)
    assert meter.count == 1


def sealed(frame: bytes | None = None) -> k58.EnvelopeRequest:
    return seal(payload(CREATE, 7) if frame is None else frame, ANN)


def changed(**fields: Any) -> k58.EnvelopeRequest:
    envelope = sealed()
    for name, value in fields.items():
        setattr(envelope, name, value)
    return envelope


@pytest.mark.parametrize(
    ("envelope", "code"),
    [
        (changed(client_host_address=b""), ErrorCode.INVALID_REQUEST),
        (changed(client_host_address=b"12345"), ErrorCode.INVALID_REQUEST),
        (changed(request_principal=None), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (changed(request_principal=b""), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (changed(request_principal=b"\0\1\1\1\0\0"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (changed(request_principal=b"\0\0\xff"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (sealed(b""), ErrorCode.INVALID_REQUEST),
        (sealed(b"\0\x13\0"), ErrorCode.INVALID_REQUEST),
        (sealed(payload(CREATE, 7)[:-3]), ErrorCode.INVALID_REQUEST),
        (sealed(b"\x7f\xff" + payload(CREATE, 7)[2:]), ErrorCode.INVALID_REQUEST),
        (sealed(payload(k63.BrokerHeartbeatRequest(), 2)), ErrorCode.INVALID_REQUEST),
        (sealed(payload(sealed(), 0)), ErrorCode.INVALID_REQUEST),
        (sealed(b"\0\x13\0\x08" + payload(CREATE, 7)[4:]), ErrorCode.UNSUPPORTED_VERSION),
        (sealed(b"\0\x13\0\x01" + payload(CREATE, 7)[4:]), ErrorCode.UNSUPPORTED_VERSION),
        (sealed(b"\0\x13\xff\xff" + payload(CREATE, 7)[4:]), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_what_can_t_be_opened(envelope: k58.EnvelopeRequest, code: ErrorCode) -> None:
    """An envelope in an envelope and a heartbeat among it; nothing reaches the controller."""
    controller = ScriptedController(answer=CREATED)
    answer = send(bench_of(controller), envelope)
    assert (answer.error_code, answer.response_data) == (code, None)
    assert controller.asked == []


class FailingHandler(Handler):
    api_key = 19

    def handle(self, request: Any, context: Any) -> None:
        raise ZeroDivisionError

    def error_answer(self, request: Any, context: Any, code: ErrorCode, message: str) -> None:
        return None


def test_a_handler_that_fails_without_an_answer_leaves_the_broker_connected() -> None:
    """Its connection carries the requests of others."""
    handler = EnvelopeHandler(
        [FailingHandler()], metrics=RequestMetrics(MetricRegistry()), clock=RealClock()
    )
    answer = send(Bench([handler]), sealed())
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_what_may_be_forwarded_is_served_and_nothing_of_the_nodes_own() -> None:
    served = [each.api_key for each in on_controllers()]
    assert set(FORWARDABLE_APIS) <= set(served)
    assert all("broker" in API[key].listeners for key in FORWARDABLE_APIS)
    assert len(served) == len(set(served))
    assert all("controller" in API[key].listeners for key in served)
