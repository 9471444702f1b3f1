"""Records that can't become rows, on their way to the dead-letter topic.

Key, value and headers stay as they are; headers are added that say where the record was and why it
is here. Numbers in them are big-endian, as everywhere in kraftpy: four bytes for the partition and
the attempt, eight for the offset and the timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as F  # noqa: N812 (Spark's own habit)

from kraftpy_spark.exactly_once import Task, write_task
from kraftpy_spark.options import SinkOptions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["OnceLetters", "SparkLetters", "letters"]

_TASKS = 4
_HEADERS = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True, slots=True)
class OnceLetters:
    """By transactions of kraftpy's client: a batch that is run again does not send them again.

    The tasks and the order of their records hang on the records alone, so that a second attempt
    has the same digest whatever the cluster looks like then (exactly_once.py).
    """

    topic: str
    options: SinkOptions

    def send(self, bad: DataFrame, writer: str, batch: int) -> None:
        ordered = bad.repartition(_TASKS, "topic", "partition", F.col("offset") % _TASKS)
        ordered = ordered.sortWithinPartitions("topic", "partition", "offset")
        send = partial(_send, self.options, f"{writer}-letters", batch)
        letters(ordered, self.topic).mapInArrow(send, "rows BIGINT").collect()


def _send(
    options: SinkOptions, name: str, batch: int, rows: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    written = write_task(options, Task(name, batch, context.partitionId()), rows)
    yield pa.RecordBatch.from_pydict({"rows": [written.rows]})


@dataclass(frozen=True, slots=True)
class SparkLetters:
    """By Spark's own sink, for clusters that kraftpy's client has no keys for: at least once."""

    topic: str
    options: Mapping[str, str]

    def send(self, bad: DataFrame, _writer: str, _batch: int) -> None:
        letters(bad, self.topic).write.format("kafka").options(**self.options).save()


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
