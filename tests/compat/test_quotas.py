"""Quotas with real clients and tools, and beside Apache Kafka, which tells the same delays."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from compat.data_cluster import SECONDS, DataCluster
from confluent_kafka import Producer
from support.kafka_jars import run_java

from bench._peers import Server
from kraftpy.client.blocking import BlockingConnection
from kraftpy.client.settings import ClientSettings
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k00_produce as k00
from kraftpy.protocol.schema import k01_fetch as k01
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.protocol.schema import k48_describe_client_quotas as k48
from kraftpy.protocol.schema import k49_alter_client_quotas as k49
from kraftpy.records.builder import BatchBuilder
from kraftpy.world import Address

pytestmark = pytest.mark.compat

LIMIT = 10_000
# By name, not by id.
VERSION = 12


def alter(connection: BlockingConnection, client_id: str, key: str, value: float) -> None:
    entity = k49.EntityData(entity_type="client-id", entity_name=client_id)
    change = k49.OpData(key=key, value=value)
    entry = k49.RequestEntryData(entity=[entity], ops=[change])
    [result] = connection.request(k49.AlterClientQuotasRequest(entries=[entry])).entries
    assert result.error_code == 0, result.error_message


def quotas_of(connection: BlockingConnection, client_id: str) -> dict[str, float]:
    part = k48.ComponentData(entity_type="client-id", match_type=0, match=client_id)
    answer = connection.request(k48.DescribeClientQuotasRequest(components=[part], strict=True))
    return {each.key: each.value for entry in answer.entries or () for each in entry.values}


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def set_quota(address: Address, client_id: str, key: str, value: float) -> None:
    """Holds on the broker when this returns."""
    with BlockingConnection(address) as connection:
        alter(connection, client_id, key, value)
        wait_until(lambda: quotas_of(connection, client_id) == {key: value})


def client(address: Address, client_id: str) -> BlockingConnection:
    return BlockingConnection(address, ClientSettings(client_id=client_id))


# librdkafka.


def test_librdkafka_hears_of_its_delay(one_node: DataCluster) -> None:
    """By its callback; and nothing is lost."""
    [address] = one_node.addresses.values()
    set_quota(address, "slowed", "producer_byte_rate", LIMIT)
    delays: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": one_node.bootstrap,
            "client.id": "slowed",
            "linger.ms": 0,
            "throttle_cb": lambda event: delays.append(event.throttle_time),
        }
    )
    topic = one_node.topic()
    errors: list[object] = []
    deadline = time.monotonic() + SECONDS
    # Two of them are more than it may send in a window; who is slow needs more.
    while not delays:
        assert time.monotonic() < deadline
        producer.produce(topic, bytes(LIMIT * 6), on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(SECONDS) == 0
        producer.poll(0.1)
    assert set(errors) == {None}
    assert 0.1 < max(delays) < 15


@pytest.mark.java
def test_kafkas_tool_sets_and_shows_quotas(one_node: DataCluster) -> None:
    [address] = one_node.addresses.values()
    entity = ("--bootstrap-server", one_node.bootstrap, "--entity-type", "clients")
    named = (*entity, "--entity-name", "tooled")
    done = run_java(
        "kafka.admin.ConfigCommand",
        *named,
        "--alter",
        "--add-config",
        "producer_byte_rate=10000,request_percentage=200",
    )
    assert "Completed updating config for client tooled" in done.stdout, done.stderr
    shown = run_java("kafka.admin.ConfigCommand", *named, "--describe").stdout
    assert "producer_byte_rate=10000.0" in shown
    assert "request_percentage=200.0" in shown
    with BlockingConnection(address) as connection:
        assert quotas_of(connection, "tooled")["producer_byte_rate"] == LIMIT


# Beside Apache Kafka.


def batch(size_bytes: int) -> bytes:
    builder = BatchBuilder()
    builder.append(None, bytes(size_bytes), timestamp_ms=1_767_225_600_000)
    return bytes(builder.build())


def create(connection: BlockingConnection, *names: str, partitions: int = 1) -> Any:
    topics = [
        k19.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        for name in names
    ]
    return connection.request(k19.CreateTopicsRequest(topics=topics, timeout_ms=30_000))


def produced(connection: BlockingConnection, topic: str, size_bytes: int) -> tuple[str, int]:
    data = k00.PartitionProduceData(index=0, records=batch(size_bytes))
    topics = [k00.TopicProduceData(name=topic, partition_data=[data])]
    request = k00.ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics)
    answer = connection.request(request, max_version=VERSION)
    [result] = answer.responses[0].partition_responses
    return ErrorCode(result.error_code).name, answer.throttle_time_ms


def fetched(connection: BlockingConnection, topic: str) -> tuple[int, int]:
    """How many partitions there are in the answer, and the delay."""
    wanted = k01.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [k01.FetchTopic(topic=topic, partitions=[wanted])]
    request = k01.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics)
    request.session_epoch = -1
    answer = connection.request(request, max_version=VERSION)
    return len(answer.responses), answer.throttle_time_ms


def told(address: Address) -> dict[str, object]:
    """What one side says of clients that use a half more than they may at once."""
    seen: dict[str, object] = {}
    for client_id, key in (
        ("q-producer", "producer_byte_rate"),
        ("q-consumer", "consumer_byte_rate"),
        ("q-admin", "controller_mutation_rate"),
    ):
        set_quota(address, client_id, key, LIMIT if "byte" in key else 1)
    with client(address, "q-free") as connection:
        create(connection, "q-topic")
        wait_until(lambda: produced(connection, "q-topic", 60_000)[0] == "NONE")
    with client(address, "q-consumer") as connection:
        seen["first fetch"] = fetched(connection, "q-topic")
        partitions, delay_ms = fetched(connection, "q-topic")
        # 120,000 bytes, over ten to eleven seconds.
        seen["second fetch"] = partitions, 900 < delay_ms < 2_200
    with client(address, "q-producer") as connection:
        seen["produce"] = produced(connection, "q-topic", 150_000)
    with client(address, "q-admin") as connection:
        answer = create(connection, "q-a", "q-b", "q-c", partitions=6)
        codes = [ErrorCode(topic.error_code).name for topic in answer.topics]
        # A second, less what has passed since.
        seen["creation"] = codes, answer.throttle_time_ms <= 1_000
    return seen


@pytest.mark.java
def test_the_same_delays_as_kafkas(one_node: DataCluster, kafka: Server) -> None:
    """NET-82, NET-84: of producers to the millisecond, of others up to the time that passes."""
    [address] = one_node.addresses.values()
    ours, theirs = told(address), told((kafka.host, kafka.port))
    assert ours == theirs
    name, delay_ms = ours["produce"]  # type: ignore[misc]
    assert name == "NONE"
    assert 5_000 < delay_ms < 5_100
    assert ours["first fetch"] == (1, 0)
    assert ours["second fetch"] == (0, True)
    assert ours["creation"] == (["NONE", "NONE", "THROTTLING_QUOTA_EXCEEDED"], True)
