"""For keys of coordinators: how to see that one has another setting.

Most are seen on a shard of its own, whose settings are read from the configuration as a node reads
them; what only a node has (topics, logs, timeouts of writes) is seen on nodes, as in
`node_effects`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
from coordinator.classic_kit import ClassicRig
from coordinator.consumer_kit import INTERVAL_MS, Client, ConsumerRig, settle
from coordinator.mixed_kit import ClassicClient
from coordinator.shard_kit import START_MS
from coordinator.transaction_rig import A0, ID, TIMEOUT_MS, TransactionRig, transaction_in
from effects.node_effects import DynamicEffect, StaticEffect
from support.simulated_nodes import SimulatedNodes

from kraftpy.broker.coordinator_log import PartitionShardLog
from kraftpy.client.admin_operations import ConfigKind
from kraftpy.config import NodeConfig
from kraftpy.coordinator.groups.classic_group import ClassicGroup
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.transactions.settings import TransactionSettings
from kraftpy.coordinator.transactions.state import TransactionState
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kraftpy.protocol.schema.k10_find_coordinator import FindCoordinatorRequest
from kraftpy.protocol.schema.k22_init_producer_id import InitProducerIdRequest
from kraftpy.protocol.schema.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kraftpy.protocol.schema.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kraftpy.records.batch import RecordBatch
from kraftpy.records.walker import walk_batches
from kraftpy.world import Buffer

__all__ = [
    "COORDINATOR_DYNAMIC_EFFECTS",
    "COORDINATOR_STATIC_EFFECTS",
    "SHARD_EFFECTS",
    "ShardEffect",
]

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
GROUP_KEY, TRANSACTION_KEY = 0, 1
# What a coordinator says before it can be asked.
STARTING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
COORDINATORS = {OFFSETS_TOPIC: GROUP_KEY, TRANSACTION_TOPIC: TRANSACTION_KEY}


@dataclass(frozen=True)
class ShardEffect:
    value: str
    observe: Callable[[NodeConfig], object]
    expected: object = True
    # Other settings, which hold before and after.
    others: Mapping[str, str] = field(default_factory=dict)


# Classic groups.


def classic(config: NodeConfig) -> ClassicRig:
    return ClassicRig(GroupSettings.from_config(config))


def first_generation_is_there_soon(config: NodeConfig) -> bool:
    rig = classic(config)
    joining = rig.member(version=3).join()
    rig.advance(2000)
    return joining.is_answered


def session_is_taken(milliseconds: int) -> Callable[[NodeConfig], bool]:
    def observe(config: NodeConfig) -> bool:
        answers = classic(config).member(version=3, session_ms=milliseconds).join().replies
        refusals = [each for each in answers if getattr(each, "error_code", each)]
        return refusals == []

    return observe


def classic_members(config: NodeConfig) -> int:
    """How many of three are let in."""
    rig = classic(config)
    waiting = [rig.member(version=3).join() for _ in range(3)]
    return sum(not each.is_answered for each in waiting)


# Offsets.


def long_remark(config: NodeConfig) -> ErrorCode:
    waiting = classic(config).commit_offset("t", 0, 1, metadata="x" * 100)
    return ErrorCode(waiting.answer.topics[0].partitions[0].error_code)


def offsets_after_two_hours(config: NodeConfig) -> int:
    rig = classic(config)
    rig.commit_offset("t", 0, 1)
    for _ in range(120):
        rig.clock.now_ms += 60_000 - 50
        rig.advance(50)
    return len(rig.machine.offsets.state.partitions_of("g"))


# Consumer groups.


def consumer(config: NodeConfig, **own: str) -> ConsumerRig:
    """`own` are settings of the group, with _ for the dots."""
    configs = {key.replace("_", "."): value for key, value in own.items()}
    return ConsumerRig(
        {"t": 4}, settings=GroupSettings.from_config(config), group_configs={"g": configs}
    )


def consumer_protocol(config: NodeConfig) -> ErrorCode | None:
    rig = consumer(config)
    [reply] = rig.heartbeat(**Client(rig, "m", ["t"]).full_request()).replies
    return getattr(reply, "code", None)


def session_ms(**own: str) -> Callable[[NodeConfig], int]:
    def observe(config: NodeConfig) -> int:
        """After how much silence a member is out."""
        rig = consumer(config, **own)
        Client(rig, "m", ["t"]).join()
        started_ms = rig.clock.now_ms
        while rig.machine.directory.get("g") is not None and rig.group().members:
            rig.advance(1000)
        return (rig.clock.now_ms - started_ms) // 1000 * 1000

    return observe


def heartbeat_ms(**own: str) -> Callable[[NodeConfig], int]:
    def observe(config: NodeConfig) -> int:
        return Client(consumer(config, **own), "m", ["t"]).join().heartbeat_interval_ms

    return observe


def assignment_ms(**own: str) -> Callable[[NodeConfig], int]:
    def observe(config: NodeConfig) -> int:
        """How long a second member waits for an assignment that has it."""
        rig = consumer(config, **own)
        first, second = Client(rig, "a", ["t"]), Client(rig, "b", ["t"])
        first.join()
        second.join()
        started_ms = rig.clock.now_ms
        while rig.group().assignment_epoch.value < 2:
            rig.clock.now_ms += 500
            first.beat()
        return rig.clock.now_ms - started_ms

    return observe


def consumer_members(config: NodeConfig) -> int:
    rig = consumer(config)
    for name in "abc":
        rig.heartbeat(**Client(rig, name, ["t"]).full_request())
    return len(rig.group().members)


def assignor_by_default(config: NodeConfig) -> str:
    rig = consumer(config)
    Client(rig, "m", ["t"]).join()
    [described] = rig.consumers.describe(["g"])
    return described.assignor_name


def a_classic_group_may_change(config: NodeConfig) -> bool:
    rig = consumer(config)
    old = ClassicClient(rig, "a", ["t"])
    old.join()
    old.tick()
    rig.advance(9000)
    for _ in range(6):
        old.tick()
        rig.advance(INTERVAL_MS)
    assert isinstance(rig.machine.directory.get("g"), ClassicGroup)
    rig.heartbeat(**Client(rig, "m", ["t"]).full_request())
    return not isinstance(rig.machine.directory.get("g"), ClassicGroup)


def patterns_are_resolved_again(config: NodeConfig) -> bool:
    """Within half a minute, though no topic has come or gone."""
    rig = consumer(config)
    client = Client(rig, "m", regex="t.*")
    client.join()
    settle([client], 3)
    rig.clock.now_ms = 30_000
    return rig.written(client.beat) != []


# Transactions.


def transactional(config: NodeConfig) -> TransactionRig:
    return TransactionRig(settings=TransactionSettings.from_config(config))


def idle_ids_are_forgotten(config: NodeConfig) -> bool:
    """Within two hours."""
    rig = transactional(config)
    rig.put(transaction_in(TransactionState.EMPTY, update_ms=START_MS))
    for _ in range(120):
        rig.clock.now_ms += 60_000 - 50
        rig.advance(50)
    return ID not in rig.machine.transactions


def timed_out_is_aborted(config: NodeConfig) -> bool:
    """Within two seconds from its time."""
    rig = transactional(config)
    rig.add(rig.init(), A0)
    rig.advance(TIMEOUT_MS + 2000)
    return rig.state is not TransactionState.ONGOING


LONG_DAY = {"offsets.retention.minutes": "60"}
FORGETFUL = {"transactional.id.expiration.ms": "600000"}
OFTEN = {"transaction.remove.expired.transaction.cleanup.interval.ms": "600000"}
ANY_SESSION = {"group.consumer.min.session.timeout.ms": "10000"}
ANY_HEARTBEAT = {"group.consumer.min.heartbeat.interval.ms": "1000"}

SHARD_EFFECTS = {
    "group.initial.rebalance.delay.ms": ShardEffect("500", first_generation_is_there_soon),
    "group.min.session.timeout.ms": ShardEffect("1000", session_is_taken(2000)),
    "group.max.session.timeout.ms": ShardEffect("20000", session_is_taken(30_000), expected=False),
    "group.max.size": ShardEffect("2", classic_members, 2),
    "group.coordinator.rebalance.protocols": ShardEffect(
        "classic", consumer_protocol, ErrorCode.UNSUPPORTED_VERSION
    ),
    "offset.metadata.max.bytes": ShardEffect(
        "99", long_remark, ErrorCode.OFFSET_METADATA_TOO_LARGE
    ),
    "offsets.retention.minutes": ShardEffect("60", offsets_after_two_hours, 0),
    "offsets.retention.check.interval.ms": ShardEffect(
        "10800000", offsets_after_two_hours, 1, LONG_DAY
    ),
    "group.consumer.session.timeout.ms": ShardEffect("20000", session_ms(), 20_000, ANY_SESSION),
    "group.consumer.min.session.timeout.ms": ShardEffect(
        "30000", session_ms(consumer_session_timeout_ms="1"), 30_000
    ),
    "group.consumer.max.session.timeout.ms": ShardEffect(
        "90000", session_ms(consumer_session_timeout_ms="999000"), 90_000
    ),
    "group.consumer.heartbeat.interval.ms": ShardEffect(
        "2000", heartbeat_ms(), 2000, ANY_HEARTBEAT
    ),
    "group.consumer.min.heartbeat.interval.ms": ShardEffect(
        "2000", heartbeat_ms(consumer_heartbeat_interval_ms="1"), 2000
    ),
    "group.consumer.max.heartbeat.interval.ms": ShardEffect(
        "9000", heartbeat_ms(consumer_heartbeat_interval_ms="99000"), 9000
    ),
    "group.consumer.min.assignment.interval.ms": ShardEffect(
        "500", assignment_ms(consumer_assignment_interval_ms="0"), 500
    ),
    "group.consumer.max.assignment.interval.ms": ShardEffect(
        "3000", assignment_ms(consumer_assignment_interval_ms="99000"), 3000
    ),
    "group.consumer.max.size": ShardEffect("2", consumer_members, 2),
    "group.consumer.assignors": ShardEffect("range", assignor_by_default, "range"),
    "group.consumer.migration.policy": ShardEffect(
        "disabled", a_classic_group_may_change, expected=False
    ),
    "group.consumer.regex.refresh.interval.ms": ShardEffect("10000", patterns_are_resolved_again),
    "transactional.id.expiration.ms": ShardEffect("600000", idle_ids_are_forgotten, others=OFTEN),
    "transaction.remove.expired.transaction.cleanup.interval.ms": ShardEffect(
        "100000000", idle_ids_are_forgotten, expected=False, others=FORGETFUL
    ),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": ShardEffect(
        "1000", timed_out_is_aborted
    ),
}


# Nodes.

ALONE = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
}


async def coordinator_of(rig: SimulatedNodes, topic: str, *, seconds: int = 10) -> str | None:
    """The name of the node that coordinates, when there is one; else None after a while."""
    request = FindCoordinatorRequest(key_type=COORDINATORS[topic], coordinator_keys=["x"])
    for _ in range(seconds * 2):
        [found] = (await rig.ask(request)).coordinators
        if found.error_code == ErrorCode.NONE:
            return f"n{found.node_id}"
        await trio.sleep(0.5)
    return None


async def commit(rig: SimulatedNodes, *, of: str = "n1") -> ErrorCode:
    """For the one topic that is there for sure."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = OffsetCommitRequest(
        group_id="x", topics=[OffsetCommitRequestTopic(name=OFFSETS_TOPIC, partitions=[partition])]
    )
    while True:
        answer = await rig.ask(request, of=of, max_version=9)
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        if code not in STARTING:
            return code
        await trio.sleep(0.01)


def size_of(topic: str) -> Callable[[SimulatedNodes, Mapping[str, str]], Awaitable[object]]:
    async def observe(rig: SimulatedNodes, settings: Mapping[str, str]) -> object:
        await rig.start("n1", "n2", settings=settings)
        if await coordinator_of(rig, topic, seconds=2) is None:
            return None
        partitions = (await rig.describe(topic)).partitions
        return len(partitions), len(partitions[0].replica_nodes)

    return observe


def config_of(
    topic: str, key: str
) -> Callable[[SimulatedNodes, Mapping[str, str]], Awaitable[object]]:
    async def observe(rig: SimulatedNodes, settings: Mapping[str, str]) -> object:
        await rig.start("n1", settings=settings)
        await coordinator_of(rig, topic)
        resource = DescribeConfigsResource(
            resource_type=ConfigKind.TOPIC, resource_name=topic, configuration_keys=[key]
        )
        [answer] = (await rig.ask(DescribeConfigsRequest(resources=[resource]))).results
        return answer.configs[0].value

    return observe


async def commits_take_long(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    await rig.start("n1", settings=settings)
    await coordinator_of(rig, OFFSETS_TOPIC)
    started = trio.current_time()
    assert await commit(rig) is ErrorCode.NONE
    return trio.current_time() - started > 0.5


async def unreplicated_commits_fail_soon(
    rig: SimulatedNodes, settings: Mapping[str, str]
) -> bool | None:
    await rig.start("n1", "n2", settings=settings)
    name = await coordinator_of(rig, OFFSETS_TOPIC)
    assert name is not None
    assert await commit(rig, of=name) is ErrorCode.NONE
    rig.simulation.pause("n1" if name == "n2" else "n2")
    started = trio.current_time()
    assert await commit(rig, of=name) is not ErrorCode.NONE
    return trio.current_time() - started < 2


async def codec_of_offsets(rig: SimulatedNodes, settings: Mapping[str, str]) -> str:
    await rig.start("n1", settings=settings)
    await coordinator_of(rig, OFFSETS_TOPIC)
    await commit(rig)
    data = bytes((await rig.fetch(OFFSETS_TOPIC)).records)
    [batch] = walk_batches(data)  # type: ignore[arg-type]
    assert isinstance(batch, RecordBatch)
    return batch.codec.name


def reads_in_pieces(
    topic: str,
) -> Callable[[SimulatedNodes, Mapping[str, str]], Awaitable[object]]:
    async def observe(rig: SimulatedNodes, settings: Mapping[str, str]) -> object:
        """Whether a log of several batches is loaded with one read after the other."""
        await rig.start("n1", settings=settings)
        await coordinator_of(rig, topic)
        for _ in range(3):
            if topic == OFFSETS_TOPIC:
                assert await commit(rig) is ErrorCode.NONE
            else:
                assert await init_producer(rig) is ErrorCode.NONE
        await rig.stop("n1")
        sizes = []
        read = PartitionShardLog.read

        async def watched(log: PartitionShardLog, offset: int, max_bytes: int) -> Buffer:
            data = await read(log, offset, max_bytes)
            sizes.append(len(data))
            return data

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PartitionShardLog, "read", watched)
            await rig.start("n1", settings=settings)
            await trio.sleep(1)
        assert sizes
        return len(sizes) > 1

    return observe


async def init_producer(rig: SimulatedNodes, timeout_ms: int = 10_000) -> ErrorCode:
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=timeout_ms)
    while True:
        code = ErrorCode((await rig.ask(request)).error_code)
        if code not in STARTING:
            return code
        await trio.sleep(0.01)


async def long_transaction(rig: SimulatedNodes, settings: Mapping[str, str]) -> ErrorCode:
    await rig.start("n1", settings=settings)
    await coordinator_of(rig, TRANSACTION_TOPIC)
    return await init_producer(rig, timeout_ms=10_000)


async def second_members_wait(rig: SimulatedNodes, number: int) -> bool:
    """For an assignment, since the one before is fresh."""
    await coordinator_of(rig, OFFSETS_TOPIC)
    if number == 0:
        await rig.create("t", partitions=4)
    answers: list[Any] = []
    for name in "ab":
        request = ConsumerGroupHeartbeatRequest(
            group_id=f"g{number}",
            member_id=name,
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        answers.append(await rig.ask(request))
        assert answers[-1].error_code == ErrorCode.NONE
    return bool(answers[1].member_epoch == 1)


SINGLE = {**ALONE, "transaction.state.log.min.isr": "1"}
PAIR = {**ALONE, "offsets.topic.replication.factor": "2"}

COORDINATOR_STATIC_EFFECTS = {
    "offsets.topic.num.partitions": StaticEffect("2", size_of(OFFSETS_TOPIC), (2, 1), ALONE),
    # There are not enough brokers for three.
    "offsets.topic.replication.factor": StaticEffect(
        "2", size_of(OFFSETS_TOPIC), (1, 2), {"offsets.topic.num.partitions": "1"}
    ),
    "offsets.topic.segment.bytes": StaticEffect(
        "2000000", config_of(OFFSETS_TOPIC, "segment.bytes"), "2000000", ALONE
    ),
    "offsets.topic.compression.codec": StaticEffect("1", codec_of_offsets, "GZIP", ALONE),
    "offsets.load.buffer.size": StaticEffect("10", reads_in_pieces(OFFSETS_TOPIC), node=ALONE),
    "offsets.commit.timeout.ms": StaticEffect("1000", unreplicated_commits_fail_soon, node=PAIR),
    "group.coordinator.append.linger.ms": StaticEffect("600", commits_take_long, node=ALONE),
    "transaction.max.timeout.ms": StaticEffect(
        "9999", long_transaction, ErrorCode.INVALID_TRANSACTION_TIMEOUT, SINGLE
    ),
    "transaction.state.log.num.partitions": StaticEffect(
        "2", size_of(TRANSACTION_TOPIC), (2, 1), ALONE
    ),
    "transaction.state.log.replication.factor": StaticEffect(
        "2", size_of(TRANSACTION_TOPIC), (1, 2), {"transaction.state.log.num.partitions": "1"}
    ),
    "transaction.state.log.min.isr": StaticEffect(
        "3",
        config_of(TRANSACTION_TOPIC, "min.insync.replicas"),
        "3",
        ALONE,
    ),
    "transaction.state.log.segment.bytes": StaticEffect(
        "2000000", config_of(TRANSACTION_TOPIC, "segment.bytes"), "2000000", ALONE
    ),
    "transaction.state.log.load.buffer.size": StaticEffect(
        "10", reads_in_pieces(TRANSACTION_TOPIC), node=SINGLE
    ),
}

COORDINATOR_DYNAMIC_EFFECTS = {
    "group.consumer.assignment.interval.ms": DynamicEffect(
        "0", second_members_wait, expected=False, node=ALONE
    ),
}
