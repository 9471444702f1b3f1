"""Streams of Spark's over topics: what a batch has, what a restart goes on with, what is lost.

Every test runs by three routes, of which Spark's own connector on Apache Kafka is the measure. All
queries read what is there and end (availableNow), so that no test waits for a moment to pass.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from spark.spark_brokers import Route, SparkBroker, run_to_end

NUMBER = "CAST(CAST(value AS STRING) AS INT) AS number"


class Lake:
    """Where a query puts its rows, and where it keeps its place."""

    def __init__(self, route: Route, folder: Path) -> None:
        self._spark = route.spark
        self.checkpoint = folder / "checkpoint"
        self._files = str(folder / "rows")

    def ingest(self, frame: DataFrame) -> list[int]:
        """Read what is there; the number of rows of each batch that had some."""
        writer = frame.writeStream.format("parquet").option("path", self._files)
        return run_to_end(writer.option("checkpointLocation", str(self.checkpoint)))

    def numbers(self) -> list[int]:
        return sorted(row.number for row in self._spark.read.parquet(self._files).collect())

    def offsets(self, batch: int) -> object:
        """The end of a batch, as the checkpoint has it."""
        lines = (self.checkpoint / "offsets" / str(batch)).read_text().splitlines()
        return json.loads(lines[-1])


def put(route: Route, topic: str, numbers: range, partitions: int = 2) -> None:
    for partition in range(partitions):
        values = [b"%d" % number for number in numbers if number % partitions == partition]
        route.broker.produce(topic, values, partition=partition)


def test_batches_have_their_size_and_a_restart_goes_on(route: Route, tmp_path: Path) -> None:
    topic = route.broker.topic(2)
    put(route, topic, range(100))
    lake = Lake(route, tmp_path)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
    frame = route.stream(subscribe=topic, **options).selectExpr(NUMBER)
    assert lake.ingest(frame) == [40, 40, 20]
    assert lake.numbers() == list(range(100))
    assert lake.offsets(0) == {topic: {"0": 20, "1": 20}}
    assert lake.offsets(2) == {topic: {"0": 50, "1": 50}}

    put(route, topic, range(100, 130))
    assert lake.ingest(frame) == [30]
    assert lake.numbers() == list(range(130))
    # Nothing came: no rows, and no complaint.
    assert lake.ingest(frame) == []


def test_topics_by_pattern_and_one_that_comes_later(route: Route, tmp_path: Path) -> None:
    first = route.broker.topic(2)
    put(route, first, range(10))
    lake = Lake(route, tmp_path)
    frame = route.stream(subscribePattern=f"{first}(-later)?", startingOffsets="earliest")
    lake.ingest(frame.selectExpr(NUMBER))
    later = route.broker.topic(2, name=f"{first}-later")
    put(route, later, range(10, 20))
    put(route, first, range(20, 30))
    lake.ingest(frame.selectExpr(NUMBER))
    assert lake.numbers() == list(range(30))


def test_beginnings_by_offset_by_time_and_by_partition(route: Route, tmp_path: Path) -> None:
    topic = route.broker.topic(2, retention_ms="-1")
    for number in range(20):
        values = [b"%d" % number]
        route.broker.produce(topic, values, partition=number % 2, timestamp_ms=1_000 * number)
    some = json.dumps({topic: {"0": 8, "1": -1}})
    young = json.dumps({topic: {"0": 16_000, "1": 18_500}})
    beginnings: list[tuple[dict[str, str], list[int]]] = [
        ({"subscribe": topic, "startingOffsets": some}, [16, 18]),
        ({"subscribe": topic, "startingTimestamp": "14500"}, list(range(15, 20))),
        ({"subscribe": topic, "startingOffsetsByTimestamp": young}, [16, 18, 19]),
        ({"assign": json.dumps({topic: [1]}), "startingOffsets": "earliest"}, [*range(1, 20, 2)]),
    ]
    for place, (options, expected) in enumerate(beginnings):
        lake = Lake(route, tmp_path / str(place))
        lake.ingest(route.stream(**options).selectExpr(NUMBER))
        assert lake.numbers() == expected, options


def test_a_query_that_begins_at_the_end_misses_nothing_after_it(
    route: Route, tmp_path: Path
) -> None:
    topic = route.broker.topic(2)
    put(route, topic, range(10))
    lake = Lake(route, tmp_path)
    frame = route.stream(subscribe=topic).selectExpr(NUMBER)
    assert lake.ingest(frame) == []
    put(route, topic, range(10, 30))
    lake.ingest(frame)
    assert lake.numbers() == list(range(10, 30))


def test_the_first_batch_is_the_same_after_a_crash(route: Route, tmp_path: Path) -> None:
    """The query is stopped before its first batch, from the end of the topic, is committed."""
    topic = route.broker.topic(2)
    put(route, topic, range(10))
    lake = Lake(route, tmp_path)
    frame = route.stream(subscribe=topic).selectExpr(NUMBER)
    lake.ingest(frame)
    put(route, topic, range(10, 30))
    for commit in (lake.checkpoint / "commits").iterdir():
        commit.unlink()
    lake.ingest(frame)
    assert lake.numbers() == list(range(10, 30))


def test_records_that_were_deleted_before_they_were_read(route: Route, tmp_path: Path) -> None:
    topic = route.broker.topic(2)
    put(route, topic, range(40))
    lake = Lake(route, tmp_path)
    frame = route.stream(subscribe=topic, startingOffsets="earliest").selectExpr(NUMBER)
    lake.ingest(frame)
    put(route, topic, range(40, 100))
    route.broker.delete_records(topic, {0: 30, 1: 35})
    with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
        lake.ingest(frame)
    options = {"startingOffsets": "earliest", "failOnDataLoss": "false"}
    lake.ingest(route.stream(subscribe=topic, **options).selectExpr(NUMBER))
    assert lake.numbers() == sorted([*range(40), *range(60, 100, 2), *range(71, 100, 2)])


def test_a_topic_that_was_made_again(route: Route, tmp_path: Path) -> None:
    topic = route.broker.topic(2)
    put(route, topic, range(40))
    lake = Lake(route, tmp_path)
    frame = route.stream(subscribe=topic, startingOffsets="earliest").selectExpr(NUMBER)
    lake.ingest(frame)
    route.broker.delete_topic(topic)
    route.broker.topic(2, name=topic)
    put(route, topic, range(100, 110))
    with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
        lake.ingest(frame)


def test_a_stream_into_a_topic(route: Route, tmp_path: Path) -> None:
    """Key, value, headers and partition arrive as they were sent, in the order of each task."""
    source, target = route.broker.topic(2), route.broker.topic(3)
    put(route, source, range(200))
    columns = (
        "CAST(value AS STRING) AS key",
        "concat('to ', CAST(value AS STRING)) AS value",
        "CAST(CAST(CAST(value AS STRING) AS INT) % 3 AS INT) AS partition",
        "array(struct('from' AS key, CAST(partition AS STRING) AS value)) AS headers",
    )
    headers = "CAST(headers AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers"
    frame = route.stream(subscribe=source, startingOffsets="earliest").selectExpr(*columns)
    frame = frame.selectExpr("key", "value", "partition", headers)
    run_to_end(route.write_stream(frame, tmp_path, topic=target))
    for partition, records in route.broker.records(target, 3).items():
        expected = [number for number in range(200) if number % 3 == partition]
        assert sorted(int(record.key or b"") for record in records) == expected
        for record in records:
            assert record.value == b"to " + (record.key or b"")
            assert record.headers == (("from", b"%d" % (int(record.key or b"") % 2)),)
        for parity in (0, 1):
            found = [int(each.key or b"") for each in records if int(each.key or b"") % 2 == parity]
            assert found == sorted(found)


def test_a_checkpoint_goes_with_either_format(
    spark: SparkSession, kraftpy_nodes: SparkBroker, tmp_path: Path
) -> None:
    """To go from Spark's connector to kraftpy's, or back, is one word in the query."""
    topic = kraftpy_nodes.topic(2)
    for turn, name in enumerate(("kafka", "kraftpy", "kafka")):
        route = Route(name, kraftpy_nodes, spark)
        put(route, topic, range(turn * 10, turn * 10 + 10))
        lake = Lake(route, tmp_path)
        frame = route.stream(subscribe=topic, startingOffsets="earliest").selectExpr(NUMBER)
        assert lake.ingest(frame) == [10]
    assert lake.numbers() == list(range(30))
