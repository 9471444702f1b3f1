"""For keys of throttles: how to see, from outside, that a node has another setting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import trio
from effects.node_effects import DynamicEffect, StaticEffect
from support.simulated_nodes import SimulatedNodes

from kraftpy.client.admin_operations import ConfigKind
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kraftpy.protocol.schema.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

__all__ = [
    "FOLLOWERS",
    "LEADERS",
    "THROTTLE_DYNAMIC_EFFECTS",
    "THROTTLE_STATIC_EFFECTS",
    "takes_long",
]

LEADERS, FOLLOWERS = "leader.replication.throttled", "follower.replication.throttled"
BOTH = ("n1", "n2")
# More than a follower gets with one fetch, four times; and what takes ten seconds for each of them.
BATCH, BATCHES, SLOW = 900_000, 4, "90000"


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await condition():
            return
        await trio.sleep(0.1)


async def led_by(rig: SimulatedNodes, topic: str, broker: int) -> bool:
    leader: int = (await rig.describe(topic)).partitions[0].leader_id
    return leader == broker


async def in_sync(rig: SimulatedNodes, topic: str, *brokers: int) -> bool:
    return sorted((await rig.describe(topic)).partitions[0].isr_nodes) == [*brokers]


async def has_log(rig: SimulatedNodes, directory: str, topic: str) -> bool:
    return f"{topic}-0" in await rig.files(directory)


async def filled(rig: SimulatedNodes, topic: str, configs: Mapping[str, str]) -> None:
    """A topic on n1 alone."""
    await rig.create(topic, configs=configs)
    await reassign(rig, topic, 1)
    await until(lambda: led_by(rig, topic, 1))
    for _ in range(BATCHES):
        result = await rig.produce(topic, rig.batch(bytes(BATCH)))
        assert result.error_code == ErrorCode.NONE


async def reassign(rig: SimulatedNodes, topic: str, *replicas: int) -> None:
    partition = ReassignablePartition(partition_index=0, replicas=list(replicas))
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[partition])]
    )
    answer = await rig.ask(request)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE


async def takes_long(rig: SimulatedNodes, topic: str, configs: Mapping[str, str]) -> bool:
    """Whether a replica that is new needs long to be in sync."""
    await filled(rig, topic, configs)
    began = trio.current_time()
    await reassign(rig, topic, 1, 2)
    await until(lambda: in_sync(rig, topic, 1, 2))
    return trio.current_time() - began > 15


def replication(key: str) -> Callable[[SimulatedNodes, int], Awaitable[object]]:
    async def observe(rig: SimulatedNodes, number: int) -> bool:
        return await takes_long(rig, f"t{number}", {f"{key}.replicas": "*"})

    return observe


async def replicates_in(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    await rig.start(*BOTH, settings=settings)
    await rig.alter(ConfigKind.BROKER, "", {f"{LEADERS}.rate": SLOW})
    return await takes_long(rig, "t", {f"{LEADERS}.replicas": "*"})


async def moves_slowly(rig: SimulatedNodes, number: int) -> bool:
    """Whether a replica needs long to get into another directory."""
    topic = f"t{number}"
    await rig.create(topic)
    for _ in range(BATCHES):
        await rig.produce(topic, rig.batch(bytes(BATCH)))
    [target] = [path for path in ("/a", "/b") if f"{topic}-0" not in await rig.files(path)]
    moved = AlterReplicaLogDirTopic(name=topic, partitions=[0])
    began = trio.current_time()
    await rig.ask(
        AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=target, topics=[moved])])
    )
    await until(lambda: has_log(rig, target, topic))
    return trio.current_time() - began > 15


async def moves_slowly_in(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    await rig.start("n1", settings={**settings, "log.dirs": "/a,/b"})
    await rig.alter(ConfigKind.BROKER, "", {MOVES: SLOW})
    return await moves_slowly(rig, 0)


MOVES = "replica.alter.log.dirs.io.max.bytes.per.second"

THROTTLE_DYNAMIC_EFFECTS = {
    f"{LEADERS}.rate": DynamicEffect(SLOW, replication(LEADERS), names=BOTH),
    f"{FOLLOWERS}.rate": DynamicEffect(SLOW, replication(FOLLOWERS), names=BOTH),
    MOVES: DynamicEffect(SLOW, moves_slowly, node={"log.dirs": "/a,/b"}),
}

# With one sample everything is forgotten after a second; and in a window of minutes, a few
# megabytes are not much.
THROTTLE_STATIC_EFFECTS = {
    "replication.quota.window.num": StaticEffect("1", replicates_in, expected=False),
    "replication.quota.window.size.seconds": StaticEffect("100", replicates_in, expected=False),
    "alter.log.dirs.replication.quota.window.num": StaticEffect(
        "1", moves_slowly_in, expected=False
    ),
    "alter.log.dirs.replication.quota.window.size.seconds": StaticEffect(
        "100", moves_slowly_in, expected=False
    ),
}
