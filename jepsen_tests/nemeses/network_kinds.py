"""Faults between nodes, and between them and clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from jepsen_tests.nemeses.kind import Kind, Scene
from jepsen_tests.nemeses.targets import draw_nodes, draw_one
from kraftpy.faults.drawing import SHAPES, draw_fault, draw_partition
from kraftpy.faults.language import CutClients, Delay, Hold, OneWay, Partition, Reset

__all__ = ["NETWORK_KINDS"]

# Messages whose delay has led to findings: markers, ends of transactions, fetches across epochs.
_HELD: Final = (
    *(("EndTxn", "request"), ("AddPartitionsToTxn", "request"), ("TxnOffsetCommit", "request")),
    *(("WriteTxnMarkers", "request"), ("Produce", "request"), ("Produce", "response")),
    *(("Fetch", "request"), ("Fetch", "response"), ("OffsetCommit", "response")),
)
# Past a request's time-out, past that of a transaction, until it is over.
_HOLD_MS: Final = (2_500, 6_000, 0)


async def _heal_links(scene: Scene) -> None:
    cut = await scene.cluster.links.cut_count()
    if cut:
        scene.effects.append(f"{cut} directions of links carried nothing")
    await scene.cluster.heal_links()


async def _nothing(scene: Scene) -> None:
    """It is over by itself."""


def _partition(shape: str) -> Callable[[Scene], Awaitable[None]]:
    async def begin(scene: Scene) -> None:
        for cut in draw_partition(scene.random, scene.nodes, shape):
            await scene.do(cut)

    return begin


async def _any_partition(scene: Scene) -> None:
    few = len(scene.nodes) < 4
    shapes = [each for each in SHAPES if not (few and each == "minority-third")]
    shape = scene.random.choice([*shapes, "one-way"])
    await (_one_way(scene) if shape == "one-way" else _partition(shape)(scene))


async def _one_way(scene: Scene) -> None:
    await scene.do(draw_fault(scene.random, scene.nodes, ["one-way"]))


async def _isolate(scene: Scene, node: int) -> None:
    """Either way, or only one of them: it can't send, or can't receive."""
    others = tuple(each for each in scene.nodes if each != node)
    match scene.random.choice(["both", "mute", "deaf"]):
        case "mute":
            await scene.do(OneWay((node,), others))
        case "deaf":
            await scene.do(OneWay(others, (node,)))
        case _:
            await scene.do(Partition((node,), others))


async def _isolate_leader(scene: Scene) -> None:
    found = await scene.inspect()
    leaders = () if found is None else found.leaders
    await _isolate(scene, draw_one(scene.random, leaders, scene.nodes))


async def _isolate_controller(scene: Scene) -> None:
    found = await scene.inspect()
    known = () if found is None or found.controller < 0 else (found.controller,)
    await _isolate(scene, draw_one(scene.random, known, scene.cluster.controller_ids))


async def _isolate_coordinator(scene: Scene) -> None:
    found = await scene.inspect()
    topic = scene.random.choice(["__consumer_offsets", "__transaction_state"])
    leaders = () if found is None else found.led_internally(topic)
    await _isolate(scene, draw_one(scene.random, leaders, scene.nodes))


async def _swizzle(scene: Scene) -> None:
    """Links of some nodes stop one by one; they come back together."""
    chosen = draw_nodes(scene.random, scene.nodes, ["minority", "majority", "some"])
    for node in scene.random.sample(chosen, len(chosen)):
        others = tuple(each for each in scene.nodes if each != node)
        await scene.do(Partition((node,), others))
        await scene.cluster.sleep(scene.random.uniform(0.1, 1.0))


async def _cut_clients(scene: Scene) -> None:
    await scene.do(CutClients(tuple(draw_nodes(scene.random, scene.nodes))))


async def _delay(scene: Scene) -> None:
    fault = draw_fault(scene.random, scene.nodes, ["delay"])
    assert isinstance(fault, Delay)
    scene.count_before = scene.cluster.switchboard.delayed_count
    await scene.do(fault)


async def _end_delay(scene: Scene) -> None:
    delayed = scene.cluster.switchboard.delayed_count - scene.count_before
    if delayed:
        scene.effects.append(f"{delayed} pieces of data were late")
    await scene.cluster.heal_links()


async def _reset(scene: Scene) -> None:
    cut = draw_fault(scene.random, scene.nodes, ["partition"])
    assert isinstance(cut, Partition)
    before = scene.cluster.switchboard.reset_count
    await scene.do(Reset(cut.a, cut.b))
    count = scene.cluster.switchboard.reset_count - before
    if count:
        scene.effects.append(f"{count} connections were reset")


async def _hold(scene: Scene) -> None:
    api, direction = scene.random.choice(_HELD)
    scene.count_before = scene.cluster.switchboard.holds.total
    for node in scene.nodes:
        milliseconds = scene.random.choice(_HOLD_MS)
        await scene.do(Hold(node, api, direction, scene.random.randint(1, 3), milliseconds))


async def _end_hold(scene: Scene) -> None:
    held = scene.cluster.switchboard.holds.total - scene.count_before
    if held:
        scene.effects.append(f"{held} messages were held")
    await _heal_links(scene)


NETWORK_KINDS: Final = (
    Kind(
        "partition",
        "N1",
        "the network splits, in any shape",
        _any_partition,
        _heal_links,
        min_nodes=2,
    ),
    Kind(
        "isolate-one",
        "N1",
        "one node and the rest",
        _partition("isolate"),
        _heal_links,
        min_nodes=2,
    ),
    Kind("halves", "N1", "two halves", _partition("halves"), _heal_links, min_nodes=2),
    Kind(
        "minority-third",
        "N1",
        "less than a third and the rest",
        _partition("minority-third"),
        _heal_links,
        min_nodes=4,
    ),
    Kind(
        "majorities-ring",
        "N1",
        "every node sees another majority",
        _partition("majorities-ring"),
        _heal_links,
        min_nodes=3,
    ),
    Kind(
        "bridge",
        "N1",
        "two halves and one node between them",
        _partition("bridge"),
        _heal_links,
        min_nodes=3,
    ),
    Kind("one-way", "N1", "one side is not heard by the other", _one_way, _heal_links, min_nodes=2),
    Kind(
        "isolate-leader",
        "N1",
        "the leader of a partition is cut off",
        _isolate_leader,
        _heal_links,
        min_nodes=2,
    ),
    Kind(
        "isolate-controller",
        "N1",
        "the active controller is cut off",
        _isolate_controller,
        _heal_links,
        min_nodes=2,
    ),
    Kind(
        "isolate-coordinator",
        "N1",
        "a coordinator of groups or transactions is cut off",
        _isolate_coordinator,
        _heal_links,
        min_nodes=2,
    ),
    Kind(
        "swizzle", "N1", "links of some nodes stop one by one", _swizzle, _heal_links, min_nodes=2
    ),
    Kind("cut-clients", "N1", "clients do not reach some brokers", _cut_clients, _heal_links),
    Kind(
        "delay",
        "N21",
        "everything between two sides takes longer",
        _delay,
        _end_delay,
        needs_proxy=True,
        min_nodes=2,
    ),
    Kind(
        "reset",
        "N22",
        "connections between two sides are reset",
        _reset,
        _nothing,
        needs_proxy=True,
        min_nodes=2,
    ),
    Kind(
        "hold",
        "N23",
        "single requests or answers arrive much later",
        _hold,
        _end_hold,
        needs_proxy=True,
    ),
)
