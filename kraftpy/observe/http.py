"""Health and metrics over HTTP, for people, load balancers and Prometheus.

| path | answer |
| --- | --- |
| `/healthz` | 200: the loop that serves everything else has answered |
| `/readyz` | 200 when the node serves clients, 503 until then |
| `/metrics` | every metric, in Prometheus' text format |

None of it may disturb the node, whoever asks and however often. Answers are made in pieces of a
millisecond. There is a limit to the size of a request's head, to the time that a connection may
take from one answer to its next whole request, and to the number of connections: the one that has
been silent for longest makes room for a new one. Bodies are never read. What a request breaks is
its own connection.

h11 knows the protocol; this module is the shell around it. It is imported only by nodes that have
an HTTP port.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import h11
import trio

from kraftpy.observe.metrics import MetricRegistry
from kraftpy.observe.prometheus import CONTENT_TYPE, exposition_pieces
from kraftpy.world import Address, Clock, Listener, Network, Stream

__all__ = ["HttpLimits", "HttpServer", "Page", "Reply", "node_pages"]

log = logging.getLogger(__name__)

# What this server says, and the hints that h11 gives about a request that it can't read.
_PHRASES: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}
_PLAIN: Final = "text/plain; charset=utf-8"
_METHODS: Final = (b"GET", b"HEAD")
_RECEIVE_BYTES: Final = 8 * 1024
# The longest stretch on the loop while an answer is made.
_SLICE_SECONDS: Final = 0.001
_ACCEPT_PAUSE_SECONDS: Final = 0.1
# What a peer still sends after the last answer is read and dropped for a while, since closing a
# socket with unread bytes may cost the peer that answer.
_LINGER_SECONDS: Final = 1.0
_LINGER_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class HttpLimits:
    head_max_bytes: int = 16 * 1024
    # From one answer, or from connecting, to the next whole request.
    idle_seconds: float = 75.0
    # For a peer that does not read.
    send_seconds: float = 10.0
    max_connections: int = 64


@dataclass(frozen=True, slots=True)
class Reply:
    body: bytes
    status: int = 200
    content_type: str = _PLAIN


Page = Callable[[], Awaitable[Reply]]


def node_pages(
    registry: MetricRegistry, is_ready: Callable[[], bool], clock: Clock
) -> dict[str, Page]:
    """What every node shows."""

    async def health() -> Reply:
        return Reply(b"ok\n")

    async def readiness() -> Reply:
        if is_ready():
            return Reply(b"ready\n")
        return Reply(b"not ready\n", 503)

    async def metrics() -> Reply:
        parts = []
        pause_at = clock.monotonic() + _SLICE_SECONDS
        for piece in exposition_pieces(registry):
            parts.append(piece)
            if clock.monotonic() >= pause_at:
                await trio.lowlevel.checkpoint()
                pause_at = clock.monotonic() + _SLICE_SECONDS
        return Reply("".join(parts).encode(), content_type=CONTENT_TYPE)

    return {"/healthz": health, "/readyz": readiness, "/metrics": metrics}


class HttpServer:
    """`bind`, then `run` as a task until it is cancelled."""

    def __init__(
        self,
        *,
        clock: Clock,
        network: Network,
        pages: Mapping[str, Page],
        limits: HttpLimits = HttpLimits(),  # noqa: B008 (frozen)
    ) -> None:
        self._clock = clock
        self._network = network
        self._pages = pages
        self._limits = limits
        self._listener: Listener | None = None
        # Those that wait for a request stand in the order of their last answer.
        self._connections: OrderedDict[Stream, None] = OrderedDict()

    async def bind(self, host: str, port: int) -> Address:
        """Take the port, or any for 0; connections wait from now on. Raises OSError."""
        self._listener = await self._network.listen(host, port)
        return self._listener.address

    async def run(self) -> None:
        listener = self._listener
        assert listener is not None
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    stream = await self._accept(listener)
                    self._make_room()
                    self._connections[stream] = None
                    nursery.start_soon(self._serve, stream, name="http-connection")
        finally:
            listener.close()

    async def _accept(self, listener: Listener) -> Stream:
        is_failing = False
        while True:
            try:
                return await listener.accept()
            except OSError as error:
                # Once for as long as it lasts.
                if not is_failing:
                    log.error("http can't accept for now: %s", error)
                is_failing = True
                await self._clock.sleep(_ACCEPT_PAUSE_SECONDS)

    def _make_room(self) -> None:
        while len(self._connections) >= self._limits.max_connections:
            oldest, _ = self._connections.popitem(last=False)
            oldest.close()

    async def _serve(self, stream: Stream) -> None:
        try:
            await self._serve_requests(stream)
        except (ConnectionError, trio.ClosedResourceError) as error:
            log.debug("http connection ended: %r", error)
        finally:
            self._connections.pop(stream, None)
            stream.close()

    async def _serve_requests(self, stream: Stream) -> None:
        """Answer what comes, until either side has had enough."""
        protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.head_max_bytes)
        while True:
            try:
                request = await self._next_request(protocol, stream)
            except h11.RemoteProtocolError as error:
                log.info("http request refused remote=%s: %s", stream.remote_address[0], error)
                reply = _plain(error.error_status_hint)
                if protocol.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    await self._send(protocol, stream, reply, is_last=True)
                break
            if request is None:
                return
            reply, headers = await self._reply_to(request)
            await self._send(protocol, stream, reply, headers, has_body=request.method != b"HEAD")
            if protocol.our_state is h11.MUST_CLOSE or protocol.their_state is not h11.DONE:
                # The second: a body follows, that nobody wants to read.
                break
            protocol.start_next_cycle()
            if stream in self._connections:
                self._connections.move_to_end(stream)
        await self._linger(stream)

    async def _next_request(self, protocol: h11.Connection, stream: Stream) -> h11.Request | None:
        """The next head; None when the peer has left, or was silent for too long."""
        buffer = bytearray(_RECEIVE_BYTES)
        with self._clock.move_on_after(self._limits.idle_seconds):
            while True:
                event = protocol.next_event()
                if isinstance(event, h11.Request):
                    # The end of a request without body comes at once, and shows in their state.
                    protocol.next_event()
                    return event
                if isinstance(event, h11.ConnectionClosed):
                    return None
                while (received := stream.receive_into(memoryview(buffer))) is None:
                    await stream.wait_readable()
                protocol.receive_data(bytes(buffer[:received]))
        return None

    async def _reply_to(self, request: h11.Request) -> tuple[Reply, list[tuple[str, str]]]:
        path = request.target.partition(b"?")[0].decode("ascii", "replace")
        page = self._pages.get(path)
        if page is None:
            known = ", ".join(self._pages)
            return Reply(f"no such page; there are {known}\n".encode(), 404), []
        if request.method not in _METHODS:
            return _plain(405), [("Allow", "GET, HEAD")]
        try:
            return await page(), []
        except Exception:
            # A gauge that can't be read is a fault of its own, and none of the node's.
            log.exception("http page failed path=%s", path)
            return _plain(500), []

    async def _send(
        self,
        protocol: h11.Connection,
        stream: Stream,
        reply: Reply,
        headers: list[tuple[str, str]] | None = None,
        *,
        has_body: bool = True,
        is_last: bool = False,
    ) -> None:
        fields = [
            ("Content-Type", reply.content_type),
            ("Content-Length", str(len(reply.body))),
            ("Cache-Control", "no-store"),
            *(headers or ()),
        ]
        if is_last:
            fields.append(("Connection", "close"))
        phrase = _PHRASES.get(reply.status, "").encode()
        head = h11.Response(status_code=reply.status, headers=fields, reason=phrase)
        data = protocol.send(head) or b""
        if has_body:
            data += protocol.send(h11.Data(data=reply.body)) or b""
        data += protocol.send(h11.EndOfMessage()) or b""
        with self._clock.move_on_after(self._limits.send_seconds):
            view = memoryview(data)
            while view:
                sent = stream.send([view])
                view = view[sent:]
                if not sent:
                    await stream.wait_writable()
            return
        raise ConnectionAbortedError("the peer did not read its answer")

    async def _linger(self, stream: Stream) -> None:
        stream.finish()
        buffer = memoryview(bytearray(_RECEIVE_BYTES))
        unread_bytes = _LINGER_BYTES
        with self._clock.move_on_after(_LINGER_SECONDS):
            while unread_bytes > 0:
                received = stream.receive_into(buffer)
                if received == 0:
                    return
                if received is None:
                    await stream.wait_readable()
                else:
                    unread_bytes -= received


def _plain(status: int) -> Reply:
    return Reply(f"{_PHRASES.get(status, 'refused').lower()}\n".encode(), status)
