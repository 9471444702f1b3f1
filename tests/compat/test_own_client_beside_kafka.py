"""Our own group member and transactional producer against Apache Kafka, beside librdkafka's."""

from __future__ import annotations

import time
from itertools import count

import pytest
from confluent_kafka import Consumer

from bench._peers import Server
from kraftpy.client import admin_operations as admin
from kraftpy.client.blocking_clients import BlockingAdmin, BlockingConsumer, BlockingProducer
from kraftpy.client.calls import TopicPartition
from kraftpy.client.group_offsets import OffsetAndMetadata
from kraftpy.client.settings import ConsumerSettings, IsolationLevel, ProducerSettings
from kraftpy.world import Address

pytestmark = [pytest.mark.compat, pytest.mark.java]

NAMES = count()
LIMIT_SECONDS = 120
PARTITIONS = 6


@pytest.fixture
def topic(servers: list[Address]) -> str:
    name = f"beside-{next(NAMES)}"
    with BlockingAdmin(servers) as client:
        admin.require(client.run(admin.create_topics([admin.NewTopic(name, PARTITIONS, 1)])))
        # The broker hears of it later, and librdkafka looks again for what was not there after
        # five minutes.
        while name not in client.run(admin.list_topics()):
            pass
    return name


def read(consumer: BlockingConsumer, wanted: int) -> list[int]:
    values: list[int] = []
    deadline = time.monotonic() + LIMIT_SECONDS
    while len(values) < wanted:
        assert time.monotonic() < deadline, f"{len(values)} of {wanted}"
        for _, _, records in consumer.poll(200):
            values += [int(record.value or b"-1") for record in records]
    return values


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_transactions_and_groups(
    servers: list[Address], topic: str, protocol: str, version: int
) -> None:
    name = f"beside-{next(NAMES)}"
    where = TopicPartition(topic, 0)
    group = ConsumerSettings(
        group_id=name,
        group_protocol=protocol,  # type: ignore[arg-type]
        auto_offset_reset="earliest",
        isolation_level=IsolationLevel.READ_COMMITTED,
        enable_auto_commit=False,
    )
    with (
        BlockingProducer(servers, ProducerSettings(transactional_id=name)) as producer,
        BlockingConsumer(servers, group) as consumer,
    ):
        if version == 1:
            producer._transaction._is_version_2 = False
        producer.init_transactions()
        for number in range(9):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
            if number % 3 == 1:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        consumer.subscribe([topic])
        assert sorted(read(consumer, 6)) == [0, 2, 3, 5, 6, 8]
        producer.begin_transaction()
        offsets = {where: OffsetAndMetadata(4)}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata)
        producer.commit_transaction()
        found = consumer.committed([where])[where]
        assert found is not None
        assert found.offset == 4
        epoch = producer._transaction.identity.epoch  # type: ignore[union-attr]
        assert epoch >= (10 if version == 2 else 0)


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
@pytest.mark.parametrize("is_first", [True, False])
def test_one_group_of_two_libraries(
    kafka: Server, servers: list[Address], topic: str, assignor: str, is_first: bool
) -> None:
    """Whoever comes first leads, and assigns for the other."""
    name = f"beside-{next(NAMES)}"
    settings = ConsumerSettings(
        group_id=name, partition_assignment_strategy=(assignor,), heartbeat_interval_ms=200
    )
    other = Consumer(
        {
            "bootstrap.servers": f"{kafka.host}:{kafka.port}",
            "group.id": name,
            "partition.assignment.strategy": assignor,
            "heartbeat.interval.ms": 200,
        }
    )
    with BlockingConsumer(servers, settings) as consumer:
        deadline = time.monotonic() + LIMIT_SECONDS

        def turn() -> tuple[int, int]:
            assert time.monotonic() < deadline
            consumer.poll(50)
            other.poll(0.05)
            return len(consumer.assignment), len(other.assignment())

        if is_first:
            consumer.subscribe([topic])
            while turn() != (PARTITIONS, 0):
                pass
            other.subscribe([topic])
        else:
            other.subscribe([topic])
            while turn() != (0, PARTITIONS):
                pass
            consumer.subscribe([topic])
        while turn() != (PARTITIONS // 2, PARTITIONS // 2):
            pass
        mine = {where.partition for where in consumer.assignment}
        theirs = {where.partition for where in other.assignment()}
        assert mine | theirs == set(range(PARTITIONS))
        other.close()
        while len(consumer.assignment) < PARTITIONS:
            consumer.poll(50)
            assert time.monotonic() < deadline
