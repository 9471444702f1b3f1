"""Seeded bugs on the way of a request: connections, answers, waiting operations, timers (10.5).

The simulation of a server must find every one of them; see seeded_bugs.py for how.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from seeded_bugs import Suite, named

from kraftpy.net.line import AnswerLine
from kraftpy.net.quotas import ConnectionQuotas
from kraftpy.purgatory.operation import DelayedOperation
from kraftpy.purgatory.purgatory import Purgatory
from kraftpy.purgatory.wheel import TimingWheel
from kraftpy.sim.server_simulation import ServerSimulation

CONNECTIONS = 60


# Waiting.

_check_and_complete = Purgatory.check_and_complete


def wake_up_lost_while_another_is_under_way(self: Purgatory[Any], key: Hashable) -> int:
    return 0 if self._is_walking else _check_and_complete(self, key)


def wake_up_lost_for_all_but_the_first_key(
    self: Purgatory[Any], operation: DelayedOperation, keys: Sequence[Hashable]
) -> bool:
    return _try_complete_else_watch(self, operation, keys[1:])


_try_complete_else_watch = Purgatory.try_complete_else_watch
_place = TimingWheel._place


def timer_never_fires_beyond_the_first_wheel(self: TimingWheel[Any], entry: Any) -> None:
    if entry.deadline_ms < self._finest.end_ms:
        _place(self, entry)
        return
    queue, self._queue = self._queue, []
    _place(self, entry)
    self._queue = queue


# Connections.


def answers_leave_as_they_are_finished(self: AnswerLine) -> bool:
    finished = [answer for answer in self._answers if answer.kind is not None]
    for answer in finished:
        self._answers.remove(answer)
    self._answers.extendleft(reversed(finished))
    return _send_finished(self)


_send_finished = AnswerLine._send_finished


def connection_count_leaks(self: ConnectionQuotas, listener: str, address: str) -> None:
    total = self._total
    _remove(self, listener, address)
    if self._by_address.get(address):
        self._total = total


_remove = ConnectionQuotas.remove


def refused_connection_stays_counted(self: ConnectionQuotas, listener: str, address: str) -> None:
    try:
        _add(self, listener, address)
    except Exception:
        self._total += 1
        raise


_add = ConnectionQuotas.add


BUGS = (
    named(Purgatory, "check_and_complete", wake_up_lost_while_another_is_under_way),
    named(Purgatory, "try_complete_else_watch", wake_up_lost_for_all_but_the_first_key),
    named(TimingWheel, "_place", timer_never_fires_beyond_the_first_wheel),
    named(AnswerLine, "_send_finished", answers_leave_as_they_are_finished),
    named(ConnectionQuotas, "remove", connection_count_leaks),
    named(ConnectionQuotas, "add", refused_connection_stays_counted),
)


def run(seed: int) -> None:
    ServerSimulation(seed).run(CONNECTIONS)


SUITE = Suite("server", "L2, requests", BUGS, run)
