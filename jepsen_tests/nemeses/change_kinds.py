"""Changes that an administrator makes at a bad moment."""

from __future__ import annotations

from typing import Final

from jepsen_tests.nemeses.kind import Kind, Scene
from jepsen_tests.nemeses.targets import draw_one, draw_text
from kraftpy.client.calls import TopicPartition
from kraftpy.faults.language import (
    CancelReassignments,
    ChangeConfig,
    Decommission,
    ElectLeaders,
    Hijack,
    Reassign,
    RecreateTopic,
    RemoveVoter,
    parse_fault,
)

__all__ = ["CHANGE_KINDS"]

_CHURN: Final = (
    ("min.insync.replicas", ("1", "2")),
    ("segment.bytes", ("1048576", "16777216")),
    ("flush.messages", ("1", "1000")),
    ("max.message.bytes", ("1048588", "2097152")),
)


async def _nothing(scene: Scene) -> None:
    """It is over by itself."""


async def _decommission(scene: Scene) -> None:
    others = [each for each in scene.cluster.awake if each not in scene.cluster.controller_ids]
    node = draw_one(scene.random, others, ())
    await scene.do(Decommission(node))
    scene.effects.append(f"node {node} was taken out of the cluster")


async def _end_decommission(scene: Scene) -> None:
    await scene.cluster.bring_back()


async def _change_voters(scene: Scene) -> None:
    """Also while its leader is cut off: then nothing comes of it before that is over."""
    node = draw_one(scene.random, scene.cluster.controller_ids, ())
    await scene.do(RemoveVoter(node))
    scene.effects.append(f"node {node} votes no more")


async def _end_voters(scene: Scene) -> None:
    await scene.cluster.bring_back_voters()


async def _elect(scene: Scene) -> None:
    for _ in range(scene.random.randint(1, 10)):
        await scene.do(ElectLeaders())
        await scene.cluster.sleep(scene.random.uniform(0.1, 1.0))
    scene.effects.append("leaders were elected")


async def _reassign(scene: Scene) -> None:
    found = await scene.partitions()
    for where in scene.random.sample(found, min(3, len(found))):
        await _move(scene, where)
    if scene.random.random() < 0.3:
        await scene.do(CancelReassignments())


async def _move(scene: Scene, where: TopicPartition) -> None:
    view = await scene.inspect()
    count = 1 if view is None else len(view.partitions[where].replicas)
    replicas = scene.random.sample(scene.nodes, min(count, len(scene.nodes)))
    await scene.do(Reassign(where.topic, where.partition, tuple(replicas)))
    scene.effects.append(f"{where} moves to {replicas}")


async def _recreate(scene: Scene) -> None:
    topics = list(dict.fromkeys(where.topic for where in await scene.partitions()))
    topic = scene.random.choice(topics)
    await scene.do(RecreateTopic(topic))
    scene.effects.append(f"{topic} was deleted and made again")


async def _churn(scene: Scene) -> None:
    topics = list(dict.fromkeys(where.topic for where in await scene.partitions()))
    key, values = scene.random.choice(_CHURN)
    topic = scene.random.choice(topics)
    await scene.do(ChangeConfig(topic, key, scene.random.choice(values)))
    scene.effects.append(f"{key} of {topic} was changed")


async def _end_churn(scene: Scene) -> None:
    """What was set goes back to what it is by default."""
    for text in list(scene.faults):
        fault = parse_fault(text)
        if isinstance(fault, ChangeConfig):
            await scene.do(ChangeConfig(fault.topic, fault.key))


async def _hijack(scene: Scene) -> None:
    transactional_id = draw_text(scene.random, await scene.cluster.transactional_ids())
    await scene.do(Hijack(transactional_id))
    scene.effects.append(f"{transactional_id} was taken over")


CHANGE_KINDS: Final = (
    Kind(
        "membership",
        "N17",
        "a broker leaves the cluster and comes back empty",
        _decommission,
        _end_decommission,
        min_nodes=4,
    ),
    Kind(
        "voters",
        "N18",
        "a controller loses its vote and gets it back",
        _change_voters,
        _end_voters,
        min_nodes=3,
    ),
    Kind(
        "elections",
        "N19",
        "preferred leaders are elected, again and again",
        _elect,
        _nothing,
        min_nodes=2,
    ),
    Kind("reassign", "N20", "partitions move to other replicas", _reassign, _nothing, min_nodes=2),
    Kind(
        "recreate-topic",
        "N20",
        "a topic is deleted and made again",
        _recreate,
        _nothing,
    ),
    Kind(
        "hijack",
        "N24",
        "transactional ids in use are initialised by somebody else",
        _hijack,
        _nothing,
    ),
    Kind("config", "N26", "settings of topics change", _churn, _end_churn),
)
