"""The levels of a node's loggers are changed by whoever asks that node, on a broker and on a
controller alike; what is wrong is told in Kafka's codes (side by side: compat/test_bad_input.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from api.image_cluster import NODE_SETTINGS, broker, view_of
from api.recording import Bench
from api.scripted_controller import ScriptedController
from api.test_config_forwarding import AcceptingController

from kraftpy.api.config_forwarding import ConfigForwardingHandler
from kraftpy.api.handler import Handler
from kraftpy.api.k32_describe_configs import DescribeConfigsHandler
from kraftpy.api.k44_incremental_alter_configs import IncrementalAlterConfigsHandler
from kraftpy.config import DynamicConfig, NodeConfig, from_mapping
from kraftpy.observe.log_levels import LEVELS
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k32_describe_configs as k32
from kraftpy.protocol.schema import k44_incremental_alter_configs as k44
from kraftpy.world.real_clock import RealClock

TOPIC, LOGGER = 2, 8
SET, DELETE, APPEND = 0, 1, 2
ROOM, MODULE = "test_levels.room", "test_levels.room.module"


class Node:
    """A node of one kind, and what it sends on to the controller."""

    def __init__(self, kind: str) -> None:
        view = view_of(broker(1))
        config = DynamicConfig(NodeConfig(from_mapping(NODE_SETTINGS, "test")))
        self._accepting = AcceptingController()
        decided = k44.AlterConfigsResourceResponse(resource_type=TOPIC, resource_name="t")
        self._scripted = ScriptedController(
            answer=k44.IncrementalAlterConfigsResponse(responses=[decided])
        )
        altering: Handler = IncrementalAlterConfigsHandler(self._scripted, RealClock(), view, 1)
        if kind == "broker":
            forwarder: Any = self._accepting
            altering = ConfigForwardingHandler(44, forwarder, view, config)
        self._bench = Bench([altering, DescribeConfigsHandler(view, config)])

    @property
    def reached(self) -> list[list[tuple[int, str]]]:
        return [
            *self._accepting.reached,
            *(
                [(each.resource_type, each.resource_name) for each in request.resources]
                for request, _ in self._scripted.asked
            ),
        ]

    def alter(
        self, *resources: k44.AlterConfigsResource, validate_only: bool = False
    ) -> list[tuple[int, str, int]]:
        request = k44.IncrementalAlterConfigsRequest(
            resources=list(resources), validate_only=validate_only
        )
        response: Any = self._bench.ask(request, 1)
        return [
            (each.resource_type, each.resource_name, each.error_code) for each in response.responses
        ]

    def levels(self) -> dict[str, str | None]:
        asked = k32.DescribeConfigsResource(
            resource_type=LOGGER, resource_name="1", configuration_keys=None
        )
        response: Any = self._bench.ask(k32.DescribeConfigsRequest(resources=[asked]), 4)
        return {each.name: each.value for each in response.results[0].configs}


def loggers(*changes: tuple[str, int, str | None], node: str = "1") -> k44.AlterConfigsResource:
    return k44.AlterConfigsResource(
        resource_type=LOGGER,
        resource_name=node,
        configs=[
            k44.AlterableConfig(name=name, config_operation=operation, value=level)
            for name, operation, level in changes
        ],
    )


@pytest.fixture(params=["broker", "controller"])
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    logging.getLogger(MODULE)
    names = (logging.root.name, ROOM, MODULE)
    before = {name: logging.getLogger(name).level for name in names}
    yield Node(request.param)
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_holds_for_the_room_and_its_modules(node: Node, level: str) -> None:
    assert node.alter(loggers((ROOM, SET, level))) == [(LOGGER, "1", 0)]
    assert node.levels()[ROOM] == node.levels()[MODULE] == level
    module = logging.getLogger(MODULE)
    shown = [name for name, number in LEVELS.items() if module.isEnabledFor(number)]
    assert shown == list(LEVELS)[list(LEVELS).index(level) :]
    assert node.reached == [], "the controller is not asked"


def test_what_is_unset_follows_the_one_above(node: Node) -> None:
    node.alter(loggers(("root", SET, "ERROR"), (ROOM, SET, "DEBUG"), (MODULE, SET, "FATAL")))
    assert (node.levels()[ROOM], node.levels()[MODULE]) == ("DEBUG", "FATAL")
    node.alter(loggers((MODULE, DELETE, None)))
    assert node.levels()[MODULE] == "DEBUG"
    node.alter(loggers((ROOM, DELETE, None)))
    assert node.levels()[MODULE] == node.levels()["root"] == "ERROR"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ((MODULE, SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ((MODULE, SET, "debug"), ErrorCode.INVALID_CONFIG),
        ((MODULE, SET, None), ErrorCode.INVALID_REQUEST),
        ((MODULE, APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        ((MODULE, 9, "INFO"), ErrorCode.INVALID_REQUEST),
        (("none.such", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        ((ROOM, DELETE, None), ErrorCode.INVALID_REQUEST),
    ],
)
def test_all_or_nothing_is_changed(
    node: Node, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    """The last of the cases names a logger twice."""
    before = node.levels()
    assert node.alter(loggers((ROOM, SET, "FATAL"), change)) == [(LOGGER, "1", code)]
    assert node.levels() == before


def test_a_rehearsal_changes_nothing(node: Node) -> None:
    before = node.levels()
    assert node.alter(loggers((ROOM, SET, "FATAL")), validate_only=True) == [(LOGGER, "1", 0)]
    assert node.levels() == before


@pytest.mark.parametrize("name", ["", "2", "one", "x" * 30_000])
def test_loggers_of_others_are_not_for_this_node(node: Node, name: str) -> None:
    before = node.levels()
    refused = (LOGGER, name, ErrorCode.INVALID_REQUEST)
    assert node.alter(loggers((ROOM, SET, "FATAL"), node=name)) == [refused]
    assert node.levels() == before


def test_a_resource_that_is_named_twice(node: Node) -> None:
    before = node.levels()
    refused = (LOGGER, "1", ErrorCode.INVALID_REQUEST)
    twice = loggers((ROOM, SET, "FATAL")), loggers((MODULE, SET, "FATAL"))
    assert node.alter(*twice) == [refused] * 2
    assert node.levels() == before


def test_other_resources_go_to_the_controller(node: Node) -> None:
    topic = k44.AlterConfigsResource(resource_type=TOPIC, resource_name="t")
    answer = node.alter(topic, loggers((ROOM, SET, "FATAL")), loggers(node="2"))
    refused = (LOGGER, "2", ErrorCode.INVALID_REQUEST)
    assert answer == [(TOPIC, "t", 0), (LOGGER, "1", 0), refused]
    assert node.reached == [[(TOPIC, "t")]]
    assert node.levels()[ROOM] == "FATAL"


def test_without_loggers_all_goes_to_the_controller(node: Node) -> None:
    topic = k44.AlterConfigsResource(resource_type=TOPIC, resource_name="t")
    assert node.alter(topic) == [(TOPIC, "t", 0)]
    assert node.reached == [[(TOPIC, "t")]]


def test_a_change_is_logged(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.alter(loggers((ROOM, SET, "INFO"), (MODULE, DELETE, None)))
    assert caplog.messages == [
        f"logger level set logger={ROOM} level=INFO",
        f"logger level unset logger={MODULE}",
    ]
