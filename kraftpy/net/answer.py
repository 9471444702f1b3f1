"""The place of one request's answer in its connection's order: the Answer that services see.

An answer is opened when its request is served, finished once by the service, taken when all before
it were taken, and left when its last byte was handed over. If the connection ends in between, it is
dropped. Either way its times are recorded once, if the service wants them measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

from kraftpy.net.outbox import Departure
from kraftpy.net.service import Part
from kraftpy.observe.request_metrics import RequestRecorder, RequestTimes
from kraftpy.world import InternalInvariant, assert_always

__all__ = ["AnswerKind", "AnswerOwner", "PlacedAnswer"]


class AnswerKind(Enum):
    SEND = "send"
    NOTHING = "nothing"
    DISCONNECT = "disconnect"


class AnswerOwner(Protocol):
    """The connection, as its answers see it."""

    def on_finished(self, answer: PlacedAnswer) -> None:
        """The service is done with this answer. Never raises because of the peer."""
        ...

    def on_answer_left(self, answer: PlacedAnswer) -> None: ...


class PlacedAnswer(Departure):
    __slots__ = (
        "_owner",
        "_recorder",
        "answered",
        "arrived",
        "frame_bytes",
        "handled",
        "kind",
        "on_sent",
        "parts",
        "runs_ahead",
        "served",
        "taken",
        "throttle_ms",
    )

    def __init__(
        self, owner: AnswerOwner, frame_bytes: int, *, arrived: float, served: float
    ) -> None:
        self._owner = owner
        self._recorder: RequestRecorder | None = None
        self.frame_bytes = frame_bytes
        # None until the service has finished the answer.
        self.kind: AnswerKind | None = None
        self.parts: Sequence[Part] = ()
        self.on_sent: Callable[[], None] | None = None
        self.throttle_ms = 0
        # Whether later frames may be served while this one is pending; known after serving.
        self.runs_ahead = True
        self.arrived = arrived
        self.served = served
        # Moments that have not come yet are infinitely far.
        self.handled = self.answered = self.taken = float("inf")

    def measure(self, recorder: RequestRecorder) -> None:
        self._recorder = recorder

    def send(self, parts: Sequence[Part], on_sent: Callable[[], None] | None = None) -> None:
        self.parts = parts
        self.on_sent = on_sent
        self._finish(AnswerKind.SEND)

    def nothing(self) -> None:
        self._finish(AnswerKind.NOTHING)

    def disconnect(self) -> None:
        self._finish(AnswerKind.DISCONNECT)

    def throttle(self, milliseconds: int) -> None:
        assert_always(self.kind is None, "answer.throttled-after-finishing")
        self.throttle_ms = max(self.throttle_ms, milliseconds)

    def keep_order(self) -> None:
        self.runs_ahead = False

    def on_left(self) -> None:
        self._owner.on_answer_left(self)

    def record(self, now: float) -> None:
        """Record the request's times, the first time this is called; it ended `now`.

        Moments that never came, because the connection ended first, are `now` too.
        """
        recorder = self._recorder
        if recorder is None:
            return
        self._recorder = None
        answered = min(self.answered, now)
        recorder.record(
            RequestTimes(
                self.arrived,
                self.served,
                min(self.handled, answered),
                answered,
                min(self.taken, now),
                now,
                self.frame_bytes,
                self.throttle_ms,
            )
        )

    def _finish(self, kind: AnswerKind) -> None:
        if self.kind is not None:
            raise InternalInvariant(f"answer.finished-twice first={self.kind} second={kind}")
        self.kind = kind
        self._owner.on_finished(self)
