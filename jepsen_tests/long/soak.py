"""A soak (JEP-161): one cluster for hours, under load and rotating faults, that must not drift.

    python -m jepsen_tests soak --hours 24
    python -m jepsen_tests soak --hours 72 --window 1200 --nemesis kill,pause,partition,clock

The cluster stays, and windows follow one another on it. In each, a workload (W2, W3 and W5 in turn)
works while faults come and go; then everything is healed, clients work for a calm while in which
latencies are measured, everything is read and judged, its topics are deleted, and memory,
descriptors, threads and files of the nodes are measured. What is known of a key is within its
window, so histories stay small however long it lasts. `drift.py` says what may not grow.

It ends with code 0 only if every window was valid, every kind of fault has happened at least once,
and nothing drifted; a run of too few windows says that it can't tell.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom
from tempfile import TemporaryDirectory
from typing import Any, Final, TextIO

import trio

from jepsen_tests.cluster import ClusterOptions, JepsenCluster, open_cluster
from jepsen_tests.long.drift import LEAST_SAMPLES, Sample, drifts
from jepsen_tests.long.stage import Stage, StagePlan, open_stage, wait_whole
from jepsen_tests.nemeses import nemesis_of
from jepsen_tests.run import SETTINGS
from kraftpy.client.admin_operations import delete_topics, list_topics
from kraftpy.verify.history import History
from kraftpy.verify.workloads.catalogue import find_workload
from kraftpy.world import World
from kraftpy.world.real import real_world

__all__ = [
    "SoakOptions",
    "SoakOutcome",
    "add_arguments",
    "bytes_in",
    "p99_seconds",
    "perform",
    "run",
]

WORKLOADS: Final = ("queue-subscribe", "queue-txn", "eos-copy")
NEMESES: Final = ("kill", "pause", "partition", "clock", "restart", "elections")
_CALM_SHARE: Final = 0.1
_WHOLE_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class SoakOptions:
    seconds: float = 24 * 3600.0
    window_seconds: float = 600.0
    workloads: Sequence[str] = WORKLOADS
    nemeses: Sequence[str] = NEMESES
    seed: int = 0
    rate: float = 100.0
    nodes: int = 3


@dataclass(slots=True)
class SoakOutcome:
    nemeses: Sequence[str] = ()
    """Kinds of faults that should happen."""
    windows: list[dict[str, Any]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)

    @property
    def bad(self) -> list[str]:
        found = [
            f"window {number}: {text}"
            for number, window in enumerate(self.windows, 1)
            for text in window["bad"]
        ]
        return [*found, *(drifts(self.samples) or ()), *self.deaths]

    @property
    def reasons(self) -> list[str]:
        """Why it says less than it should."""
        found = [reason for window in self.windows for reason in window["reasons"]]
        happened = {name for window in self.windows for name in window["faults"]}
        return found + [f"{name} never happened" for name in self.nemeses if name not in happened]

    @property
    def is_good(self) -> bool:
        are_valid = all(window["state"] == "valid" for window in self.windows)
        return are_valid and not self.bad and not self.reasons


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--hours", type=float, default=24.0, help="at least so long, in whole windows (24)")
    add("--window", type=float, default=600.0, metavar="SECONDS", help="with faults (600)")
    add("--workload", default=",".join(WORKLOADS), metavar="W", help="in turn (%(default)s)")
    add("--nemesis", default=",".join(NEMESES), metavar="N", help="in rotation (%(default)s)")
    add("--rate", type=float, default=100.0, help="operations a second (100)")
    add("--nodes", type=int, default=3, help="(3)")
    add("--seed", type=int, help="of operations and faults (drawn, and printed)")
    add("--format", choices=("text", "json"), default="text", help="(text)")


async def run(options: Namespace) -> int:
    """The command."""
    if options.hours <= 0 or options.window <= 0:
        raise ValueError("--hours and --window must be more than 0")
    seed = SystemRandom().getrandbits(32) if options.seed is None else options.seed
    plan = SoakOptions(
        options.hours * 3600,
        options.window,
        options.workload.split(","),
        options.nemesis.split(","),
        seed,
        options.rate,
        options.nodes,
    )
    # Before hours are spent on what comes first in rotation.
    for name in plan.workloads:
        find_workload(name)
    nemesis_of(plan.nemeses).check(nodes=plan.nodes, network="auto", has_other_version=False)
    with TemporaryDirectory(prefix="kraftpy-soak-") as directory:
        outcome = await perform(plan, Path(directory), sys.stderr)
    if options.format == "json":
        print(json.dumps(facts_of(plan, outcome), indent=2))
    else:
        acked = sum(window["acked"] for window in outcome.windows)
        state = "good" if outcome.is_good else "not good"
        print(f"soak: {len(outcome.windows)} windows, {acked} values, seed {seed}: {state}")
        print("\n".join([*outcome.bad, *outcome.reasons]))
        if drifts(outcome.samples) is None:
            print(f"drift can't be told from less than {LEAST_SAMPLES} windows")
    return 0 if outcome.is_good else 1


def facts_of(plan: SoakOptions, outcome: SoakOutcome) -> dict[str, Any]:
    return {
        "kind": "soak",
        "state": "valid" if outcome.is_good else "invalid",
        "seed": plan.seed,
        "windows": outcome.windows,
        "bad": outcome.bad,
        "reasons": outcome.reasons,
        "drift": "unknown" if drifts(outcome.samples) is None else "judged",
        "samples": [
            {"hours": each.hours, **{f"{n}/{name}": v for (n, name), v in each.values.items()}}
            for each in outcome.samples
        ],
    }


async def perform(plan: SoakOptions, directory: Path, progress: TextIO) -> SoakOutcome:
    """Raises HarnessError if the cluster does not come back."""
    world = real_world()
    nemesis = nemesis_of(plan.nemeses)
    outcome = SoakOutcome(nemesis.names)
    options = ClusterOptions(
        nodes=plan.nodes,
        seed=plan.seed,
        directory=str(directory),
        settings=SETTINGS,
        network="proxy" if nemesis.needs_proxy else "auto",
    )
    began = world.clock.monotonic()
    async with open_cluster(world, options) as cluster:
        while not outcome.windows or world.clock.monotonic() < began + plan.seconds:
            number = len(outcome.windows)
            window, values = await _window(plan, world, cluster, number)
            outcome.windows.append(window)
            values.update(_measured(cluster))
            hours = (world.clock.monotonic() - began) / 3600
            outcome.samples.append(Sample(hours, values))
            print(
                f"soak: {hours:.2f} h, window {number + 1} ({window['workload']}): "
                f"{window['state']}, {window['acked']} values, {len(outcome.bad)} bad so far",
                file=progress,
                flush=True,
            )
        outcome.deaths = [f"node {each.node_id} ended by itself" for each in cluster.deaths]
    return outcome


async def _window(
    plan: SoakOptions, world: World, cluster: JepsenCluster, number: int
) -> tuple[dict[str, Any], dict[tuple[int, str], float]]:
    name = plan.workloads[number % len(plan.workloads)]
    prefix = f"soak{number}t"
    stage_plan = StagePlan(name, plan.seed + number, plan.rate, prefix=prefix)
    nemesis = nemesis_of(plan.nemeses)
    async with open_stage(world, cluster, stage_plan) as stage:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.session.run, plan.window_seconds)
            nursery.start_soon(
                nemesis.run,
                cluster,
                stage.recorder,
                Random(f"{plan.seed}/nemesis/{number}"),
                plan.window_seconds,
            )
        await nemesis.heal(cluster, seconds=_WHOLE_SECONDS)
        laggards = await wait_whole(world, cluster, _WHOLE_SECONDS)
        first = len(stage.recorder.events)
        await stage.session.run(max(1.0, _CALM_SHARE * plan.window_seconds))
        values = {(0, "p99"): p99_seconds(stage.history, first)}
        verdict = await stage.judge()
    await _delete_topics(cluster, prefix)
    window = {
        "workload": name,
        "state": "invalid" if laggards else verdict.state,
        "acked": _acked(stage),
        "bad": [*laggards, *(f"{each.id} {each.name}: {each.text}" for each in verdict.bad)],
        "reasons": list(verdict.reasons),
        "faults": Counter(
            each.value["name"] for each in stage.history.nemesis_events if each.value.get("faults")
        ),
    }
    return window, values


async def _delete_topics(cluster: JepsenCluster, prefix: str) -> None:
    topics = await cluster.admin.run(list_topics())
    ours = [name for name in topics if name.startswith(prefix)]
    if ours:
        await cluster.admin.run(delete_topics(ours))


def _acked(stage: Stage) -> int:
    return sum(
        1
        for each in stage.history.operations
        if each.type == "ok" and each.f in ("send", "txn")
        for micro in each.value
        if micro[0] == "send"
    )


def p99_seconds(history: History, first: int) -> float:
    """Of operations that were ok, from event `first` on."""
    taken = sorted(
        (each.end_ns - each.start_ns) / 1e9
        for each in history.operations
        if each.index >= first and each.type == "ok" and each.end_ns is not None
    )
    return taken[int(0.99 * (len(taken) - 1))] if taken else 0.0


def _measured(cluster: JepsenCluster) -> dict[tuple[int, str], float]:
    """What each node's process has in use, as the system tells."""
    values: dict[tuple[int, str], float] = {}
    for node in cluster.running:
        process = Path(f"/proc/{cluster.processes.pid(node)}")
        fields = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        values[node, "memory"] = int(fields["VmRSS"].split()[0]) * 1024
        values[node, "threads"] = int(fields["Threads"])
        values[node, "descriptors"] = len(os.listdir(process / "fd"))
        values[node, "disk"] = bytes_in(cluster.plan(node).data_dir)
    return values


def bytes_in(directory: str) -> int:
    """Of all files; those that a node deletes meanwhile don't count."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.stat(f"{folder}/{name}").st_size
    return total
