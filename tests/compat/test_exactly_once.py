"""Exactly once while nodes are killed: four clients copy a topic, each to a topic of its own.

They read, write and commit their offsets in one transaction; the coordinators of these, and leaders
of what they read and write, are killed and started again meanwhile. Whoever reads what is committed
finds every value once.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import trio
from cluster.clusterkit import create, eventually, partitions_of, real_cluster, topics_of
from compat.test_go_data import BUILD_TIMEOUT_SECONDS, probe
from confluent_kafka import Consumer, Producer, TopicPartition
from support.kafka_jars import QUICK_JAVA, classpath

from kraftpy.client.admin_operations import NewTopic
from kraftpy.coordinator.hashing import partition_for
from kraftpy.launch.cluster import Cluster

__all__ = ["probe"]

pytestmark = [
    pytest.mark.compat,
    pytest.mark.java,
    pytest.mark.timeout(BUILD_TIMEOUT_SECONDS + 700),
]

PARTITIONS = 4
COORDINATOR_PARTITIONS = 5
SETTINGS = {
    "offsets.topic.num.partitions": str(COORDINATOR_PARTITIONS),
    "transaction.state.log.num.partitions": str(COORDINATOR_PARTITIONS),
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
}
KILLS = 4
SOURCE = "source"
HERE = Path(__file__).parent
SECONDS = 120


@dataclass
class Copier:
    """A process that copies until its input ends."""

    name: str
    process: subprocess.Popen[str]

    @property
    def target(self) -> str:
        return f"target-{self.name}"

    def last_words(self) -> str:
        """Why it copies nothing any more, if it said so."""
        self.process.kill()
        told, complaints = self.process.communicate()
        return f"{self.name}: {told.split()} {complaints}"

    def end(self) -> None:
        told, complaints = self.process.communicate(timeout=SECONDS)
        print(f"{self.name}: {told.split()}")
        assert self.process.returncode == 0, (self.name, complaints)


def commands(go_probe: Path) -> dict[str, list[str]]:
    """Of each client, without what follows: source, target, group."""
    python = [sys.executable, str(HERE / "exactly_once_copier.py")]
    java = [*QUICK_JAVA, "-Xmx256m", "-cp", classpath()]
    java.append(str(HERE / "ExactlyOnceCopier.java"))
    # Of the two protocols of groups, Java's consumer speaks the new one here, the others the old.
    return {
        "librdkafka": [*python, "librdkafka", "{}"],
        "aiokafka": [*python, "aiokafka", "{}"],
        "franz-go": [str(go_probe), "transform", "{}"],
        "java": [*java, "{}", "consumer"],
    }


@contextmanager
def copiers(bootstrap: str, found: dict[str, list[str]]) -> Iterator[list[Copier]]:
    started = []
    try:
        for name, command in found.items():
            process = subprocess.Popen(
                [
                    *(each.format(bootstrap) for each in command),
                    *(SOURCE, f"target-{name}", f"group-{name}"),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            started.append(Copier(name, process))
        yield started
    finally:
        for each in started:
            each.process.kill()
            each.process.communicate()


class Filler:
    """Writes numbers, one after the other, until it is told to stop."""

    def __init__(self, bootstrap: str) -> None:
        self.count = 0
        self._is_stopped = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        )

    def run(self) -> None:
        while not self._is_stopped.wait(0.01):
            value = str(self.count)
            self._producer.produce(SOURCE, value, partition=self.count % PARTITIONS)
            self.count += 1
            self._producer.poll(0)
        assert self._producer.flush(SECONDS) == 0

    def stop(self) -> None:
        self._is_stopped.set()


def committed_values(bootstrap: str, topic: str, count: int, *, to_end: bool) -> list[int]:
    """What is committed, when there are so many at least, or nothing more comes."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    values: list[int] = []
    at_end: set[int] = set()
    deadline = time.monotonic() + SECONDS
    while len(values) < count or (to_end and len(at_end) < PARTITIONS):
        for message in consumer.consume(1000, 0.1):
            partition = message.partition()
            assert partition is not None
            if message.error() is None:
                values.append(int(message.value() or b""))
                at_end.discard(partition)
                deadline = time.monotonic() + SECONDS
            else:
                at_end.add(partition)
        if time.monotonic() > deadline:
            break
    consumer.close()
    return sorted(values)


async def committed(cluster: Cluster, copier: Copier, count: int, *, to_end: bool) -> list[int]:
    read = partial(committed_values, cluster.bootstrap, copier.target, count, to_end=to_end)
    return await trio.to_thread.run_sync(read)


async def victim(cluster: Cluster, rng: random.Random, clients: list[str]) -> tuple[str, int]:
    """A node, and what it is killed for."""
    client = rng.choice(clients)
    coordinated = partition_for(f"group-{client}", COORDINATOR_PARTITIONS)
    role, topic, partition = rng.choice(
        [
            (f"coordinates the group of {client}", "__consumer_offsets", coordinated),
            (f"coordinates the transactions of {client}", "__transaction_state", coordinated),
            (f"leads what {client} writes", f"target-{client}", rng.randrange(PARTITIONS)),
            ("leads the source", SOURCE, rng.randrange(PARTITIONS)),
        ]
    )
    partitions = await partitions_of(cluster, cluster.running[0], topic)
    return role, partitions[partition].leader_id


async def all_in_sync(cluster: Cluster) -> None:
    async def is_so() -> bool:
        found = (await topics_of(cluster, cluster.running[0])).values()
        partitions = [each for topic in found for each in topic.partitions.values()]
        return all(len(each.isr) == 3 for each in partitions)

    await eventually(is_so, poll_seconds=0.2)


async def test_every_effect_once_while_nodes_are_killed(tmp_path: Path, probe: Path) -> None:
    """TXN-38: for readers of what is committed."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    found = commands(probe)
    async with real_cluster(tmp_path, settings=SETTINGS, seconds=600) as cluster:
        await cluster.start()
        for name in (SOURCE, *(f"target-{each}" for each in found)):
            configs = {"min.insync.replicas": "2"}
            await create(cluster, NewTopic(name, PARTITIONS, 3, configs=configs))
        filler = Filler(cluster.bootstrap)
        with copiers(cluster.bootstrap, found) as started:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, filler.run)
                # Each has copied something before anybody dies.
                for each in started:
                    await committed(cluster, each, 10, to_end=False)
                for _ in range(KILLS):
                    role, node_id = await victim(cluster, rng, list(found))
                    print(f"kill {node_id}, which {role}")
                    await cluster.kill(node_id)
                    await trio.sleep(rng.random() * 2)
                    await cluster.start_node(node_id)
                    await all_in_sync(cluster)
                filler.stop()
            for each in started:
                values = await committed(cluster, each, filler.count, to_end=True)
                assert values == list(range(filler.count)), each.last_words()
            for each in started:
                await trio.to_thread.run_sync(each.end)
