"""What a step of each simulation costs, as a figure that no other process on the machine changes.

    python tests/sim/simulation_costs.py [--record]

A seed is the same run every time, so the number of function calls that it takes is, too. It is
counted for a short run of each level, by what the level counts as its length, and compared with
what simulation_costs.json has: the history of that file is how the simulations became faster or
slower. With `--record` the file is written anew. Speeds in seconds are what `python -m bench sim`
shows.

How many calls some code takes depends on Python's version: each has its own figures.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from cProfile import Profile
from pathlib import Path
from typing import Final

from kraftpy.sim.levels import SeedReport, Size, find_level, run_case
from kraftpy.sim.whole.run import WholeCase
from kraftpy.sim.whole.swarm import WholeSwarm

RECORD: Final = Path(__file__).with_suffix(".json")
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
# JEP-150: more than this is a regression, or a gain that should be written down.
TOLERANCE: Final = 0.2

_SEED: Final = 1
_SHORT: Final = {
    "quorum": 1_000,
    "cluster": 1_000,
    "data": 400,
    "coordinators": 500,
    "logs": 100,
    "requests": 20,
}


def _on_heap(level: str) -> SeedReport:
    return find_level(level).run(_SEED, Size(events=_SHORT[level]), range(0))


def _busy() -> SeedReport:
    swarm = WholeSwarm(workloads=("queue-assign", "idempotent"), rate=150.0, faults=())
    return run_case(WholeCase(_SEED, swarm, (), seconds=1.0))


def _idle() -> SeedReport:
    return run_case(WholeCase(_SEED, WholeSwarm(workloads=(), faults=()), (), seconds=5.0))


RUNS: Final[dict[str, Callable[[], SeedReport]]] = {
    **{level: lambda level=level: _on_heap(level) for level in _SHORT},
    "whole, a message": _busy,
    "whole, an idle message": _idle,
}


def calls_of_a_step(run: Callable[[], SeedReport]) -> float:
    """Of the second run: the first one makes codecs and fills caches."""
    run()
    profile = Profile()
    profile.enable()
    try:
        report = run()
    finally:
        profile.disable()
    assert report.is_good, f"{report.code}: {report.details}"
    return sum(entry.callcount for entry in profile.getstats()) / report.steps


def recorded() -> dict[str, float] | None:
    """By the names of runs; None if this version of Python has no figures."""
    found: dict[str, dict[str, float]] = json.loads(RECORD.read_text())
    return found.get(PYTHON)


def verdict(name: str, calls: float, before: float) -> str | None:
    """What is to be said of a change that is too large."""
    if abs(calls - before) <= TOLERANCE * before:
        return None
    return (
        f"{name}: a step takes {calls:.1f} calls, and took {before:.1f}: if that is meant, "
        "run python tests/sim/simulation_costs.py --record"
    )


def main(arguments: list[str]) -> int:
    found = {name: round(calls_of_a_step(run), 1) for name, run in RUNS.items()}
    before = (recorded() if RECORD.exists() else None) or {}
    for name, calls in found.items():
        was = f" (recorded: {before[name]:,.1f})" if name in before else ""
        print(f"{name:24} {calls:8,.1f} calls{was}")
    if arguments == ["--record"]:
        every = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        RECORD.write_text(json.dumps({**every, PYTHON: found}, indent=2, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
