"""A driver of Spark that is to die: started by fault_schedules.py, in a process group of its own.

Its argument is JSON: a list of jobs, done one after the other. A job ingests a topic into a lake
and copies it to another topic, exactly once, at the same time, up to the topic's end. It says what
it has reached; where it is told to, it waits for a line before it goes on, or kills its whole group
with SIGKILL: this process, the JVM, and with them the tasks.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from kraftpy_spark.clicks import SCHEMA
from kraftpy_spark.jobs.cluster_view import ClusterView
from kraftpy_spark.jobs.dead_letters import OnceLetters
from kraftpy_spark.jobs.decode import Shape
from kraftpy_spark.jobs.lake import Lake
from kraftpy_spark.jobs.lake_files import LocalFiles
from kraftpy_spark.jobs.reports import Reporter
from kraftpy_spark.jobs.schema import parse_schema
from kraftpy_spark.jobs.session import open_session
from kraftpy_spark.jobs.streaming import Ingestion, Pace, writer_of
from kraftpy_spark.jobs.writing import BatchWriter, Rules
from kraftpy_spark.options import SinkOptions
from pyspark import TaskContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COPYING = "copying"
"""The point in the middle of a task of the copy."""
BEGINS = "begins"
"""The point before both queries."""


@dataclass(frozen=True)
class Job:
    name: str
    bootstrap: str
    source_format: str
    directory: str
    max_offsets_per_trigger: int
    # Points and batches; -1 stands for never.
    wait_at: tuple[str, int] = ("", -1)
    kill_at: tuple[str, int] = ("", -1)
    fails_tasks: bool = False

    @property
    def topics(self) -> tuple[str, str, str]:
        """Of the input, the copy and the dead letters."""
        return self.name, f"{self.name}.copy", f"{self.name}.dlq"

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def main() -> None:
    jars, texts = json.loads(sys.argv[1])
    jobs = [Job(**json.loads(text)) for text in texts]
    spark = open_session(
        "fault driver",
        # A task may fail twice.
        master="local[2,3]",
        jars=jars,
        settings={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            # A process of a few seconds gains nothing from the better compiler, nor from code that
            # is made for each plan.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        },
    )
    for job in jobs:
        reached(job, BEGINS, 0)
        copy = start_copy(spark, job)
        ingest(spark, job)
        copy.awaitTermination()
        say("done", job)


def say(what: str, job: Job, more: str = "") -> None:
    print(f"{job.name} {what} {more}".rstrip(), flush=True)


def reached(job: Job, point: str, batch: int) -> None:
    here = (point, batch)
    say("reached", job, f"{point} {batch}")
    if here == tuple(job.wait_at):
        say("waits", job)
        sys.stdin.readline()
    if here == tuple(job.kill_at):
        os.killpg(0, signal.SIGKILL)


def ingest(spark: SparkSession, job: Job) -> None:
    topic, _, letters = job.topics
    options = {
        "kafka.bootstrap.servers": job.bootstrap,
        "subscribe": topic,
        "includeHeaders": "true",
    }
    directory = Path(job.directory)
    lake = Lake(LocalFiles(directory / "lake"))
    checkpoint = directory / "checkpoint"
    sink = SinkOptions.parse({"kafka.bootstrap.servers": job.bootstrap}, is_stream=True)
    rules = Rules(
        Shape(parse_schema(SCHEMA), event_time="at"),
        transform=partial(with_failing_tasks, column="_offset") if job.fails_tasks else None,
    )
    batches = BatchWriter(
        spark, lake, rules, OnceLetters(letters, sink), reached=partial(reached, job)
    )
    ingestion = Ingestion(
        spark=spark,
        lake=lake,
        batches=batches,
        name=writer_of(LocalFiles(checkpoint), lake.files.root),
        view=ClusterView(options),
        reporter=Reporter(sys.stdout, None),
    )
    pace = Pace(None, job.max_offsets_per_trigger)
    ingestion.run(job.source_format, options, str(checkpoint), pace)


def start_copy(spark: SparkSession, job: Job) -> StreamingQuery:
    topic, copy, _ = job.topics
    records = (
        spark.readStream.format(job.source_format)
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(job.max_offsets_per_trigger))
        .load()
    )
    if job.fails_tasks:
        records = with_failing_tasks(records, column="offset")
    point, offset = job.kill_at
    if point == COPYING:
        records = records.mapInArrow(partial(killing, os.getpgrp(), offset), records.schema)
    return (
        records.select("key", "value")
        .writeStream.format("kraftpy")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("topic", copy)
        .option("deliveryGuarantee", "exactly-once")
        .option("checkpointLocation", f"{job.directory}/copy-checkpoint")
        .trigger(availableNow=True)
        .start()
    )


def with_failing_tasks(rows: DataFrame, column: str) -> DataFrame:
    """The first attempt of every second task fails, after it has handed on some of its rows."""
    return rows.mapInArrow(partial(failing, column), rows.schema)


def failing(column: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    fails = context.attemptNumber() == 0 and context.partitionId() % 2 == 0
    yield from halved(batches, lambda batch: fails and batch.num_rows > 1, fail_on_purpose)


def fail_on_purpose() -> None:
    raise RuntimeError("this task fails on purpose")


def killing(group: int, offset: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Kills the driver when it comes to a record of this offset, with others sent before it."""

    def has_it(batch: pa.RecordBatch) -> bool:
        return offset in batch.column("offset").to_pylist()

    yield from halved(batches, has_it, partial(os.killpg, group, signal.SIGKILL))


def halved(
    batches: Iterator[pa.RecordBatch],
    is_chosen: Callable[[pa.RecordBatch], bool],
    act: Callable[[], None],
) -> Iterator[pa.RecordBatch]:
    """In the middle of a chosen batch, act."""
    for batch in batches:
        if is_chosen(batch):
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            act()
            yield batch.slice(half)
        else:
            yield batch


if __name__ == "__main__":
    main()
