"""The network's side of a service, for tests without a network: it writes down what happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from support.lone_node import LoneNode

from kraftpy.api.dispatch import Dispatcher
from kraftpy.api.handler import Handler
from kraftpy.api.k18_api_versions import FeatureView
from kraftpy.metadata.records import FeatureRange
from kraftpy.net.service import Part
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.observe.request_metrics import RequestMetrics, RequestRecorder, RequestTimes
from kraftpy.protocol.frames import decode_response, encode_request
from kraftpy.protocol.registry import API
from kraftpy.protocol.tables import Request, Response
from kraftpy.security.authorizer import StandardAuthorizer
from kraftpy.world.real_clock import RealClock


@dataclass(eq=False)
class RecordingChannel:
    connection_id: str = "127.0.0.1:9092-127.0.0.1:51234-0"
    listener_name: str = "PLAINTEXT"
    security_protocol: str = "PLAINTEXT"
    client_host: str = "127.0.0.1"
    principal: str = "User:ANONYMOUS"
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"
    on_end_callbacks: list[Callable[[], None]] = field(default_factory=list)

    def on_end(self, callback: Callable[[], None]) -> None:
        self.on_end_callbacks.append(callback)

    def end(self) -> None:
        for callback in self.on_end_callbacks:
            callback()


@dataclass
class RecordingAnswer:
    """Takes exactly one of the three ways an answer is finished."""

    outcome: str = ""
    sent: bytes = b""
    throttled_ms: int = 0
    keeps_order: bool = False
    recorders: list[RequestRecorder] = field(default_factory=list)

    def measure(self, recorder: RequestRecorder) -> None:
        assert not self.outcome
        self.recorders.append(recorder)

    def send(self, parts: Sequence[Part], on_sent: Callable[[], None] | None = None) -> None:
        self._finish("sent")
        self.sent = b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]

    def nothing(self) -> None:
        self._finish("nothing")

    def disconnect(self) -> None:
        self._finish("disconnected")

    def throttle(self, milliseconds: int) -> None:
        self.throttled_ms = milliseconds

    def keep_order(self) -> None:
        assert not self.outcome
        self.keeps_order = True

    def _finish(self, outcome: str) -> None:
        assert not self.outcome, f"{outcome} after {self.outcome}"
        self.outcome = outcome
        for recorder in self.recorders:
            recorder.record(RequestTimes(0, 0, 0, 0, 0, 0, request_bytes=0, throttle_ms=0))


def lone_node() -> LoneNode:
    return LoneNode(
        cluster_id="Iy1sbGZzVmVUc2VjcmV0IQ",
        node_id=1,
        rack="r1",
        broker_endpoints={"PLAINTEXT": ("broker.test", 9092), "INSIDE": ("10.0.0.1", 9094)},
        controller_endpoints={"CONTROLLER": ("controller.test", 9093)},
    )


class ThreeFeatures(LoneNode):
    """A cluster with features, of which some may not be shown to everybody."""

    def __init__(self) -> None:
        super().__init__(
            cluster_id="c", node_id=1, rack=None, broker_endpoints={}, controller_endpoints={}
        )

    def supported_features(self) -> Sequence[FeatureRange]:
        return (FeatureRange("metadata.version", 7, 29), FeatureRange("group.version", 0, 1))

    def finalized_features(self) -> Sequence[tuple[str, int]]:
        return (("metadata.version", 29), ("share.version", 0))

    def finalized_features_epoch(self) -> int:
        return 4711


@dataclass
class Bench:
    """A dispatcher with everything around it in reach."""

    handlers: Iterable[Handler]
    features: FeatureView = field(default_factory=lone_node)
    channel: RecordingChannel = field(default_factory=RecordingChannel)
    registry: MetricRegistry = field(default_factory=MetricRegistry)
    authorizer: StandardAuthorizer | None = None

    def __post_init__(self) -> None:
        self.dispatcher = Dispatcher(
            self.handlers,
            features=self.features,
            metrics=RequestMetrics(self.registry),
            clock=RealClock(),
            authorizer=self.authorizer,
        )

    def serve(self, frame: bytes) -> RecordingAnswer:
        """Serve the payload of a frame."""
        answer = RecordingAnswer()
        self.dispatcher.serve(self.channel, memoryview(frame), answer)
        return answer

    def ask(self, request: Request, version: int, correlation_id: int = 5) -> Response:
        """Serve a request and decode what is sent back."""
        answer = self.serve(payload(request, version, correlation_id))
        assert answer.outcome == "sent"
        response_class = API[request.KEY].response_class
        got_id, response = decode_response(response_class, version, answer.sent[4:])
        assert got_id == correlation_id
        return response


def payload(
    request: Request, version: int, correlation_id: int = 5, client_id: str | None = "test"
) -> bytes:
    """The bytes of a request's frame, without its size."""
    parts = encode_request(request, version, correlation_id, client_id)
    return b"".join(bytes(part) for part in parts)[4:]  # type: ignore[arg-type]
