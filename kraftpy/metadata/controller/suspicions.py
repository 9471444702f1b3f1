"""Brokers that may be dead, and what speaks for it (design, decision 14).

A broker is suspected when its heartbeat connection broke, or when it stays silent towards a
controller that has just become active. That alone says little: the network may have failed, or the
controller's own clock have jumped. So somebody tries to connect to the broker's listeners. If every
one of them refuses, no process is there, and the broker is dead now, not in nine seconds. A
connection that is accepted, or that times out, proves nothing: the session's end will tell.

A dying process may still accept connections after its own have broken. Hence a suspect is tried
again and again, each time after twice as long, until it is heard or given up.

Invariant: a broker is found dead only by refusals of one and the same round of attempts, and only
if nothing was heard of it since that round began.
"""

from __future__ import annotations

__all__ = ["Suspicions"]


class _Suspect:
    __slots__ = ("is_dead", "missing_refusals", "probe_at_ms", "wait_ms")

    def __init__(self, probe_at_ms: int, wait_ms: int) -> None:
        self.probe_at_ms = probe_at_ms
        # From the next round to the one behind it.
        self.wait_ms = wait_ms
        # How many listeners of the round under way have not refused; None before the first.
        self.missing_refusals: int | None = None
        self.is_dead = False


class Suspicions:
    """Who is suspected, when to look for them, and who was found dead."""

    __slots__ = ("_first_wait_ms", "_suspects")

    def __init__(self, first_wait_ms: int) -> None:
        self._first_wait_ms = first_wait_ms
        self._suspects: dict[int, _Suspect] = {}

    def suspect(self, broker_id: int, probe_at_ms: int) -> None:
        """Look for this broker at that time, or before if that was the plan already."""
        known = self._suspects.get(broker_id)
        if known is None:
            self._suspects[broker_id] = _Suspect(probe_at_ms, self._first_wait_ms)
        else:
            known.probe_at_ms = min(known.probe_at_ms, probe_at_ms)

    def clear(self, broker_id: int) -> None:
        """The broker was heard, or is nobody's concern any more."""
        self._suspects.pop(broker_id, None)

    def due(self, now_ms: int) -> list[int]:
        """Whose listeners should be tried now."""
        return [
            broker_id
            for broker_id, suspect in self._suspects.items()
            if suspect.probe_at_ms <= now_ms
        ]

    def probed(self, broker_id: int, listener_count: int, now_ms: int) -> None:
        """A round of attempts begins, one for each listener."""
        suspect = self._suspects[broker_id]
        suspect.missing_refusals = listener_count
        suspect.probe_at_ms = now_ms + suspect.wait_ms
        suspect.wait_ms *= 2

    def refused(self, broker_id: int) -> bool:
        """A listener refused; whether the broker is dead by all that is known."""
        suspect = self._suspects.get(broker_id)
        if suspect is None or not suspect.missing_refusals:
            return False
        suspect.missing_refusals -= 1
        suspect.is_dead = suspect.missing_refusals == 0
        return suspect.is_dead

    def is_dead(self, broker_id: int) -> bool:
        """Whether it was found dead, and has not been heard since."""
        suspect = self._suspects.get(broker_id)
        return suspect is not None and suspect.is_dead

    def next_probe_ms(self) -> int | None:
        return min((suspect.probe_at_ms for suspect in self._suspects.values()), default=None)
