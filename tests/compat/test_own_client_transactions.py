"""Our own transactional producer against clusters of our own, also while nodes are killed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest
import trio
from compat.data_cluster import DataCluster, running_cluster

from kraftpy.client.blocking_clients import BlockingAdmin
from kraftpy.client.calls import TopicPartition
from kraftpy.client.consumer import Consumer, open_consumer
from kraftpy.client.errors import KafkaError
from kraftpy.client.group_offsets import OffsetAndMetadata
from kraftpy.client.producer import Producer, open_producer
from kraftpy.client.settings import (
    ClientSettings,
    ConsumerSettings,
    IsolationLevel,
    ProducerSettings,
)
from kraftpy.client.transaction_errors import ProducerFenced, TransactionAbortable
from kraftpy.world.real import real_world

pytestmark = pytest.mark.compat

LIMIT_SECONDS = 200
NAMES = count(1)
CLIENT = ClientSettings(retry_backoff_ms=20, retry_backoff_max_ms=200)
READER = ConsumerSettings(
    client=CLIENT,
    auto_offset_reset="earliest",
    isolation_level=IsolationLevel.READ_COMMITTED,
    fetch_max_wait_ms=100,
    heartbeat_interval_ms=200,
)
both_versions = pytest.mark.parametrize("version", [1, 2])


def producer_settings() -> ProducerSettings:
    return ProducerSettings(client=CLIENT, transactional_id=f"own-{next(NAMES)}", linger_ms=1)


def speak(producer: Producer, version: int) -> None:
    """A broker serves clients of either version; which one is the client's choice."""
    if version == 1:
        producer._transaction._is_version_2 = False


async def read(cluster: DataCluster, topic: str, wanted: int) -> list[bytes | None]:
    """So many committed values, and whatever else is there up to the end."""
    values: list[bytes | None] = []
    servers = list(cluster.addresses.values())
    async with open_consumer(real_world(), servers, READER) as consumer:
        partitions = await consumer.partitions_of(topic)
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        while len(values) < wanted or any(
            [await consumer.position(where) < end for where, end in ends.items()]
        ):
            for _, _, records in await consumer.poll(200):
                values += [record.value for record in records]
            ends = await consumer.end_offsets(partitions)
    return values


@both_versions
async def test_what_is_committed_is_seen_and_what_is_aborted_is_not(
    cluster: DataCluster, version: int
) -> None:
    topic = cluster.topic(3)
    servers = list(cluster.addresses.values())
    with trio.fail_after(LIMIT_SECONDS):
        async with open_producer(real_world(), servers, producer_settings()) as producer:
            speak(producer, version)
            await producer.init_transactions()
            for number in range(20):
                producer.begin_transaction()
                for partition in range(3):
                    await producer.send(topic, b"%d" % number, partition=partition)
                if number % 3 == 2:
                    await producer.flush()
                    await producer.abort_transaction()
                elif number % 3 == 1:
                    # Nothing has left yet, perhaps.
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
            epoch = producer._transaction.identity.epoch  # type: ignore[union-attr]
        values = await read(cluster, topic, 21)
    assert Counter(values) == {b"%d" % number: 3 for number in range(0, 20, 3)}
    if version == 2:
        assert epoch >= 13


@both_versions
async def test_a_newer_producer_fences_the_older_one(cluster: DataCluster, version: int) -> None:
    topic = cluster.topic(1)
    servers = list(cluster.addresses.values())
    settings = producer_settings()
    with trio.fail_after(LIMIT_SECONDS):
        async with open_producer(real_world(), servers, settings) as older:
            speak(older, version)
            await older.init_transactions()
            older.begin_transaction()
            await older.send(topic, b"of the older one")
            await older.flush()
            async with open_producer(real_world(), servers, settings) as newer:
                speak(newer, version)
                await newer.init_transactions()
                newer.begin_transaction()
                await newer.send(topic, b"of the newer one")
                await newer.commit_transaction()
            with pytest.raises(ProducerFenced):
                await older.commit_transaction()
            with pytest.raises(ProducerFenced):
                older.begin_transaction()
        assert await read(cluster, topic, 1) == [b"of the newer one"]


@both_versions
async def test_offsets_of_a_stranger_make_the_transaction_abortable(
    one_node: DataCluster, version: int
) -> None:
    topic = one_node.topic(1)
    servers = list(one_node.addresses.values())
    settings = replace(READER, group_id=f"own-t-{next(NAMES)}")
    where = TopicPartition(topic, 0)
    with trio.fail_after(LIMIT_SECONDS):
        async with (
            open_producer(real_world(), servers, producer_settings()) as producer,
            open_consumer(real_world(), servers, settings) as consumer,
        ):
            speak(producer, version)
            consumer.subscribe([topic])
            while not consumer.assignment:
                await consumer.poll(50)
            await producer.init_transactions()
            stranger = consumer.group_metadata._replace(member_id="stranger")
            producer.begin_transaction()
            with pytest.raises(TransactionAbortable):
                await producer.send_offsets_to_transaction({where: OffsetAndMetadata(5)}, stranger)
            with pytest.raises(TransactionAbortable):
                await producer.commit_transaction()
            await producer.abort_transaction()
            producer.begin_transaction()
            await producer.send_offsets_to_transaction(
                {where: OffsetAndMetadata(7)}, consumer.group_metadata
            )
            await producer.commit_transaction()
            found = await consumer.committed([where])
    assert found[where] is not None
    assert found[where].offset == 7


async def transform(consumer: Consumer, producer: Producer, target: str) -> int:
    """One round of consume, transform, produce; how many records it took."""
    polled = await consumer.poll(100)
    if not polled:
        return 0
    producer.begin_transaction()
    offsets = {}
    for name, partition, records in polled:
        for record in records:
            await producer.send(target, b"<%s>" % record.value, key=record.value)
        offsets[TopicPartition(name, partition)] = OffsetAndMetadata(records[-1].offset + 1)
    await producer.send_offsets_to_transaction(offsets, consumer.group_metadata)
    await producer.commit_transaction()
    return sum(len(records) for _, _, records in polled)


async def keep_transforming(
    cluster: DataCluster, group: ConsumerSettings, source: str, target: str, done: trio.Event
) -> None:
    """A worker that begins anew, with a new identity, whenever something goes wrong."""
    servers = list(cluster.addresses.values())
    while not done.is_set():
        try:
            async with (
                open_consumer(real_world(), servers, group) as consumer,
                open_producer(real_world(), servers, producer_settings()) as producer,
            ):
                await producer.init_transactions()
                consumer.subscribe([source])
                while not done.is_set():
                    await transform(consumer, producer, target)
        except* KafkaError:
            pass  # The loop makes new ones.


@pytest.fixture
def doomed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataCluster]:
    """Three nodes of which one will be killed: complaints are to be expected."""
    with running_cluster(tmp_path_factory.mktemp("doomed"), 3, settings=()) as cluster:
        cluster.complaints = list  # type: ignore[method-assign]
        yield cluster


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_exactly_once_while_a_coordinator_is_killed(
    doomed: DataCluster, protocol: str
) -> None:
    source, target = doomed.topic(4), doomed.topic(2)
    servers = list(doomed.addresses.values())
    group_id = f"own-t-{next(NAMES)}"
    group = replace(
        READER,
        group_id=group_id,
        group_protocol=protocol,
        enable_auto_commit=False,
        max_poll_records=50,
        # Who could not tell a dead coordinator that it leaves is soon missed.
        session_timeout_ms=6_000,
    )
    total = 2_000
    with trio.fail_after(LIMIT_SECONDS):
        async with open_producer(real_world(), servers) as producer:
            for number in range(total):
                await producer.send(source, b"%d" % number, partition=number % 4)
        done = trio.Event()
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(keep_transforming, doomed, group, source, target, done)
            await until_committed(doomed, group_id, source, 300)
            kill_coordinator(doomed, group_id)
            await until_committed(doomed, group_id, source, total)
            done.set()
        values = await read(doomed, target, total)
    assert Counter(values) == {b"<%d>" % number: 1 for number in range(total)}


async def until_committed(cluster: DataCluster, group_id: str, topic: str, wanted: int) -> None:
    servers = list(cluster.addresses.values())
    settings = replace(READER, group_id=group_id, enable_auto_commit=False)
    async with open_consumer(real_world(), servers, settings) as consumer:
        while True:
            found = await consumer.committed([TopicPartition(topic, each) for each in range(4)])
            if sum(each.offset for each in found.values() if each is not None) >= wanted:
                return
            await trio.sleep(0.05)


def kill_coordinator(cluster: DataCluster, group_id: str) -> None:
    from kraftpy.client.admin_groups import find_coordinator

    with BlockingAdmin(list(cluster.addresses.values())) as admin:
        node_id = admin.run(find_coordinator(group_id))
    [pid] = [node["pid"] for node in cluster.nodes if node["id"] == node_id]
    os.kill(pid, signal.SIGKILL)
