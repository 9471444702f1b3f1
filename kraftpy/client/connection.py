"""A connection to a node for trio code: callers share it, their requests are pipelined.

`connect` makes one connection; Peer keeps one, and makes it anew when it is lost.

Requests leave whole: `request` hands its bytes to an outbox at once and without waiting, so that a
caller cancelled at any point leaves no half frame behind. Its answer is dropped when it comes. One
task reads; a second one exists only while the system takes no more bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Any

import trio

from kraftpy.client.backoff import Backoff
from kraftpy.client.core import ConnectionCore, Pending, State, VersionRange, nobody_waits
from kraftpy.client.errors import ConnectionLost, Evidence, evidence_of
from kraftpy.client.frames import AnswerReader
from kraftpy.client.outbox import Outbox
from kraftpy.client.settings import ClientSettings
from kraftpy.net.framing import InvalidFrame
from kraftpy.net.line import SLICE_SECONDS
from kraftpy.net.service import Part
from kraftpy.protocol.tables import Request
from kraftpy.world import Address, Bell, Clock, Stream, World

__all__ = ["Connection", "Peer", "connect"]


async def connect(
    world: World, nursery: trio.Nursery, address: Address, settings: ClientSettings
) -> Connection:
    """Connect and negotiate; the connection's tasks live in `nursery` and end with it.

    Raises ConnectionLost with the evidence, or NegotiationFailed.
    """
    host, port = address
    try:
        with world.clock.fail_after(settings.socket_connection_setup_timeout_ms / 1000):
            stream = await world.network.connect(host, port)
    except trio.TooSlowError:
        raise ConnectionLost(Evidence.TIMED_OUT, f"connecting to {host}:{port}") from None
    except OSError as error:
        raise ConnectionLost(evidence_of(error), f"connecting to {host}:{port}: {error}") from error
    connection = Connection(stream, world.clock, nursery, settings)
    try:
        await connection._negotiate()
    except BaseException:
        connection.close()
        raise
    return connection


class Connection:
    """A connection that stands. Made by `connect`."""

    def __init__(
        self, stream: Stream, clock: Clock, nursery: trio.Nursery, settings: ClientSettings
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._nursery = nursery
        self._core = ConnectionCore(settings)
        self._reader = AnswerReader(settings.max_answer_bytes)
        self._outbox = Outbox()
        self._is_draining = False
        self._sent = trio.Event()
        self._slots = trio.Semaphore(settings.max_in_flight_requests_per_connection)
        self._negotiated = clock.bell()
        self.answered_count = 0

    @property
    def is_open(self) -> bool:
        return self._core.state is State.READY

    @property
    def failure(self) -> Exception | None:
        """Why the connection is gone; None while it stands."""
        return self._core.failure

    @property
    def core(self) -> ConnectionCore:
        """For reading: negotiated versions, requests in flight."""
        return self._core

    async def request(
        self, message: Request, *, max_version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """Send `message` in the highest common version and return its answer.

        Raises UnsupportedVersion before anything is sent; ConnectionLost when the connection goes
        while the answer is awaited: then the request may or may not have been carried out.
        """
        await self._take_slot()
        try:
            # Those who asked before may have given up waiting, and noticed nothing.
            self.expire()
            done = self._clock.bell()
            pending, parts = self._core.submit(
                message,
                self._clock.monotonic_ms(),
                done.ring,
                max_version=max_version,
                timeout_ms=timeout_ms,
            )
            self._send(parts)
            while not pending.is_done:
                await self._wait_until(done, pending.deadline_ms)
            self.answered_count += pending.failure is None
            return pending.result()
        finally:
            self._slots.release()

    async def _take_slot(self) -> None:
        """At once if one is free: a turn of the loop is time that all replication would wait."""
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            self._slots.acquire_nowait()
        except trio.WouldBlock:
            await self._slots.acquire()

    def submit(
        self,
        message: Request,
        done: Callable[[Pending], None],
        *,
        max_version: int | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """As `request`, without waiting: `done` is called when there is an answer or a failure.

        The caller sees to it that not too many are in flight, and calls `expire` in time or waits
        by `wait`.
        """
        pending, parts = self._core.submit(
            message,
            self._clock.monotonic_ms(),
            nobody_waits,
            max_version=max_version,
            timeout_ms=timeout_ms,
        )
        pending.wake = partial(done, pending)
        self._send(parts)

    def send_unanswered(self, message: Request) -> None:
        """Send a request to which no answer will come."""
        self._send(self._core.encode_unanswered(message))

    async def wait_sent(self) -> None:
        """Wait until the system has all bytes, or the connection is gone."""
        while self._is_draining:
            await self._sent.wait()

    def expire(self) -> None:
        """Give the connection up if an answer is overdue."""
        self._core.expire(self._clock.monotonic_ms())
        self._shut_if_lost()

    def close(self) -> None:
        """Close from this side; pending requests fail. Idempotent."""
        self._core.lose(Evidence.ENDED_HERE, "closed by this side")
        self._shut_if_lost()

    async def _negotiate(self) -> None:
        self._send(self._core.open(self._clock.monotonic_ms()))
        self._nursery.start_soon(self._read, name=f"client-read[{self._name()}]")
        while self._core.state is State.NEGOTIATING:
            await self.wait(self._negotiated)
        if self._core.failure is not None:
            raise self._core.failure

    async def wait(self, done: Bell) -> None:
        """Wait for `done`, or until an answer is overdue, with which the connection is given up.

        For those who `submit`; they look what has come, and wait again.
        """
        await self._wait_until(done, self._core.next_deadline_ms())

    async def _wait_until(self, done: Bell, deadline_ms: int | None) -> None:
        """Wait for `done`, but give the connection up when an answer is overdue."""
        deadline = inf
        if deadline_ms is not None:
            rest_ms = deadline_ms - self._clock.monotonic_ms()
            deadline = self._clock.monotonic() + rest_ms / 1000
        await done.wait_until(deadline)
        self.expire()

    async def _read(self) -> None:
        """Receive until the connection is gone, in turns that leave the loop to others."""
        core = self._core
        try:
            while core.state is not State.LOST:
                if self._receive(self._clock.monotonic() + SLICE_SECONDS):
                    await trio.lowlevel.checkpoint()
                else:
                    self._reader.rest()
                    await self._stream.wait_readable()
        except InvalidFrame as error:
            core.lose(Evidence.GARBLED, str(error))
        except OSError as error:
            core.lose(evidence_of(error), str(error))
        except trio.ClosedResourceError:
            # We closed the stream ourselves while waiting on it; the core knows why.
            pass
        finally:
            core.lose(Evidence.ENDED_HERE, "the task of the connection was cancelled")
            self._shut_if_lost()

    def _receive(self, turn_ends: float) -> bool:
        """Take what has come, until nothing is left (False) or the turn is over (True)."""
        core = self._core
        while core.state is not State.LOST:
            view = self._reader.receive_view()
            room = len(view)
            count = self._stream.receive_into(view)
            if count is None:
                return False
            if count == 0:
                core.lose(Evidence.BROKEN, "closed by the peer")
            for frame in self._reader.received(count):
                self._send(core.receive(frame, self._clock.monotonic_ms()))
            if core.state is not State.NEGOTIATING:
                self._negotiated.ring()
            if count < room and self._reader.is_empty and core.failure is None:
                # All that the peer had to say was there; amid an answer more is about to come.
                return False
            if self._clock.monotonic() >= turn_ends:
                break
        return True

    def _send(self, parts: list[Part]) -> None:
        """Hand over what the system takes now; a task sends the rest."""
        self._outbox.put(parts)
        if not self._is_draining and not self._flush():
            self._is_draining = True
            self._sent = trio.Event()
            self._nursery.start_soon(self._drain, name=f"client-write[{self._name()}]")

    def _flush(self) -> bool:
        """Send until all is gone or the system takes no more; is all gone?"""
        try:
            return self._outbox.send_to(self._stream)
        except OSError as error:
            self._core.lose(evidence_of(error), str(error))
            self._shut_if_lost()
        except trio.ClosedResourceError:
            self._outbox.clear()
        return True

    async def _drain(self) -> None:
        try:
            while not self._flush():
                await self._stream.wait_writable()
        except OSError as error:
            self._core.lose(evidence_of(error), str(error))
        except trio.ClosedResourceError:
            # We closed the stream ourselves while waiting on it; the core knows why.
            pass
        finally:
            self._is_draining = False
            self._sent.set()
            self._shut_if_lost()

    def _shut_if_lost(self) -> None:
        if self._core.state is State.LOST:
            self._outbox.clear()
            self._negotiated.ring()
            self._stream.close()

    def _name(self) -> str:
        host, port = self._stream.remote_address
        return f"{host}:{port}"


class Peer:
    """A node that is talked to again and again: connected to when needed, and anew after a loss.

    Failed attempts are spaced by the back-off. A connection on which nothing was ever answered
    counts as failed too, so that a node that accepts and hangs up isn't stormed. After a useful
    connection the first new attempt comes at once: its outcome is evidence that others wait for.
    """

    def __init__(
        self, world: World, nursery: trio.Nursery, address: Address, settings: ClientSettings
    ) -> None:
        self.address = address
        self._world = world
        self._nursery = nursery
        self._settings = settings
        self._backoff = Backoff(
            initial_ms=settings.reconnect_backoff_ms,
            max_ms=settings.reconnect_backoff_max_ms,
            random=world.rng.stream("reconnect"),
        )
        self._not_before_ms = 0
        self._connecting = trio.Lock()
        self._connection: Connection | None = None

    @property
    def last_failure(self) -> Exception | None:
        """Why the present connection is gone; None while it stands or before the first."""
        return None if self._connection is None else self._connection.failure

    @property
    def standing(self) -> Connection | None:
        """The connection, while one stands."""
        connection = self._connection
        return connection if connection is not None and connection.is_open else None

    @property
    def versions(self) -> Mapping[int, VersionRange] | None:
        """What the node serves, by API key; None while no connection stands."""
        connection = self.standing
        return None if connection is None else connection.core.versions

    async def request(
        self, message: Request, *, max_version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """As Connection.request; connects first where that is needed, after the back-off."""
        connection = await self.connected()
        answer = await connection.request(message, max_version=max_version, timeout_ms=timeout_ms)
        self.succeeded()
        return answer

    def succeeded(self) -> None:
        """An answer came on a connection got from `connected`."""
        self._backoff.succeeded()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def connected(self) -> Connection:
        """The connection that stands, at once; or a new one after the back-off."""
        if self._connection is not None and self._connection.is_open:
            return self._connection
        async with self._connecting:
            if self._connection is not None:
                if self._connection.is_open:
                    return self._connection
                if self._connection.answered_count == 0:
                    self._hold_off()
                self._connection = None
            await self._world.clock.sleep_until(self._not_before_ms / 1000)
            try:
                self._connection = await connect(
                    self._world, self._nursery, self.address, self._settings
                )
            except OSError:
                self._hold_off()
                raise
            return self._connection

    def _hold_off(self) -> None:
        self._not_before_ms = self._world.clock.monotonic_ms() + self._backoff.failed()
