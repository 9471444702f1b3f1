"""Quotas of clients on whole nodes: set by AlterClientQuotas, kept by those who serve."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from support.simulated_nodes import PORT, SimulatedNodes, run_nodes

from kraftpy.client.connection import Peer
from kraftpy.client.settings import ClientSettings
from kraftpy.observe.metrics import Gauge
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kraftpy.protocol.schema.k19_create_topics import CreatableTopic, CreateTopicsRequest
from kraftpy.protocol.schema.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from kraftpy.protocol.schema.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)

CONTROLLER_PORT = 9093
CLIENT = "quick"


def client(rig: SimulatedNodes, client_id: str = CLIENT, port: int = PORT) -> Peer:
    """A connection of its own."""
    world = rig.simulation.world("client")
    return Peer(world, rig.nursery, ("n1", port), ClientSettings(client_id=client_id))


def produce_request(rig: SimulatedNodes, size_bytes: int) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=rig.batch(bytes(size_bytes)))
    topics = [TopicProduceData(name="t", partition_data=[data])]
    return ProduceRequest(acks=1, timeout_ms=1_000, topic_data=topics)


async def produced(rig: SimulatedNodes, peer: Peer, size_bytes: int) -> int:
    """The delay that the answer tells of."""
    answer = await peer.request(produce_request(rig, size_bytes), max_version=12)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    delay_ms: int = answer.throttle_time_ms
    return delay_ms


def test_a_producers_quota_comes_and_goes() -> None:
    """NET-44, NET-82: the answer is there at once, the next one when the time is over."""

    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start("n1")
        await rig.create("t")
        peer = client(rig)
        assert await produced(rig, peer, 20_000) == 0
        await rig.set_quota({"client-id": CLIENT}, "producer_byte_rate", 1_000)
        began = trio.current_time()
        delay_ms = await produced(rig, peer, 15_000)
        assert 5_000 < delay_ms < 5_500
        assert trio.current_time() - began < 0.5
        await produced(rig, peer, 1)
        assert delay_ms / 1000 <= trio.current_time() - began < delay_ms / 1000 + 0.5
        # Others on the same node go on.
        assert await produced(rig, client(rig, "other"), 20_000) == 0
        await rig.set_quota({"client-id": CLIENT}, "producer_byte_rate", None)
        assert await produced(rig, client(rig), 50_000) == 0

    run_nodes(scenario)


@pytest.mark.parametrize(
    "entity",
    [
        {"user": "ANONYMOUS"},
        {"user": None},
        {"client-id": None},
        {"user": "ANONYMOUS", "client-id": CLIENT},
        {"user": None, "client-id": None},
    ],
    ids=str,
)
def test_every_kind_of_entity(entity: dict[str, str | None]) -> None:
    """And quotas are there again after a restart."""

    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start("n1")
        await rig.create("t")
        await rig.set_quota(entity, "producer_byte_rate", 1_000)
        assert await produced(rig, client(rig), 15_000) > 5_000
        await rig.stop("n1")
        await rig.start("n1")
        assert await produced(rig, client(rig), 15_000) > 5_000

    run_nodes(scenario)


# Changes to topics.


def creation(name: str, partitions: int) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


async def refusals(
    rig: SimulatedNodes, *, port: int = PORT, is_old: bool = False
) -> list[tuple[str, bool]]:
    """What becomes of a creation, a growth and a deletion, and whether there is a delay.

    Each on a connection of its own, which would have to wait otherwise.
    """
    seen: list[tuple[str, bool]] = []

    async def ask(request: Any, outcome: Any, max_version: int | None) -> None:
        answer = await client(rig, port=port).request(request, max_version=max_version)
        code = ErrorCode(outcome(answer).error_code)
        seen.append((code.name, answer.throttle_time_ms > 0))

    versions = (5, 4, 2) if is_old else (None, None, None)
    growth = CreatePartitionsTopic(name="a", count=3, assignments=None)
    await ask(creation("b", 1), lambda answer: answer.topics[0], versions[0])
    await ask(
        CreatePartitionsRequest(topics=[growth], timeout_ms=10_000),
        lambda answer: answer.results[0],
        versions[2],
    )
    deletion = DeleteTopicsRequest(timeout_ms=10_000)
    if is_old:
        deletion.topic_names = ["a"]
    else:
        deletion.topics = [DeleteTopicState(name="a")]
    await ask(deletion, lambda answer: answer.responses[0], versions[1])
    return seen


@pytest.mark.parametrize("port", [PORT, CONTROLLER_PORT], ids=["forwarded", "controller"])
def test_changes_to_topics_are_limited(port: int) -> None:
    """KIP-599: 0.1 a second are 1.1 at once, so that two are one beyond."""

    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start("n1")
        await rig.set_quota({"user": "ANONYMOUS"}, "controller_mutation_rate", 0.1)
        peer = client(rig, port=port)
        answer = await peer.request(creation("a", 2))
        assert answer.topics[0].error_code == ErrorCode.NONE
        assert answer.throttle_time_ms == 0
        assert await refusals(rig, port=port) == [("THROTTLING_QUOTA_EXCEEDED", True)] * 3
        assert (await rig.describe("b")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len((await rig.describe("a")).partitions) == 2

    run_nodes(scenario)


def test_clients_of_old_are_only_delayed() -> None:
    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start("n1")
        await rig.set_quota({"user": "ANONYMOUS"}, "controller_mutation_rate", 0.1)
        await client(rig).request(creation("a", 2))
        assert await refusals(rig, is_old=True) == [("NONE", True)] * 3

    run_nodes(scenario)


def test_a_request_of_several_topics_is_cut_where_the_quota_ends() -> None:
    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start("n1")
        await rig.set_quota({"user": None}, "controller_mutation_rate", 1)
        topics = [
            CreatableTopic(name=name, num_partitions=6, replication_factor=1) for name in "abc"
        ]
        answer = await client(rig).request(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
        # Eleven at once: six, five and one that is owed.
        assert [ErrorCode(topic.error_code).name for topic in answer.topics] == [
            "NONE",
            "NONE",
            "THROTTLING_QUOTA_EXCEEDED",
        ]
        assert answer.throttle_time_ms == pytest.approx(1_000, abs=50)

    run_nodes(scenario)


# Connections.


def test_connections_from_an_address_are_limited() -> None:
    """connection_creation_rate: one beyond is not served, and closed when its time is over."""

    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start("n1")
        host = rig.simulation.world("client").network
        await rig.set_quota({"ip": None}, "connection_creation_rate", 1)
        streams = [await host.connect("n1", PORT) for _ in range(12)]
        await trio.sleep(0.2)
        closed = [await is_closed(each) for each in streams]
        assert closed == [False] * 12
        await trio.sleep(1.0)
        closed = [await is_closed(each) for each in streams]
        # Ten at once; those beyond have been held for a second at most.
        assert closed == [False] * 10 + [True] * 2
        await rig.set_quota({"ip": None}, "connection_creation_rate", None)
        late = await host.connect("n1", PORT)
        await trio.sleep(2)
        assert not await is_closed(late)

    async def is_closed(stream: Any) -> bool:
        with trio.move_on_after(0.01):
            await stream.wait_readable()
            return stream.receive_into(memoryview(bytearray(10))) == 0
        return False

    run_nodes(scenario)


def test_quotas_are_shown() -> None:
    """Under Kafka's names, with what is exempt."""

    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start("n1")
        await rig.create("t")
        await rig.set_quota({"client-id": CLIENT}, "producer_byte_rate", 1_000)
        await produced(rig, client(rig), 15_000)
        shown = {
            name.jmx: gauge.read()
            for name, gauge in rig.nodes["n1"].registry
            if isinstance(gauge, Gauge)
        }
        prefix = f"kafka.server:type=Produce,client-id={CLIENT}"
        assert 1_500 < shown[f"{prefix}/byte-rate"] < 1_600
        assert 5_000 < shown[f"{prefix}/throttle-time"] < 5_500
        assert shown["kafka.server:type=Produce/queue-size"] == 1
        for kind in ("LeaderReplication", "FollowerReplication", "AlterLogDirsReplication"):
            assert shown[f"kafka.server:type={kind}/byte-rate"] == 0
        assert "kafka.server:type=Request/exempt-request-time" in shown

    run_nodes(scenario)
