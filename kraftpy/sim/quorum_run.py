"""Run seeds of the quorum simulation: python -m kraftpy.sim.quorum_run --seed 7 [--count 100].

Prints one line for each seed (`--quiet`: only failures) and the totals. With `--window A:B` the
events with these numbers are printed in words. Ends with 1 at the first violation, after the
command that replays it.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from kraftpy.sim.quorum_simulation import QuorumRun, QuorumSimulation

__all__ = ["main"]

_EVENTS = 20_000


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kraftpy.sim.quorum_run")
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
        simulation = QuorumSimulation(seed, window=window)
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
            _print(_summary(run))
    seconds = time.perf_counter() - began
    _print(
        f"{options.count} seeds, {events} events checked, {virtual_us / 1e6:.0f} simulated seconds,"
        f" {seconds:.1f} s, {events / seconds:.0f} events/s"
    )
    return 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _summary(run: QuorumRun) -> str:
    return (
        f"seed {run.seed}: {run.event_count} events, {run.virtual_us / 1e6:.1f} s,"
        f" {run.elections} epochs led, {run.committed_end} committed, {run.trace.digest}"
    )


if __name__ == "__main__":
    sys.exit(main())
