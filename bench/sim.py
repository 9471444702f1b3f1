"""How fast the simulations are, on one processor with all checks on.

Times are the processor's own, so that others on the machine don't count; they still take its
caches and its other half, hence compare on a quiet one.

What is counted differs by level:

- quorum, cluster, data, coordinators: events that reached a core, a controller, a broker or a
  client, as they are in the digest and as a run's length is measured. After each, all invariants
  that it can have touched were checked. The second number is of all events of the heap: with data,
  produces, fetches and flushes of replicas, whose rules are checked too; and timers that were moved
  or messages for a process that is gone, which change nothing.
- logs: effects on a disk, and the steps of the client that lead to them. Each costs a part of
  a real log's work, and each life of the process a recovery; there is no goal.
- requests: pieces of streams that arrive at a real server in trio; there is no goal either.
- whole: delivered messages between complete nodes and clients. An idle cluster is measured twice:
  with heartbeats each 2 s, which is Kafka's own timing and what a user's cluster has, and with
  those that the whole simulations have, each 500 ms, so that sessions end within short runs.

First it is said how fast this machine is, by what one checkpoint of trio takes, so that figures of
different machines can be compared; and which Python runs, because one that was built with
profile-guided optimization, as Debian's and most that people install are, is 1.2 to 1.4 times as
fast as one that was not, as pyenv's is by default.
"""

from __future__ import annotations

import platform
import sys
import time
from statistics import median

import trio

from kraftpy.sim.levels import LEVELS, SeedReport, Size, run_case
from kraftpy.sim.whole.run import WholeCase
from kraftpy.sim.whole.swarm import WholeSwarm

__all__ = ["main"]

_SEEDS = 3
_IDLE_SECONDS = 600.0
_EVENTS_GOAL = 15_000
_MESSAGES_GOAL = 3_000
_IDLE_GOAL = 100
_CHECKPOINTS = 20_000
_CHECKPOINT_ROUNDS = 5
# Of the machine that the goals were set on.
_REFERENCE_MICROSECONDS = 5.0
_KAFKA_TIMING = {
    "broker.heartbeat.interval.ms": "2000",
    "broker.session.timeout.ms": "9000",
}
# By level: what is counted there, where it is no event.
_OTHER_UNITS = {"logs": "effects on disks", "requests": "pieces of streams"}


def main() -> None:
    rounds = [trio.run(_checkpoint_microseconds) for _ in range(_CHECKPOINT_ROUNDS)]
    print(
        f"  this machine     {median(rounds):8.1f} us of a processor for one checkpoint of trio"
        f" (where the goals were set: {_REFERENCE_MICROSECONDS:g})"
    )
    print(f"  Python {platform.python_version()} of {sys.base_prefix}")
    for level in LEVELS:
        if level.name == "whole":
            continue
        reports = [level.run(seed, Size(), range(0)) for seed in range(_SEEDS)]
        unit = _OTHER_UNITS.get(level.name)
        if unit is None:
            _show(level.name, reports, "events", _EVENTS_GOAL)
        else:
            _show(level.name, reports, unit, None)
    swarm = WholeSwarm(workloads=("queue-assign", "idempotent"), rate=150.0, faults=())
    reports = [run_case(WholeCase(seed, swarm, (), seconds=20.0)) for seed in range(_SEEDS)]
    _show("whole, busy", reports, "messages", _MESSAGES_GOAL)
    usual = WholeSwarm(workloads=(), faults=(), node_extremes=_KAFKA_TIMING)
    _show_idle("heartbeats each 2 s, as Kafka's", usual)
    _show_idle("heartbeats each 500 ms", WholeSwarm(workloads=(), faults=()))


async def _checkpoint_microseconds() -> float:
    began = time.process_time()
    for _ in range(_CHECKPOINTS):
        await trio.lowlevel.checkpoint()
    return (time.process_time() - began) / _CHECKPOINTS * 1_000_000


def _show_idle(timing: str, swarm: WholeSwarm) -> None:
    began = time.process_time()
    report = run_case(WholeCase(0, swarm, (), seconds=_IDLE_SECONDS))
    ratio = report.virtual_seconds / (time.process_time() - began)
    print(f"  whole, idle      {ratio:8,.0f} times real time, {timing} (goal: {_IDLE_GOAL})")


def _show(name: str, reports: list[SeedReport], unit: str, goal: int | None) -> None:
    seconds = sum(each.processor_seconds for each in reports)
    rate = sum(each.steps for each in reports) / seconds
    wanted = "" if goal is None else f" (goal: {goal:,})"
    heap_events = sum(each.figures.get("heap_events", 0) for each in reports)
    if heap_events:
        wanted += f", {heap_events / seconds:,.0f} of the heap"
    print(f"  {name:<16} {rate:8,.0f} {unit}/s a processor{wanted}")
