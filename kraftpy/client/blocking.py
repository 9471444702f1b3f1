"""A connection to a node for code without a loop: scripts, small commands, Spark's workers.

The same core as the trio connection, over a plain socket. Used by one thread at a time.
This is the one file of the product, outside `kraftpy/world`, that touches sockets and the clock:
its users are outside any simulated world.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Any

from kraftpy.client.core import ConnectionCore, Pending, State
from kraftpy.client.errors import ConnectionLost, Evidence, evidence_of
from kraftpy.client.frames import AnswerReader
from kraftpy.client.outbox import Outbox
from kraftpy.client.settings import ClientSettings
from kraftpy.net.framing import InvalidFrame
from kraftpy.protocol.tables import Request
from kraftpy.world import Address, Buffer

__all__ = ["BlockingConnection"]

# POSIX allows the kernel to refuse longer lists of parts.
_PARTS_IN_ONE_CALL = 1024


class BlockingConnection:
    """A connection that stands, from its construction to `close`; a context manager."""

    def __init__(self, address: Address, settings: ClientSettings | None = None) -> None:
        """Connect and negotiate. Raises ConnectionLost with the evidence, or NegotiationFailed."""
        settings = settings or ClientSettings()
        host, port = address
        self.address = address
        timeout_seconds = settings.socket_connection_setup_timeout_ms / 1000
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_seconds)
        except TimeoutError:
            raise ConnectionLost(Evidence.TIMED_OUT, f"connecting to {host}:{port}") from None
        except OSError as error:
            detail = f"connecting to {host}:{port}: {error}"
            raise ConnectionLost(evidence_of(error), detail) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._core = ConnectionCore(settings)
        self._reader = AnswerReader(settings.max_answer_bytes)
        self._outbox = Outbox()
        self._max_in_flight = settings.max_in_flight_requests_per_connection
        self._socket.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        try:
            self._outbox.put(self._core.open(_now_ms()))
            while self._core.state is State.NEGOTIATING:
                self._exchange()
            if self._core.failure is not None:
                raise self._core.failure
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> BlockingConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def core(self) -> ConnectionCore:
        """For reading: negotiated versions."""
        return self._core

    def request(
        self, message: Request, *, max_version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """Send `message` in the highest common version and return its answer.

        Raises UnsupportedVersion before anything is sent, ConnectionLost when the connection goes.
        """
        pending = self._submit(message, max_version, timeout_ms)
        while not pending.is_done:
            self._exchange()
        return pending.result()

    def pipeline(self, messages: Iterable[Request]) -> list[Any]:
        """Send all without waiting for answers in between; the answers, in order."""
        sent: list[Pending] = []
        for message in messages:
            while self._core.in_flight_count >= self._max_in_flight:
                self._exchange()
            sent.append(self._submit(message, None, None))
        while not all(pending.is_done for pending in sent):
            self._exchange()
        return [pending.result() for pending in sent]

    def close(self) -> None:
        """Idempotent."""
        self._core.lose(Evidence.ENDED_HERE, "closed by this side")
        self._socket.close()

    def _submit(self, message: Request, max_version: int | None, timeout_ms: int | None) -> Pending:
        pending, parts = self._core.submit(
            message, _now_ms(), _nobody_waits, max_version=max_version, timeout_ms=timeout_ms
        )
        self._outbox.put(parts)
        return pending

    def _exchange(self) -> None:
        """Wait until bytes can go one way or the other, and let them; give up what is overdue.

        Both ways at once, because a node that can't get rid of its answers stops reading.
        """
        try:
            if not self._outbox.send_to(self):
                self._poll.modify(self._socket, select.POLLIN | select.POLLOUT)
            else:
                self._poll.modify(self._socket, select.POLLIN)
            deadline_ms = self._core.next_deadline_ms()
            wait_ms = None if deadline_ms is None else max(0, deadline_ms - _now_ms())
            if any(event != select.POLLOUT for _, event in self._poll.poll(wait_ms)):
                self._receive()
        except InvalidFrame as error:
            self._core.lose(Evidence.GARBLED, str(error))
        except OSError as error:
            self._core.lose(evidence_of(error), str(error))
        self._core.expire(_now_ms())
        if self._core.state is State.LOST:
            self._socket.close()

    def send(self, parts: Sequence[Buffer]) -> int:
        """The outbox's way to the socket."""
        try:
            return self._socket.sendmsg(parts[:_PARTS_IN_ONE_CALL])
        except BlockingIOError:
            return 0

    def _receive(self) -> None:
        try:
            count = self._socket.recv_into(self._reader.receive_view())
        except BlockingIOError:
            return
        if count == 0:
            self._core.lose(Evidence.BROKEN, "closed by the peer")
        for frame in self._reader.received(count):
            self._outbox.put(self._core.receive(frame, _now_ms()))


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


def _nobody_waits() -> None:
    """The caller looks for itself whether its request is done."""
