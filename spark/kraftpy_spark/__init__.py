"""Spark and kraftpy: `format("kraftpy")`, for reading and writing topics without a jar.

from kraftpy_spark import register
register(spark)
spark.readStream.format("kraftpy").option("kafka.bootstrap.servers", "127.0.0.1:9092")...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `format("kraftpy")` known to this session, with filters that reach the source.

    Spark refuses a source in Python that takes filters as long as its own switch for them is off.
    """
    from kraftpy_spark.source import KraftpyDataSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(KraftpyDataSource)
