"""For keys of throttles: how to see, from outside, that a node has another setting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import trio
from effects.node_effects import DynamicEffect, StaticEffect
from support.simulated_nodes import PRODUCE_VERSION, SimulatedNodes

from kraftpy.client.admin_operations import ConfigKind
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kraftpy.protocol.schema.k19_create_topics import CreatableTopic, CreateTopicsRequest
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


async def delay_of_a_producer(rig: SimulatedNodes, settings: Mapping[str, str]) -> int:
    """Of one that may send a kilobyte a second, and sends fifteen at once; in seconds."""
    await rig.start("n1", settings=settings)
    await rig.create("t")
    await rig.set_quota({"user": None}, "producer_byte_rate", 1_000)
    data = PartitionProduceData(index=0, records=rig.batch(bytes(15_000)))
    topics = [TopicProduceData(name="t", partition_data=[data])]
    request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=topics)
    answer = await rig.ask(request, max_version=PRODUCE_VERSION)
    return round(answer.throttle_time_ms / 1000)


async def partitions_at_once(rig: SimulatedNodes, settings: Mapping[str, str]) -> int:
    """That may be created in topics of one, by who may create one a second."""
    await rig.start("n1", settings=settings)
    await rig.set_quota({"user": None}, "controller_mutation_rate", 1)
    topics = [
        CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1)
        for number in range(30)
    ]
    answer = await rig.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
    return sum(topic.error_code == ErrorCode.NONE for topic in answer.topics)


THROTTLE_DYNAMIC_EFFECTS = {
    f"{LEADERS}.rate": DynamicEffect(SLOW, replication(LEADERS), names=BOTH),
    f"{FOLLOWERS}.rate": DynamicEffect(SLOW, replication(FOLLOWERS), names=BOTH),
    MOVES: DynamicEffect(SLOW, moves_slowly, node={"log.dirs": "/a,/b"}),
}

# With one sample everything is forgotten after a second; and in a window of minutes, a few
# megabytes are not much.
THROTTLE_STATIC_EFFECTS = {
    # Over one second, over twenty instead of ten.
    "quota.window.num": StaticEffect("2", delay_of_a_producer, expected=14),
    "quota.window.size.seconds": StaticEffect("2", delay_of_a_producer, expected=0),
    # What a bucket holds, and one that it owes.
    "controller.quota.window.num": StaticEffect("5", partitions_at_once, expected=6),
    "controller.quota.window.size.seconds": StaticEffect("2", partitions_at_once, expected=23),
    "replication.quota.window.num": StaticEffect("1", replicates_in, expected=False),
    "replication.quota.window.size.seconds": StaticEffect("100", replicates_in, expected=False),
    "alter.log.dirs.replication.quota.window.num": StaticEffect(
        "1", moves_slowly_in, expected=False
    ),
    "alter.log.dirs.replication.quota.window.size.seconds": StaticEffect(
        "100", moves_slowly_in, expected=False
    ),
}
