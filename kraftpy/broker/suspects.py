"""Brokers that this one has just lost, for those who tell clients where to go.

When a broker dies, its clients lose their connections in the same instant as the brokers that
fetch from it, and ask those brokers where to go now. The controller needs some milliseconds to
elect others. Until then the honest answer is that nobody leads, upon which clients ask again soon;
told once more of the dead leader, some of them try it for a second or two first.

It is a matter of a moment. If only the way between two brokers is broken, clients must be told of
a leader that they can reach: so a broker is suspected for a second after its connection broke, and
not again before it has answered.
"""

from __future__ import annotations

from typing import Final

from kraftpy.world import Clock

__all__ = ["SuspectedBrokers"]

_SUSPECTED_MS: Final = 1_000


class SuspectedBrokers:
    __slots__ = ("_clock", "_until_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # For each broker that was lost and has not answered since.
        self._until_ms: dict[int, int] = {}

    def lost(self, broker_id: int) -> None:
        """It ended a connection, or refuses a new one."""
        self._until_ms.setdefault(broker_id, self._clock.monotonic_ms() + _SUSPECTED_MS)

    def answered(self, broker_id: int) -> None:
        if self._until_ms:
            self._until_ms.pop(broker_id, None)

    def current(self) -> tuple[int, ...]:
        """Those who are suspected now."""
        if not self._until_ms:
            return ()
        now_ms = self._clock.monotonic_ms()
        return tuple([each for each, until_ms in self._until_ms.items() if now_ms < until_ms])
