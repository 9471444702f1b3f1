"""Envelope (58) on a controller's listener: a broker hands a client's request on.

What is in it is served as if the client had sent it: with the client's principal and host, which
are what its right to it is judged by, by the same handlers, and only if its API is meant to be
forwarded. The answer travels in the envelope's.
The client's quotas hold here, too: the answer says how long it must wait, the broker sees to it.
One that says NOT_CONTROLLER, anywhere, becomes the envelope's own error instead, so that the broker
looks for the controller and sends the request there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kraftpy.api.api_keys import FORWARDABLE_APIS
from kraftpy.api.handler import ApiError, Handler, RequestContext
from kraftpy.api.request_quotas import RequestQuotas
from kraftpy.broker.envelope import BadEnvelope, Sender, joined, open_envelope
from kraftpy.net.service import Channel, Part
from kraftpy.observe.request_metrics import RequestMetrics, RequestRecorder
from kraftpy.protocol.codec import DecodeError, decode
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import decode_request_header
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema.headers import RequestHeader
from kraftpy.protocol.schema.k58_envelope import EnvelopeRequest, EnvelopeResponse
from kraftpy.protocol.tables import Request, Response
from kraftpy.security.acl_terms import AclOperation
from kraftpy.world import Clock

__all__ = ["EnvelopeHandler"]


class EnvelopeHandler(Handler):
    api_key = 58
    is_exempt = True
    cluster_operation = AclOperation.CLUSTER_ACTION

    def __init__(
        self,
        handlers: Iterable[Handler],
        *,
        metrics: RequestMetrics,
        clock: Clock,
        quotas: RequestQuotas | None = None,
    ) -> None:
        """`handlers` are those of the listener; the forwardable ones among them serve."""
        self._handlers = {
            handler.api_key: handler for handler in handlers if handler.api_key in FORWARDABLE_APIS
        }
        self._metrics = metrics
        self._clock = clock
        self._quotas = quotas

    def handle(self, request: EnvelopeRequest, context: RequestContext) -> None:
        try:
            sender = open_envelope(request)
            header, position = decode_request_header(request.request_data)
            handler, forwarded = self._open(header, request.request_data[position:])
        except BadEnvelope as error:
            raise ApiError(error.code, str(error)) from error
        except DecodeError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
        charge = None
        if self._quotas is not None and self._quotas.are_set:
            charge = self._quotas.charge(
                sender.principal, len(request.request_data), is_exempt=handler.is_exempt
            )
            charge.client_id = header.client_id or ""
            charge.is_forwarded = True
        inner = _ForwardedContext(
            context,
            handler=handler,
            request=forwarded,
            api_version=header.request_api_version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
            channel=_ForwardedChannel(context.channel, sender),
            answer=_EnvelopeAnswer(context),
            frame=memoryview(request.request_data),
            metrics=self._metrics.api(API[handler.api_key].name),
            clock=self._clock,
            charge=charge,
            access=context.access.on_behalf(*sender),
        )
        inner.serve()

    def _open(self, header: RequestHeader, body: bytes) -> tuple[Handler, Request]:
        """Who serves what is in the envelope, and that."""
        key, version = header.request_api_key, header.request_api_version
        handler = self._handlers.get(key)
        if handler is None:
            raise BadEnvelope(ErrorCode.INVALID_REQUEST, f"API {key} can't be forwarded")
        spec = API[key]
        if not spec.min_version <= version <= spec.max_version:
            raise BadEnvelope(ErrorCode.UNSUPPORTED_VERSION, f"version {version} of {spec.name}")
        return handler, decode(spec.request_class, version, body, may_have_rest=True)


class _ForwardedContext(RequestContext):
    """A request out of an envelope. The broker is told itself that it has asked the wrong node."""

    __slots__ = ("_envelope",)

    def __init__(self, envelope: RequestContext, **rest: Any) -> None:
        super().__init__(**rest)
        self._envelope = envelope

    def respond(self, response: Response) -> None:
        if ErrorCode.NOT_CONTROLLER in self._handler.error_codes(response):
            self._refuse_envelope()
        else:
            super().respond(response)

    def respond_error(self, code: ErrorCode, message: str | None = None) -> None:
        if code is ErrorCode.NOT_CONTROLLER:
            self._refuse_envelope()
        else:
            super().respond_error(code, message)

    def _refuse_envelope(self) -> None:
        self._begin_answer()
        self._envelope.respond_error(ErrorCode.NOT_CONTROLLER)


class _EnvelopeAnswer:
    """The answer to a forwarded request: what is sent goes back in the envelope's answer."""

    __slots__ = ("_envelope",)

    def __init__(self, envelope: RequestContext) -> None:
        self._envelope = envelope

    def measure(self, recorder: RequestRecorder) -> None:
        """Not needed: the envelope is measured."""

    def send(self, parts: Sequence[Part], on_sent: Callable[[], None] | None = None) -> None:
        self._envelope.respond(EnvelopeResponse(response_data=joined(parts)))

    def nothing(self) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """The broker's connection carries others' requests, too, and stays."""
        self._envelope.respond_error(ErrorCode.UNKNOWN_SERVER_ERROR)

    def throttle(self, milliseconds: int) -> None:
        """Not here: the broker's connection carries others' requests, too."""

    def keep_order(self) -> None:
        """Likewise."""


class _ForwardedChannel:
    """The client's connection, as far as the controller knows it."""

    __slots__ = ("_carrier", "_sender", "client_software_name", "client_software_version")

    def __init__(self, carrier: Channel, sender: Sender) -> None:
        self._carrier = carrier
        self._sender = sender
        self.client_software_name = carrier.client_software_name
        self.client_software_version = carrier.client_software_version

    @property
    def connection_id(self) -> str:
        return self._carrier.connection_id

    @property
    def listener_name(self) -> str:
        return self._carrier.listener_name

    @property
    def security_protocol(self) -> str:
        return self._carrier.security_protocol

    @property
    def client_host(self) -> str:
        return self._sender.client_host

    @property
    def principal(self) -> str:
        return self._sender.principal

    def on_end(self, callback: Callable[[], None]) -> None:
        self._carrier.on_end(callback)
