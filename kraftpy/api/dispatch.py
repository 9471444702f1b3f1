"""The meaning of frames: finds the handler of each request and guards the node against it.

One Dispatcher serves the connections of one listener, from a table of handlers. What can't be
answered, a frame that is no request of an API served here, raises BadRequest and costs its sender
the connection (NET-31 to NET-33). Everything that parses is answered (NET-67): an exception in a
handler becomes the API's own error answer, logged once with its stack. Only InternalInvariant
passes: our own state can't be trusted any more, so it rises to the root and stops the node.

ApiVersions may come in any version, because the sender is just asking which ones there are. A
version that isn't served is answered in the layout of version 0, its body unread (KIP-511).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from kraftpy.api.access import OPEN_ACCESS, AccessOf
from kraftpy.api.api_keys import API_VERSIONS_KEY
from kraftpy.api.handler import Handler, RequestContext
from kraftpy.api.k18_api_versions import ApiVersionsHandler, FeatureView
from kraftpy.api.request_quotas import RequestQuotas
from kraftpy.net.service import Answer, BadRequest, Channel
from kraftpy.observe.request_metrics import ApiMetrics, RequestMetrics
from kraftpy.protocol.codec import DecodeError, decode
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import decode_request_header, encode_response
from kraftpy.protocol.registry import API
from kraftpy.protocol.tables import Request
from kraftpy.security.authorizer import StandardAuthorizer
from kraftpy.world import Clock

__all__ = ["Dispatcher"]

# API key, API version and correlation id stand first in every request header.
_START_OF_HEADER = struct.Struct(">hhi")
_PRODUCE_START = b"\x00\x00"


@dataclass(frozen=True, slots=True)
class _ServedApi:
    name: str
    handler: Handler
    request_class: type[Request]
    min_version: int
    max_version: int
    metrics: ApiMetrics


class Dispatcher:
    """The service of one listener."""

    __slots__ = ("_api_versions", "_authorizer", "_clock", "_metrics", "_quotas", "_table")

    def __init__(
        self,
        handlers: Iterable[Handler],
        *,
        features: FeatureView,
        metrics: RequestMetrics,
        clock: Clock,
        quotas: RequestQuotas | None = None,
        authorizer: StandardAuthorizer | None = None,
    ) -> None:
        """Serve these APIs, and ApiVersions to list them. Without `quotas` nobody has to wait, and
        without `authorizer` everybody may do everything.
        """
        others = list(handlers)
        self._api_versions = ApiVersionsHandler(others, features)
        self._metrics = metrics
        self._clock = clock
        self._quotas = quotas
        self._authorizer = authorizer
        self._table = {
            handler.api_key: _serve(handler, metrics) for handler in (*others, self._api_versions)
        }

    def may_run_ahead(self, frame: memoryview) -> bool:
        return frame[:2] == _PRODUCE_START

    def serve(self, channel: Channel, frame: memoryview, answer: Answer) -> None:
        if len(frame) < _START_OF_HEADER.size:
            raise BadRequest("a header cut short")
        api_key, api_version, correlation_id = _START_OF_HEADER.unpack_from(frame)
        api = self._table.get(api_key)
        if api is None:
            raise BadRequest(_refusal("API not served here", api_key, api_version))
        if not api.min_version <= api_version <= api.max_version:
            if api_key != API_VERSIONS_KEY:
                raise BadRequest(_refusal("version not served", api_key, api_version))
            self._refuse_api_versions(correlation_id, answer)
            return
        access, charge = OPEN_ACCESS, None
        if self._authorizer is not None:
            access = AccessOf(self._authorizer, channel.principal, channel.client_host)
        if self._quotas is not None and self._quotas.are_set:
            charge = self._quotas.charge(
                channel.principal, len(frame), is_exempt=api.handler.is_exempt
            )
        try:
            header, position = decode_request_header(frame)
            # librdkafka asks for all topics with three bytes too many; Kafka's brokers, and so we,
            # don't look at what stands behind a request.
            request = decode(api.request_class, api_version, frame[position:], may_have_rest=True)
        except DecodeError as error:
            refusal = _refusal(f"malformed request: {error}", api_key, api_version)
            raise BadRequest(refusal) from error
        if charge is not None:
            charge.client_id = header.client_id or ""
        second_name = api.handler.second_name(request)
        answer.measure(self._metrics.recorder(api.name, api_version, second_name))
        RequestContext(
            handler=api.handler,
            request=request,
            api_version=api_version,
            correlation_id=correlation_id,
            client_id=header.client_id,
            channel=channel,
            answer=answer,
            frame=frame,
            metrics=api.metrics,
            clock=self._clock,
            charge=charge,
            access=access,
        ).serve()

    def _refuse_api_versions(self, correlation_id: int, answer: Answer) -> None:
        api = self._table[API_VERSIONS_KEY]
        # Recorded as the version it is answered in: peers must not be able to invent metrics.
        answer.measure(self._metrics.recorder(api.name, 0))
        api.metrics.mark_error(ErrorCode.UNSUPPORTED_VERSION.name, self._clock.monotonic())
        response = self._api_versions.unsupported_version_answer()
        answer.send(encode_response(response, 0, correlation_id))


def _serve(handler: Handler, metrics: RequestMetrics) -> _ServedApi:
    spec = API[handler.api_key]
    return _ServedApi(
        name=spec.name,
        handler=handler,
        request_class=spec.request_class,
        min_version=spec.min_version,
        max_version=spec.max_version,
        metrics=metrics.api(spec.name),
    )


def _refusal(reason: str, api_key: int, api_version: int) -> str:
    """What the network logs beside connection id, listener and principal."""
    return f"{reason} api_key={api_key} api_version={api_version}"
