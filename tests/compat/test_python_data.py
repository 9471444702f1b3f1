"""kafka-python and aiokafka produce and consume: every codec, every acks, from every position."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from compat.data_cluster import MEBIBYTE, SECONDS, DataCluster

pytestmark = [
    pytest.mark.compat,
    # On Python 3.11 a client's own import uses what that release deprecated for a while.
    pytest.mark.filterwarnings("ignore:(read_text|open_text) is deprecated:DeprecationWarning"),
]

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
HEADERS = [("a", b"1"), ("a", b""), ("ключ", b"\x00")]
NULLS: list[tuple[bytes | None, bytes | None]] = [(None, b"v"), (b"", b""), (b"k", None)]
# kafka-python times its own tasks, and on a busy machine complains of itself; and it says aloud
# that what was too large was refused.
EXPECTED = ("blocking the event loop", "MessageSizeTooLargeError")
LARGE = bytes(10_000_000)


@pytest.fixture(autouse=True)
def _nobody_complains(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.WARNING)
    yield
    said = [each.getMessage() for each in caplog.get_records("call")]
    assert [line for line in said if not any(words in line for words in EXPECTED)] == []


def start_ms() -> int:
    """A minute ago: younger than any retention, and not in the future."""
    return int(time.time() * 1000) - 60_000


def test_kafka_python(cluster: DataCluster) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.codec import has_snappy

    topic, base_ms = cluster.topic(), start_ms()
    expected: list[tuple[bytes | None, bytes | None]] = []

    def producer(**settings: Any) -> Any:
        return KafkaProducer(bootstrap_servers=cluster.bootstrap, linger_ms=20, **settings)

    for codec in CODECS:
        if codec == "snappy" and not has_snappy():
            # An optional library of the client's, in nobody's requirements here.
            continue
        for acks, idempotent in ((0, False), (1, False), ("all", False), ("all", True)):
            client = producer(compression_type=codec, acks=acks, enable_idempotence=idempotent)
            records = [(b"k", f"{codec} {acks} {number}".encode() * 50) for number in range(5)]
            sent = [
                client.send(topic, value, key, partition=0, timestamp_ms=base_ms)
                for key, value in records
            ]
            client.flush(SECONDS)
            assert all(future.succeeded() for future in sent)
            client.close(SECONDS)
            expected += records
    client = producer()
    for key, value in NULLS:
        client.send(topic, value, key, headers=HEADERS, partition=0, timestamp_ms=base_ms + 1)
    client.close(SECONDS)
    expected += NULLS

    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap, group_id=None, enable_auto_commit=False
    )
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])

    def read() -> list[Any]:
        end, records = consumer.end_offsets([partition])[partition], []
        while consumer.position(partition) < end:
            records += consumer.poll(1000).get(partition, [])
        return records

    consumer.seek_to_beginning(partition)
    records = read()
    assert [(record.key, record.value) for record in records] == expected
    assert records[-1].headers == HEADERS
    consumer.seek_to_end(partition)
    assert read() == []
    end = len(expected)
    consumer.seek(partition, end - 5)
    assert [record.offset for record in read()] == list(range(end - 5, end))
    found = consumer.offsets_for_times({partition: base_ms + 1})[partition]
    assert (found.offset, found.timestamp) == (end - len(NULLS), base_ms + 1)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    consumer.close()


def test_kafka_python_with_large_messages(cluster: DataCluster) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import MessageSizeTooLargeError

    small, large = cluster.topic(), cluster.topic(max_message_bytes=str(11 * MEBIBYTE))

    def send(topic: str) -> None:
        # An idempotent one is done for after a refusal, in this client.
        client = KafkaProducer(bootstrap_servers=cluster.bootstrap, max_request_size=20 * MEBIBYTE)
        try:
            client.send(topic, LARGE).get(SECONDS)
        finally:
            client.close(SECONDS)

    with pytest.raises(MessageSizeTooLargeError):
        send(small)
    send(large)
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap, group_id=None, enable_auto_commit=False
    )
    partition = TopicPartition(large, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    # A partition's share is 1 MiB unless told otherwise; the first batch comes whole all the same.
    [record] = next(iter(consumer.poll(SECONDS * 1000).values()))
    assert record.value == LARGE
    consumer.close()


def test_kafka_python_administers(cluster: DataCluster) -> None:
    from kafka.admin import KafkaAdminClient, NewPartitions, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    name = f"by-kafka-python-{cluster.replication_factor}"
    try:
        admin.create_topics([NewTopic(name, 2, cluster.replication_factor)])
        cluster.wait_until_served(name, 2)
        admin.create_partitions({name: NewPartitions(total_count=3)})
        cluster.wait_until_served(name, 3)
        [described] = admin.describe_topics([name])
        assert len(described["partitions"]) == 3
        admin.delete_topics([name])
    finally:
        admin.close()


def test_aiokafka(cluster: DataCluster) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    topic, base_ms = cluster.topic(), start_ms()

    async def produce() -> list[tuple[bytes | None, bytes | None]]:
        expected: list[tuple[bytes | None, bytes | None]] = []
        for codec in CODECS:
            for acks, idempotent in ((0, False), (1, False), ("all", False), ("all", True)):
                records = [(b"k", f"{codec} {acks} {number}".encode() * 50) for number in range(5)]
                async with AIOKafkaProducer(
                    bootstrap_servers=cluster.bootstrap,
                    compression_type=codec,
                    acks=acks,
                    enable_idempotence=idempotent,
                ) as client:
                    for key, value in records:
                        await client.send(topic, value, key, partition=0, timestamp_ms=base_ms)
                expected += records
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap) as client:
            for key, value in NULLS:
                await client.send_and_wait(
                    topic, value, key, headers=HEADERS, partition=0, timestamp_ms=base_ms + 1
                )
        return expected + NULLS

    async def consume(expected: list[tuple[bytes | None, bytes | None]]) -> None:
        partition = TopicPartition(topic, 0)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap, group_id=None, enable_auto_commit=False
        )
        consumer.assign([partition])
        await consumer.start()

        async def read() -> list[Any]:
            end, records = (await consumer.end_offsets([partition]))[partition], []
            while await consumer.position(partition) < end:
                records += (await consumer.getmany(timeout_ms=1000)).get(partition, [])
            return records

        try:
            await consumer.seek_to_beginning(partition)
            records = await read()
            assert [(record.key, record.value) for record in records] == expected
            assert list(records[-1].headers) == HEADERS
            await consumer.seek_to_end(partition)
            assert await read() == []
            consumer.seek(partition, 98)
            assert [record.offset for record in await read()] == list(range(98, 103))
            found = (await consumer.offsets_for_times({partition: base_ms + 1}))[partition]
            assert (found.offset, found.timestamp) == (100, base_ms + 1)
        finally:
            await consumer.stop()

    async def both() -> None:
        await consume(await produce())

    asyncio.run(asyncio.wait_for(both(), 2 * SECONDS))


def test_aiokafka_with_large_messages(cluster: DataCluster) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.errors import MessageSizeTooLargeError

    small, large = cluster.topic(), cluster.topic(max_message_bytes=str(11 * MEBIBYTE))

    async def run() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap, max_request_size=20 * MEBIBYTE
        ) as client:
            with pytest.raises(MessageSizeTooLargeError):
                await client.send_and_wait(small, LARGE)
            await client.send_and_wait(large, LARGE)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap, group_id=None, enable_auto_commit=False
        )
        consumer.assign([TopicPartition(large, 0)])
        await consumer.start()
        try:
            await consumer.seek_to_beginning()
            assert (await consumer.getone()).value == LARGE
        finally:
            await consumer.stop()

    asyncio.run(asyncio.wait_for(run(), SECONDS))
