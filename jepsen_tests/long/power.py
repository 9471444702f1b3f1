"""Cycles of lost power on real nodes (JEP-153): nothing that was acknowledged may be gone.

    python -m jepsen_tests power --cycles 200
    python -m jepsen_tests power --cycles 200 --mode default

Two modes, with the promise of each. *flush*: records are flushed before they are acknowledged, and
all nodes lose their power at once. *default*: nothing is flushed for an acknowledgement, and one
node of three loses its power, when all replicas are in sync: one less than min.insync.replicas.

Where the machine has FUSE, the nodes' files are on disks that lose whatever a real one may, with
one of seven policies each time; otherwise unsynced bytes are lost, and names are not.

A cycle: clients work, the power goes in the middle of it, nodes come back, replicas are in sync
again. In the end everything is read, every replica is audited, and all checkers judge.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from tempfile import TemporaryDirectory
from typing import Any, Final, TextIO

import trio

from jepsen_tests.cluster import ClusterOptions, HarnessError, JepsenCluster, open_cluster
from jepsen_tests.cluster.errors import NotHereError
from jepsen_tests.cluster.lossy_disk import open_lossy_disk
from jepsen_tests.long.stage import Stage, StagePlan, open_stage, wait_whole
from kraftpy.faults.language import POWER_POLICIES, PowerLoss, Restart, format_fault
from kraftpy.verify.checkers import Verdict
from kraftpy.world.real import real_world

__all__ = ["PowerOptions", "PowerOutcome", "add_arguments", "perform", "run"]

_NAME: Final = "power"
_WHOLE_SECONDS: Final = 300.0
_BEGIN_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.02
MODES: Final = ("flush", "default")


@dataclass(frozen=True, slots=True)
class PowerOptions:
    cycles: int = 200
    mode: str = "flush"
    seed: int = 0
    seconds: float = 1.0
    """Of each cycle, while clients work; the power goes somewhere in it."""
    workload: str = "list-append"
    rate: float = 100.0
    disk: str = "auto"

    @property
    def command(self) -> str:
        words = f"--cycles {self.cycles} --mode {self.mode} --seed {self.seed} --disk {self.disk}"
        return f"python -m jepsen_tests power {words} --seconds {self.seconds:g}"


@dataclass(slots=True)
class PowerOutcome:
    verdict: Verdict
    cycles: int
    acked: int
    disk: str
    deaths: list[str]
    losses: list[str]
    """In the words of the language of faults."""

    @property
    def is_good(self) -> bool:
        return self.verdict.state == "valid" and not self.deaths


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--cycles", type=int, default=200, metavar="N", help="losses of power (200)")
    add("--mode", choices=MODES, default="flush", help="what is promised (flush)")
    add("--seconds", type=float, default=1.0, help="of work in each cycle (1)")
    add("--seed", type=int, help="of operations, moments and policies (drawn, and printed)")
    add(
        "--disk", choices=("auto", "plain", "lossy"), default="auto", help="(auto: lossy if it can)"
    )
    add("--format", choices=("text", "json"), default="text", help="(text)")


async def run(options: Namespace) -> int:
    """The command."""
    if options.cycles < 1 or options.seconds <= 0:
        raise ValueError("--cycles must be at least 1, and --seconds more than 0")
    seed = SystemRandom().getrandbits(32) if options.seed is None else options.seed
    plan = PowerOptions(options.cycles, options.mode, seed, options.seconds, disk=options.disk)
    with TemporaryDirectory(prefix="kraftpy-power-") as directory:
        outcome = await perform(plan, Path(directory), sys.stderr)
    facts = facts_of(plan, outcome)
    if options.format == "json":
        print(json.dumps(facts, indent=2))
    else:
        print(
            f"{outcome.cycles} losses of power ({plan.mode} mode, {outcome.disk} disks), "
            f"{outcome.acked} acknowledged values: {facts['state']}"
        )
        print("\n".join([*facts["bad"], *outcome.verdict.reasons, *outcome.deaths, plan.command]))
    return 0 if outcome.is_good else 1


def facts_of(plan: PowerOptions, outcome: PowerOutcome) -> dict[str, Any]:
    return {
        "kind": _NAME,
        "state": "invalid" if outcome.deaths else outcome.verdict.state,
        "mode": plan.mode,
        "disk": outcome.disk,
        "cycles": outcome.cycles,
        "acked": outcome.acked,
        "seed": plan.seed,
        "losses": outcome.losses,
        "bad": [f"{each.id} {each.name}: {each.text}" for each in outcome.verdict.bad],
        "reasons": list(outcome.verdict.reasons),
        "deaths": outcome.deaths,
        "repeat": plan.command,
    }


async def perform(plan: PowerOptions, directory: Path, progress: TextIO) -> PowerOutcome:
    """Raises HarnessError if the cluster does not come back."""
    world = real_world()
    disk = plan.disk if plan.disk != "auto" else await _best_disk(directory)
    cluster_options = ClusterOptions(
        seed=plan.seed,
        directory=str(directory / "cluster"),
        network="proxy",
        has_lossy_disks=disk == "lossy",
    )
    configs = {"flush.messages": "1"} if plan.mode == "flush" else {}
    stage_plan = StagePlan(plan.workload, plan.seed, plan.rate, topic_configs=configs)
    random = Random(f"{plan.seed}/power")
    async with open_cluster(world, cluster_options) as cluster:
        async with open_stage(world, cluster, stage_plan) as stage:
            for number in range(1, plan.cycles + 1):
                await _cycle(plan, cluster, stage, random)
                await cluster.heal(seconds=_WHOLE_SECONDS)
                laggards = await wait_whole(world, cluster, _WHOLE_SECONDS)
                if laggards:
                    raise HarnessError(f"after loss {number}: {laggards[0]}")
                print(
                    f"power: {number} of {plan.cycles}, ok {stage.session.counts['ok']}",
                    file=progress,
                    flush=True,
                )
            verdict = await stage.judge(nemeses=(_NAME,))
            acked = sum(
                1
                for each in stage.history.operations
                if each.f == "send" and each.type == "ok"
                for _ in each.value
            )
        deaths = [f"node {each.node_id} ended: {each.last_lines[-1:]}" for each in cluster.deaths]
        losses = [
            text for each in stage.history.nemesis_events for text in each.value.get("faults", ())
        ]
    return PowerOutcome(verdict, plan.cycles, acked, disk, deaths, losses)


async def _best_disk(directory: Path) -> str:
    try:
        async with open_lossy_disk(directory / "probe"):
            return "lossy"
    except NotHereError:
        return "plain"


async def _cycle(plan: PowerOptions, cluster: JepsenCluster, stage: Stage, random: Random) -> None:
    nodes = list(cluster.node_ids)
    victims = nodes if plan.mode == "flush" else [random.choice(nodes)]
    policies = POWER_POLICIES if cluster.has_lossy_disks else ("drop-all",)
    faults = [PowerLoss(node, random.choice(policies)) for node in victims]
    async with trio.open_nursery() as working:
        working.start_soon(stage.session.run, plan.seconds + _BEGIN_SECONDS)
        await cluster.sleep(random.uniform(0.3, 1.0) * plan.seconds)
        # Clients of a busy machine may not have begun yet, and nothing could be lost.
        with trio.move_on_after(_BEGIN_SECONDS):
            while not await stage.session.has_done(("send",)):
                await cluster.sleep(_POLL_SECONDS)
        stage.recorder.nemesis({"name": _NAME, "phase": "start"})
        async with trio.open_nursery() as cutting:
            for fault in faults:
                cutting.start_soon(cluster.apply, fault)
        # What is under way waits for nobody: the nodes come back at once.
        stage.session.end_soon()
        for node in victims:
            await cluster.apply(Restart(node))
    words = [format_fault(fault) for fault in faults]
    effects = [f"node {fault.node} lost its power" for fault in faults]
    stage.recorder.nemesis({"name": _NAME, "phase": "end", "faults": words, "effects": effects})
