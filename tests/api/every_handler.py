"""All handlers of both kinds of listeners, on a controller and a quorum that do nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from api.image_cluster import broker, topic, view_of
from api.scripted_controller import ScriptedController
from metadata.controller_core_rig import STATIC

from kraftpy.api.handler import Handler
from kraftpy.api.served import controller_listener_handlers, metadata_handlers
from kraftpy.broker.envelope import Sender
from kraftpy.broker.forwarder import ForwardingReply
from kraftpy.broker.topic_creation import AutoTopicCreation, TopicTemplate
from kraftpy.config import DynamicConfig, NodeConfig, from_mapping
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.observe.request_metrics import RequestMetrics
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.tables import Request
from kraftpy.purgatory.operation import DelayedOperation
from kraftpy.purgatory.purgatory import Purgatory
from kraftpy.purgatory.timer import Timer
from kraftpy.world import Buffer
from kraftpy.world.real_clock import RealClock


class NoForwarder:
    """Answers at once that there was no answer."""

    def forward(
        self, frame: Buffer, sender: Sender, reply: ForwardingReply, *, timeout_ms: int
    ) -> None:
        reply(ErrorCode.REQUEST_TIMED_OUT)

    def ask(self, request: Request, reply: Callable[[Any], None], *, timeout_ms: int) -> None:
        reply(ErrorCode.REQUEST_TIMED_OUT)

    def controller_versions(self) -> Mapping[int, tuple[int, int]] | None:
        return None


class NoMember:
    """Has left the quorum."""

    def submit(self, request: Any, reply: Callable[[Any], None]) -> bool:
        return False


def _config() -> DynamicConfig:
    return DynamicConfig(NodeConfig(from_mapping(STATIC, "test")))


def on_brokers() -> list[Handler]:
    view = view_of(broker(1), *topic("a", (1,), (1,)))
    forwarder: Any = NoForwarder()
    return metadata_handlers(
        view,
        config=_config(),
        forwarder=forwarder,
        creation=AutoTopicCreation(forwarder, RealClock(), TopicTemplate(1, 1)),
        elections=no_elections(),
        spawn=no_tasks,
    )


def no_tasks(work: object) -> None:
    raise AssertionError("nothing here takes that long")


def no_elections() -> Purgatory[DelayedOperation]:
    """Nobody waits there for long."""
    timer = Timer("elections", RealClock())
    return Purgatory("ElectLeader", timer, MetricRegistry(), purge_interval=1)


def on_controllers(
    controller: ScriptedController | None = None, registry: MetricRegistry | None = None
) -> list[Handler]:
    return controller_listener_handlers(
        view_of(broker(1)),
        config=_config(),
        controller=controller or ScriptedController(),
        member=NoMember(),
        metrics=RequestMetrics(registry or MetricRegistry()),
        clock=RealClock(),
    )
