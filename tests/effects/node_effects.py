"""For keys of a node: how to see, from outside, that it has another setting.

A static key is seen by two nodes, one of them with its default; a dynamic one by one node, before
and after it was changed.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import trio
from effects.topic_effects import (
    TOPIC_EFFECTS,
    compacts,
    earliest_offset,
    flushes,
    produced,
    rolls_after,
)
from support.simulated_nodes import FETCH_VERSION, PORT, SimulatedNodes

from kraftpy.client.errors import ConnectionLost
from kraftpy.config import ConfigurationError
from kraftpy.observe.metrics import Gauge, Meter
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from kraftpy.protocol.schema.k03_metadata import MetadataRequest, MetadataRequestTopic
from kraftpy.protocol.schema.k19_create_topics import CreatableTopic, CreateTopicsRequest
from kraftpy.protocol.schema.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from kraftpy.protocol.schema.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kraftpy.protocol.schema.k55_describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from kraftpy.protocol.schema.k61_describe_producers import DescribeProducersRequest, TopicRequest
from kraftpy.protocol.schema.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
)
from kraftpy.protocol.schema.k75_describe_topic_partitions import TopicRequest as DescribedTopic
from kraftpy.records.batch import crc32c

__all__ = ["DYNAMIC_EFFECTS", "STATIC_EFFECTS", "DynamicEffect", "StaticEffect"]

COMPACTED = TOPIC_EFFECTS["min.compaction.lag.ms"].topic
METADATA_LOG = "/data/__cluster_metadata-0"
NODES = ("n1", "n2", "n3")


@dataclass(frozen=True)
class StaticEffect:
    value: str
    # Starts what it wants to look at, with these settings.
    observe: Callable[[SimulatedNodes, Mapping[str, str]], Awaitable[object]]
    expected: object = True
    # Other settings, which both nodes have.
    node: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DynamicEffect:
    value: str
    # Looks at n1, which runs; may be called several times.
    observe: Callable[[SimulatedNodes, int], Awaitable[object]]
    expected: object = True
    node: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ("n1",)
    per_broker: bool = False


# What a node tells.


def gauge(rig: SimulatedNodes, name: str, *, of: str = "n1", **tags: str) -> float:
    found = [
        metric.read()
        for each, metric in rig.nodes[of].registry
        if each.name == name and tags.items() <= dict(each.tags).items() and type(metric) is Gauge
    ]
    return sum(found)


def requests(rig: SimulatedNodes, api: str, *, of: str = "n1") -> float:
    return sum(
        metric.count
        for each, metric in rig.nodes[of].registry
        if each.name == "RequestsPerSec"
        and ("request", api) in each.tags
        and isinstance(metric, Meter)
    )


async def brokers(rig: SimulatedNodes, *, of: str = "n1") -> list[Any]:
    return list((await rig.ask(MetadataRequest(topics=[]), of=of)).brokers)


async def rack_of_a_broker(rig: SimulatedNodes, settings: Mapping[str, str]) -> object:
    await rig.start("n1", settings=settings)
    return (await brokers(rig))[0].rack


async def heartbeats_often(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    await rig.start("n1", settings=settings)
    before = requests(rig, "BrokerHeartbeat")
    await trio.sleep(20)
    return requests(rig, "BrokerHeartbeat") - before > 30


async def fences_a_silent_broker_in_time(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    await rig.start(*NODES, settings=settings)
    leader = await quorum_leader(rig)
    victim = next(name for name in NODES if name not in ("n1", leader))
    rig.simulation.pause(victim)
    await trio.sleep(6)
    return len(await brokers(rig)) == 2


async def quorum(rig: SimulatedNodes) -> Any:
    topic = RequestTopicData(
        topic_name="__cluster_metadata", partitions=[RequestPartitionData(partition_index=0)]
    )
    return (await rig.ask(DescribeQuorumRequest(topics=[topic]))).topics[0].partitions[0]


async def quorum_leader(rig: SimulatedNodes) -> str:
    return f"n{(await quorum(rig)).leader_id}"


async def metadata_grows_by_itself(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    await rig.start("n1", settings=settings)
    before = (await quorum(rig)).high_watermark
    await trio.sleep(30)
    grown: bool = (await quorum(rig)).high_watermark > before
    return grown


async def takes_snapshots(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    await rig.start("n1", settings=settings)
    await rig.create("t")
    await trio.sleep(60)
    names = [name for name in await rig.files(METADATA_LOG) if name.endswith(".checkpoint")]
    return len([name for name in names if name != f"{0:020d}-{0:010d}.checkpoint"]) > 0


async def metadata_segments(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    await rig.start("n1", settings=settings)
    await trio.sleep(60)
    for number in range(5):
        await rig.create(f"t{number}", partitions=10)
    return sum(name.endswith(".log") for name in await rig.files(METADATA_LOG)) > 1


# What a node is.


async def brokers_of_two_nodes(rig: SimulatedNodes, settings: Mapping[str, str]) -> list[int]:
    """n1 as it is configured, n2 a broker."""
    if settings.get("process.roles") == "controller":
        settings = {**settings, "listeners": "CONTROLLER://n1:9093"}
    await rig.start("n1", settings=settings)
    await rig.start_with("n2", rig.config("n2", ["n1"], BROKER_ONLY))
    return sorted(each.node_id for each in await brokers(rig, of="n2"))


async def id_of_a_node(rig: SimulatedNodes, settings: Mapping[str, str]) -> int:
    own = settings.get("node.id", "1")
    config = rig.config("n1", ["n1"], {**settings, "controller.quorum.voters": f"{own}@n1:9093"})
    await rig.start_with("n1", config)
    node_id: int = (await brokers(rig))[0].node_id
    return node_id


async def is_up_alone(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    with trio.move_on_after(60):
        await rig.start("n1", settings=settings)
        return True
    return False


async def finds_the_quorum(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    """A broker that does not know the voters; n1 is the quorum."""
    await rig.start("n1")
    broker = {**BROKER_ONLY, "controller.quorum.voters": "", **settings}
    try:
        await rig.start_with("n2", rig.config("n2", ["n1"], broker))
    except ConfigurationError:
        return False
    return len(await brokers(rig)) == 2


# Topics.


async def asked_for_an_unknown_topic(rig: SimulatedNodes, settings: Mapping[str, str]) -> str:
    await rig.start("n1", settings=settings)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    request.allow_auto_topic_creation = True
    return ErrorCode((await rig.ask(request)).topics[0].error_code).name


async def deleting_a_topic(rig: SimulatedNodes, settings: Mapping[str, str]) -> str:
    await rig.start("n1", settings=settings)
    await rig.create("t")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1_000)
    return ErrorCode((await rig.ask(request)).responses[0].error_code).name


async def size_of_a_new_topic(rig: SimulatedNodes, settings: Mapping[str, str]) -> tuple[int, int]:
    """Partitions and replicas, where the client leaves both to the brokers."""
    await rig.start("n1", "n2", settings=settings)
    topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    result = (await rig.ask(request)).topics[0]
    return result.num_partitions, result.replication_factor


async def partitions_in_a_page(rig: SimulatedNodes, settings: Mapping[str, str]) -> int:
    await rig.start("n1", settings=settings)
    await rig.create("t", partitions=5)
    request = DescribeTopicPartitionsRequest(topics=[DescribedTopic(name="t")])
    request.response_partition_limit = 100
    return len((await rig.ask(request)).topics[0].partitions)


# Fetching and replication.


async def bytes_in_a_fetch(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    await rig.start("n1", settings=settings)
    await rig.create("t")
    for _ in range(5):
        await produced(rig, "t", rig.batch(bytes(2_000)))
    return len((await rig.fetch("t")).records) < 5_000


async def has_fetch_sessions(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    await rig.start("n1", settings=settings)
    await rig.create("t")
    topic = FetchTopic(topic="t", partitions=[FetchPartition(partition=0)])
    request = FetchRequest(session_id=0, session_epoch=0, max_wait_ms=0, topics=[topic])
    session_id: int = (await rig.ask(request, max_version=FETCH_VERSION)).session_id
    return session_id != 0


async def reads_from_the_same_rack(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    await rig.start("n1", settings={**settings, "broker.rack": "r1"})
    config = rig.config("n2", ["n1"], {**settings, **BROKER_ONLY, "broker.rack": "r2"})
    await rig.start_with("n2", config)
    await rig.create("t", replicas=2)
    leader = f"n{(await rig.describe('t')).partitions[0].leader_id}"
    await produced(rig, "t", rig.batch(b"v"), of=leader)
    await trio.sleep(2)
    other = "r2" if leader == "n1" else "r1"
    fetched = await rig.fetch("t", of=leader, rack_id=other)
    preferred: int = fetched.preferred_read_replica
    return preferred >= 0


BROKER_ONLY = {
    "process.roles": "broker",
    "listeners": f"PLAINTEXT://n2:{PORT}",
}


async def a_leader_and_a_follower(rig: SimulatedNodes, settings: Mapping[str, str]) -> str:
    await rig.start("n1", "n2", settings=settings)
    await rig.create("t", replicas=2)
    await trio.sleep(1)
    return f"n{(await rig.describe('t')).partitions[0].leader_id}"


async def followers_ask_seldom(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    """Fetches of partitions and of metadata come by different listeners; idle ones are counted."""
    leader = await a_leader_and_a_follower(rig, {**settings, "metadata.max.idle.interval.ms": "0"})
    before = gauge_of_fetches(rig, leader)
    await trio.sleep(20)
    return gauge_of_fetches(rig, leader) - before < 20


def gauge_of_fetches(rig: SimulatedNodes, of: str) -> float:
    """Requests of followers, which are an API of their own among the metrics."""
    return requests(rig, "FetchFollower", of=of)


async def small_records_are_committed_late(
    rig: SimulatedNodes, settings: Mapping[str, str]
) -> bool:
    leader = await a_leader_and_a_follower(rig, settings)
    # By the second one the leader knows where in its log the follower is.
    for _ in range(2):
        began = trio.current_time()
        answer = await rig.produce("t", rig.batch(b"v"), of=leader)
        assert answer.error_code == ErrorCode.NONE
    return trio.current_time() - began > 0.2


async def a_late_follower_leaves(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    """The ISR some seconds after a follower has lost its leader, and nobody else."""
    await rig.start(*NODES, settings=settings)
    controller = await quorum_leader(rig)
    await rig.create("t", partitions=3, replicas=3)
    leader, follower = (name for name in NODES if name != controller)
    for pair in ((leader, follower), (follower, leader)):
        rig.simulation.fabric.cut(*pair)
    await trio.sleep(10)
    partitions = (await rig.describe("t", of=controller)).partitions
    return any(len(each.isr_nodes) < 3 for each in partitions)


async def leaders_come_back(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    """Whether a node that was away leads again soon."""
    settings = {**settings, "metadata.max.idle.interval.ms": "0"}
    await rig.start(*NODES, settings=settings)
    await rig.create("t", partitions=3, replicas=3)
    # The first check comes early.
    await trio.sleep(10)
    away = "n3" if await quorum_leader(rig) == "n2" else "n2"
    await rig.stop(away)
    await rig.start_with(away, rig.config(away, NODES, settings))
    await trio.sleep(15)
    leaders = [each.leader_id for each in (await rig.describe("t")).partitions]
    return int(away.removeprefix("n")) in leaders


async def gives_a_silent_leader_up(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    leader = await a_leader_and_a_follower(rig, settings)
    rig.simulation.pause(leader)
    rig.connects.clear()
    await trio.sleep(5)
    follower = "n1" if leader == "n2" else "n2"
    return (follower, (leader, PORT)) in rig.connects


async def gives_a_silent_controller_up(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    """A request is forwarded to it, by a broker that knows of no other and is silent itself."""
    settings = {
        **settings,
        **BROKER_ONLY,
        "broker.heartbeat.interval.ms": "60000",
        "controller.quorum.request.timeout.ms": "60000",
    }
    await rig.start("n1", settings={"broker.session.timeout.ms": "600000"})
    await rig.start_with("n2", rig.config("n2", ["n1"], settings))
    await rig.create("first", of="n2")
    rig.simulation.pause("n1")
    await trio.sleep(0.5)
    rig.connects.clear()
    with trio.move_on_after(1.9):
        await rig.create("second", of="n2")
    return ("n2", ("n1", 9093)) in rig.connects


# Logs.


async def names_in_other(rig: SimulatedNodes, settings: Mapping[str, str]) -> list[str]:
    """The directories of logs in a data directory that is not the usual one."""
    await rig.start("n1", settings=settings)
    await rig.create("t")
    try:
        return [name for name in await rig.files("/other") if name.endswith("-0")]
    except FileNotFoundError:
        return []


async def flushes_by_the_clock(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    await rig.start("n1", settings={**settings, "log.initial.task.delay.ms": "0"})
    await rig.create("t")
    return await flushes(rig, "t")


async def text_of(rig: SimulatedNodes, path: str) -> str:
    file = rig.simulation.machine("n1").disk.open(path)
    try:
        return (await file.read(file.size(), 0)).decode()
    finally:
        file.close()


async def between_two_rounds(rig: SimulatedNodes, settings: Mapping[str, str]) -> None:
    """The first round of the log's chores is over, the second one far away by default."""
    await rig.start("n1", settings={**settings, "log.initial.task.delay.ms": "1000"})
    await rig.create("t", configs={"flush.messages": "1", "segment.bytes": "1048576"})
    await trio.sleep(2)


async def writes_recovery_points(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    """REP-122."""
    await between_two_rounds(rig, settings)
    await produced(rig, "t", rig.batch(b"v"))
    await trio.sleep(10)
    return "t 0 1\n" in await text_of(rig, "/data/recovery-point-offset-checkpoint")


async def writes_log_starts(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    """REP-122."""
    await between_two_rounds(rig, settings)
    await produced(rig, "t", rig.batch(b"a", b"b"))
    partition = DeleteRecordsPartition(partition_index=0, offset=1)
    topic = DeleteRecordsTopic(name="t", partitions=[partition])
    await rig.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1_000))
    await trio.sleep(10)
    return "t 0 1\n" in await text_of(rig, "/data/log-start-offset-checkpoint")


async def writes_high_watermarks(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    """REP-121."""
    await rig.start("n1", settings=settings)
    await rig.create("t")
    await produced(rig, "t", rig.batch(b"v"))
    await trio.sleep(20)
    return "t 0 1\n" in await text_of(rig, "/data/replication-offset-checkpoint")


async def deletes_old_segments(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    await rig.start("n1", settings={"log.initial.task.delay.ms": "1000", **settings})
    await rig.create("t", configs={"retention.ms": "1000"})
    await trio.sleep(2)
    await produced(rig, "t", rig.batch(b"v", age_ms=60_000))
    await trio.sleep(15)
    return await earliest_offset(rig, "t") > 0


async def begins_its_chores_soon(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    await rig.start("n1", settings=settings)
    await rig.create("t", configs={"retention.ms": "1000"})
    await produced(rig, "t", rig.batch(b"v", age_ms=60_000))
    await trio.sleep(10)
    return await earliest_offset(rig, "t") > 0


async def rolls_after_an_hour(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    quiet = {"broker.heartbeat.interval.ms": "600000", "broker.session.timeout.ms": "1800000"}
    await rig.start("n1", settings={**settings, **quiet, "metadata.max.idle.interval.ms": "0"})
    await rig.create("t")
    return await rolls_after(rig, "t", 3_660)


async def compacts_at_all(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    await rig.start("n1", settings=settings)
    await rig.create("t", configs=COMPACTED)
    return await compacts(rig, "t")


async def compacts_later(rig: SimulatedNodes, number: int) -> bool:
    """After the pause that was under way when the setting changed."""
    await trio.sleep(30)
    await rig.create(f"t{number}", configs=COMPACTED)
    return await compacts(rig, f"t{number}")


async def knows_producers(rig: SimulatedNodes, topic: str) -> int:
    await rig.create(topic)
    batch = rig.batch(b"v", producer_id=5, producer_epoch=0, base_sequence=0)
    await produced(rig, topic, batch)
    await trio.sleep(20)
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    answer = await rig.ask(request)
    return len(answer.topics[0].partitions[0].active_producers)


async def forgets_producers(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    await rig.start("n1", settings=settings)
    return await knows_producers(rig, "t") == 0


async def forgets_producers_later(rig: SimulatedNodes, number: int) -> bool:
    return await knows_producers(rig, f"t{number}") == 0


async def takes_transactions_unverified(rig: SimulatedNodes, number: int) -> bool:
    topic = f"t{number}"
    await rig.create(topic)
    batch = rig.batch(b"v", producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    answer = await rig.produce(topic, batch, transactional_id="tx")
    return answer.error_code == ErrorCode.NONE


async def refuses_a_lying_batch(rig: SimulatedNodes, number: int) -> bool:
    """It says that it has fewer records than there are."""
    topic = f"t{number}"
    await rig.create(topic)
    answer = await rig.produce(topic, lying_batch(rig))
    return answer.error_code != ErrorCode.NONE


def lying_batch(rig: SimulatedNodes) -> bytes:
    data = bytearray(rig.batch(b"a", b"b", b"c"))
    # The last offset delta, the number of records, and the CRC over both.
    struct.pack_into(">i", data, 23, 1)
    struct.pack_into(">i", data, 57, 2)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)


# Connections.


async def opens(rig: SimulatedNodes, count: int, *, host: str = "client") -> int:
    """How many of so many connections are served within a second, opened at once."""
    served = 0
    network = rig.simulation.world(host).network
    streams = []

    async def ask() -> None:
        nonlocal served
        stream = await network.connect("n1", PORT)
        streams.append(stream)
        # ApiVersions, version 0, without a client id.
        stream.send([bytes.fromhex("0000000a 0012 0000 00000001 ffff")])
        try:
            await stream.wait_readable()
            served += bool(stream.receive_into(memoryview(bytearray(1))))
        except ConnectionResetError:
            pass

    with trio.move_on_after(1):
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(ask)
    for stream in streams:
        stream.close()
    await trio.sleep(0.1)
    return served


async def serves_ten_connections(rig: SimulatedNodes, number: int) -> bool:
    return await opens(rig, 10, host=f"host{number}") == 10


async def closes_idle_connections(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    await rig.start("n1", settings=settings)
    await brokers(rig)
    await trio.sleep(30)
    return gauge(rig, "connection-count", listener="PLAINTEXT") == 0


async def closes_over_a_large_request(rig: SimulatedNodes, settings: Mapping[str, str]) -> bool:
    await rig.start("n1", settings=settings)
    await rig.create("t")
    try:
        await rig.produce("t", rig.batch(bytes(10_000)))
    except ConnectionLost:
        return True
    return False


# Things that change at run time.


async def puts_new_logs_into_b(rig: SimulatedNodes, number: int) -> bool:
    for each in range(4):
        await rig.create(f"c{number}-{each}")
    await trio.sleep(1)
    names = await rig.files("/a")
    return not any(name.startswith(f"c{number}-") for name in names)


async def connections_of_fetchers(rig: SimulatedNodes, number: int) -> bool:
    """More than one from the other node, when it has more than one fetcher."""
    await rig.create(f"t{number}", partitions=12, replicas=2)
    await trio.sleep(5)
    return gauge(rig, "connection-count", listener="PLAINTEXT") > 3


QUICK_EXPIRATION = {"producer.id.expiration.check.interval.ms": "1000"}

STATIC_EFFECTS = {
    "process.roles": StaticEffect("controller", brokers_of_two_nodes, [2]),
    "node.id": StaticEffect("7", id_of_a_node, 7),
    "log.dir": StaticEffect(
        "/other", names_in_other, ["__cluster_metadata-0", "t-0"], node={"log.dirs": ""}
    ),
    "log.dirs": StaticEffect("/other", names_in_other, ["__cluster_metadata-0", "t-0"]),
    "metadata.log.dir": StaticEffect("/other", names_in_other, ["__cluster_metadata-0"]),
    "controller.quorum.voters": StaticEffect("1@n1:9093,2@n2:9093", is_up_alone, expected=False),
    "controller.quorum.bootstrap.servers": StaticEffect("n1:9093", finds_the_quorum),
    "controller.socket.timeout.ms": StaticEffect("1000", gives_a_silent_controller_up),
    "replica.socket.timeout.ms": StaticEffect("2000", gives_a_silent_leader_up),
    "replica.lag.time.max.ms": StaticEffect("2000", a_late_follower_leaves),
    "leader.imbalance.check.interval.seconds": StaticEffect("5", leaders_come_back),
    "auto.leader.rebalance.enable": StaticEffect(
        "false",
        leaders_come_back,
        expected=False,
        node={"leader.imbalance.check.interval.seconds": "5"},
    ),
    "broker.rack": StaticEffect("r7", rack_of_a_broker, "r7"),
    "broker.heartbeat.interval.ms": StaticEffect("500", heartbeats_often),
    "broker.session.timeout.ms": StaticEffect(
        "2000", fences_a_silent_broker_in_time, node={"broker.heartbeat.interval.ms": "500"}
    ),
    "metadata.max.idle.interval.ms": StaticEffect("0", metadata_grows_by_itself, expected=False),
    "metadata.log.max.record.bytes.between.snapshots": StaticEffect("100", takes_snapshots),
    "metadata.log.max.snapshot.interval.ms": StaticEffect("10000", takes_snapshots),
    "internal.metadata.log.segment.bytes": StaticEffect("2000", metadata_segments),
    "metadata.log.segment.ms": StaticEffect("20000", metadata_segments),
    "auto.create.topics.enable": StaticEffect(
        "false", asked_for_an_unknown_topic, "UNKNOWN_TOPIC_OR_PARTITION"
    ),
    "delete.topic.enable": StaticEffect("false", deleting_a_topic, "TOPIC_DELETION_DISABLED"),
    "num.partitions": StaticEffect("4", size_of_a_new_topic, (4, 1)),
    "default.replication.factor": StaticEffect("2", size_of_a_new_topic, (1, 2)),
    "max.request.partition.size.limit": StaticEffect("2", partitions_in_a_page, 2),
    "fetch.max.bytes": StaticEffect("2048", bytes_in_a_fetch),
    "max.incremental.fetch.session.cache.slots": StaticEffect(
        "0", has_fetch_sessions, expected=False
    ),
    "replica.selector.class": StaticEffect(
        "org.apache.kafka.common.replica.RackAwareReplicaSelector", reads_from_the_same_rack
    ),
    "replica.fetch.wait.max.ms": StaticEffect("2000", followers_ask_seldom),
    "replica.fetch.min.bytes": StaticEffect("100000", small_records_are_committed_late),
    "log.flush.scheduler.interval.ms": StaticEffect("1000", flushes_by_the_clock),
    "log.flush.offset.checkpoint.interval.ms": StaticEffect("2000", writes_recovery_points),
    "log.flush.start.offset.checkpoint.interval.ms": StaticEffect("2000", writes_log_starts),
    "replica.high.watermark.checkpoint.interval.ms": StaticEffect(
        "100000", writes_high_watermarks, expected=False
    ),
    "log.retention.check.interval.ms": StaticEffect("5000", deletes_old_segments),
    "log.initial.task.delay.ms": StaticEffect("5000", begins_its_chores_soon),
    "log.roll.hours": StaticEffect("1", rolls_after_an_hour),
    "log.cleaner.enable": StaticEffect("false", compacts_at_all, expected=False),
    "producer.id.expiration.check.interval.ms": StaticEffect(
        "1000", forgets_producers, node={"producer.id.expiration.ms": "1000"}
    ),
    "connections.max.idle.ms": StaticEffect("10000", closes_idle_connections),
    "socket.request.max.bytes": StaticEffect("5000", closes_over_a_large_request),
}

DYNAMIC_EFFECTS = {
    "max.connections": DynamicEffect("5", serves_ten_connections, expected=False),
    "max.connections.per.ip": DynamicEffect("5", serves_ten_connections, expected=False),
    "max.connection.creation.rate": DynamicEffect("2", serves_ten_connections, expected=False),
    "cordoned.log.dirs": DynamicEffect(
        "/a", puts_new_logs_into_b, node={"log.dirs": "/a,/b"}, per_broker=True
    ),
    "log.cleaner.backoff.ms": DynamicEffect("3600000", compacts_later, expected=False),
    "log.cleaner.io.max.bytes.per.second": DynamicEffect("10", compacts_later, expected=False),
    "producer.id.expiration.ms": DynamicEffect(
        "1000", forgets_producers_later, node=QUICK_EXPIRATION
    ),
    "transaction.partition.verification.enable": DynamicEffect(
        "false", takes_transactions_unverified
    ),
    "kraftpy.record.validation": DynamicEffect("full", refuses_a_lying_batch),
    "num.replica.fetchers": DynamicEffect("4", connections_of_fetchers, names=("n1", "n2")),
}
