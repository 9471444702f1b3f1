"""How long to wait before the next attempt: twice as long each time, up to a limit, with jitter."""

from __future__ import annotations

from kraftpy.world import Random

__all__ = ["Backoff"]

_JITTER = 0.2


class Backoff:
    """The waits between attempts to reach one peer, as Kafka's clients space them.

    Jitter of a fifth either way keeps many clients of one restarted node from coming all at once.
    """

    __slots__ = ("_failures", "_initial_ms", "_max_ms", "_random")

    def __init__(self, *, initial_ms: int, max_ms: int, random: Random) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max(initial_ms, max_ms)
        self._random = random
        self._failures = 0

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self) -> int:
        """Count a failure; the milliseconds to wait before the next attempt."""
        # The shift is bounded so that years of failures don't make a giant integer.
        wait_ms = min(self._initial_ms << min(self._failures, 30), self._max_ms)
        self._failures += 1
        spread_ms = round(wait_ms * self._random.uniform(1 - _JITTER, 1 + _JITTER))
        return min(spread_ms, self._max_ms)
