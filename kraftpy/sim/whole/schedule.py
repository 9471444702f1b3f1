"""What befalls a world and when: drawn from the seed as a whole, before anything happens.

A fault of the plan is named by its number. A run can be repeated without some of them, and the rest
happens at the same times: that is what makes a failure small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kraftpy.faults.drawing import DRAWN, draw_fault
from kraftpy.faults.language import (
    POWER_POLICIES,
    ClockJump,
    CutClients,
    DiskError,
    Fault,
    PowerLoss,
    Reset,
    SlowDisk,
    format_fault,
)
from kraftpy.sim.whole.swarm import WholeSwarm
from kraftpy.world import Random

__all__ = ["PlannedFault", "draw_plan"]

# Jepsen's clocks: plus or minus 1.5 to the power of 6 to 31, in milliseconds.
_JUMP_BASE = 1.5
_JUMP_LEAST, _JUMP_RANGE = 6, 25
_DURATION_MEAN_SECONDS = 3.0
_DURATION_MAX_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class PlannedFault:
    number: int
    at_seconds: float
    seconds: float
    fault: Fault

    def __str__(self) -> str:
        return f"#{self.number} {format_fault(self.fault)} for {self.seconds:.1f} s"


def draw_plan(random: Random, swarm: WholeSwarm, seconds: float) -> list[PlannedFault]:
    """The faults of a safety phase of so many seconds, in the order of their times."""
    plan: list[PlannedFault] = []
    if not swarm.faults:
        return plan
    at = random.expovariate(1 / swarm.fault_mean_seconds)
    while at < seconds:
        fault = _draw(random, swarm)
        length = min(random.expovariate(1 / _DURATION_MEAN_SECONDS), _DURATION_MAX_SECONDS)
        plan.append(PlannedFault(len(plan), at, length, fault))
        if not swarm.overlaps:
            at += length
        at += random.expovariate(1 / swarm.fault_mean_seconds)
    return plan


def _draw(random: Random, swarm: WholeSwarm) -> Fault:
    nodes: Sequence[int] = swarm.node_ids
    name = random.choice(swarm.faults)
    if name in DRAWN:
        return draw_fault(random, nodes, [name])
    node = random.choice(nodes)
    match name:
        case "power-loss":
            return PowerLoss(node, random.choice(POWER_POLICIES))
        case "clock-jump":
            size = round(_JUMP_BASE ** (_JUMP_LEAST + _JUMP_RANGE * random.random()))
            return ClockJump(node, random.choice((-1, 1)) * size)
        case "slow-disk":
            return SlowDisk(node, random.choice((10, 100, 1_000)))
        case "disk-error":
            return DiskError(node, random.choice(("read", "write", "sync")))
        case "cut-clients":
            return CutClients((node,))
        case "reset":
            other = random.choice([each for each in nodes if each != node])
            return Reset((node,), (other,))
    raise ValueError(f"{name!r} can't be drawn for a simulation")
