"""Spark over topics: its own connector on kraftpy and on Apache Kafka, and `format("kraftpy")`.

One session of Spark, local, with as many tasks as there are processors; three nodes of each cluster
that run at the same time. Lines take turns, and each is measured after a first, small run of it.

- ingestion of a topic to Parquet, records of 1,000 B and of 100 B: Spark's connector on both, and
  kraftpy's source on kraftpy
- what a micro-batch of one record takes: planning, workers, commit of the checkpoint
- a topic into a topic: kraftpy's sink, exactly once and at least once

`python -m bench spark --gigabytes 2`, or SPARK_GIGABYTES in the environment, says how much there is
(default: 0.2); SPARK_PASSES repeats all, and the best is shown.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from bench._peers import Cluster, kafka_cluster, kraftpy_cluster
from bench.data import BULK, TIMEOUT_SECONDS, create, rest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

GIGABYTES = float(os.environ.get("SPARK_GIGABYTES", "0.2"))
PASSES = int(os.environ.get("SPARK_PASSES", "1"))
NODES = 3
PARTITIONS = 2
SIZES = (1_000, 100)
SMALL_BATCHES = 8
WARM_UP_ROWS = 2_000
# A sink's rows go through Python one by one: a tenth of the data is enough to measure it.
SINK_SHARE = 0.1


@dataclass(frozen=True)
class Way:
    """A format, and the cluster that it works with."""

    format: str
    cluster: Cluster

    @property
    def name(self) -> str:
        return f"{self.format} on {self.cluster.name}"


def main() -> None:
    from support.spark_session import spark_session

    print(f"   load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", flush=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-bench-")))
        ours = stack.enter_context(kraftpy_cluster(NODES))
        kafka = stack.enter_context(kafka_cluster(NODES))
        spark = spark_session(folder / "warehouse")
        stack.callback(spark.stop)
        # Queries that are stopped in the middle would be told of here.
        spark.sparkContext.setLogLevel("OFF")
        ways = [Way("kafka", kafka), Way("kafka", ours), Way("kraftpy", ours)]
        bench = Bench(spark, folder, [ours, kafka], ways)
        for size in SIZES:
            bench.fill(size)
            bench.ingest(size)
        bench.small_batches()
        bench.sinks()
    print(f"   load average {os.getloadavg()[0]:.1f}")


class Bench:
    def __init__(
        self, spark: SparkSession, folder: Path, clusters: list[Cluster], ways: list[Way]
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._clusters = clusters
        self._ways = ways
        self._runs = 0

    def fill(self, size: int) -> None:
        """A topic of records of that size on each cluster, and a small one to warm up with."""
        count = row_count(size)
        values = [random.randbytes(size) for _ in range(1_000)]
        for cluster in self._clusters:
            for topic, rows in ((f"of-{size}", count), (f"few-{size}", WARM_UP_ROWS)):
                create(cluster, topic, PARTITIONS, 1)
                producer = Producer({"bootstrap.servers": cluster.bootstrap, **BULK})
                for number in range(rows):
                    if number % 10_000 == 0:
                        producer.poll(0)
                    producer.produce(topic, values[number % 1_000], partition=number % PARTITIONS)
                if producer.flush(TIMEOUT_SECONDS):
                    raise SystemExit(f"{cluster.name}: not all records were acknowledged")

    def ingest(self, size: int) -> None:
        count = row_count(size)
        print(f"   topic to Parquet, {count:,} records of {size:,} B", flush=True)
        rates = []
        for way in self._ways:
            self._to_parquet(way, f"few-{size}")
            seconds = min(self._to_parquet(way, f"of-{size}") for _ in range(PASSES))
            rates.append(count / seconds)
            megabytes = count * size / seconds / 1e6
            ratio = f"{rates[-1] / rates[0]:.2f} x" if len(rates) > 1 else ""
            print(f"     {way.name:24} {rates[-1]:12,.0f} rows/s {megabytes:8.1f} MB/s {ratio:>8}")
        official, own = self._ways[1:]
        print(f"     {own.name} against {official.name}: {rates[2] / rates[1]:.2f} x")

    def small_batches(self) -> None:
        """The duration of batches with one record, of which the first ones are warming up."""
        print("   a micro-batch of one record, ms", flush=True)
        for way in self._ways:
            frame = self._stream(way, "few-100", maxOffsetsPerTrigger="1").select("value")
            writer = frame.writeStream.format("noop")
            query = self._start(writer)
            while len(query.recentProgress) < SMALL_BATCHES:
                if query.exception() is not None:
                    raise SystemExit(f"{way.name}: {query.exception()}")
                time.sleep(0.1)
            query.stop()
            spent = [progress.durationMs for progress in query.recentProgress[2:]]
            whole = median(each["triggerExecution"] for each in spent)
            planning = median(
                each.get("latestOffset", 0) + each.get("queryPlanning", 0) for each in spent
            )
            print(f"     {way.name:24} {whole:8.0f} of which planning {planning:.0f}")

    def sinks(self) -> None:
        """From and to topics of the same cluster, which has all of the work."""
        way = self._ways[2]
        size = SIZES[0]
        rows = int(row_count(size) * SINK_SHARE)
        print(f"   topic to topic, {rows:,} records of {size:,} B", flush=True)
        rates = {}
        for guarantee in ("at-least-once", "exactly-once"):
            seconds = min(self._to_topic(way, size, rows, guarantee) for _ in range(PASSES))
            rates[guarantee] = rows / seconds
            print(f"     {guarantee:24} {rates[guarantee]:12,.0f} rows/s")
        print(f"     ratio {rates['exactly-once'] / rates['at-least-once']:.2f} x")

    def _to_topic(self, way: Way, size: int, rows: int, guarantee: str) -> float:
        self._runs += 1
        target = f"target-{self._runs}"
        create(way.cluster, target, PARTITIONS, 1)

        def start(topic: str, limit: int) -> StreamingQuery:
            frame = self._stream(way, topic, maxOffsetsPerTrigger=str(limit)).select("value")
            writer = frame.writeStream.format(way.format).option("topic", target)
            writer = writer.option("kafka.bootstrap.servers", way.cluster.bootstrap)
            return self._start(writer.option("deliveryGuarantee", guarantee))

        self._first_batch(lambda: start(f"few-{size}", WARM_UP_ROWS))
        return self._first_batch(lambda: start(f"of-{size}", rows))

    def _first_batch(self, start: Callable[[], StreamingQuery]) -> float:
        """Seconds that its writing took, as Spark has measured it."""
        rest(self._clusters)
        query = start()
        while not query.recentProgress:
            if query.exception() is not None:
                raise SystemExit(str(query.exception()))
            time.sleep(0.05)
        query.stop()
        milliseconds: int = query.recentProgress[0].durationMs["addBatch"]
        return milliseconds / 1_000

    def _to_parquet(self, way: Way, topic: str) -> float:
        """Seconds from the start of the query to its end."""
        rest(self._clusters)
        target = self._folder / "rows"
        frame = self._stream(way, topic)
        writer = frame.writeStream.format("parquet").option("path", str(target))
        started = time.perf_counter()
        query = self._start(writer.trigger(availableNow=True))
        query.awaitTermination()
        seconds = time.perf_counter() - started
        shutil.rmtree(target)
        return seconds

    def _stream(self, way: Way, topic: str, **options: str) -> DataFrame:
        reader = self._spark.readStream.format(way.format).option("subscribe", topic)
        reader = reader.option("kafka.bootstrap.servers", way.cluster.bootstrap)
        return reader.option("startingOffsets", "earliest").options(**options).load()

    def _start(self, writer: DataStreamWriter) -> StreamingQuery:
        self._runs += 1
        checkpoint = self._folder / f"checkpoint-{self._runs}"
        return writer.option("checkpointLocation", str(checkpoint)).start()


def row_count(size: int) -> int:
    """The small records are as many as the large ones, five times: their rows are what costs."""
    large = int(GIGABYTES * 1e9 / SIZES[0])
    return large if size == SIZES[0] else large * 5
