"""One connection to a node, without I/O: negotiation, pipelining, matching of answers, deadlines.

A shell connects and calls `open`; sends the bytes it is given, in order; hands in every frame that
arrives; and tells the time. The core's states are few:

    NEW -> NEGOTIATING -> READY -> LOST        (LOST can follow from every state)

Negotiation (KIP-511): ApiVersions in our highest version; a node that doesn't know it answers in
the layout of version 0 with the range it does know, and we ask again within that. Later requests go
out in the highest version that both sides know.

A node answers in the order of the requests, so the oldest pending request is the only one an
answer can belong to. Any other correlation id means that one side has lost its place in the stream,
and the connection is given up. So is one on which an answer is overdue: the answers behind it could
not be told from late ones (Kafka's clients do the same).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from kraftpy import __version__
from kraftpy.client.errors import ConnectionLost, Evidence, NegotiationFailed, UnsupportedVersion
from kraftpy.client.settings import ClientSettings
from kraftpy.net.service import Part
from kraftpy.protocol.codec import DecodeError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import decode_response, encode_request
from kraftpy.protocol.registry import API, ApiSpec
from kraftpy.protocol.schema.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftpy.protocol.tables import Request
from kraftpy.world import assert_always

__all__ = ["ConnectionCore", "Pending", "State", "VersionRange", "nobody_waits"]

_API_VERSIONS_KEY = 18
# In every version of an ApiVersions answer: correlation id, then error code.
_ANSWER_START = struct.Struct(">ih")
_CORRELATION_ID = struct.Struct(">i")
_LAST_CORRELATION_ID = 2**31 - 1

VersionRange = tuple[int, int]


class State(Enum):
    NEW = "new"
    NEGOTIATING = "negotiating"
    READY = "ready"
    LOST = "lost"


class Pending:
    """A request on its way. `answer` or `failure` is set once, and then `wake` is called."""

    __slots__ = ("answer", "api", "correlation_id", "deadline_ms", "failure", "version", "wake")

    def __init__(
        self,
        *,
        api: ApiSpec,
        version: int,
        correlation_id: int,
        deadline_ms: int,
        wake: Callable[[], None],
    ) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.deadline_ms = deadline_ms
        self.wake = wake
        self.answer: Any = None
        self.failure: Exception | None = None

    @property
    def is_done(self) -> bool:
        return self.answer is not None or self.failure is not None

    def result(self) -> Any:
        """The answer, or the failure raised."""
        if self.failure is not None:
            raise self.failure
        assert_always(self.answer is not None, "client-result-before-done")
        return self.answer

    def tell(self) -> None:
        """Wake who waits, and let go of them: they mostly refer to this, and such a ring of
        references would be left to the garbage collector with each request.
        """
        wake, self.wake = self.wake, nobody_waits
        wake()


def nobody_waits() -> None:
    """Stands where nobody is to be woken: before the real waker is known, and after it was."""


class ConnectionCore:
    """The protocol's side of one connection; used once, from `open` to `lose`."""

    __slots__ = (
        "_next_correlation_id",
        "_pending",
        "_settings",
        "failure",
        "state",
        "versions",
    )

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._pending: deque[Pending] = deque()
        self._next_correlation_id = 0
        self.state = State.NEW
        self.failure: Exception | None = None
        self.versions: Mapping[int, VersionRange] = {}

    @property
    def in_flight_count(self) -> int:
        return len(self._pending)

    def open(self, now_ms: int) -> list[Part]:
        """The connection stands: the bytes to send first."""
        assert_always(self.state is State.NEW, "client-opened-twice", state=self.state)
        self.state = State.NEGOTIATING
        return self._ask_versions(API[_API_VERSIONS_KEY].max_version, now_ms)

    def submit(
        self,
        message: Request,
        now_ms: int,
        wake: Callable[[], None],
        *,
        max_version: int | None = None,
        timeout_ms: int | None = None,
    ) -> tuple[Pending, list[Part]]:
        """Take a request; what was promised for it, and the bytes to send now.

        Raises UnsupportedVersion when no common version exists, ConnectionLost when it is too late.
        """
        if self.failure is not None:
            raise self.failure
        assert_always(self.state is State.READY, "client-not-ready", state=self.state)
        api = API[message.KEY]
        version = self.choose_version(api, max_version)
        if timeout_ms is None:
            timeout_ms = self._settings.request_timeout_ms
        return self._send(message, api, version, now_ms + timeout_ms, wake)

    def encode_unanswered(self, message: Request) -> list[Part]:
        """The bytes of a request to which no answer will come: Produce with acks=0."""
        if self.failure is not None:
            raise self.failure
        api = API[message.KEY]
        return encode_request(
            message, self.choose_version(api), self._take_correlation_id(), self._settings.client_id
        )

    def choose_version(self, api: ApiSpec, max_version: int | None = None) -> int:
        """The highest version that both sides know, and the caller allows."""
        theirs = self.versions.get(api.key)
        if theirs is None:
            raise UnsupportedVersion(f"the node does not serve {api.name}")
        version = min(api.max_version, theirs[1])
        if max_version is not None:
            version = min(version, max_version)
        if version < max(api.min_version, theirs[0]):
            raise UnsupportedVersion(
                f"{api.name}: the node serves versions {theirs[0]} to {theirs[1]},"
                f" asked for are {api.min_version} to"
                f" {api.max_version if max_version is None else max_version}"
            )
        return version

    def receive(self, frame: memoryview, now_ms: int) -> list[Part]:
        """Take one frame (without its size); bytes to send in return, mostly none.

        `frame` may be reused afterwards, unless the answer refers to it: see `decode_response`.
        """
        if self.state is State.LOST:
            return []
        if not self._pending:
            self.lose(Evidence.GARBLED, "an answer that nobody asked for")
            return []
        if len(frame) < _CORRELATION_ID.size:
            self.lose(Evidence.GARBLED, f"an answer of {len(frame)} bytes")
            return []
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        pending = self._pending[0]
        if correlation_id != pending.correlation_id:
            self.lose(
                Evidence.GARBLED,
                f"answer {correlation_id} where {pending.correlation_id} was due",
            )
            return []
        if self.state is State.NEGOTIATING:
            return self._learn_versions(frame, now_ms)
        try:
            _, answer = decode_response(pending.api.response_class, pending.version, frame)
        except DecodeError as error:
            self.lose(Evidence.GARBLED, str(error))
            return []
        self._pending.popleft()
        pending.answer = answer
        pending.tell()
        return []

    def next_deadline_ms(self) -> int | None:
        """When `expire` must be called; None while nothing is awaited."""
        pending = self._pending
        if len(pending) == 1:
            return pending[0].deadline_ms
        return min([each.deadline_ms for each in pending]) if pending else None

    def expire(self, now_ms: int) -> None:
        """Give the connection up if an answer is overdue."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= now_ms:
            names = ", ".join(dict.fromkeys(pending.api.name for pending in self._pending))
            self.lose(Evidence.TIMED_OUT, f"no answer in time to {names}")

    def lose(self, evidence: Evidence, detail: str) -> None:
        """The connection is gone: every pending request fails. Idempotent."""
        self._fail(ConnectionLost(evidence, detail))

    def _fail(self, failure: Exception) -> None:
        if self.state is State.LOST:
            return
        self.state = State.LOST
        self.failure = failure
        while self._pending:
            pending = self._pending.popleft()
            pending.failure = failure
            pending.tell()

    def _ask_versions(self, version: int, now_ms: int) -> list[Part]:
        request = ApiVersionsRequest(
            client_software_name="kraftpy", client_software_version=__version__
        )
        deadline_ms = now_ms + self._settings.request_timeout_ms
        _, parts = self._send(request, API[_API_VERSIONS_KEY], version, deadline_ms, lambda: None)
        return parts

    def _learn_versions(self, frame: memoryview, now_ms: int) -> list[Part]:
        """The answer to ApiVersions: ready, or ask again in a version the node knows."""
        asked = self._pending.popleft().version
        try:
            _, error_code = _ANSWER_START.unpack_from(frame)
            is_refusal = error_code == ErrorCode.UNSUPPORTED_VERSION
            layout = 0 if is_refusal else asked
            _, answer = decode_response(ApiVersionsResponse, layout, frame)
        except (DecodeError, struct.error) as error:
            self.lose(Evidence.GARBLED, str(error))
            return []
        offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        if is_refusal and asked > 0:
            # A node too old to name its range knows version 0. Always go down, so that this ends.
            highest = offered.get(_API_VERSIONS_KEY, (0, 0))[1]
            return self._ask_versions(max(0, min(asked - 1, highest)), now_ms)
        if error_code != ErrorCode.NONE:
            reason = f"the node answers ApiVersions {asked} with error {error_code}"
            self._fail(NegotiationFailed(reason))
            return []
        ceilings = self._settings.max_versions
        self.versions = {
            key: (lowest, min(highest, ceilings.get(key, highest)))
            for key, (lowest, highest) in offered.items()
        }
        self.state = State.READY
        return []

    def _send(
        self,
        message: Request,
        api: ApiSpec,
        version: int,
        deadline_ms: int,
        wake: Callable[[], None],
    ) -> tuple[Pending, list[Part]]:
        correlation_id = self._take_correlation_id()
        parts = encode_request(message, version, correlation_id, self._settings.client_id)
        pending = Pending(
            api=api,
            version=version,
            correlation_id=correlation_id,
            deadline_ms=deadline_ms,
            wake=wake,
        )
        self._pending.append(pending)
        return pending, parts

    def _take_correlation_id(self) -> int:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (
            0 if correlation_id == _LAST_CORRELATION_ID else correlation_id + 1
        )
        return correlation_id
