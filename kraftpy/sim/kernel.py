"""The kernel of the L2 simulation: a heap of (time, sequence, event), and nothing else.

Events are calls. What is due first runs first, and of two that are due at once the one that was
planned first, so that a run depends on nothing but the order of planning. Time is virtual, in whole
microseconds, and jumps to the next event.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

__all__ = ["EventHeap"]


class EventHeap:
    __slots__ = ("_events", "_sequence", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self._sequence = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []

    def __len__(self) -> int:
        return len(self._events)

    def plan(self, delay_us: int, event: Callable[[], None]) -> None:
        """Have `event` called in `delay_us`."""
        self._sequence += 1
        heappush(self._events, (self.now_us + delay_us, self._sequence, event))

    def run_next(self) -> bool:
        """Run the next event; whether there was one."""
        if not self._events:
            return False
        self.now_us, _, event = heappop(self._events)
        event()
        return True
