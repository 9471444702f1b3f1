"""Reading topics, in batches of Spark's: every option, and the same rows by every route.

The topics are written with partitions, times and headers that the test has chosen, so that each row
is known beforehand to the last column. What Spark's own connector makes of them on Apache Kafka is
the measure of the other two routes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame
from spark.spark_brokers import Route, SparkBroker

from kraftpy.client.blocking_clients import BlockingProducer
from kraftpy.client.settings import ProducerSettings

PARTITIONS = 3
FIRST_MS = 1_790_000_000_000
STEP_MS = 1_000
COUNT = 300
ABORTED = 20
Row = tuple[Any, ...]

CREATE_TIME = 0


def content(number: int) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """Key, value and headers of a record: long and short, empty and null, none to three."""
    key = None if number % 3 == 0 else b"key-%d" % number
    value = None if number % 50 == 7 else b"%d|" % number * (number % 20)
    headers = [("h", b"%d" % number), ("empty", b""), ("null", None)][: number % 4]
    return key, value, headers


def expected_row(number: int) -> Row:
    key, value, headers = content(number)
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=FIRST_MS + number * STEP_MS)
    partition, offset = number % PARTITIONS, number // PARTITIONS
    return (partition, offset, key, value, moment, CREATE_TIME, headers or None)


def fill(broker: SparkBroker, topic: str) -> None:
    """In batches of several codecs; each record has its partition."""
    codecs = ("none", "lz4", "gzip", "zstd", "snappy")
    for turn, codec in enumerate(codecs):
        settings = ProducerSettings(compression_type=codec)  # type: ignore[arg-type]
        with BlockingProducer(broker.addresses, settings) as producer:
            for number in range(COUNT * turn // len(codecs), COUNT * (turn + 1) // len(codecs)):
                key, value, headers = content(number)
                producer.send(
                    topic,
                    value,
                    key=key,
                    partition=number % PARTITIONS,
                    timestamp_ms=FIRST_MS + number * STEP_MS,
                    headers=headers,
                )


@pytest.fixture(scope="module")
def filled() -> Callable[[SparkBroker], str]:
    """The name of a filled topic of a cluster; it is filled once."""
    topics: dict[str, str] = {}

    def topic_of(broker: SparkBroker) -> str:
        if broker.name not in topics:
            # Their times are of long ago.
            topics[broker.name] = broker.topic(PARTITIONS, retention_ms="-1")
            fill(broker, topics[broker.name])
        return topics[broker.name]

    return topic_of


def rows_of(frame: DataFrame) -> list[Row]:
    """All columns but the topic, in order of partition and offset; moments in UTC."""
    names = ["partition", "offset", "key", "value", "timestamp", "timestampType"]
    has_headers = "headers" in frame.columns
    found = []
    for row in frame.select("*").collect():
        values = [row[name] for name in names]
        values[2:4] = [None if each is None else bytes(each) for each in values[2:4]]
        values[4] = values[4].astimezone(UTC)
        if has_headers:
            headers = row["headers"]
            values.append(
                headers
                and [
                    (each.key, None if each.value is None else bytes(each.value))
                    for each in headers
                ]
            )
        found.append(tuple(values))
    return sorted(found, key=lambda row: row[:2])


def numbers(rows: list[Row]) -> list[int]:
    """Which of the records these are."""
    return sorted(offset * PARTITIONS + partition for partition, offset, *_ in rows)


def test_every_column_of_every_record(route: Route, filled: Callable[[SparkBroker], str]) -> None:
    """Record by record: what was sent is what each route shows."""
    topic = filled(route.broker)
    frame = route.read(subscribe=topic, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    expected = sorted(map(expected_row, range(COUNT)), key=lambda row: row[:2])
    assert rows_of(frame) == expected
    assert [row.topic for row in frame.select("topic").distinct().collect()] == [topic]


def test_a_range_of_offsets_and_of_times(
    route: Route, filled: Callable[[SparkBroker], str]
) -> None:
    topic = filled(route.broker)
    starts = json.dumps({topic: {"0": 10, "1": -2, "2": 30}})
    ends = json.dumps({topic: {"0": 20, "1": 5, "2": -1}})
    frame = route.read(subscribe=topic, startingOffsets=starts, endingOffsets=ends)
    in_range = [(0, 10, 20), (1, 0, 5), (2, 30, COUNT // PARTITIONS)]
    assert numbers(rows_of(frame)) == sorted(
        offset * PARTITIONS + partition
        for partition, start, end in in_range
        for offset in range(start, end)
    )
    assert "headers" not in frame.columns

    frame = route.read(
        subscribe=topic,
        startingTimestamp=str(FIRST_MS + 90 * STEP_MS - 1),
        endingTimestamp=str(FIRST_MS + 120 * STEP_MS),
    )
    assert numbers(rows_of(frame)) == list(range(90, 120))


def test_partitions_by_name_and_topics_by_pattern(
    route: Route, filled: Callable[[SparkBroker], str]
) -> None:
    topic = filled(route.broker)
    frame = route.read(assign=json.dumps({topic: [1]}))
    assert numbers(rows_of(frame)) == list(range(1, COUNT, PARTITIONS))
    frame = route.read(subscribePattern=f"{topic[:-1]}[{topic[-1]}]")
    assert frame.count() == COUNT


def test_work_is_cut_into_pieces(route: Route, filled: Callable[[SparkBroker], str]) -> None:
    topic = filled(route.broker)
    frame = route.read(subscribe=topic, minPartitions="6")
    assert frame.rdd.getNumPartitions() == 6
    assert numbers(rows_of(frame)) == list(range(COUNT))
    whole = route.read(subscribe=topic)
    assert whole.rdd.getNumPartitions() == PARTITIONS
    # Spark's own connector looks at the size of a range only where both ends are numbers.
    starts, ends = (
        json.dumps({topic: {str(partition): offset for partition in range(PARTITIONS)}})
        for offset in (0, COUNT // PARTITIONS)
    )
    small = route.read(
        subscribe=topic, startingOffsets=starts, endingOffsets=ends, maxRecordsPerPartition="40"
    )
    assert small.rdd.getNumPartitions() == PARTITIONS * 3
    assert numbers(rows_of(small)) == list(range(COUNT))


def test_who_reads_committed_records_sees_no_others(route: Route) -> None:
    topic = route.broker.topic(1)
    settings = ProducerSettings(transactional_id=f"for-{topic}")
    route.broker.produce(topic, [b"before"])
    with BlockingProducer(route.broker.addresses, settings) as producer:
        producer.init_transactions()
        for is_committed in (False, True):
            producer.begin_transaction()
            for number in range(ABORTED):
                producer.send(topic, b"%d %s" % (number, str(is_committed).encode()))
            producer.flush()
            if is_committed:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    frame = route.read(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    committed = [b"%d True" % number for number in range(ABORTED)]
    assert [row[3] for row in rows_of(frame)] == [b"before", *committed]
    assert route.read(subscribe=topic).count() == 1 + 2 * ABORTED


def test_an_empty_topic_has_no_rows(route: Route) -> None:
    assert route.read(subscribe=route.broker.topic(2)).collect() == []
