"""Records that can't become rows, on their way to the dead-letter topic.

Key, value and headers stay as they are; headers are added that say where the record was and why it
is here. Numbers in them are big-endian, as everywhere in kraftpy: four bytes for the partition and
the attempt, eight for the offset and the timestamp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (Spark's own habit)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["SparkDeadLetters", "letters"]

_HEADERS = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True, slots=True)
class SparkDeadLetters:
    """By one of Spark's sinks."""

    topic: str
    sink_format: str
    bootstrap: str
    options: Mapping[str, str] = field(default_factory=dict)

    def send(self, frame: DataFrame, writer: str, batch: int) -> None:
        (
            frame.write.format(self.sink_format)
            .option("kafka.bootstrap.servers", self.bootstrap)
            .options(**self.options)
            .save()
        )


def letters(bad: DataFrame, topic: str) -> DataFrame:
    """What a sink takes, of decoded records with a reason."""
    added = F.array(
        _header("retry.attempt", _big_endian(F.lit(0), 4)),
        _header("retry.origin-topic", F.col("topic").cast("binary")),
        _header("retry.origin-partition", _big_endian(F.col("partition"), 4)),
        _header("retry.origin-offset", _big_endian(F.col("offset"), 8)),
        _header("retry.origin-timestamp", _big_endian(F.unix_millis("timestamp"), 8)),
        _header("retry.exception", F.lit("kraftpy_spark.jobs.BadRecord").cast("binary")),
        _header("retry.exception-message", F.col("explanation").cast("binary")),
        _header("dlq.reason", F.col("reason").cast("binary")),
    ).cast(_HEADERS)
    nothing = F.array().cast(_HEADERS)
    return bad.select(
        F.lit(topic).alias("topic"),
        "key",
        "value",
        F.concat(F.coalesce("headers", nothing), added).alias("headers"),
    )


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.alias("value"))


def _big_endian(number: Column, size: int) -> Column:
    """Its lowest bytes, the highest of them first."""
    digits = F.lpad(F.hex(number.cast("long")), 16, "0")
    return F.unhex(F.substring(digits, 17 - 2 * size, 2 * size))
