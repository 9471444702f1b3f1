"""Faults drawn from a seed: the same seed and the same nodes give the same faults.

Shapes of partitions are those of Jepsen's tests. A shape that is no cut between two sides, such as
the ring in which every node sees a different majority, is a list of partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kraftpy.faults.language import (
    ClockJump,
    Delay,
    DiskFull,
    FailNext,
    Fault,
    Kill,
    Nodes,
    OneWay,
    Partition,
    Pause,
    PowerLoss,
    Restart,
    SlowDisk,
    TornWrite,
)
from kraftpy.world import Random

__all__ = [
    "DRAWN",
    "SHAPES",
    "bridge",
    "draw_clock_jump_ms",
    "draw_fault",
    "draw_partition",
    "halves",
    "isolate",
    "majorities_ring",
    "minority_third",
]

DRAWN: Final = (
    *("kill", "pause", "restart", "partition", "one-way", "delay"),
    *("fail-next", "disk-full", "torn-write", "slow-disk", "power-loss", "clock-jump"),
)
"""Names that `draw_fault` can draw. Those that need another fault before them, or end it, are not
among them.
"""

SHAPES: Final = ("isolate", "halves", "minority-third", "bridge", "majorities-ring")

_DELAYS_MS: Final = (5, 200)
_SLOW_MS: Final = (10, 2_000)
# Errors that clients try again after: a test of theirs should survive them.
_PASSING: Final = (
    ("Produce", "NOT_LEADER_OR_FOLLOWER"),
    ("Produce", "REQUEST_TIMED_OUT"),
    ("Fetch", "NOT_LEADER_OR_FOLLOWER"),
    ("Metadata", "LEADER_NOT_AVAILABLE"),
    ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
    ("OffsetCommit", "NOT_COORDINATOR"),
)
_LINKS: Final = ("partition", "one-way", "delay")


def draw_fault(random: Random, nodes: Sequence[int], names: Sequence[str] = DRAWN) -> Fault:
    """One of these names, on nodes of the cluster. Raises ValueError if none of them can be."""
    unknown = [name for name in names if name not in DRAWN]
    if unknown:
        raise ValueError(f"{unknown[0]!r} can't be drawn; {', '.join(DRAWN)} can")
    possible = [name for name in names if len(nodes) > 1 or name not in _LINKS]
    if not possible:
        raise ValueError("there is no fault to draw for this cluster")
    name = random.choice(possible)
    if name in _LINKS:
        return _draw_link_fault(random, nodes, name)
    node = random.choice(nodes)
    match name:
        case "kill":
            return Kill(node)
        case "pause":
            return Pause(node)
        case "restart":
            return Restart(node)
        case "disk-full":
            return DiskFull(node)
        case "torn-write":
            return TornWrite(node)
        case "slow-disk":
            return SlowDisk(node, random.randint(*_SLOW_MS))
        case "power-loss":
            return PowerLoss(node)
        case "clock-jump":
            return ClockJump(node, draw_clock_jump_ms(random))
        case _:
            api, error = random.choice(_PASSING)
            return FailNext(api, error, random.randint(1, 3), node)


def _draw_link_fault(random: Random, nodes: Sequence[int], name: str) -> Fault:
    a, b = random.choice((isolate, halves))(random, nodes)
    if name == "partition":
        return Partition(a, b)
    if name == "one-way":
        return OneWay(a, b) if random.random() < 0.5 else OneWay(b, a)
    return Delay(a, b, random.randint(*_DELAYS_MS))


def draw_clock_jump_ms(random: Random) -> int:
    """From some 11 ms to some 288 s, either way, small ones as often as large ones."""
    milliseconds = int(1.5 ** random.uniform(6, 31))
    return milliseconds if random.random() < 0.5 else -milliseconds


def draw_partition(
    random: Random, nodes: Sequence[int], shape: str
) -> Sequence[Partition | OneWay]:
    """The cuts of a shape. Raises ValueError if it is unknown, or the nodes are too few."""
    match shape:
        case "isolate":
            return [Partition(*isolate(random, nodes))]
        case "halves":
            return [Partition(*halves(random, nodes))]
        case "minority-third":
            return [Partition(*minority_third(random, nodes))]
        case "bridge":
            return bridge(random, nodes)
        case "majorities-ring":
            return majorities_ring(random, nodes)
    raise ValueError(f"{shape!r} is no shape; there are {', '.join(SHAPES)}")


def isolate(random: Random, nodes: Sequence[int]) -> tuple[Nodes, Nodes]:
    """One node, and the rest."""
    alone = random.choice(_at_least(2, nodes))
    return (alone,), tuple(node for node in nodes if node != alone)


def halves(random: Random, nodes: Sequence[int]) -> tuple[Nodes, Nodes]:
    """The smaller one first."""
    shuffled = _shuffled(random, _at_least(2, nodes))
    middle = len(nodes) // 2
    return tuple(sorted(shuffled[:middle])), tuple(sorted(shuffled[middle:]))


def minority_third(random: Random, nodes: Sequence[int]) -> tuple[Nodes, Nodes]:
    """Less than a third of the nodes, and the rest."""
    shuffled = _shuffled(random, _at_least(4, nodes))
    count = random.randint(1, (len(nodes) - 1) // 3)
    return tuple(sorted(shuffled[:count])), tuple(sorted(shuffled[count:]))


def bridge(random: Random, nodes: Sequence[int]) -> list[Partition]:
    """Two halves, and one node that sees both."""
    _connected, *rest = _shuffled(random, _at_least(3, nodes))
    return [Partition(*halves(random, rest))]


def majorities_ring(random: Random, nodes: Sequence[int]) -> list[Partition | OneWay]:
    """Every node sees a majority, and no two of them the same one.

    Nodes stand in a ring, and each sees its neighbours up to a quarter of the way round. Of three
    each hears one of the others.
    """
    ring = _shuffled(random, _at_least(3, nodes))
    count = len(ring)
    if count == 3:
        return [OneWay((ring[index - 1],), (ring[index],)) for index in range(3)]
    majority = count // 2 + 1
    # A node, and as many on each of its sides.
    reach = majority // 2
    cuts: list[Partition | OneWay] = []
    for index, node in enumerate(ring):
        for other in range(index + 1, count):
            distance = min(other - index, count - (other - index))
            if distance > reach:
                cuts.append(Partition((node,), (ring[other],)))
    return cuts


def _shuffled(random: Random, nodes: Sequence[int]) -> list[int]:
    return random.sample(list(nodes), len(nodes))


def _at_least(count: int, nodes: Sequence[int]) -> Sequence[int]:
    if len(nodes) < count:
        raise ValueError(f"this shape needs {count} nodes, and there are {len(nodes)}")
    return nodes
