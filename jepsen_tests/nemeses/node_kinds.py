"""Faults of nodes: their processes, disks, clocks and files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from jepsen_tests.nemeses.kind import Kind, Scene
from jepsen_tests.nemeses.targets import draw_nodes, draw_one
from kraftpy.faults.drawing import draw_clock_jump_ms, draw_fault
from kraftpy.faults.language import (
    POWER_POLICIES,
    BusyMachine,
    ClockJump,
    ClockStrobe,
    CutTail,
    DiskError,
    DiskFull,
    Fault,
    FlipBits,
    Kill,
    NoDescriptors,
    Pause,
    PowerLoss,
    Restart,
    Resume,
    RollingRestart,
    SlowDisk,
    StrayWrite,
    SwitchVersion,
    TornWrite,
    Wipe,
)

__all__ = ["NODE_KINDS"]

_SLOW_MS: Final = (10, 3_000)
_STROBE_MS: Final = (4, 262_000)
_STROBE_PERIOD_MS: Final = (1, 1_000)


async def _heal_inside(scene: Scene) -> None:
    await scene.cluster.heal_inside()
    await _start(scene)


async def _start(scene: Scene) -> None:
    """Whatever does not run runs again; it may take its time."""
    for node in scene.nodes:
        if node not in scene.cluster.running and node not in scene.cluster.away:
            await scene.do(Restart(node))


async def _kill(scene: Scene) -> None:
    for node in draw_nodes(scene.random, scene.cluster.running):
        await scene.do(Kill(node))
        scene.effects.append(f"node {node} ended")


async def _restart(scene: Scene) -> None:
    for node in draw_nodes(scene.random, scene.nodes, ["one", "minority", "all"]):
        before = scene.cluster.processes.pid(node)
        await scene.do(Restart(node))
        after = scene.cluster.processes.pid(node)
        scene.effects.append(f"node {node} was process {before} and is {after}")


async def _rolling_restart(scene: Scene) -> None:
    await scene.do(RollingRestart(tuple(scene.random.sample(scene.nodes, len(scene.nodes)))))
    scene.effects.append("every node was restarted")


async def _switch_versions(scene: Scene) -> None:
    """One node after the other, and perhaps not all of them: a roll may be stuck half-way."""
    order = scene.random.sample(scene.nodes, scene.random.randint(1, len(scene.nodes)))
    for node in order:
        await scene.do(SwitchVersion(node))
        others = ", ".join(map(str, scene.cluster.other_nodes)) or "none"
        scene.effects.append(f"node {node} was switched; of the other version are {others}")


async def _end_versions(scene: Scene) -> None:
    for node in scene.cluster.other_nodes:
        await scene.do(SwitchVersion(node))


async def _nothing(scene: Scene) -> None:
    """It is over by itself."""


async def _pause(scene: Scene) -> None:
    for node in draw_nodes(scene.random, scene.cluster.awake):
        await scene.do(Pause(node))
        scene.effects.append(f"node {node} hung")


async def _resume(scene: Scene) -> None:
    for node in scene.cluster.running:
        if node not in scene.cluster.awake:
            await scene.do(Resume(node))


async def _clock_jump(scene: Scene) -> None:
    for node in draw_nodes(scene.random, scene.nodes):
        milliseconds = draw_clock_jump_ms(scene.random)
        await scene.do(ClockJump(node, milliseconds))
        scene.effects.append(f"the wall clock of node {node} moved by {milliseconds} ms")


async def _clock_strobe(scene: Scene) -> None:
    for node in draw_nodes(scene.random, scene.nodes):
        ahead_ms = scene.random.randint(*_STROBE_MS)
        await scene.do(ClockStrobe(node, ahead_ms, scene.random.randint(*_STROBE_PERIOD_MS)))
        scene.effects.append(f"the wall clock of node {node} strobed by {ahead_ms} ms")


async def _power_loss(scene: Scene) -> None:
    await scene.require_whole()
    node = draw_one(scene.random, scene.cluster.awake, ())
    policies = POWER_POLICIES if scene.cluster.has_lossy_disks else ("drop-all",)
    policy = scene.random.choice(policies)
    await scene.do(PowerLoss(node, policy))
    scene.effects.append(f"node {node} lost its power and what it had not synced ({policy})")


async def _flip_bits(scene: Scene) -> None:
    await scene.require_whole()
    node = draw_one(scene.random, scene.cluster.running, ())
    await scene.do(Kill(node))
    seed = scene.random.randrange(2**32)
    await scene.do(FlipBits(node, scene.random.randint(1, 8), seed))
    scene.effects.append(f"bits in files of node {node} were flipped")


async def _cut_tail(scene: Scene) -> None:
    await scene.require_whole()
    node = draw_one(scene.random, scene.cluster.running, ())
    await scene.do(Kill(node))
    count = 1 + int(scene.random.expovariate(1e-3))
    await scene.do(CutTail(node, count, scene.random.randrange(2**32)))
    scene.effects.append(f"a file of node {node} lost its last {count} bytes")


async def _stray_write(scene: Scene) -> None:
    await scene.require_whole()
    node = draw_one(scene.random, scene.cluster.running, ())
    await scene.do(Kill(node))
    await scene.do(StrayWrite(node, scene.random.randrange(2**32)))
    scene.effects.append(f"a write to the disk of node {node} had landed elsewhere")


async def _wipe(scene: Scene) -> None:
    """Of a broker that does not vote where there is one: a quorum must not forget its votes."""
    await scene.require_whole()
    others = [each for each in scene.cluster.running if each not in scene.cluster.controller_ids]
    node = draw_one(scene.random, others, ())
    await scene.do(Kill(node))
    await scene.do(Wipe(node))
    scene.effects.append(f"node {node} has an empty disk")


def _inside(
    fault: Callable[[int], Fault],
) -> Callable[[Scene], Awaitable[None]]:
    async def begin(scene: Scene) -> None:
        await scene.do(fault(draw_one(scene.random, scene.cluster.awake, ())))

    return begin


async def _disk_full(scene: Scene) -> None:
    """The node has confirmed it; it need not die, because it may have nothing to write but what it
    can refuse.
    """
    node = draw_one(scene.random, scene.cluster.awake, ())
    await scene.do(DiskFull(node))
    scene.effects.append(f"the disk of node {node} was full")


async def _end_fatal(scene: Scene) -> None:
    """Of faults that nodes die of when they meet them."""
    ended = [node for node in scene.nodes if node not in scene.cluster.running]
    scene.effects += [f"node {node} ended" for node in ended]
    await _heal_inside(scene)


async def _slow_disk(scene: Scene) -> None:
    node = draw_one(scene.random, scene.cluster.awake, ())
    await scene.do(SlowDisk(node, scene.random.randint(*_SLOW_MS)))
    scene.effects.append(f"the disk of node {node} was slow")


async def _pressure(scene: Scene) -> None:
    if scene.random.random() < 0.5:
        await scene.do(BusyMachine(scene.random.randint(1, 2)))
        scene.effects.append("the processors were busy with something else")
    else:
        node = draw_one(scene.random, scene.cluster.awake, ())
        await scene.do(NoDescriptors(node))
        scene.effects.append(f"node {node} had no descriptors left")


async def _end_pressure(scene: Scene) -> None:
    await scene.cluster.pressure.heal()
    await _start(scene)


async def _fail_requests(scene: Scene) -> None:
    await scene.do(draw_fault(scene.random, scene.cluster.awake, ["fail-next"]))
    scene.effects.append("requests were answered with errors")


NODE_KINDS: Final = (
    Kind("kill", "N2", "processes end at once and are started again", _kill, _start),
    Kind("restart", "N3", "nodes stop in good order and are started again", _restart, _start),
    Kind(
        "rolling-restart",
        "N3",
        "all nodes are restarted, one after the other",
        _rolling_restart,
        _nothing,
    ),
    Kind(
        "versions",
        "N28",
        "nodes are upgraded to another version and downgraded again, one by one",
        _switch_versions,
        _end_versions,
        needs_other_version=True,
    ),
    Kind("pause", "N4", "processes hang", _pause, _resume),
    Kind("clock", "N5", "wall clocks jump", _clock_jump, _heal_inside),
    Kind("clock-strobe", "N6", "wall clocks jump to and fro", _clock_strobe, _heal_inside),
    Kind("power", "N8", "a node is killed and loses what it has not synced", _power_loss, _start),
    Kind(
        "torn-write",
        "N9",
        "a node is killed in the middle of a write",
        _inside(TornWrite),
        _end_fatal,
    ),
    Kind("bit-flip", "N10", "bits in the log of a killed node are wrong", _flip_bits, _start),
    Kind("truncate", "N11", "the log of a killed node lacks its tail", _cut_tail, _start),
    Kind(
        "stray-write",
        "N12",
        "a part of a killed node's log is at another place",
        _stray_write,
        _start,
    ),
    Kind(
        "sync-error",
        "N13",
        "syncing fails with EIO",
        _inside(partial(DiskError, operation="sync")),
        _end_fatal,
    ),
    Kind(
        "disk-error",
        "N13",
        "writing fails with EIO",
        _inside(partial(DiskError, operation="write")),
        _end_fatal,
    ),
    Kind("disk-full", "N14", "nothing more fits on a disk", _disk_full, _end_fatal),
    Kind("slow-disk", "N15", "syncing takes long", _slow_disk, _heal_inside),
    Kind("wipe", "N16", "a broker's disk is empty", _wipe, _start, min_nodes=4),
    Kind(
        "pressure", "N27", "processors are busy, or descriptors run out", _pressure, _end_pressure
    ),
    Kind(
        "fail-requests",
        "N29",
        "requests are answered with errors that pass",
        _fail_requests,
        _heal_inside,
    ),
)
