"""The command line of an L2 simulation: seeds in a row, a line for each, the totals.

With `--window A:B` the events with these numbers are printed in words. Ends with 1 at the first
violation, after the command that replays it.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from typing import Protocol, TypeVar

from kraftpy.sim.digest import EventDigest

__all__ = ["Run", "SeededSimulation", "run_seeds"]

_EVENTS = 20_000


class Run(Protocol):
    @property
    def event_count(self) -> int: ...

    @property
    def virtual_us(self) -> int: ...


R_co = TypeVar("R_co", bound=Run, covariant=True)
R = TypeVar("R", bound=Run)


class SeededSimulation(Protocol[R_co]):
    digest: EventDigest

    def run(self, event_limit: int) -> R_co:
        """From beginning to end."""


def run_seeds(
    name: str,
    make: Callable[[int, range], SeededSimulation[R]],
    summary: Callable[[R], str],
    arguments: list[str] | None,
) -> int:
    """`name` is the module that was started; `make` gets a seed and the window."""
    parser = argparse.ArgumentParser(prog=f"python -m {name}")
    parser.add_argument("--seed", type=int, required=True, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--events", type=int, default=_EVENTS, help="of the safety phase")
    parser.add_argument("--window", default="0:0", help="events to print, first:end")
    parser.add_argument("--quiet", action="store_true", help="print failures and totals only")
    options = parser.parse_args(arguments)
    first, _, end = options.window.partition(":")
    window = range(int(first), int(end))
    began = time.perf_counter()
    events = virtual_us = 0
    for seed in range(options.seed, options.seed + options.count):
        simulation = make(seed, window)
        try:
            run = simulation.run(options.events)
        except Exception:
            traceback.print_exc()
            return 1
        finally:
            for line in simulation.digest.trace().window_events:
                _print(line)
        events += run.event_count
        virtual_us += run.virtual_us
        if not options.quiet:
            _print(summary(run))
    seconds = time.perf_counter() - began
    _print(
        f"{options.count} seeds, {events} events checked, {virtual_us / 1e6:.0f} simulated seconds,"
        f" {seconds:.1f} s, {events / seconds:.0f} events/s"
    )
    return 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
