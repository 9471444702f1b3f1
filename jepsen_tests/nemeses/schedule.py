"""When faults strike. Everything is drawn from the seed before the run begins, in seconds from its
start; what the cluster makes of it is not.

- Flip-flop: a kind of fault is off, then on, then off, each for a time with an exponential
  distribution. Kinds have their own rhythms, so that several may be on at once.
- Rotation, for long runs: periods of half a minute. In a quarter of them nothing happens, so that
  the cluster can recover; in each of the others some of the kinds flip and flop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

__all__ = ["Window", "draw_schedule", "flip_flop", "rotation"]

MEAN_SECONDS: Final = 12.0
PERIOD_SECONDS: Final = 30.0
CALM_SHARE: Final = 0.25
SHORTEST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 60.0
# Less than that says nothing about a kind.
_LEAST_WINDOWS: Final = 2
_LONG_RUN_SECONDS: Final = 180.0


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """From when to when a kind of fault is on."""

    start: float
    end: float
    name: str


def draw_schedule(random: Random, names: Sequence[str], seconds: float) -> list[Window]:
    """All windows of a run, in the order of their starts; each kind has two at least."""
    if seconds >= _LONG_RUN_SECONDS and len(names) > 1:
        return rotation(random, names, seconds)
    return sorted(window for name in names for window in flip_flop(random, name, seconds))


def flip_flop(random: Random, name: str, seconds: float, *, start: float = 0.0) -> list[Window]:
    """Windows of one kind between `start` and `start + seconds`."""
    # Four stretches of the mean's length, off and on twice, have to fit.
    mean = min(MEAN_SECONDS, seconds / (2 * _LEAST_WINDOWS + 1))
    shortest = min(SHORTEST_SECONDS, mean)
    while True:
        windows = []
        now = start
        while True:
            begin = now + _stretch(random, mean, shortest)
            now = begin + _stretch(random, mean, shortest)
            if now >= start + seconds:
                break
            windows.append(Window(begin, now, name))
        if len(windows) >= _LEAST_WINDOWS:
            return windows


def rotation(random: Random, names: Sequence[str], seconds: float) -> list[Window]:
    windows: list[Window] = []
    start = 0.0
    # Every kind has its turn before one has its second.
    waiting: list[str] = []
    while start + PERIOD_SECONDS <= seconds:
        if random.random() >= CALM_SHARE:
            chosen = []
            for _ in range(random.randint(1, min(3, len(names)))):
                waiting = waiting or random.sample(list(names), len(names))
                chosen.append(waiting.pop())
            for name in dict.fromkeys(chosen):
                windows += flip_flop(random, name, PERIOD_SECONDS, start=start)
        start += PERIOD_SECONDS
    return sorted(windows)


def _stretch(random: Random, mean: float, shortest: float) -> float:
    return min(LONGEST_SECONDS, max(shortest, random.expovariate(1 / mean)))
