"""The answers of one connection, in line: from a request's being served to its answer's last byte.

Answers stand in the order of their requests and leave from the head. Any task may finish one, and
`pump` then sends what stands finished at the head, from wherever that happened. What the peer
doesn't take now stays in the outbox; one task waits for writability and goes on: the connection's
reader when it comes round, or one started for it when the reader waits for something else.

While the reader serves the frames of a turn it corks the line, so that their answers leave with one
write. Answers of other connections that a frame finishes leave when it has been served (HeldLines).

The line also keeps the mute state, since that follows from answers: the first one outstanding
mutes, the last one that leaves unmutes, and a throttle holds beyond that.

Nothing that the peer does raises into the task that finished an answer: the connection is closed,
and the line is dropped.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

import trio

from kraftpy.net.answer import AnswerKind, PlacedAnswer
from kraftpy.net.mute import Mute, MuteEvent, MuteState
from kraftpy.net.outbox import Departure, Outbox
from kraftpy.world import Clock, FileSlice, InternalInvariant, Stream

__all__ = ["GONE", "SLICE_SECONDS", "AnswerLine", "HeldLines", "LineOwner", "Spawn"]

logger = logging.getLogger(__name__)

# No connection keeps the loop longer in one go: measured, without it one busy peer starved the
# others for 1.7 s (spec/baselines.md).
SLICE_SECONDS = 0.0005

# What a stream raises when the connection is over, by the peer's doing or by ours.
GONE = (ConnectionError, trio.ClosedResourceError, trio.BrokenResourceError)

# Start a task that lives no longer than the server.
Spawn: TypeAlias = Callable[[Callable[[], Awaitable[object]]], object]


class LineOwner(Protocol):
    """The connection, as its line sees it."""

    @property
    def connection_id(self) -> str: ...

    @property
    def is_reader_waiting(self) -> bool:
        """Whether the reading task waits for bytes, and won't come round to send."""
        ...

    def on_activity(self, now: float) -> None:
        """Bytes are handed to the peer."""
        ...

    def wake(self) -> None:
        """Something has changed that the reading task may wait for."""
        ...

    def close(self) -> None:
        """At once: the connection is broken."""
        ...

    def close_in_order(self) -> None:
        """Everything has left, and shall arrive."""
        ...


class HeldLines:
    """The lines with answers that the frame in service has finished, on whichever connections.

    One frame may finish those of many: the last member to join its group, the fetch with which a
    record is committed. Each answer wakes a peer, which may take our processor where there are
    few, with the next answer still to be made. So these leave one after the other when all are.
    """

    __slots__ = ("_lines", "is_holding")

    def __init__(self) -> None:
        self._lines: list[AnswerLine] = []
        self.is_holding = False

    def add(self, line: AnswerLine) -> None:
        self._lines.append(line)

    def release(self) -> None:
        self.is_holding = False
        if self._lines:
            lines, self._lines = self._lines, []
            for line in lines:
                line.pump()


class AnswerLine:
    __slots__ = (
        "_answers",
        "_clock",
        "_held",
        "_is_closed",
        "_is_corked",
        "_is_pumping",
        "_mute",
        "_outbox",
        "_owner",
        "_spawn",
        "_stream",
        "corked_bytes",
        "is_blocked",
        "is_ending",
        "is_sender_waiting",
        "keeps_order",
        "outstanding_bytes",
        "outstanding_count",
        "pending_count",
        "throttled_until",
    )

    def __init__(
        self, owner: LineOwner, stream: Stream, clock: Clock, spawn: Spawn, held: HeldLines
    ) -> None:
        self._owner = owner
        self._held = held
        self._stream = stream
        self._clock = clock
        self._spawn = spawn
        self._mute = Mute()
        self.throttled_until = 0.0
        # Those that were not taken for sending yet.
        self._answers: deque[PlacedAnswer] = deque()
        self._outbox = Outbox()
        # Outstanding: not left yet. Pending: not finished yet.
        self.outstanding_count = 0
        self.outstanding_bytes = 0
        self.pending_count = 0
        # One is pending that nothing may run ahead of; so it is the last one.
        self.keeps_order = False
        self.corked_bytes = 0
        self._is_corked = False
        self._is_pumping = False
        # The peer takes no more now, and whether a task waits until it does.
        self.is_blocked = False
        self.is_sender_waiting = False
        # No further answer will be opened; the connection closes when all have left.
        self.is_ending = False
        self._is_closed = False

    @property
    def mute_state(self) -> MuteState:
        return self._mute.state

    @property
    def is_throttled(self) -> bool:
        return self._mute.is_throttled

    def open(self, frame_bytes: int, *, arrived: float, served: float) -> PlacedAnswer:
        """The place for the answer to a request that is about to be served."""
        if self.outstanding_count == 0:
            self._mute.on(MuteEvent.MUTE)
            self._mute.on(MuteEvent.REQUEST_RECEIVED)
        answer = PlacedAnswer(self, frame_bytes, arrived=arrived, served=served)
        self._answers.append(answer)
        self.outstanding_count += 1
        self.outstanding_bytes += frame_bytes
        self.pending_count += 1
        return answer

    def keep_order_behind(self, answer: PlacedAnswer) -> None:
        """Nothing may run ahead of this pending answer."""
        answer.runs_ahead = False
        self.keeps_order = True

    def cork(self) -> None:
        self._is_corked = True

    def uncork(self) -> None:
        """Send what was finished since `cork`."""
        self._is_corked = False
        self.corked_bytes = 0
        self.pump()

    def end_throttle(self, now: float) -> bool:
        """Whether the throttle is over."""
        if now < self.throttled_until:
            return False
        self._mute.on(MuteEvent.THROTTLE_ENDED)
        self._mute.try_unmute()
        return True

    def on_finished(self, answer: PlacedAnswer) -> None:
        now = self._clock.monotonic()
        answer.answered = now
        if self._is_closed:
            answer.record(now)
            return
        self.pending_count -= 1
        if not answer.runs_ahead:
            self.keeps_order = False
        if answer.throttle_ms > 0:
            self._start_throttle(answer.throttle_ms, now)
        if answer.kind is AnswerKind.DISCONNECT:
            self.is_ending = True
        if self._is_corked:
            self.corked_bytes += sum(map(len, answer.parts))
        elif self._held.is_holding:
            self._held.add(self)
        else:
            self.pump()

    def pump(self) -> None:
        """Send finished answers from the head of the line. Never raises because of the peer."""
        # Not from within itself either: what runs when an answer has left would send anew what the
        # outer call has sent and not yet accounted for.
        if self._is_corked or self._is_pumping or self.is_blocked or self._is_closed:
            return
        if not self._outbox and not (self._answers and self._answers[0].kind is not None):
            return
        self._is_pumping = True
        try:
            self.is_blocked = not self._send_finished()
        except GONE as error:
            logger.debug("connection=%s is gone: %s", self._owner.connection_id, error)
            self._owner.close()
        except InternalInvariant:
            raise
        except Exception:
            logger.exception("connection=%s could not be answered", self._owner.connection_id)
            self._owner.close()
        finally:
            self._is_pumping = False
        if self.is_blocked and self._owner.is_reader_waiting and not self.is_sender_waiting:
            self.is_sender_waiting = True
            self._spawn(self.drain)

    async def drain(self) -> None:
        """Send as the peer takes it, until nothing is left. One task at a time does this."""
        self.is_sender_waiting = True
        try:
            while self.is_blocked and not self._is_closed:
                await self._stream.wait_writable()
                self.is_blocked = False
                self.pump()
        except (*GONE, OSError) as error:
            logger.debug("connection=%s is gone: %s", self._owner.connection_id, error)
            self._owner.close()
        finally:
            self.is_sender_waiting = False

    def on_answer_left(self, answer: PlacedAnswer) -> None:
        answer.record(self._clock.monotonic())
        self.outstanding_count -= 1
        self.outstanding_bytes -= answer.frame_bytes
        if self.outstanding_count == 0:
            self._mute.on(MuteEvent.RESPONSE_SENT)
            self._mute.try_unmute()
        if answer.on_sent is not None:
            answer.on_sent()
        is_disconnect = answer.kind is AnswerKind.DISCONNECT
        if is_disconnect or (self.is_ending and self.outstanding_count == 0):
            self._owner.close_in_order()
        else:
            self._owner.wake()

    def close(self) -> None:
        """Drop what has not left, and record it. For the owner's `close`."""
        self._is_closed = True
        now = self._clock.monotonic()
        dropped: list[Departure] = self._outbox.clear()
        # Pending ones are recorded when the service finishes them.
        dropped += [answer for answer in self._answers if answer.kind is not None]
        self._answers.clear()
        for answer in dropped:
            if isinstance(answer, PlacedAnswer):
                answer.record(now)

    def _send_finished(self) -> bool:
        """Whether everything that was finished has left."""
        now = self._clock.monotonic()
        turn_ends = now + SLICE_SECONDS
        self._owner.on_activity(now)
        if len(self._answers) == 1 and not self._outbox:
            [answer] = self._answers
            if len(answer.parts) == 1 and not isinstance(part := answer.parts[0], FileSlice):
                self._answers.clear()
                answer.taken = now
                self._outbox.send_only(self._stream, part, answer)
        # Again and again: what runs when an answer has left may finish the next one.
        while True:
            answers = self._answers
            while answers and answers[0].kind is not None:
                answer = answers.popleft()
                answer.taken = now
                self._outbox.add(answer.parts, answer)
            if not self._outbox:
                return True
            if not self._outbox.flush(self._stream, self._clock, turn_ends):
                return False
            now = self._clock.monotonic()

    def _start_throttle(self, milliseconds: int, now: float) -> None:
        self.throttled_until = max(self.throttled_until, now + milliseconds / 1000)
        if not self._mute.is_throttled:
            self._mute.on(MuteEvent.THROTTLE_STARTED)
