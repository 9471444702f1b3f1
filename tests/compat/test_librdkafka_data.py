"""confluent-kafka and kcat produce and consume: every codec, every acks, from every position."""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from compat.data_cluster import MEBIBYTE, SECONDS, DataCluster
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
)
from support.components import require

from kraftpy.records.walker import walk_batches

pytestmark = pytest.mark.compat

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Voice(logging.Handler):
    """A logger and an error callback in one: whatever a client complains of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.logger = logging.getLogger("tests.librdkafka-data")
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def error(self, error: KafkaError) -> None:
        self.lines.append(str(error))


@pytest.fixture
def voice() -> Iterator[Voice]:
    voice = Voice()
    yield voice
    voice.logger.removeHandler(voice)
    assert voice.lines == []


def producer(cluster: DataCluster, voice: Voice, **settings: Any) -> Producer:
    base = {
        "bootstrap.servers": cluster.bootstrap,
        "error_cb": voice.error,
        "linger.ms": 20,
    }
    return Producer(base | settings, logger=voice.logger)


def consumer(cluster: DataCluster, voice: Voice, **settings: Any) -> Consumer:
    base = {
        "bootstrap.servers": cluster.bootstrap,
        "error_cb": voice.error,
        "group.id": "no-group-is-ever-joined",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "check.crcs": True,
        "auto.offset.reset": "error",
    }
    return Consumer(base | settings, logger=voice.logger)


def send(producer: Producer, topic: str, *messages: dict[str, Any]) -> list[Message]:
    """Produce to partition 0, unless told otherwise; what was acknowledged, or its error."""
    delivered: list[Message] = []

    def report(_: Any, message: Message) -> None:
        delivered.append(message)

    for message in messages:
        producer.produce(topic, **{"partition": 0, "on_delivery": report, **message})
    assert producer.flush(SECONDS) == 0
    return delivered


def read_to_end(consumer: Consumer, *positions: TopicPartition) -> list[Message]:
    """From there to the end of each partition."""
    consumer.assign(list(positions))
    messages: list[Message] = []
    ends = 0
    deadline = time.monotonic() + SECONDS
    while ends < len(positions):
        assert time.monotonic() < deadline, f"{len(messages)} messages and no end"
        message = consumer.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            messages.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            ends += 1
        else:
            raise KafkaException(error)
    consumer.unassign()
    return messages


def stored_codecs(cluster: DataCluster, topic: str) -> list[str]:
    """Of the batches in partition 0, as they lie in a file."""
    data = next(cluster.directory.glob(f"node-*/data/{topic}-0/*.log")).read_bytes()
    # The lowest three bits of a batch's attributes are its codec.
    return [CODECS[batch.attributes & 7] for batch in walk_batches(data)]


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_every_codec_and_acks(cluster: DataCluster, voice: Voice, idempotent: bool) -> None:
    topic = cluster.topic()
    expected = []
    for codec in CODECS:
        for acks in ("all",) if idempotent else ("0", "1", "all"):
            settings: dict[str, Any] = {"acks": acks, "compression.type": codec}
            client = producer(cluster, voice, **settings, **{"enable.idempotence": idempotent})
            values = [f"{codec}-{acks}-{number}".encode() * 50 for number in range(20)]
            delivered = send(client, topic, *({"value": value} for value in values))
            assert [message.error() for message in delivered] == [None] * 20
            expected += values
    assert set(stored_codecs(cluster, topic)) == set(CODECS)
    client = consumer(cluster, voice)
    # With acks=0 nobody has waited for the last ones.
    got: list[Message] = []
    deadline = time.monotonic() + SECONDS
    while len(got) < len(expected) and time.monotonic() < deadline:
        got = read_to_end(client, TopicPartition(topic, 0, OFFSET_BEGINNING))
    assert [message.value() for message in got] == expected
    assert [message.offset() for message in got] == list(range(len(expected)))
    client.close()


def test_headers_and_nulls(cluster: DataCluster, voice: Voice) -> None:
    messages: list[dict[str, Any]] = [
        {"key": None, "value": None},
        {"key": b"", "value": b""},
        {"key": b"k", "value": None},
        {"key": None, "value": b"v", "headers": [("a", b"1"), ("a", None), ("b", b"")]},
        {"key": "ключ".encode(), "value": bytes(range(256)), "timestamp": 1_600_000_000_123},
    ]
    topic = cluster.topic(retention_ms="-1")
    send(producer(cluster, voice), topic, *messages)
    client = consumer(cluster, voice)
    got = read_to_end(client, TopicPartition(topic, 0, OFFSET_BEGINNING))
    client.close()
    assert [(each.key(), each.value()) for each in got] == [
        (each["key"], each["value"]) for each in messages
    ]
    assert got[3].headers() == messages[3]["headers"]
    assert got[4].timestamp()[1] == 1_600_000_000_123


def test_from_every_position(cluster: DataCluster, voice: Voice) -> None:
    """From the beginning, the end, an offset and a time; and in vain from where nothing is."""
    topic = cluster.topic(retention_ms="-1")
    start_ms = 1_700_000_000_000
    client = producer(cluster, voice)
    for number in range(10):
        send(client, topic, {"value": str(number), "timestamp": start_ms + 1000 * number})
    reader = consumer(cluster, voice)

    def read_from(offset: int) -> list[int]:
        got = read_to_end(reader, TopicPartition(topic, 0, offset))
        return [int(message.value() or b"") for message in got]

    assert read_from(OFFSET_BEGINNING) == list(range(10))
    assert read_from(OFFSET_END) == []
    assert read_from(7) == [7, 8, 9]
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), SECONDS) == (0, 10)
    times = {start_ms: 0, start_ms + 1: 1, start_ms + 9000: 9, start_ms + 9001: OFFSET_END}
    for time_ms, offset in times.items():
        [found] = reader.offsets_for_times([TopicPartition(topic, 0, time_ms)], SECONDS)
        assert found.offset == offset, time_ms
    with pytest.raises(KafkaException) as refused:
        read_from(11)
    assert refused.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET
    reader.close()
    wanted = {TopicPartition(topic, 0): OffsetSpec.max_timestamp()}
    [newest] = cluster.admin.list_offsets(wanted).values()
    assert newest.result(SECONDS).offset == 9


def test_large_messages(cluster: DataCluster, voice: Voice) -> None:
    """10 MB where the topic allows it; its owner changes what it allows."""
    settings: dict[str, Any] = {"message.max.bytes": 20 * MEBIBYTE}
    client = producer(cluster, voice, **settings)
    small, large = cluster.topic(), cluster.topic(max_message_bytes=str(11 * MEBIBYTE))
    value = bytes(10_000_000)
    [refused] = send(client, small, {"value": value})
    assert refused.error().code() == KafkaError.MSG_SIZE_TOO_LARGE
    [allowed] = send(client, large, {"value": value})
    assert allowed.error() is None
    change = ConfigEntry(
        "max.message.bytes", str(11 * MEBIBYTE), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.TOPIC, small, incremental_configs=[change])
    [changed] = cluster.admin.incremental_alter_configs([resource]).values()
    changed.result(SECONDS)
    deadline = time.monotonic() + SECONDS
    while send(client, small, {"value": value})[0].error() and time.monotonic() < deadline:
        pass
    reader = consumer(cluster, voice)
    # The default of a partition's share is 1 MiB: the first batch comes whole all the same.
    for topic in (large, small):
        got = read_to_end(reader, TopicPartition(topic, 0, OFFSET_BEGINNING))
        assert [message.value() == value for message in got] == [True]
    reader.close()


def test_many_partitions_and_more(cluster: DataCluster, voice: Voice) -> None:
    """Partitioned by key over a topic that grows, and gone when it is deleted."""
    topic = cluster.topic(6)
    client = producer(cluster, voice)
    sent = [{"key": f"key-{number}", "value": str(number), "partition": -1} for number in range(99)]
    delivered = send(client, topic, *sent)
    assert {message.partition() for message in delivered} == set(range(6))
    [grown] = cluster.admin.create_partitions([NewPartitions(topic, 8)]).values()
    grown.result(SECONDS)
    # Brokers hear of it later than whoever asked the controller.
    cluster.wait_until_served(topic, 8)
    [late] = send(producer(cluster, voice), topic, {"value": "late", "partition": 7})
    assert late.error() is None
    settings: dict[str, Any] = {"isolation.level": "read_committed"}
    reader = consumer(cluster, voice, **settings)
    everywhere = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(8)]
    got = {message.value() for message in read_to_end(reader, *everywhere)}
    assert got == {message["value"].encode() for message in sent} | {b"late"}
    reader.close()
    [deleted] = cluster.admin.delete_topics([topic], operation_timeout=SECONDS).values()
    deleted.result(SECONDS)
    deadline = time.monotonic() + SECONDS
    # Brokers hear of it later than whoever asked the controller.
    while topic in cluster.admin.list_topics(timeout=SECONDS).topics:
        assert time.monotonic() < deadline


def test_records_are_deleted(cluster: DataCluster, voice: Voice) -> None:
    topic = cluster.topic()
    send(producer(cluster, voice), topic, *({"value": str(number)} for number in range(10)))
    [deleted] = cluster.admin.delete_records([TopicPartition(topic, 0, 4)]).values()
    assert deleted.result(SECONDS).low_watermark == 4
    reader = consumer(cluster, voice)
    got = read_to_end(reader, TopicPartition(topic, 0, OFFSET_BEGINNING))
    assert [message.value() for message in got] == [b"4", b"5", b"6", b"7", b"8", b"9"]
    reader.close()
    wanted = {TopicPartition(topic, 0): OffsetSpec.earliest()}
    answers = cluster.admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED)
    assert answers[TopicPartition(topic, 0)].result(SECONDS).offset == 4


def run_kcat(cluster: DataCluster, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-m", str(SECONDS), "-b", cluster.bootstrap, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_kcat(cluster: DataCluster) -> None:
    """librdkafka 2.0 doesn't compress by codecs of which it believes that the broker lacks them."""
    require("kcat")
    topic = cluster.topic()
    lines = []
    for codec in CODECS:
        produce = ("-P", "-t", topic, "-p", "0", "-z", codec, "-X", "acks=all", "-H", "a=1")
        fresh = [f"{codec} {number} {'x' * 100}" for number in range(20)]
        run_kcat(cluster, *produce, "-X", "linger.ms=20", stdin="\n".join(fresh))
        lines += fresh
    assert set(stored_codecs(cluster, topic)) == set(CODECS)
    consume = ("-C", "-t", topic, "-p", "0", "-e", "-q")
    assert run_kcat(cluster, *consume, "-o", "beginning").splitlines() == lines
    assert run_kcat(cluster, *consume, "-o", "98", "-f", "%o %h %s\n").splitlines() == [
        f"98 a=1 {lines[98]}",
        f"99 a=1 {lines[99]}",
    ]
    assert run_kcat(cluster, *consume, "-o", "-1").splitlines() == lines[-1:]
    assert run_kcat(cluster, "-Q", "-t", f"{topic}:0:-2") == f"{topic} [0] offset 0\n"
