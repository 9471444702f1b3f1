"""Spark's own connector, batch: the same against kraftpy and against Apache Kafka."""

from __future__ import annotations

from pyspark.sql import SparkSession
from spark.spark_brokers import SparkBroker

NUMBERS = ("CAST(CAST(key AS STRING) AS LONG)", "CAST(CAST(value AS STRING) AS LONG)")


def test_written_rows_are_read(spark: SparkSession, broker: SparkBroker) -> None:
    topic = broker.topic(3)
    rows = spark.range(1_000).selectExpr(
        "CAST(id AS STRING) AS key", "CAST(id * 2 AS STRING) AS value"
    )
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    rows.write.format("kafka").options(**options).option("topic", topic).save()
    read = spark.read.format("kafka").options(**options).option("subscribe", topic).load()
    found = read.selectExpr(*NUMBERS).collect()
    assert sorted(map(tuple, found)) == [(number, number * 2) for number in range(1_000)]
