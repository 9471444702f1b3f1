"""A connection to a node for code without a loop: scripts, small commands, Spark's workers.

The same core as the trio connection, over a plain socket. Used by one thread at a time. A client of
several nodes lets its connections make progress together, with `exchange`.
This is the one file of the product, outside `kraftpy/world`, that touches sockets and the clock:
its users are outside any simulated world.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

from kraftpy.client.core import ConnectionCore, Pending, State
from kraftpy.client.errors import ConnectionLost, Evidence, evidence_of
from kraftpy.client.frames import AnswerReader
from kraftpy.client.outbox import Outbox
from kraftpy.client.settings import ClientSettings
from kraftpy.net.framing import InvalidFrame
from kraftpy.protocol.tables import Request
from kraftpy.world import Address, Buffer

__all__ = ["BlockingConnection", "exchange", "fresh_random", "now_ms", "wall_ms"]

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
        try:
            self._outbox.put(self._core.open(now_ms()))
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

    def submit(
        self,
        message: Request,
        done: Callable[[Pending], None],
        *,
        max_version: int | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """As `request`, without waiting: `done` is called from `exchange`."""
        pending = self._submit(message, max_version, timeout_ms)
        pending.wake = partial(done, pending)

    def send_unanswered(self, message: Request) -> None:
        """Send a request to which no answer will come."""
        self._outbox.put(self._core.encode_unanswered(message))

    @property
    def has_unsent(self) -> bool:
        """Are there bytes that the system has not taken yet?"""
        return not self._outbox.is_empty

    @property
    def is_open(self) -> bool:
        return self._core.state is State.READY

    def close(self) -> None:
        """Idempotent."""
        self._core.lose(Evidence.ENDED_HERE, "closed by this side")
        self._socket.close()

    def _submit(self, message: Request, max_version: int | None, timeout_ms: int | None) -> Pending:
        pending, parts = self._core.submit(
            message, now_ms(), _nobody_waits, max_version=max_version, timeout_ms=timeout_ms
        )
        self._outbox.put(parts)
        return pending

    def _exchange(self) -> None:
        exchange([self], None)

    def wishes(self) -> int:
        """Send what can be sent; what to wait for then. 0: nothing, the connection is gone.

        Both ways at once, because a node that can't get rid of its answers stops reading.
        """
        with self._losing():
            if not self._outbox.send_to(self):
                return select.POLLIN | select.POLLOUT
        return 0 if self._core.state is State.LOST else select.POLLIN

    def ready(self, event: int) -> None:
        """The system says that bytes can go one way or the other."""
        with self._losing():
            if event != select.POLLOUT:
                self._receive()

    def expire(self) -> None:
        """Give the connection up if an answer is overdue."""
        with self._losing():
            self._core.expire(now_ms())

    def fileno(self) -> int:
        return self._socket.fileno()

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """What breaks in here is the connection's end."""
        try:
            yield
        except InvalidFrame as error:
            self._core.lose(Evidence.GARBLED, str(error))
        except OSError as error:
            self._core.lose(evidence_of(error), str(error))
        if self._core.state is State.LOST:
            self._outbox.clear()
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
            self._outbox.put(self._core.receive(frame, now_ms()))


def exchange(connections: Sequence[BlockingConnection], wait_ms: int | None) -> None:
    """Wait until bytes can go one way or the other on some connection, and let them.

    No longer than `wait_ms`, or until the first answer is overdue; overdue ones are given up.
    """
    poll = select.poll()
    waiting = {}
    for connection in connections:
        wishes = connection.wishes()
        if wishes:
            poll.register(connection, wishes)
            waiting[connection.fileno()] = connection
        else:
            wait_ms = 0
        deadline_ms = connection.core.next_deadline_ms()
        if deadline_ms is not None:
            left_ms = max(0, deadline_ms - now_ms())
            wait_ms = left_ms if wait_ms is None else min(wait_ms, left_ms)
    for descriptor, event in poll.poll(wait_ms):
        waiting[descriptor].ready(event)
    for connection in connections:
        connection.expire()


def now_ms() -> int:
    """The monotonic clock of blocking clients."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def fresh_random() -> Random:
    return Random()


def _nobody_waits() -> None:
    """The caller looks for itself whether its request is done."""
