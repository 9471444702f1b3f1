"""A word count of Kafka Streams, exactly once: the same result as on Apache Kafka.

On kraftpy a node is killed in the middle, and comes back later.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from cluster.clusterkit import real_cluster
from compat.test_bad_input import node
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.kafka_jars import QUICK_JAVA, classpath, old_clients_folder, streams_folder

pytestmark = [pytest.mark.compat, pytest.mark.java, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).with_name("WordCount.java")
PARTITIONS = 3
LINES = 600
SECONDS = 120
WORDS = ("to", "be", "or", "not", "that", "is", "the", "question")
# Of one node, as the other settings of a node alone.
ALONE = (
    "offsets.topic.replication.factor=1\n"
    "transaction.state.log.replication.factor=1\n"
    "transaction.state.log.min.isr=1\n"
    "group.initial.rebalance.delay.ms=0\n"
)


def lines() -> list[str]:
    """The same in every run."""
    rng = random.Random(7)
    return [" ".join(rng.choices(WORDS, k=5)) for _ in range(LINES)]


def create_topics(bootstrap: str, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [NewTopic(name, PARTITIONS, replicas) for name in ("lines", "counts")]
    for future in admin.create_topics(wanted).values():
        future.result(SECONDS)


@contextmanager
def word_count(bootstrap: str, replicas: int, state: Path) -> Iterator[subprocess.Popen[str]]:
    """It counts when this is entered."""
    [logger] = old_clients_folder().glob("slf4j-simple-*.jar")
    path = f"{streams_folder()}/*:{logger}"
    command = [*QUICK_JAVA, "-Xmx512m", "-cp", path]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command += [str(PROGRAM), bootstrap, str(replicas), "lines", "counts", str(state)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "RUNNING\n"
            yield process
        finally:
            process.kill()


def write(bootstrap: str, some: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number, line in enumerate(some):
        producer.produce("lines", line, partition=number % PARTITIONS)
        producer.poll(0.01)
    assert producer.flush(SECONDS) == 0


def counts(bootstrap: str) -> dict[str, list[int]]:
    """What was counted for each word, one after the other: every number once."""
    expected = Counter(word for line in lines() for word in line.split())
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "r", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition("counts", each, 0) for each in range(PARTITIONS)])
    found: dict[str, list[int]] = {word: [] for word in WORDS}
    deadline = time.monotonic() + SECONDS
    while {word: max(each, default=0) for word, each in found.items()} != expected:
        assert time.monotonic() < deadline, {word: len(each) for word, each in found.items()}
        for message in consumer.consume(1000, 0.1):
            assert message.error() is None, message.error()
            found[(message.key() or b"").decode()].append(int(message.value() or b""))
    consumer.close()
    return found


def on_kafka(folder: Path) -> dict[str, list[int]]:
    java = [*QUICK_JAVA, "-Xmx512m", "-cp", classpath()]
    storage = [*java, "kafka.tools.StorageTool", "format"]
    with node(folder, storage, [*java, "kafka.Kafka"], ALONE) as port:
        bootstrap = f"127.0.0.1:{port}"
        create_topics(bootstrap, 1)
        with word_count(bootstrap, 1, folder / "state"):
            write(bootstrap, lines())
            return counts(bootstrap)


async def on_kraftpy(folder: Path) -> dict[str, list[int]]:
    settings = {"offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "5"}
    in_thread = trio.to_thread.run_sync
    async with real_cluster(folder / "cluster", settings=settings, seconds=500) as cluster:
        await cluster.start()
        bootstrap = cluster.bootstrap
        await in_thread(create_topics, bootstrap, 3)
        counting = word_count(bootstrap, 3, folder / "state")
        await in_thread(counting.__enter__)
        try:
            victim = random.SystemRandom().choice(cluster.running)
            print(f"kill {victim}")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(in_thread, write, bootstrap, lines())
                await trio.sleep(LINES * 0.01 / 3)
                await cluster.kill(victim)
            await cluster.start_node(victim)
            return await in_thread(counts, bootstrap)
        finally:
            await in_thread(counting.__exit__, *sys.exc_info())


async def test_the_same_counts_as_on_kafka(tmp_path: Path) -> None:
    """TXN-38"""
    streams_folder()
    ours = await on_kraftpy(tmp_path)
    theirs = await trio.to_thread.run_sync(on_kafka, tmp_path / "kafka")
    assert ours == theirs
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in ours.values())
