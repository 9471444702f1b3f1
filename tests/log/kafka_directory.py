"""A data directory that Apache Kafka wrote, and what its consumers read from it."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.components import require
from support.kafka_jars import QUICK_JAVA, classpath
from support.ports import unused_ports

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
NODE_ID = 1
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = {
    "codecs": {"compression.type": "producer"},
    "transactions": {"segment.bytes": "1048576"},
    "segments": {"segment.bytes": "1048576", "index.interval.bytes": "1000"},
    "compacted": {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
    },
}
START_TIMEOUT_SECONDS = 120.0
CLEANING_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class Seen:
    """A record as a consumer sees it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass
class KafkaDirectory:
    """`clean`: after an orderly stop. `crashed`: a copy from before, when the broker was killed."""

    clean: Path
    crashed: Path
    # By topic; with read_uncommitted and read_committed.
    everything: dict[str, list[Seen]] = field(default_factory=dict)
    committed: dict[str, list[Seen]] = field(default_factory=dict)
    everything_at_crash: dict[str, list[Seen]] = field(default_factory=dict)


def write_directory(folder: Path) -> KafkaDirectory:
    """Run a broker twice: it is killed, and then stopped in order, with two epochs in its logs."""
    require("java")
    found = KafkaDirectory(folder / "data", folder / "crashed")
    config = folder / "server.properties"
    port = unused_ports(2)
    config.write_text(_properties(port, found.clean))
    _run_java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config))
    servers = f"127.0.0.1:{port}"
    with _broker(config, port) as broker:
        _create_topics(servers)
        _produce(servers, "first")
        _wait_until_cleaned(found.clean)
        found.everything_at_crash = _consume(servers, "read_uncommitted")
        broker.kill()
        broker.wait()
    shutil.copytree(found.clean, found.crashed)
    with _broker(config, port):
        _produce(servers, "second")
        found.everything = _consume(servers, "read_uncommitted")
        found.committed = _consume(servers, "read_committed")
    return found


def _properties(port: int, data: Path) -> str:
    return "\n".join(
        [
            "process.roles=broker,controller",
            f"node.id={NODE_ID}",
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
            "controller.listener.names=CONTROLLER",
            f"controller.quorum.voters={NODE_ID}@127.0.0.1:{port + 1}",
            f"log.dirs={data}",
            "offsets.topic.replication.factor=1",
            "offsets.topic.num.partitions=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "transaction.state.log.num.partitions=1",
            "log.cleaner.backoff.ms=100",
            "log.initial.task.delay.ms=100",
            "log.flush.offset.checkpoint.interval.ms=500",
            "",
        ]
    )


def _java() -> list[str]:
    return [*QUICK_JAVA, "-Xmx256m", "-cp", classpath()]


def _run_java(*arguments: str) -> None:
    subprocess.run([*_java(), *arguments], check=True, capture_output=True, timeout=240)


@contextlib.contextmanager
def _broker(config: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    output = config.with_name("output.txt")
    with output.open("ab") as sink:
        command = [*_java(), "kafka.Kafka", str(config)]
        process = subprocess.Popen(command, stdout=sink, stderr=sink, cwd=config.parent)
        try:
            deadline = time.monotonic() + START_TIMEOUT_SECONDS
            while not _answers(port):
                running = process.poll() is None and time.monotonic() < deadline
                assert running, output.read_text(errors="replace")[-2000:]
                time.sleep(0.05)
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False


def _create_topics(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    topics = [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()]
    for future in admin.create_topics(topics).values():
        future.result(30)


def _produce(servers: str, word: str) -> None:
    for codec in CODECS:
        producer = _producer(servers, {"compression.type": codec})
        for number in range(20):
            headers = [("codec", codec.encode()), ("nothing", None)] if number % 3 == 0 else []
            key = None if number % 4 == 0 else b"key %d" % number
            value = None if number % 7 == 6 else f"{word} {codec} {number} ".encode() * 5
            producer.produce("codecs", value, key, headers=headers)
        assert producer.flush(30) == 0
    for name, is_commit in (("kept", True), ("dropped", False)):
        _transactions(servers, f"{word} {name}", is_commit=is_commit)
    # Batches of about 2 KB, so that the indexes have entries.
    producer = _producer(servers, {"enable.idempotence": True, "batch.size": 2000, "linger.ms": 5})
    for number in range(1500):
        producer.produce("segments", b"%06d" % number * 150, b"%d" % number)
        if number % 100 == 0:
            producer.flush(30)
    assert producer.flush(30) == 0
    for turn in range(4):
        producer = _producer(servers, {"linger.ms": 0})
        # Fewer keys in each turn, so that the survivors have gaps between them.
        for number in range(turn, 10, turn + 1):
            value = None if turn == 3 else f"{word} {turn} {number}".encode()
            producer.produce("compacted", value, b"key %d" % number)
        assert producer.flush(30) == 0
        time.sleep(0.15)


def _producer(servers: str, settings: dict[str, object]) -> Producer:
    return Producer({"bootstrap.servers": servers, **settings})


def _transactions(servers: str, name: str, *, is_commit: bool) -> None:
    producer = _producer(servers, {"transactional.id": name})
    producer.init_transactions(30)
    for turn in range(3):
        producer.begin_transaction()
        for number in range(5):
            producer.produce("transactions", f"{name} {turn} {number}".encode(), name.encode())
        assert producer.flush(30) == 0
        if is_commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


def _wait_until_cleaned(data: Path) -> None:
    checkpoint = data / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + CLEANING_TIMEOUT_SECONDS
    while "compacted 0" not in (checkpoint.read_text() if checkpoint.exists() else ""):
        assert time.monotonic() < deadline, "Kafka's cleaner did not clean"
        time.sleep(0.05)


def _consume(servers: str, isolation: str) -> dict[str, list[Seen]]:
    return {topic: _consume_topic(servers, topic, isolation) for topic in TOPICS}


def _consume_topic(servers: str, topic: str, isolation: str) -> list[Seen]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "check.crcs": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        while True:
            message = consumer.poll(30)
            assert message is not None, f"{topic} can't be consumed"
            error = message.error()
            if error is None:
                found.append(_seen(message))
                continue
            assert error.code() == KafkaError._PARTITION_EOF, error
            return found
    finally:
        consumer.close()


def _seen(message: Message) -> Seen:
    headers = tuple((key, value) for key, value in message.headers() or ())
    offset = message.offset()
    assert offset is not None
    return Seen(offset, message.timestamp()[1], message.key(), message.value(), headers)
