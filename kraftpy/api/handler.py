"""What a handler is, what it is given, and how it answers.

Each API is one class in one file, numbered by its key: `k03_metadata.MetadataHandler`. A handler is
synchronous. It returns its answer, or returns None and answers later through the context, from
whatever task completes the work. The context takes exactly one answer; whoever gives it is never
disturbed by what becomes of it: an answer that can't be encoded turns into the API's error answer,
and one for a peer that has left is dropped by the network.

A request refers to the bytes of its frame, which belong to the network again when `handle` returns.
A handler that answers later copies what it still needs of bytes and record fields.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from kraftpy.api.access import OPEN_ACCESS, REFUSALS, Access
from kraftpy.api.request_quotas import RequestCharge
from kraftpy.net.service import Answer, Channel, Part
from kraftpy.observe.request_metrics import ApiMetrics
from kraftpy.protocol.codec import EncodeError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import encode_response
from kraftpy.protocol.registry import API
from kraftpy.protocol.tables import Request, Response
from kraftpy.security.acl_terms import CLUSTER_NAME, AclOperation, ResourceType
from kraftpy.world import Clock, InternalInvariant

__all__ = ["ApiError", "Handler", "RequestContext"]

log = logging.getLogger(__name__)

# Asked for with each answer, where the enum itself would take ten times as long.
_ERROR_NAMES: Final[Mapping[int, str]] = {code: code.name for code in ErrorCode}

# Makes the frame of an answer, given a version and a correlation id.
Encode: TypeAlias = Callable[[Any, int, int], list[Part]]


class ApiError(Exception):
    """Raised by a handler to answer the whole request with one error code."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code.name if message is None else f"{code.name}: {message}")
        self.code = code
        self.message = code.message if message is None else message


class Handler(ABC):
    """One API. Subclasses or their instances set `api_key`; subclasses implement `handle`."""

    api_key: int
    is_exempt = False
    """Whether quotas leave it alone, for it is nodes who ask."""
    cluster_operation: AclOperation | None = None
    """What its senders must be allowed to do to the cluster, whatever they ask for."""

    @abstractmethod
    def handle(self, request: Any, context: RequestContext) -> Response | None:
        """Answer `request`, or return None and answer through `context` later."""

    def error_answer(
        self, request: Any, context: RequestContext, code: ErrorCode, message: str
    ) -> Response | None:
        """The answer that reports a failure of the whole request; None when there is none.

        This one is for answers with an error code of their own. Where errors are reported for each
        item instead, the handler builds them from the request.
        """
        answer: Any = API[self.api_key].response_class()
        answer.error_code = code
        if hasattr(answer, "error_message"):
            answer.error_message = message
        return answer  # type: ignore[no-any-return]

    def versions(self) -> tuple[int, int] | None:
        """The lowest and highest version to offer to clients now; None to offer none."""
        spec = API[self.api_key]
        return spec.advertised_min_version, spec.max_version

    def second_name(self, request: Any) -> str | None:
        """Under which the times of this request are recorded too; None for none."""
        return None

    def error_codes(self, response: Any) -> Iterable[int]:
        """The codes in an answer, for the metric that counts them; successes count too."""
        return (response.error_code,)


class RequestContext:
    """One request: who sent it and how, and the place of its answer."""

    __slots__ = (
        "_answer",
        "_clock",
        "_encode_answer",
        "_handler",
        "_is_answered",
        "_metrics",
        "_request",
        "access",
        "api_version",
        "channel",
        "charge",
        "client_id",
        "correlation_id",
        "frame",
    )

    def __init__(
        self,
        *,
        handler: Handler,
        request: Request,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        channel: Channel,
        answer: Answer,
        frame: memoryview,
        metrics: ApiMetrics,
        clock: Clock,
        charge: RequestCharge | None = None,
        access: Access = OPEN_ACCESS,
    ) -> None:
        """Without a `charge` there are no quotas."""
        self._handler = handler
        self._metrics = metrics
        self._clock = clock
        self._request = request
        self._answer = answer
        self._is_answered = False
        self._encode_answer: Encode = encode_response
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.channel = channel
        self.charge = charge
        # What the sender may do.
        self.access = access
        # The request as it came, header included; valid until `handle` returns.
        self.frame = frame

    @property
    def api_key(self) -> int:
        return self._handler.api_key

    @property
    def is_answered(self) -> bool:
        return self._is_answered

    def serve(self) -> None:
        """Have the request handled; whatever its handler raises is answered for (NET-67).

        Only InternalInvariant passes: our own state can't be trusted any more.
        """
        self.resume(self._handle_if_allowed if self.access.is_limited else self._handle)

    def _handle(self) -> Response | None:
        return self._handler.handle(self._request, self)

    def _handle_if_allowed(self) -> Response | None:
        if self._handler.cluster_operation is not None:
            self.require(self._handler.cluster_operation, ResourceType.CLUSTER)
        return self._handle()

    def require(
        self, operation: AclOperation, kind: ResourceType, name: str = CLUSTER_NAME
    ) -> None:
        """Go on only if the sender may do that; otherwise the whole request is refused."""
        if not self.access.may(operation, kind, name):
            raise ApiError(REFUSALS[kind])

    def resume(self, work: Callable[[], Response | None]) -> None:
        """Go on with a request that had to wait for something: as `serve`, with `work`."""
        if self.charge is None:
            self._work(work)
            return
        self.charge.resume()
        self._work(work)
        self.charge.pause()

    def _work(self, work: Callable[[], Response | None]) -> None:
        try:
            response = work()
        except InternalInvariant:
            raise
        except Exception as error:
            self._report(error)
        else:
            if response is not None:
                self.respond(response)

    async def respond_with(
        self,
        work: Callable[[], Awaitable[Response]],
        encode: Encode = encode_response,
    ) -> None:
        """Answer with what comes of `work`; for a task that a handler starts. As `serve`.

        An answer of which the bytes are there already has its own way to `encode` it.
        """
        try:
            response = await work()
        except InternalInvariant:
            raise
        except Exception as error:
            self._report(error)
        else:
            self._encode_answer = encode
            self.respond(response)

    def respond(self, response: Response) -> None:
        """Answer with `response`."""
        self._begin_answer()
        if self.charge is not None:
            self._delay(self.charge, response)
        parts = self._encode(response, self._encode_answer)
        if parts is None:
            self._send_error(ErrorCode.UNKNOWN_SERVER_ERROR, None)
        else:
            self._send(parts)

    def respond_error(self, code: ErrorCode, message: str | None = None) -> None:
        """Answer with the API's own error answer; close the connection where it has none."""
        self._begin_answer()
        self._send_error(code, message)

    def respond_nothing(self) -> None:
        """The request is done and gets no answer (Produce with acks=0)."""
        self._begin_answer()
        if self.charge is not None:
            delay_ms = self.charge.finish_silently()
            if delay_ms > 0:
                self._answer.throttle(delay_ms)
        self._answer.nothing()

    def disconnect(self) -> None:
        """Close the connection instead of answering."""
        self._begin_answer()
        self._answer.disconnect()

    def throttle(self, milliseconds: int) -> None:
        """Read no further from this connection for that long; to be called before answering."""
        self._answer.throttle(milliseconds)

    def keep_order(self) -> None:
        """Serve nothing else of this connection before this is answered; for `handle` to call."""
        self._answer.keep_order()

    def _delay(self, charge: RequestCharge, response: Any) -> None:
        """Serve the client no further for as long as quotas ask; the answer says how long."""
        delay_ms = charge.finish(getattr(response, "throttle_time_ms", 0))
        if delay_ms > 0:
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = delay_ms
            self._answer.throttle(delay_ms)

    def _send(self, parts: list[Part]) -> None:
        self._answer.send(parts)
        if self.charge is not None:
            self.charge.left()

    def describe(self) -> str:
        """Names and values for a log line."""
        channel = self.channel
        return (
            f"api={API[self.api_key].name} api_version={self.api_version}"
            f" correlation_id={self.correlation_id} client_id={self.client_id!r}"
            f" connection_id={channel.connection_id} listener={channel.listener_name}"
            f" principal={channel.principal}"
        )

    def _report(self, error: Exception) -> None:
        """Answer for a handler that failed; log it, unless the answer says it all."""
        if isinstance(error, ApiError) and not self._is_answered:
            self.respond_error(error.code, error.message)
            return
        log.error("handler failed %s", self.describe(), exc_info=error)
        if not self._is_answered:
            self.respond_error(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _begin_answer(self) -> None:
        if self._is_answered:
            raise InternalInvariant(f"request-answered-twice api_key={self.api_key}")
        self._is_answered = True

    def _encode(self, response: Response, encode: Encode) -> list[Part] | None:
        """The bytes of an answer; None, and a line in the log, when it can't be written."""
        try:
            parts = encode(response, self.api_version, self.correlation_id)
            now = self._clock.monotonic()
            for code in self._handler.error_codes(response):
                self._metrics.mark_error(_ERROR_NAMES[code], now)
        except (EncodeError, KeyError):
            log.exception("answer can't be encoded %s", self.describe())
            return None
        return parts

    def _send_error(self, code: ErrorCode, message: str | None) -> None:
        if message is None:
            message = code.message
        try:
            response = self._handler.error_answer(self._request, self, code, message)
        except InternalInvariant:
            raise
        except Exception:
            log.exception("error answer can't be made %s", self.describe())
            response = None
        if response is not None and self.charge is not None:
            self._delay(self.charge, response)
        parts = None if response is None else self._encode(response, encode_response)
        if parts is None:
            self._answer.disconnect()
        else:
            self._send(parts)
