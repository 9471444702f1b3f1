"""Our own client in groups, classic and KIP-848, against clusters of our own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count

import pytest
import trio
from compat.data_cluster import DataCluster

from kraftpy.client.calls import TopicPartition
from kraftpy.client.consumer import Consumer, open_consumer
from kraftpy.client.producer import open_producer
from kraftpy.client.settings import ClientSettings, ConsumerSettings
from kraftpy.world.real import real_world

pytestmark = pytest.mark.compat

LIMIT_SECONDS = 200
NAMES = count(1)
CLIENT = ClientSettings(retry_backoff_ms=20, retry_backoff_max_ms=200)
SETTINGS = ConsumerSettings(
    client=CLIENT, auto_offset_reset="earliest", heartbeat_interval_ms=200, fetch_max_wait_ms=100
)

PROTOCOLS = {
    "eager": replace(SETTINGS, partition_assignment_strategy=("range",)),
    "sticky": replace(SETTINGS, partition_assignment_strategy=("sticky",)),
    "cooperative": replace(SETTINGS, partition_assignment_strategy=("cooperative-sticky",)),
    "consumer": replace(SETTINGS, group_protocol="consumer"),
}
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


def settings_of(protocol: str, **changes: object) -> ConsumerSettings:
    group_id = f"own-{next(NAMES)}"
    return replace(PROTOCOLS[protocol], **{"group_id": group_id, **changes})  # type: ignore[arg-type]


async def produce(cluster: DataCluster, topic: str, partitions: int, values: range) -> None:
    servers = list(cluster.addresses.values())
    async with open_producer(real_world(), servers) as producer:
        for value in values:
            await producer.send(topic, b"%d" % value, partition=value % partitions)


class Member:
    """A consumer that polls in a task of its own, and what it has seen."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.values: list[int] = []
        self.told: list[tuple[str, list[TopicPartition]]] = []
        self.scope = trio.CancelScope()

    def subscribe(self, topic: str) -> None:
        self.consumer.subscribe(
            [topic],
            on_assigned=lambda partitions: self.told.append(("assigned", partitions)),
            on_revoked=lambda partitions: self.told.append(("revoked", partitions)),
            on_lost=lambda partitions: self.told.append(("lost", partitions)),
        )

    async def run(self) -> None:
        with self.scope:
            while True:
                for _, _, records in await self.consumer.poll(100):
                    self.values += [int(record.value or b"-1") for record in records]


@asynccontextmanager
async def member(
    cluster: DataCluster, settings: ConsumerSettings, topic: str
) -> AsyncIterator[Member]:
    servers = list(cluster.addresses.values())
    async with open_consumer(real_world(), servers, settings) as consumer:
        found = Member(consumer)
        found.subscribe(topic)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(found.run)
            yield found
            found.scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (other processes tell nobody)
        await trio.sleep(0.02)


@every_protocol
async def test_a_member_reads_everything_and_goes_on_where_it_left(
    cluster: DataCluster, protocol: str
) -> None:
    topic = cluster.topic(3)
    settings = settings_of(protocol)
    with trio.fail_after(LIMIT_SECONDS):
        await produce(cluster, topic, 3, range(300))
        async with member(cluster, settings, topic) as first:
            await until(lambda: len(first.values) == 300)
            assert len(first.consumer.assignment) == 3
        await produce(cluster, topic, 3, range(300, 400))
        async with member(cluster, settings, topic) as second:
            await until(lambda: len(second.values) == 100)
            found = await second.consumer.committed([TopicPartition(topic, 0)])
    assert sorted(first.values) == list(range(300))
    assert sorted(second.values) == list(range(300, 400))
    assert first.told[-1][0] == "revoked"
    assert found[TopicPartition(topic, 0)] is not None


@every_protocol
async def test_three_members_share_and_take_over(three_nodes: DataCluster, protocol: str) -> None:
    topic = three_nodes.topic(6)
    settings = settings_of(protocol)

    def is_shared(*members: Member) -> bool:
        owned = [where for each in members for where in each.consumer.assignment]
        sizes = [len(each.consumer.assignment) for each in members]
        return len(owned) == len(set(owned)) == 6 and max(sizes) - min(sizes) <= 1

    with trio.fail_after(LIMIT_SECONDS):
        async with (
            member(three_nodes, settings, topic) as first,
            member(three_nodes, settings, topic) as second,
        ):
            async with member(three_nodes, settings, topic) as third:
                await until(lambda: is_shared(first, second, third))
                await produce(three_nodes, topic, 6, range(600))
                seen = [first, second, third]
                await until(lambda: sum(len(each.values) for each in seen) >= 600)
            await until(lambda: is_shared(first, second))
            await produce(three_nodes, topic, 6, range(600, 900))
            await until(lambda: sum(len(each.values) for each in seen) >= 900)
    everything = sorted(first.values + second.values + third.values)
    assert everything == list(range(900))


@pytest.mark.parametrize("protocol", ["eager", "consumer"])
async def test_a_static_member_comes_back_to_its_partitions(
    one_node: DataCluster, protocol: str
) -> None:
    """Nobody else hears of it."""
    topic = one_node.topic(4)
    settings = settings_of(protocol)
    static = [replace(settings, group_instance_id=f"static-{number}") for number in range(2)]
    with trio.fail_after(LIMIT_SECONDS):
        async with member(one_node, static[0], topic) as first:
            async with member(one_node, static[1], topic) as second:
                both = (first, second)
                await until(lambda: all(len(each.consumer.assignment) == 2 for each in both))
                before = list(second.consumer.assignment)
                told = len(first.told)
            async with member(one_node, static[1], topic) as again:
                await until(lambda: len(again.consumer.assignment) == 2)
                assert sorted(again.consumer.assignment) == sorted(before)
                await produce(one_node, topic, 4, range(40))
                await until(lambda: len(first.values) + len(again.values) == 40)
                assert len(first.told) == told


@pytest.mark.parametrize("protocol", ["eager", "cooperative"])
async def test_a_member_that_dies_is_replaced(one_node: DataCluster, protocol: str) -> None:
    """It says nothing: its session ends."""
    topic = one_node.topic(2)
    settings = settings_of(protocol, session_timeout_ms=6_000)
    servers = list(one_node.addresses.values())
    with trio.fail_after(LIMIT_SECONDS):
        with trio.CancelScope() as life:
            async with open_consumer(real_world(), servers, settings) as consumer:
                consumer.subscribe([topic])
                while len(consumer.assignment) < 2:
                    await consumer.poll(50)
                life.cancel()
                await consumer.poll(50)
        async with member(one_node, settings, topic) as heir:
            await until(lambda: len(heir.consumer.assignment) == 2)
