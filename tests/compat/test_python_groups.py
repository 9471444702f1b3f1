"""kafka-python and aiokafka in groups of the classic protocol: they meet, share, commit, leave."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from compat.data_cluster import SECONDS, DataCluster
from confluent_kafka import Producer

pytestmark = [
    pytest.mark.compat,
    # On Python 3.11 a client's own import uses what that release deprecated for a while.
    pytest.mark.filterwarnings("ignore:(read_text|open_text) is deprecated:DeprecationWarning"),
]

PARTITIONS = 4
RECORDS = 100
SETTINGS: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    # Nobody is lost because the machine does other work.
    "session_timeout_ms": 20_000,
    "heartbeat_interval_ms": 500,
}


def fill(cluster: DataCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0


class PythonMember:
    """kafka-python's consumer, and what it has read."""

    def __init__(self, cluster: DataCluster, topic: str, **settings: Any) -> None:
        from kafka import KafkaConsumer

        self.consumer = KafkaConsumer(
            bootstrap_servers=cluster.bootstrap,
            group_id=f"python-{topic}",
            **(SETTINGS | settings),
        )
        self.read: list[int] = []
        # Should the leader of a group not know a topic yet, it gives nobody anything of it, and
        # this client does not try again.
        deadline = time.monotonic() + SECONDS
        while not self.consumer.partitions_for_topic(topic):
            assert time.monotonic() < deadline
        self.consumer.subscribe([topic])

    def __enter__(self) -> PythonMember:
        return self

    def __exit__(self, *_: object) -> None:
        """A client that is left alone goes on in its thread, and disturbs other tests."""
        self.consumer.close()

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def poll(self) -> None:
        for records in self.consumer.poll(100).values():
            self.read += [int(record.value) for record in records]


def test_kafka_python(one_node: DataCluster) -> None:
    """GRP-22, GRP-40: what one commits, the next one goes on from."""
    topic = one_node.topic(PARTITIONS)
    fill(one_node, topic)
    everything = set(range(PARTITIONS))

    def until(is_done: Any, *members: PythonMember) -> None:
        deadline = time.monotonic() + SECONDS
        while not is_done():
            assert time.monotonic() < deadline, [member.owned for member in members]
            for member in members:
                member.poll()

    with PythonMember(one_node, topic) as first:
        until(lambda: len(first.read) == RECORDS, first)
        assert first.owned == everything
        first.consumer.commit()
        with PythonMember(one_node, topic) as second:
            until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
            assert first.owned | second.owned == everything
            fill(one_node, topic)
            until(lambda: len(first.read) + len(second.read) == 2 * RECORDS, first, second)
            assert sorted(first.read + second.read) == sorted([*range(RECORDS)] * 2)
            # Both: a rebalance takes who has not committed back to where it began.
            first.consumer.commit()
            second.consumer.commit()
        until(lambda: first.owned == everything, first)
        first.consumer.commit()
    with PythonMember(one_node, topic) as third:
        until(lambda: third.owned == everything, third)
        third.poll()
        assert third.read == []


async def _aiokafka(cluster: DataCluster, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer

    def consumer(name: str) -> Any:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            group_id=f"aio-{topic}",
            group_instance_id=name,
            **SETTINGS,
        )

    first, second = consumer("one"), consumer("two")
    await asyncio.gather(first.start(), second.start())
    read: list[int] = []

    async def until(is_done: Any, *members: Any) -> None:
        deadline = time.monotonic() + SECONDS
        while not is_done():
            assert time.monotonic() < deadline, [member.assignment() for member in members]
            for member in members:
                for records in (await member.getmany(timeout_ms=100)).values():
                    read.extend(int(record.value) for record in records)

    def owned(member: Any) -> set[int]:
        return {each.partition for each in member.assignment()}

    await until(lambda: len(owned(first)) == len(owned(second)) == 2, first, second)
    await until(lambda: len(set(read)) == RECORDS, first, second)
    await first.commit()
    await second.commit()
    theirs, generation = owned(second), first._coordinator.generation
    await second.stop()
    again = consumer("two")
    await again.start()
    await until(lambda: owned(again) == theirs, first, again)
    assert first._coordinator.generation == generation
    await asyncio.gather(first.stop(), again.stop())


def test_aiokafka(one_node: DataCluster) -> None:
    """GRP-41: static members, of which one restarts; the other one does not notice."""
    topic = one_node.topic(PARTITIONS)
    fill(one_node, topic)
    asyncio.run(_aiokafka(one_node, topic))
