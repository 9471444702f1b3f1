"""Twice the load that a cluster can carry, and then none (JEP-162): nothing is lost, and it is as
quick as before within 30 s.

    python -m jepsen_tests overload --seconds 600

1. *Before*: a few clients with little to do; the 99th percentile of their latencies.
2. *Capacity*: clients that never rest; how many operations a second are carried out.
3. *Overload*: twice as many clients want twice as many operations a second. Most wait; some are
   told to, or give up. All that was acknowledged counts.
4. *After*: the few clients again. How long it takes until the 99th percentile of a second is below
   twice what it was before, or 50 ms; at most 30 s.
5. Everything is read, every replica is audited, and all checkers judge.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from tempfile import TemporaryDirectory
from typing import Any, Final, TextIO

from jepsen_tests.cluster import ClusterOptions, open_cluster
from jepsen_tests.long.soak import p99_seconds
from jepsen_tests.long.stage import Stage, StagePlan, open_stage
from jepsen_tests.run import SETTINGS
from kraftpy.verify.checkers import Verdict
from kraftpy.world import World
from kraftpy.world.real import real_world

__all__ = ["OverloadOptions", "OverloadOutcome", "add_arguments", "is_recovered", "perform", "run"]

RECOVERY_SECONDS: Final = 30.0
_FEW, _MANY = 3, 24
_LITTLE_RATE: Final = 20.0
_WITHOUT_REST: Final = 1e6
_SLICE_SECONDS: Final = 1.0
_USUAL_SECONDS: Final = 0.05
_BEGIN_SECONDS: Final = 120.0
_WORKLOAD: Final = "list-append"


@dataclass(frozen=True, slots=True)
class OverloadOptions:
    seconds: float = 600.0
    measuring_seconds: float = 10.0
    """Of the times before, and of finding the capacity."""
    seed: int = 0
    patience_seconds: float = RECOVERY_SECONDS
    """How long a recovery is watched; beyond the promise, it was too slow, and not stuck."""


@dataclass(slots=True)
class OverloadOutcome:
    before_p99: float
    capacity: float
    """Operations a second."""
    carried: float
    """Of those, under twice that load."""
    overload_p99: float
    recovery_seconds: float | None
    """None: not within the patience."""
    verdicts: list[Verdict]
    deaths: list[str]

    @property
    def is_safe(self) -> bool:
        """Nothing was lost, and nobody died."""
        return not self.deaths and all(each.state == "valid" for each in self.verdicts)

    @property
    def is_good(self) -> bool:
        recovered = self.recovery_seconds
        return self.is_safe and recovered is not None and recovered <= RECOVERY_SECONDS


def is_recovered(p99: float, before_p99: float) -> bool:
    return 0 < p99 <= max(2 * before_p99, _USUAL_SECONDS)


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--seconds", type=float, default=600.0, help="of overload (600)")
    add("--measuring", type=float, default=10.0, metavar="SECONDS", help="of each measuring (10)")
    add("--seed", type=int, help="of operations (drawn, and printed)")
    add("--format", choices=("text", "json"), default="text", help="(text)")


async def run(options: Namespace) -> int:
    """The command."""
    if options.seconds <= 0 or options.measuring <= 0:
        raise ValueError("--seconds and --measuring must be more than 0")
    seed = SystemRandom().getrandbits(32) if options.seed is None else options.seed
    plan = OverloadOptions(options.seconds, options.measuring, seed)
    with TemporaryDirectory(prefix="kraftpy-overload-") as directory:
        outcome = await perform(plan, Path(directory), sys.stderr)
    facts = facts_of(plan, outcome)
    if options.format == "json":
        print(json.dumps(facts, indent=2))
    else:
        print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    return 0 if outcome.is_good else 1


def facts_of(plan: OverloadOptions, outcome: OverloadOutcome) -> dict[str, Any]:
    bad = [f"{e.id} {e.name}: {e.text}" for verdict in outcome.verdicts for e in verdict.bad]
    return {
        "kind": "overload",
        "state": "valid" if outcome.is_good else "invalid",
        "seed": plan.seed,
        "p99 before (ms)": round(outcome.before_p99 * 1000, 1),
        "capacity (operations/s)": round(outcome.capacity),
        "carried (operations/s)": round(outcome.carried),
        "p99 in overload (ms)": round(outcome.overload_p99 * 1000, 1),
        "recovery (s)": outcome.recovery_seconds,
        "bad": [*bad, *outcome.deaths],
        "reasons": [reason for verdict in outcome.verdicts for reason in verdict.reasons],
    }


async def perform(plan: OverloadOptions, directory: Path, progress: TextIO) -> OverloadOutcome:
    def say(text: str) -> None:
        print(f"overload: {text}", file=progress, flush=True)

    world = real_world()
    options = ClusterOptions(
        seed=plan.seed, directory=str(directory), settings=SETTINGS, network="proxy"
    )
    few = StagePlan(_WORKLOAD, plan.seed, _LITTLE_RATE, _FEW, prefix="fewt")
    async with open_cluster(world, options) as cluster, open_stage(world, cluster, few) as calm:
        await calm.session.run(plan.measuring_seconds)
        before = p99_seconds(calm.history, 0)
        say(f"p99 of {before * 1000:.1f} ms before")
        tireless = StagePlan(_WORKLOAD, plan.seed, _WITHOUT_REST, _MANY, prefix="capacityt")
        async with open_stage(world, cluster, tireless) as stage:
            capacity, _ = await _work(world, stage, plan.measuring_seconds)
            found = await stage.judge()
        say(f"{capacity:.0f} operations a second are what it can do")
        crowd = StagePlan(_WORKLOAD, plan.seed, 2 * capacity, 2 * _MANY, prefix="overloadt")
        async with open_stage(world, cluster, crowd) as stage:
            carried, crowded = await _work(world, stage, plan.seconds)
            say(f"{carried:.0f} operations a second of twice as many")
            recovery = await _recovery(plan, world, calm, before)
            say("not as before" if recovery is None else f"as before after {recovery} s")
            verdicts = [found, await stage.judge(), await calm.judge()]
        deaths = [f"node {each.node_id} ended by itself" for each in cluster.deaths]
    return OverloadOutcome(before, capacity, carried, crowded, recovery, verdicts, deaths)


async def _work(world: World, stage: Stage, seconds: float) -> tuple[float, float]:
    """Operations a second that were ok, and the 99th percentile of their latencies."""
    began = world.clock.monotonic()
    await stage.session.run(seconds)
    # Clients of a busy machine may not have begun yet, and nothing is twice of nothing.
    while not stage.session.counts["ok"] and world.clock.monotonic() < began + _BEGIN_SECONDS:
        await stage.session.run(seconds)
    done = stage.session.counts["ok"] / (world.clock.monotonic() - began)
    return done, p99_seconds(stage.history, 0)


async def _recovery(
    plan: OverloadOptions, world: World, calm: Stage, before: float
) -> float | None:
    """Seconds from the end of the overload; None if they are too many."""
    began = world.clock.monotonic()
    while world.clock.monotonic() < began + plan.patience_seconds:
        first = len(calm.recorder.events)
        await calm.session.run(_SLICE_SECONDS)
        if is_recovered(p99_seconds(calm.history, first), before):
            return round(world.clock.monotonic() - began, 1)
    return None
