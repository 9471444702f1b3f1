"""One connection: frames in, answers out, in order.

One task reads (`run`). In each of its turns on the loop it serves every complete frame in hand by a
synchronous call, sends the answers that are there with one write, and receives more. An answer that
comes later is sent from wherever it was finished (kraftpy/net/line.py).

Mute. While an answer is outstanding no further frame is served, except within the run-ahead window:
frames of which the service says they may, behind pending ones of which it said so too, at most
`run_ahead_frames` of them and `request_max_bytes` together. A muted connection goes on receiving
into its read-ahead buffer until that is full, so it notices that its peer is gone. When the reader
waits with frames in hand, whoever lets an answer leave wakes it by cancelling its wait; frames are
never served in the completer's context.

Bounds. In hand are at most: the read-ahead buffer, one large frame, and the answers of one window.
Nothing is served while the peer doesn't take its answers. A turn ends after SLICE_SECONDS, frames
in hand or not.

A peer that has finished sending is gone: frames that may be served are served and their answers
sent, then the connection closes, whatever is pending (as in Kafka).

Faults. Whatever the peer does ends in `close`. A broken invariant of our own (InternalInvariant)
rises and stops the node.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from kraftpy.net.framing import BufferPool, FrameReader, InvalidFrame
from kraftpy.net.limits import NetworkLimits
from kraftpy.net.line import GONE, SLICE_SECONDS, AnswerLine, HeldLines, Spawn
from kraftpy.net.memory import RequestMemory, Reservation
from kraftpy.net.mute import MuteState
from kraftpy.net.service import BadRequest, Service
from kraftpy.security.acl_terms import ANONYMOUS
from kraftpy.world import Clock, InternalInvariant, Stream

__all__ = ["Connection", "ConnectionIdentity", "Surroundings"]

logger = logging.getLogger(__name__)

# Answers that wait for the end of a turn are sent earlier when they are this many bytes together.
_CORKED_MAX_BYTES = 256 * 1024
# How often a read-ahead buffer is filled with what nobody will serve, before closing: 8 MB, more
# than a system holds for a connection. A peer that sends on meanwhile doesn't keep us.
_DISCARDED_READS = 128
# The shortest wait for the end of a throttle. One too short for the clock to move would spin.
_THROTTLE_WAIT_SECONDS = 0.0005


@dataclass(frozen=True, slots=True)
class ConnectionIdentity:
    """Who is connected to what."""

    connection_id: str
    listener_name: str
    security_protocol: str
    client_host: str


@dataclass(slots=True)
class Surroundings:
    """What all connections of a server share."""

    clock: Clock
    limits: NetworkLimits
    buffers: BufferPool
    memory: RequestMemory
    spawn: Spawn
    # Bytes have come or gone.
    on_activity: Callable[[Connection], None]
    # Called once for each connection, when it is closed.
    on_closed: Callable[[Connection], None]
    held: HeldLines = field(default_factory=HeldLines)


class Connection:
    """A Channel for services, and the reading half of its stream."""

    __slots__ = (
        "_identity",
        "_is_drained",
        "_line",
        "_on_end",
        "_reader",
        "_received_at",
        "_reservation",
        "_runs_all_ahead",
        "_service",
        "_stream",
        "_surroundings",
        "_wait_scope",
        "client_software_name",
        "client_software_version",
        "is_closed",
        "is_reader_waiting",
        "last_active",
        "principal",
    )

    def __init__(
        self,
        stream: Stream,
        service: Service,
        identity: ConnectionIdentity,
        surroundings: Surroundings,
        *,
        runs_all_ahead: bool = False,
        principal: str = ANONYMOUS,
    ) -> None:
        now = surroundings.clock.monotonic()
        self._stream = stream
        self._service = service
        self._identity = identity
        self._surroundings = surroundings
        self._runs_all_ahead = runs_all_ahead
        self.client_software_name = "unknown"
        self.client_software_version = "unknown"
        self.principal = principal
        self.last_active = now
        self.is_closed = False
        self._on_end: list[Callable[[], None]] = []

        self._line = AnswerLine(
            self, stream, surroundings.clock, surroundings.spawn, surroundings.held
        )
        self._reader = FrameReader(surroundings.limits.request_max_bytes, surroundings.buffers)
        self._reservation: Reservation | None = None
        self._received_at = now
        # The last receive got all there was: waiting comes before the next.
        self._is_drained = True
        self.is_reader_waiting = False
        # Set while the reader waits for more than bytes.
        self._wait_scope: trio.CancelScope | None = None

    @property
    def connection_id(self) -> str:
        return self._identity.connection_id

    @property
    def listener_name(self) -> str:
        return self._identity.listener_name

    @property
    def security_protocol(self) -> str:
        return self._identity.security_protocol

    @property
    def client_host(self) -> str:
        return self._identity.client_host

    @property
    def mute_state(self) -> MuteState:
        return self._line.mute_state

    @property
    def held_bytes(self) -> int:
        """Memory held for requests that are being received or wait to be served."""
        return self._reader.held_bytes

    @property
    def outstanding_count(self) -> int:
        """Requests whose answers have not left."""
        return self._line.outstanding_count

    async def run(self) -> None:
        """Serve until the peer, a fault or the server ends the connection."""
        try:
            await self._serve_until_end()
        except GONE as error:
            logger.debug("connection=%s is gone: %s", self.connection_id, error)
        except (InvalidFrame, BadRequest) as error:
            logger.warning(
                "connection=%s listener=%s principal=%s is closed: %s",
                self.connection_id,
                self.listener_name,
                self.principal,
                error,
            )
        except InternalInvariant:
            raise
        except Exception:
            logger.exception("connection=%s is closed by a fault", self.connection_id)
        finally:
            self.close()
            self._reader.release()
            self._release_memory()

    def end(self) -> None:
        """Serve nothing more; close when the answers in flight have left."""
        self._line.is_ending = True
        if self._line.outstanding_count == 0:
            self.close_in_order()

    def close_in_order(self) -> None:
        """Close so that what has left arrives.

        A system that closes over unread bytes resets the connection, and drops what the peer has
        not taken yet. So they are read first, and thrown away.
        """
        buffers = self._surroundings.buffers
        scratch = buffers.borrow()
        try:
            for _ in range(_DISCARDED_READS):
                if not self._stream.receive_into(memoryview(scratch)):
                    break
        except (*GONE, OSError) as error:
            logger.debug("connection=%s is gone: %s", self.connection_id, error)
        buffers.give_back(scratch)
        self.close()

    def close(self) -> None:
        """Close at once. What has not left is dropped. Idempotent."""
        if not self.is_closed:
            self.is_closed = True
            self._stream.close()
            self._line.close()
            self.wake()
            self._surroundings.on_closed(self)
            for callback in self._on_end:
                callback()

    def on_end(self, callback: Callable[[], None]) -> None:
        if self.is_closed:
            callback()
        else:
            self._on_end.append(callback)

    def wake(self) -> None:
        if self._wait_scope is not None:
            self._wait_scope.cancel()

    def on_activity(self, now: float) -> None:
        self.last_active = now
        self._surroundings.on_activity(self)

    async def _serve_until_end(self) -> None:
        """Take turns on the loop: serve, send, receive; wait when there is nothing to do."""
        clock = self._surroundings.clock
        turn_ends = clock.monotonic() + SLICE_SECONDS
        while True:
            self._serve_frames(turn_ends)
            if self.is_closed:
                return
            if self._line.is_blocked:
                await self._wait_for_sending()
            elif clock.monotonic() >= turn_ends:
                await trio.lowlevel.checkpoint()
            elif self._is_drained or not self._has_room():
                await self._wait_for_receiving()
            elif self._receive():
                continue
            else:
                return
            turn_ends = clock.monotonic() + SLICE_SECONDS

    def _serve_frames(self, turn_ends: float) -> None:
        """Serve the frames in hand, as far as they may be served and time allows, and send."""
        if self._reader.peek() is None:
            return
        line = self._line
        clock = self._surroundings.clock
        now = clock.monotonic()
        line.cork()
        try:
            while (frame := self._reader.peek()) is not None and self._may_serve(frame, now):
                self._serve(frame, now)
                now = clock.monotonic()
                if now >= turn_ends:
                    break
                if line.corked_bytes >= _CORKED_MAX_BYTES:
                    line.uncork()
                    line.cork()
        finally:
            line.uncork()

    def _may_serve(self, frame: memoryview, now: float) -> bool:
        if not self._has_window(len(frame), now):
            return False
        return self._line.pending_count == 0 or self._runs_ahead(frame)

    def _runs_ahead(self, frame: memoryview) -> bool:
        return self._runs_all_ahead or self._service.may_run_ahead(frame)

    def _has_window(self, frame_bytes: int, now: float) -> bool:
        """Whether a frame of this size may be served now, or could if it may run ahead."""
        line = self._line
        is_throttled = line.is_throttled and not line.end_throttle(now)
        if is_throttled or line.is_ending or line.is_blocked or self.is_closed:
            return False
        if line.pending_count == 0:
            return True
        limits = self._surroundings.limits
        return (
            not line.keeps_order
            and line.outstanding_count < limits.run_ahead_frames
            and line.outstanding_bytes + frame_bytes <= limits.request_max_bytes
        )

    def _serve(self, frame: memoryview, now: float) -> None:
        answer = self._line.open(len(frame), arrived=self._received_at, served=now)
        held = self._surroundings.held
        held.is_holding = True
        try:
            self._service.serve(self, frame, answer)
            if answer.kind is None:
                answer.handled = self._surroundings.clock.monotonic()
                if not answer.runs_ahead or not self._runs_ahead(frame):
                    self._line.keep_order_behind(answer)
        except BaseException:
            # The connection closes, and nobody will finish this answer.
            answer.record(self._surroundings.clock.monotonic())
            raise
        finally:
            held.release()
        self._reader.pop()
        self._release_memory()

    def _has_room(self) -> bool:
        """Whether bytes can be received now; begins a large frame if one comes and may."""
        size = self._reader.large_frame_bytes
        if size > 0 and self._may_begin_large(size):
            self._reader.begin_large()
        return self._reader.room_bytes > 0

    def _may_begin_large(self, size: int) -> bool:
        if not self._has_window(size, self._surroundings.clock.monotonic()):
            return False
        memory = self._surroundings.memory
        if memory.capacity_bytes is None:
            return True
        if self._reservation is None:
            self._reservation = memory.reserve(size, self.wake)
        return self._reservation.is_granted

    def _release_memory(self) -> None:
        if self._reservation is not None:
            self._reservation.release()
            self._reservation = None

    def _receive(self) -> bool:
        """Receive what is there; False when the peer has finished.

        Whatever may be served was served before, and its answers have left.
        """
        view = self._reader.receive_view()
        room = len(view)
        count = self._stream.receive_into(view)
        if count is None:
            self._is_drained = True
        elif count == 0:
            return False
        else:
            self._reader.received(count)
            # Less than there was room for: the next call would find nothing.
            self._is_drained = count < room
            self._received_at = self._surroundings.clock.monotonic()
            self.on_activity(self._received_at)
        return True

    async def _wait_for_receiving(self) -> None:
        """Wait for bytes and, with frames in hand, for the moment when they may be served."""
        reader = self._reader
        has_room = is_idle = True
        if not reader.is_empty:
            has_room = self._has_room()
            is_idle = reader.peek() is None and reader.large_frame_bytes == 0
        reader.rest()
        self.is_reader_waiting = True
        try:
            if is_idle:
                # Nothing but bytes, or its closing, concerns it; so it saves the scope.
                await self._stream.wait_readable()
            else:
                wait = self._stream.wait_readable if has_room else trio.sleep_forever
                await self._until_woken(self._scope_of_throttle(), wait)
        finally:
            self.is_reader_waiting = False
        self._is_drained = False

    async def _wait_for_sending(self) -> None:
        """The peer takes no more now. Wait until it does, here unless somebody does already."""
        self._reader.rest()
        if self._line.is_sender_waiting:
            await self._until_woken(trio.CancelScope(), trio.sleep_forever)
        else:
            await self._line.drain()

    def _scope_of_throttle(self) -> trio.CancelScope:
        """A scope that ends when the throttle does, if there is one."""
        if not self._line.is_throttled:
            return trio.CancelScope()
        clock = self._surroundings.clock
        remaining = self._line.throttled_until - clock.monotonic()
        return clock.move_on_after(max(_THROTTLE_WAIT_SECONDS, remaining))

    async def _until_woken(
        self, scope: trio.CancelScope, wait: Callable[[], Awaitable[object]]
    ) -> None:
        """Wait until `wait` is over, or `scope`, or until `wake` is called."""
        self._wait_scope = scope
        try:
            with scope:
                await wait()
        finally:
            self._wait_scope = None
