"""The kernel of the L2 simulation: a heap of (time, sequence, event), and nothing else.

Events are calls. What is due first runs first, and of two that are due at once the one that was
planned first, so that a run depends on nothing but the order of planning. Time is virtual, in whole
microseconds, and jumps to the next event.

A run makes objects by the million, few of which ever stand in a cycle: the collector of those looks
at them a hundred times less often than it would (`rare_collections`). No event depends on it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush

__all__ = ["EventHeap", "rare_collections"]

_NEW_OBJECTS_OF_A_COLLECTION = 100_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Around a run."""
    thresholds = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS_OF_A_COLLECTION, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


class EventHeap:
    __slots__ = ("_events", "_sequence", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self._sequence = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []

    def __len__(self) -> int:
        return len(self._events)

    @property
    def done_count(self) -> int:
        """How many events have run."""
        return self._sequence - len(self._events)

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
