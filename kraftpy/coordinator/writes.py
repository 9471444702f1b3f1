"""A write whose records are on their way: who waits for it, and until when.

Two parties hear of its end. The client, by `reply`: when the records are committed or lost, or when
its time is over, whichever comes first. The machine, by `settled`: when the records are committed
or lost, and not before. A write that ran out of time may still be committed (CRT-16).
"""

from __future__ import annotations

from typing import Any

from kraftpy.coordinator.failures import for_clients
from kraftpy.coordinator.outcome import CoordinatorError, Outcome, Reply
from kraftpy.protocol.errors import ErrorCode
from kraftpy.purgatory.timer import Timer, TimerTask

__all__ = ["Write"]


class Write(TimerTask):
    __slots__ = ("_outcome", "_reply", "_timer")

    def __init__(self, reply: Reply[Any], outcome: Outcome[Any], timer: Timer) -> None:
        super().__init__()
        # None once it is called, and for operations that see to their reply themselves.
        self._reply: Reply[Any] | None = None if outcome.answer is None else reply
        self._outcome = outcome
        self._timer = timer

    def start_timeout(self, timeout_ms: int) -> None:
        if self._reply is not None:
            self._timer.add(self, timeout_ms)

    def run(self) -> None:
        """The time is over."""
        self._answer(for_clients(CoordinatorError(ErrorCode.REQUEST_TIMED_OUT)))

    def committed(self) -> None:
        self._timer.cancel(self)
        if self._outcome.settled is not None:
            self._outcome.settled(None)
        self._answer(self._outcome.answer)

    def failed(self, error: CoordinatorError) -> None:
        """Its records are not in the log, or not known to be."""
        self._timer.cancel(self)
        if self._outcome.settled is not None:
            self._outcome.settled(error)
        self._answer(error)

    def _answer(self, answer: object) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply(answer)
