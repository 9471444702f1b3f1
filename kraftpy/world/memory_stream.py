"""Both ends of a simulated TCP connection, and the pipes between them.

A connection is two streams (its ends) and two pipes (its directions). A pipe carries segments in
order: an opening, data, the end of data, a reset. Each gets its time of arrival when it is sent,
and waits for the one before it if that is due later. The first segment waits whenever its way is
blocked, and all others wait behind it; nothing is lost and nothing overtakes while both ends live:

- link cut or receiver down: until the link heals or the host is back, for at most the link's stall
  time-out; then the sender's end breaks with a bare ConnectionError (ETIMEDOUT), the other end
  notices nothing (half-open);
- link clogged: until the clog ends; receiving process paused: until it is resumed;
- receiver's buffer full: until somebody reads.

So bytes of a connection that its owner has long closed still arrive after a heal, as TCP's do.

Acknowledgements are not segments. They free the sender's buffer when data arrives, unless the way
back is cut: then the sender goes on believing that its data is under way.

Resets are as on Linux. `close` with received bytes unread resets instead of finishing. Data for an
end that is closed, or died before its host came back, is answered with a reset. A reset drops what
is in flight towards the peer; on a cut link it is itself lost. The error of a broken connection is
reported once, ConnectionResetError, or BrokenPipeError if the peer had finished before; after it,
receiving gives 0 and sending raises BrokenPipeError. Bytes that arrived before a reset stay
readable.

Ends held by a process that was killed or vanished are ghosts, see memory_host.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeAlias

import trio

from kraftpy.world.memory_host import Parking, Process
from kraftpy.world.memory_link import Hold, Path, Timetable
from kraftpy.world.ports import Address, Buffer, FileSlice

__all__ = ["MemoryStream", "NetworkObserver", "Pipe", "Segment"]

# As in the real adapter: a slice is sent in bites.
_SLICE_BYTES = 256 * 1024

# Called with what happened, where (`source>target`), and the bytes that came with it.
NetworkObserver: TypeAlias = Callable[[str, str, bytes], None]


class Segment(StrEnum):
    OPEN = "open"
    DATA = "data"
    FINISH = "finish"
    RESET = "reset"


class Pipe:
    """One direction of a connection."""

    __slots__ = (
        "_abandoned",
        "_back",
        "_hold",
        "_link",
        "_observer",
        "_progress_count",
        "_receiver",
        "_segments",
        "_sender",
        "_timetable",
        "_unacknowledged_bytes",
        "_waiting",
        "_window_shut",
        "buffered_bytes",
        "name",
    )

    def __init__(
        self,
        sender: MemoryStream,
        receiver: MemoryStream,
        path: Path,
        timetable: Timetable,
        observer: NetworkObserver | None,
    ) -> None:
        self._sender = sender
        self._receiver = receiver
        self._link = path.out
        self._back = path.back
        self._timetable = timetable
        self._observer = observer
        self._segments: deque[tuple[float, Segment, bytes]] = deque()
        # Whether somebody is going to call `_arrive`: the timetable, a link, a process, a reader.
        self._waiting = False
        self._window_shut = False
        self._abandoned = False
        self._hold: Hold | None = None
        self._progress_count = 0
        self._unacknowledged_bytes = 0
        self.buffered_bytes = 0
        source, target = sender.local_address, receiver.local_address
        self.name = f"{source[0]}:{source[1]}>{target[0]}:{target[1]}"

    # Sending.

    def send_bytes(self, data: bytes) -> None:
        self.buffered_bytes += len(data)
        if self._link.hold_back is not None:
            self._hold = self._link.hold_back(data) or self._hold
        if self._sender.process.paused:
            self._when_running(lambda: self._transmit_bytes(data))
        else:
            self._transmit_bytes(data)

    def send_mark(self, segment: Segment) -> None:
        """Send an opening or the end of data, behind the data sent before."""
        self._when_running(lambda: self._transmit(segment, b""))

    def _when_running(self, action: Callable[[], None]) -> None:
        """Do `action` now, or when the sender's process is no longer paused."""
        process = self._sender.process
        if process.paused:
            process.hold(lambda: action() if process.alive else None)
        else:
            action()

    def send_reset(self) -> None:
        """Drop what is under way and break the other end, if the news can reach it."""
        self.abandon()
        if not self._link.cut:
            arrival = self._link.arrival_time(0)
            self._segments.append((arrival, Segment.RESET, b""))
            # It waits for no window, unlike what may have been held up here before.
            self._window_shut = False
            self._wait_until(arrival)

    def abandon(self) -> None:
        """Drop what is under way and take no more."""
        self._abandoned = True
        self._segments.clear()
        self._progress_count += 1

    def _transmit_bytes(self, data: bytes) -> None:
        position = 0
        while position < len(data):
            chunk = data[position : position + self._link.chunk_size()]
            self._transmit(Segment.DATA, chunk)
            position += len(chunk)

    def _transmit(self, segment: Segment, data: bytes) -> None:
        if self._abandoned:
            return
        arrival = self._link.arrival_time(len(data))
        self._segments.append((arrival, segment, data))
        if not self._waiting:
            self._wait_until(arrival)

    # Arriving.

    def _wait_until(self, time: float) -> None:
        self._waiting = True
        self._timetable.at(time, self._arrive)

    def _arrive(self) -> None:
        """Deliver what is due; arrange to be called again for the rest."""
        self._waiting = False
        now = self._timetable.true_time.now
        while self._segments and not self._waiting:
            arrival, segment, data = self._segments[0]
            if arrival > now:
                self._wait_until(arrival)
            elif self._is_free(segment, data, now):
                self._segments.popleft()
                self._progress_count += 1
                if self._observer is not None:
                    self._observer(segment, self.name, data)
                self._deliver(segment, data)

    def _is_free(self, segment: Segment, data: bytes, now: float) -> bool:
        """May the first segment pass? If not, it is arranged who calls `_arrive` later, or the
        segments are gone.
        """
        link = self._link
        process = self._receiver.process
        if link.cut or not process.host.powered:
            if segment is Segment.RESET:
                # Nobody repeats a reset.
                self.abandon()
            else:
                self._waiting = True
                link.block(self._retransmit)
                self._break_without_progress()
            return False
        if link.clogged_until > now:
            self._wait_until(link.clogged_until)
            return False
        if self._hold is not None and not self._hold.is_over:
            self._waiting = True
            self._hold.wait(self._arrive)
            return False
        if process.paused:
            self._waiting = True
            process.hold(self._arrive)
            return False
        if segment is Segment.DATA and not self._receiver.has_room(len(data)):
            self._waiting = self._window_shut = True
            return False
        return True

    def _retransmit(self, delay_seconds: float) -> None:
        if self._sender.process.vanished:
            # The machine is gone that would have repeated it.
            self.abandon()
        self._wait_until(self._timetable.true_time.now + delay_seconds)

    def window_opened(self) -> None:
        """The receiver's buffer was full and has room again."""
        if self._window_shut:
            self._window_shut = False
            self._wait_until(self._timetable.true_time.now + self._back.latency_seconds())

    def _deliver(self, segment: Segment, data: bytes) -> None:
        receiver = self._receiver
        if segment is Segment.RESET:
            receiver.reset_arrived()
        elif receiver.process.vanished or (segment is Segment.DATA and receiver.is_gone()):
            receiver.outgoing.send_reset()
            # Should that get lost, only the lack of acknowledgements is left to tell.
            self._break_without_progress()
        elif segment is Segment.OPEN:
            receiver.opened()
        elif segment is Segment.FINISH:
            receiver.finish_arrived()
        elif self._link.happens(self._link.profile.reset_probability):
            self.break_both()
        else:
            receiver.data_arrived(data)
            if self._back.cut:
                self._confirm(len(data))
            else:
                self._acknowledge(len(data))

    def break_both(self) -> None:
        """Somebody in the middle resets the connection, and both ends hear of it."""
        self._receiver.reset_arrived()
        self._sender.reset_arrived()

    # Acknowledging.

    def _confirm(self, size_bytes: int) -> None:
        if not self._back.cut:
            self._acknowledge(size_bytes)
            return
        if self._unacknowledged_bytes == 0:
            self._back.block(self._confirm_late)
            self._break_without_progress()
        self._unacknowledged_bytes += size_bytes

    def _confirm_late(self, delay_seconds: float) -> None:
        def confirm() -> None:
            size_bytes, self._unacknowledged_bytes = self._unacknowledged_bytes, 0
            self._confirm(size_bytes)

        self._timetable.at(self._timetable.true_time.now + delay_seconds, confirm)

    def _acknowledge(self, size_bytes: int) -> None:
        self._progress_count += 1
        self.buffered_bytes -= size_bytes
        self._sender.room_for_sending()

    def _break_without_progress(self) -> None:
        """Give up after the stall time-out, if nothing was delivered or confirmed by then."""
        progress_count = self._progress_count

        def give_up() -> None:
            if self._progress_count == progress_count:
                self.abandon()
                self._sender.break_down(
                    ConnectionError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
                )

        deadline = self._timetable.true_time.now + self._link.profile.stall_timeout_seconds
        self._timetable.at(deadline, give_up)


class MemoryStream:
    """One end of a connection."""

    __slots__ = (
        "_error",
        "_finished",
        "_peer_finished",
        "_readable",
        "_receive_buffer_bytes",
        "_received",
        "_reported",
        "_send_buffer_bytes",
        "_writable",
        "closed",
        "incoming",
        "local_address",
        "on_open",
        "outgoing",
        "process",
        "remote_address",
    )

    incoming: Pipe
    outgoing: Pipe
    local_address: Address
    remote_address: Address

    def __init__(
        self,
        process: Process,
        local_address: Address,
        remote_address: Address,
        *,
        send_buffer_bytes: int,
        receive_buffer_bytes: int,
    ) -> None:
        self.process = process
        self.local_address = local_address
        self.remote_address = remote_address
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        # Asked when a connection reaches its accepting end: will anybody take it?
        self.on_open: Callable[[MemoryStream], bool] | None = None
        self._received = bytearray()
        self._peer_finished = False
        self._finished = False
        self._error: OSError | None = None
        self._reported = False
        self._readable = Parking()
        self._writable = Parking()
        self.closed = False
        process.add(self)

    # The port.

    def receive_into(self, buffer: memoryview) -> int | None:
        self._refuse_if_closed()
        received = self._received
        if not self.process.alive:
            return None
        if received:
            length = min(len(buffer), len(received))
            with memoryview(received) as view:
                buffer[:length] = view[:length]
            del received[:length]
            self.incoming.window_opened()
            return length
        self._report_error()
        return 0 if self._peer_finished or self._error is not None else None

    def send(self, parts: Sequence[Buffer], *, more: bool = False) -> int:
        self._refuse_if_closed()
        data = b"".join(parts)
        if not self.process.alive:
            return len(data)
        self._report_error()
        if self._finished or self._error is not None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        accepted = data[: max(0, self._send_buffer_bytes - self.outgoing.buffered_bytes)]
        self.outgoing.send_bytes(accepted)
        return len(accepted)

    def send_slice(self, part: FileSlice, skip: int, *, more: bool = False) -> int:
        length = min(part.length - skip, _SLICE_BYTES)
        data = part.file.pread(length, part.position + skip)
        if len(data) < length:
            raise ConnectionAbortedError(
                errno.ECONNABORTED, f"{part.file.path} ended before a slice of it was sent"
            )
        return self.send((data,), more=more)

    async def wait_readable(self) -> None:
        self._refuse_if_closed()
        if self.process.alive and self._has_news():
            await trio.lowlevel.checkpoint()
        else:
            await self._readable.wait()
            self._refuse_if_closed()

    async def wait_writable(self) -> None:
        self._refuse_if_closed()
        full = self.outgoing.buffered_bytes >= self._send_buffer_bytes
        if self.process.alive and (not full or self._error is not None):
            await trio.lowlevel.checkpoint()
        else:
            await self._writable.wait()
            self._refuse_if_closed()

    def finish(self) -> None:
        self._refuse_if_closed()
        if self.process.alive:
            self._report_error()
            if not self._finished:
                self._finished = True
                self.outgoing.send_mark(Segment.FINISH)

    def close(self) -> None:
        if self._mark_closed():
            self._relinquish()

    def reset(self) -> None:
        if self._mark_closed():
            self.outgoing.send_reset()
            self._drop_received()

    def _mark_closed(self) -> bool:
        """Is there anything left to be done, and somebody to do it?"""
        if self.closed:
            return False
        self.closed = True
        self.process.forget(self)
        self._readable.wake()
        self._writable.wake()
        return self.process.alive

    def process_ended(self) -> None:
        """A kernel that lives on cleans up behind its process."""
        if self.process.vanished:
            self.incoming.window_opened()
        else:
            self._relinquish()

    def _relinquish(self) -> None:
        """What the kernel does on the wire for an end that nobody holds any more."""
        if self._received:
            self.outgoing.send_reset()
        elif not self._finished and self._error is None:
            self.outgoing.send_mark(Segment.FINISH)
        self._drop_received()

    def _drop_received(self) -> None:
        self._received.clear()
        self.incoming.window_opened()

    def _refuse_if_closed(self) -> None:
        if self.closed:
            raise trio.ClosedResourceError("the stream was closed on this side")

    def _report_error(self) -> None:
        if self._error is not None and not self._reported:
            self._reported = True
            raise self._error

    def _has_news(self) -> bool:
        return bool(self._received) or self._peer_finished or self._error is not None

    # The pipes.

    def is_gone(self) -> bool:
        return self.closed or self._error is not None or not self.process.alive

    def has_room(self, size_bytes: int) -> bool:
        """A piece larger than the whole buffer fits an empty one, or it would never arrive."""
        unread = len(self._received)
        return (
            unread == 0
            or unread + size_bytes <= self._receive_buffer_bytes
            or not self.process.alive
        )

    def opened(self) -> None:
        """The connection reached this, the accepting end; nobody may be there any more."""
        if self.on_open is not None and not self.on_open(self):
            self.reset()

    def data_arrived(self, data: bytes) -> None:
        self._received += data
        self._readable.wake()

    def finish_arrived(self) -> None:
        self._peer_finished = True
        self._readable.wake()

    def reset_arrived(self) -> None:
        code = errno.EPIPE if self._peer_finished else errno.ECONNRESET
        self.break_down(OSError(code, os.strerror(code)))

    def break_down(self, error: OSError) -> None:
        self.outgoing.abandon()
        if not self.is_gone():
            self._error = error
            self._readable.wake()
            self._writable.wake()

    def room_for_sending(self) -> None:
        self._writable.wake()
