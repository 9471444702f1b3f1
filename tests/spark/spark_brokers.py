"""The clusters that Spark's tests read from and write to: three nodes of kraftpy, and Apache Kafka.

Both are used through kraftpy's own blocking client, so that a test is the same for either.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from compat.data_cluster import running_cluster
from pyspark.errors import StreamingQueryException
from support.components import require
from support.kafka_jars import QUICK_JAVA

from bench._peers import apache_kafka
from kraftpy.client.admin_operations import (
    NewTopic,
    create_topics,
    delete_records,
    delete_topics,
    list_topics,
)
from kraftpy.client.admin_operations import (
    require as require_outcomes,
)
from kraftpy.client.blocking_clients import BlockingAdmin, BlockingConsumer, BlockingProducer
from kraftpy.client.calls import TopicPartition
from kraftpy.client.errors import KafkaError
from kraftpy.client.settings import ConsumerSettings, IsolationLevel, ProducerSettings
from kraftpy.records.reader import Record
from kraftpy.world import Address

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

QUERY_SECONDS = 240

KAFKA_SETTINGS = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "auto.create.topics.enable": "false",
    # Retention is tried at once by tests that lose records.
    "log.retention.check.interval.ms": "500",
}


@dataclass(frozen=True)
class SparkBroker:
    """A cluster, and what tests do with it besides Spark."""

    name: str
    bootstrap: str
    replication_factor: int
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def addresses(self) -> list[Address]:
        pairs = (each.rpartition(":") for each in self.bootstrap.split(","))
        return [(host, int(port)) for host, _, port in pairs]

    def topic(self, partitions: int = 1, *, name: str | None = None, **configs: str) -> str:
        """A new one whose leaders serve it already; without a name it gets one of its own."""
        name = name or f"spark-{next(self.numbers)}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        wanted = NewTopic(name, partitions, self.replication_factor, settings)
        with BlockingAdmin(self.addresses) as admin:
            require_outcomes(admin.run(create_topics([wanted])))
        self.end_offsets(name, partitions)
        return name

    def delete_topic(self, name: str) -> None:
        """Until nobody lists it any more."""
        with BlockingAdmin(self.addresses) as admin:
            require_outcomes(admin.run(delete_topics([name])))
            while name in admin.run(list_topics()):
                pass

    def delete_records(self, topic: str, before: dict[int, int]) -> None:
        with BlockingAdmin(self.addresses) as admin:
            wanted = {TopicPartition(topic, at): offset for at, offset in before.items()}
            admin.run(delete_records(wanted))

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        partition: int | None = None,
        key: bytes | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        settings: ProducerSettings | None = None,
    ) -> None:
        with BlockingProducer(self.addresses, settings) as producer:
            for value in values:
                producer.send(
                    topic,
                    value,
                    key=key,
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                    headers=headers,
                )

    def end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        """Of all partitions, waiting for leaders."""
        wheres = [TopicPartition(topic, partition) for partition in range(partitions)]
        with BlockingConsumer(self.addresses) as consumer:
            while True:
                try:
                    found = consumer.end_offsets(wheres)
                except KafkaError as failure:
                    # A broker may hear of the topic later than the one that was asked.
                    if not failure.code.retriable:
                        raise
                else:
                    return {where.partition: offset for where, offset in found.items()}

    def records(self, topic: str, partitions: int = 1) -> dict[int, list[Record]]:
        """Everything committed that is in the topic now."""
        settings = ConsumerSettings(
            isolation_level=IsolationLevel.READ_COMMITTED, auto_offset_reset="earliest"
        )
        found: dict[int, list[Record]] = {partition: [] for partition in range(partitions)}
        with BlockingConsumer(self.addresses, settings) as consumer:
            wheres = [TopicPartition(topic, partition) for partition in range(partitions)]
            ends = consumer.end_offsets(wheres)
            consumer.assign(wheres)
            while any(consumer.position(where) < ends[where] for where in wheres):
                for part in consumer.poll(1_000):
                    found[part.partition] += part.records
        return found

    def values(self, topic: str, partitions: int = 1) -> list[bytes | None]:
        """The values of all partitions, in the order of partition and offset."""
        found = self.records(topic, partitions)
        return [record.value for records in found.values() for record in records]


@dataclass(frozen=True)
class Route:
    """A format of Spark's, and the cluster that it is used with."""

    format: str
    broker: SparkBroker
    spark: SparkSession

    @property
    def _options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.broker.bootstrap}

    def read(self, **options: str) -> DataFrame:
        reader = self.spark.read.format(self.format).options(**self._options)
        return reader.options(**options).load()

    def stream(self, **options: str) -> DataFrame:
        reader = self.spark.readStream.format(self.format).options(**self._options)
        return reader.options(**options).load()

    def write(self, rows: DataFrame, **options: str) -> None:
        """Spark lets sources in Python append only when they are told to."""
        writer = rows.write.mode("append").format(self.format).options(**self._options)
        writer.options(**options).save()

    def write_stream(self, rows: DataFrame, checkpoint: Path, **options: str) -> DataStreamWriter:
        writer = rows.writeStream.format(self.format).options(**self._options)
        return writer.options(**options).option("checkpointLocation", str(checkpoint))


def run_to_end(writer: DataStreamWriter) -> list[int]:
    """Run a query until it has read what is there; how many rows its batches had, if they had some.

    Spark gives a new process of Python ten seconds to appear. On a machine that has too much to do
    that is not always enough, and says nothing about what is tested: the query is started again.
    """
    counts: list[int] = []
    while True:
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(QUERY_SECONDS), query.status
        except StreamingQueryException as failure:
            if "failed to connect back" not in str(failure):
                raise
        else:
            return counts
        finally:
            counts += [each.numInputRows for each in query.recentProgress if each.numInputRows]
            query.stop()


@contextmanager
def kraftpy_broker(directory: Path, nodes: int = 3) -> Iterator[SparkBroker]:
    with running_cluster(directory, nodes) as cluster:
        yield SparkBroker("kraftpy", cluster.bootstrap, nodes)


@contextmanager
def kafka_broker() -> Iterator[SparkBroker]:
    """Apache Kafka, one node: what it answers does not depend on how many there are."""
    require("java", "mvn")
    with apache_kafka(KAFKA_SETTINGS, java=QUICK_JAVA) as server:
        yield SparkBroker("kafka", f"{server.host}:{server.port}", 1)
