"""Writing topics in one go, by all routes; and the errors that people meet, with what to do."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from spark.spark_brokers import Route, SparkBroker, run_to_end
from support.ports import unused_ports

COUNT = 1_000


def test_rows_are_records(route: Route) -> None:
    """With keys as strings, values as binary, null values, and topics named by the rows."""
    one, two = route.broker.topic(3), route.broker.topic(3)
    rows = route.spark.range(COUNT).selectExpr(
        f"IF(id % 2 = 0, '{one}', '{two}') AS topic",
        "CAST(id AS STRING) AS key",
        "IF(id % 10 = 0, NULL, CAST(CAST(id * 2 AS STRING) AS BINARY)) AS value",
    )
    route.write(rows)
    for remainder, topic in enumerate((one, two)):
        records = [each for of in route.broker.records(topic, 3).values() for each in of]
        expected = {
            b"%d" % number: None if number % 10 == 0 else b"%d" % (number * 2)
            for number in range(remainder, COUNT, 2)
        }
        assert {record.key or b"": record.value for record in records} == expected
        assert len(records) == len(expected)


def test_the_option_goes_before_the_column_and_keys_choose_partitions(route: Route) -> None:
    topic = route.broker.topic(4)
    rows = route.spark.range(100).selectExpr(
        "'elsewhere' AS topic", "CAST(id AS STRING) AS key", "'v' AS value"
    )
    route.write(rows, topic=topic)
    keys = {
        partition: sorted(record.key or b"" for record in records)
        for partition, records in route.broker.records(topic, 4).items()
    }
    # As Kafka's own clients choose them.
    assert [len(of_partition) for of_partition in keys.values()] == [31, 17, 20, 32]
    assert sorted(chain(*keys.values())) == sorted(b"%d" % number for number in range(100))


@pytest.fixture
def own_route(spark: SparkSession, kraftpy_nodes: SparkBroker) -> Route:
    return Route("kraftpy", kraftpy_nodes, spark)


def test_a_cluster_that_is_not_there(own_route: Route, tmp_path: Path) -> None:
    """Said within seconds, for reading, for writing and for streams."""
    nobody = f"127.0.0.1:{unused_ports(1)}"
    reader = own_route.spark.read.format("kraftpy").option("kafka.bootstrap.servers", nobody)
    with pytest.raises(PySparkException, match="Is the cluster running") as caught:
        reader.option("subscribe", "t").load().collect()
    assert nobody in str(caught.value)
    rows = own_route.spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    writer = rows.write.mode("append").format("kraftpy")
    writer = writer.option("kafka.bootstrap.servers", nobody)
    with pytest.raises(PySparkException, match="Is the cluster running"):
        writer.option("topic", "t").save()


def test_a_topic_that_is_not_there(own_route: Route, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="kraftpy topics create nowhere"):
        own_route.read(subscribe="nowhere").collect()
    rows = own_route.spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(PySparkException, match="kraftpy topics create nowhere"):
        own_route.write(rows, topic="nowhere")
    stream = own_route.stream(subscribe="nowhere").select("value")
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(StreamingQueryException, match="kraftpy topics create nowhere"):
        run_to_end(writer)


def test_offsets_that_are_not_there(own_route: Route) -> None:
    topic = own_route.broker.topic(1)
    own_route.broker.produce(topic, [b"1", b"2", b"3"])
    own_route.broker.delete_records(topic, {0: 2})
    options = {"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 1}}}}'}
    with pytest.raises(PySparkException, match="failOnDataLoss"):
        own_route.read(**options).collect()
    rows = own_route.read(**options, failOnDataLoss="false").collect()
    assert [bytes(row.value) for row in rows] == [b"3"]


def test_options_and_columns_that_are_wrong(own_route: Route) -> None:
    with pytest.raises(PySparkException, match="exactly one of subscribe"):
        own_route.read().collect()
    numbers = own_route.spark.range(1).selectExpr("id AS value")
    with pytest.raises(PySparkException, match="must be string or binary; cast it"):
        own_route.write(numbers, topic="t")
