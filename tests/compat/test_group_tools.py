"""Kafka's command line tools for groups and offsets, and its dump of what we have written."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from compat.data_cluster import SECONDS, DataCluster
from compat.test_librdkafka_data import read_to_end
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from support.kafka_jars import run_java

from kraftpy.coordinator.hashing import partition_for

pytestmark = [pytest.mark.compat, pytest.mark.java, pytest.mark.timeout(700)]

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
PARTITIONS = 2
RECORDS = 20
OFFSETS = "__consumer_offsets"


def groups(cluster: DataCluster, arguments: str) -> list[list[str]]:
    """The tool's table, as words by line, without what it says around it."""
    done = run_java(GROUPS, "--bootstrap-server", cluster.bootstrap, *arguments.split())
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    return [words for words in lines if words and "has no active members" not in " ".join(words)]


@pytest.fixture
def member(one_node: DataCluster) -> Iterator[tuple[str, str]]:
    """A group that reads a topic, and has committed half of it; the topic, and the group."""
    topic = one_node.topic(PARTITIONS)
    producer = Producer({"bootstrap.servers": one_node.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0
    group = f"tools-{topic}"
    consumer = Consumer(
        {
            "bootstrap.servers": one_node.bootstrap,
            "group.id": group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # It is not polled while the tools run.
            "max.poll.interval.ms": 900_000,
        }
    )
    consumer.subscribe([topic])
    read, deadline = 0, time.monotonic() + SECONDS
    while read < RECORDS:
        assert time.monotonic() < deadline
        read += len(consumer.consume(RECORDS, 0.1))
    consumer.commit(asynchronous=False)
    for number in range(RECORDS):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0
    yield topic, group
    consumer.close()


def _lines_of(cluster: DataCluster, group: str) -> list[str]:
    """What Kafka makes of the records of a group."""
    logs = sorted(cluster.directory.glob(f"node-1/data/{OFFSETS}-*/*.log"))
    # All by one process: there are more of them the more tests have come before.
    files = ",".join(str(log) for log in logs if log.stat().st_size)
    done = run_java(DUMP, "--offsets-decoder", "--files", files)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if f'"{group}"' in line]


def test_an_active_group(one_node: DataCluster, member: tuple[str, str]) -> None:
    """GRP-46, GRP-47, GRP-49, CGP-58"""
    topic, group = member
    assert [group, "Stable"] in groups(one_node, "--list --state")
    assert [group, "Classic"] in groups(one_node, "--list --type classic")
    assert [group, "Classic"] not in groups(one_node, "--list --type consumer")
    header, *rows = groups(one_node, f"--describe --group {group}")
    assert header[:6] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert sorted(row[:6] for row in rows) == [
        [group, topic, str(partition), "10", "20", "10"] for partition in range(PARTITIONS)
    ]
    for row in rows:
        assert re.fullmatch(r"reader-[0-9a-f-]{36}", row[6])
        assert row[7:] == ["/127.0.0.1", "reader"]
    _, state = groups(one_node, f"--describe --group {group} --state")
    assert state[0] == group
    assert state[3:] == ["range", "Stable", "1"]
    refused = run_java(
        GROUPS, "--bootstrap-server", one_node.bootstrap, "--delete", "--group", group
    )
    assert "GroupNotEmptyException" in refused.stdout + refused.stderr
    kinds = [re.search(r'"type":"(\d)"', line) for line in _lines_of(one_node, group)]
    assert sorted({kind.group(1) for kind in kinds if kind}) == ["1", "2"]


def test_a_group_that_nobody_is_in(one_node: DataCluster, member: tuple[str, str]) -> None:
    """GRP-48, GRP-53: its offsets are moved, deleted one by one, and with it."""
    topic, _ = member
    group = f"manual-{topic}"
    moved = groups(
        one_node, f"--group {group} --topic {topic} --reset-offsets --to-offset 7 --execute"
    )
    assert sorted(moved[1:]) == [[group, topic, "0", "7"], [group, topic, "1", "7"]]
    assert [group, "Empty"] in groups(one_node, "--list --state")
    deleted = groups(one_node, f"--delete-offsets --group {group} --topic {topic}:0")
    assert [topic, "0", "Successful"] in deleted
    _, row = groups(one_node, f"--describe --group {group}")
    assert row == [group, topic, "1", "7", "20", "13", "-", "-", "-"]
    groups(one_node, f"--delete --group {group}")
    assert [group, "Empty"] not in groups(one_node, "--list --state")


def test_the_formatters_of_the_console_consumer(
    one_node: DataCluster, member: tuple[str, str]
) -> None:
    """GRP-75: offsets, what deletes them, and groups, as Kafka 4.3 prints them."""
    topic, group = member
    offsets = _formatted(one_node, group, "OffsetsMessageFormatter")
    keys = [{"group": group, "topic": topic, "partition": each} for each in range(PARTITIONS)]
    assert [each["key"] for each in offsets] == [{"type": 1, "data": key} for key in keys]
    for each in offsets:
        assert each["value"]["version"] == 4
        assert (each["value"]["data"]["offset"], each["value"]["data"]["metadata"]) == (10, "")
    registered = _formatted(one_node, group, "GroupMetadataMessageFormatter")
    data = registered[-1]["value"]["data"]
    assert registered[-1]["key"] == {"type": 2, "data": {"group": group}}
    assert (data["protocolType"], data["generation"], data["protocol"]) == ("consumer", 1, "range")
    assert [each["clientId"] for each in data["members"]] == ["reader"]
    bare = f"bare-{topic}"
    alone = Consumer({"bootstrap.servers": one_node.bootstrap, "group.id": bare})
    alone.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    alone.close()
    admin = AdminClient({"bootstrap.servers": one_node.bootstrap})
    [deleted] = admin.delete_consumer_groups([bare]).values()
    deleted.result(SECONDS)
    first, second = _formatted(one_node, bare, "OffsetsMessageFormatter")
    assert first["key"] == second["key"]
    assert (first["value"]["data"]["offset"], second["value"]) == (7, None)


def _formatted(cluster: DataCluster, group: str, formatter: str) -> list[Any]:
    """What a formatter of Kafka's prints of the records of a group."""
    reader = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "nobody",
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
        }
    )
    partitions = len(reader.list_topics(OFFSETS, SECONDS).topics[OFFSETS].partitions)
    where = TopicPartition(OFFSETS, partition_for(group, partitions), OFFSET_BEGINNING)
    # Counted, since the markers of other tests' transactions have offsets and are no messages.
    messages = read_to_end(reader, where)
    reader.close()
    done = run_java(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", cluster.bootstrap, "--topic", OFFSETS),
        *("--partition", str(where.partition), "--offset", "earliest"),
        *("--max-messages", str(len(messages))),
        *("--formatter", f"org.apache.kafka.tools.consumer.{formatter}"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # It puts nothing between them.
    found = done.stdout.replace("}{", "}\n{").splitlines()
    lines = [json.loads(line) for line in found if line.startswith("{")]
    return [line for line in lines if line["key"]["data"]["group"] == group]
