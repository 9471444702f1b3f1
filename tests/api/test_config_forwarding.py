"""Settings of a broker, which it judges itself before the controller does."""

from __future__ import annotations

from typing import Any

import pytest
from api.image_cluster import NODE_SETTINGS, bench_of, broker, configs, view_of

from kraftpy.api.config_forwarding import ConfigForwardingHandler
from kraftpy.api.item_errors import AdministrativeHandler
from kraftpy.broker.envelope import Sender, joined
from kraftpy.broker.forwarder import ForwardingReply
from kraftpy.config import DynamicConfig, NodeConfig, from_mapping
from kraftpy.protocol.codec import decode
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import decode_request_header, encode_response
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema import k33_alter_configs as k33
from kraftpy.protocol.schema import k44_incremental_alter_configs as k44
from kraftpy.world import Buffer

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1


class AcceptingController:
    """Accepts every resource that reaches it, or answers with an error."""

    def __init__(self, failure: ErrorCode | None = None) -> None:
        self.failure = failure
        self.reached: list[list[tuple[int, str]]] = []

    def forward(
        self, frame: Buffer, sender: Sender, reply: ForwardingReply, *, timeout_ms: int
    ) -> None:
        header, position = decode_request_header(frame)
        key, version = header.request_api_key, header.request_api_version
        request: Any = decode(API[key].request_class, version, frame[position:])
        resources = [(each.resource_type, each.resource_name) for each in request.resources]
        self.reached.append(resources)
        if self.failure is not None:
            reply(self.failure)
            return
        result = {33: k33, 44: k44}[key].AlterConfigsResourceResponse
        response: Any = API[key].response_class()
        response.responses = [
            result(resource_type=kind, resource_name=name) for kind, name in resources
        ]
        reply(joined(encode_response(response, version, header.correlation_id)))


def handler(key: int, controller: Any) -> AdministrativeHandler:
    view = view_of(broker(1), *configs((BROKER, "1", "log.cleaner.threads", "2")))
    config = DynamicConfig(NodeConfig(from_mapping(NODE_SETTINGS, "test")))
    return ConfigForwardingHandler(key, controller, view, config)


def resource(key: int, kind: int, name: str, **settings: str) -> Any:
    module: Any = {33: k33, 44: k44}[key]
    return module.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            module.AlterableConfig(name=name.replace("_", "."), value=value)
            for name, value in settings.items()
        ],
    )


def ask(key: int, controller: AcceptingController, *resources: Any) -> list[tuple[str, int]]:
    request_class: Any = API[key].request_class
    version = API[key].max_version
    request = request_class(resources=list(resources))
    response: Any = bench_of(handler(key, controller)).ask(request, version)
    return [(each.resource_name, each.error_code) for each in response.responses]


@pytest.mark.parametrize("key", [33, 44])
def test_what_fits_goes_to_the_controller_as_it_came(key: int) -> None:
    controller = AcceptingController()
    answer = ask(
        key,
        controller,
        resource(key, BROKER, "1", log_cleaner_threads="3"),
        resource(key, BROKER, "", log_retention_ms="5000"),
        resource(key, TOPIC, "t", retention_ms="nonsense that others judge"),
    )
    assert answer == [("1", 0), ("", 0), ("t", 0)]
    assert controller.reached == [[(BROKER, "1"), (BROKER, ""), (TOPIC, "t")]]


@pytest.mark.parametrize("key", [33, 44])
def test_what_doesn_t_fit_goes_no_further(key: int) -> None:
    """The others do, and the client gets one answer."""
    controller = AcceptingController()
    answer = ask(
        key,
        controller,
        resource(key, BROKER, "1", log_cleaner_threads="none"),
        resource(key, TOPIC, "t"),
        resource(key, BROKER, "", node_id="7"),
    )
    refused = int(ErrorCode.INVALID_REQUEST)
    assert answer == [("t", 0), ("1", refused), ("", refused)]
    assert controller.reached == [[(TOPIC, "t")]]


@pytest.mark.parametrize("key", [33, 44])
def test_when_nothing_fits_the_controller_is_not_asked(key: int) -> None:
    controller = AcceptingController()
    answer = ask(key, controller, resource(key, BROKER, "1", listeners="X://"))
    assert answer == [("1", ErrorCode.INVALID_REQUEST)]
    assert controller.reached == []


@pytest.mark.parametrize("key", [33, 44])
def test_other_brokers_are_not_judged_here(key: int) -> None:
    controller = AcceptingController()
    assert ask(key, controller, resource(key, BROKER, "2", listeners="X://")) == [("2", 0)]


def test_settings_are_judged_together_with_those_that_stay() -> None:
    """Key by key these are in order; the buffer for two cleaners would be too small."""
    key = 44
    small = resource(key, BROKER, "1", log_cleaner_dedupe_buffer_size="1048577")
    assert ask(key, AcceptingController(), small) == [("1", ErrorCode.INVALID_REQUEST)]
    fewer = resource(
        key, BROKER, "1", log_cleaner_dedupe_buffer_size="1048577", log_cleaner_threads="1"
    )
    assert ask(key, AcceptingController(), fewer) == [("1", 0)]
    replaced = resource(33, BROKER, "1", log_cleaner_dedupe_buffer_size="1048577")
    assert ask(33, AcceptingController(), replaced) == [("1", 0)]


def test_a_request_that_makes_no_sense() -> None:
    twice = resource(44, BROKER, "1", log_cleaner_threads="1")
    twice.configs *= 2
    assert ask(44, AcceptingController(), twice) == [("1", ErrorCode.INVALID_REQUEST)]


def test_a_failure_of_the_way_concerns_everything() -> None:
    controller = AcceptingController(ErrorCode.REQUEST_TIMED_OUT)
    answer = ask(
        44,
        controller,
        resource(44, BROKER, "1", log_cleaner_threads="none"),
        resource(44, TOPIC, "t"),
    )
    late = int(ErrorCode.REQUEST_TIMED_OUT)
    assert answer == [("1", late), ("t", late)]
