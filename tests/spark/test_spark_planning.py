"""The stream reader as the driver uses it, without Spark: which offsets it plans, and when."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kraftpy_spark.offsets import OffsetRange
from kraftpy_spark.options import SourceOptions
from kraftpy_spark.stream import KraftpyStreamReader
from kraftpy_spark.topics import DataLoss, TopicMissing
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from spark.spark_brokers import SparkBroker


class Readers:
    """Readers of one topic with ten records; they are stopped at the end."""

    def __init__(self, broker: SparkBroker) -> None:
        self.broker = broker
        self.topic = broker.topic(1)
        self.put(10)
        self._made: list[KraftpyStreamReader] = []

    def put(self, count: int) -> None:
        self.broker.produce(self.topic, [b"x"] * count)

    def make(self, **options: str) -> KraftpyStreamReader:
        given = {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
        }
        reader = KraftpyStreamReader(SourceOptions.parse(given | options, is_stream=True))
        self._made.append(reader)
        return reader

    def at(self, offset: int) -> dict[str, dict[str, int]]:
        return {self.topic: {"0": offset}}

    def stop(self) -> None:
        for reader in self._made:
            reader.stop()


@pytest.fixture
def readers(kraftpy_nodes: SparkBroker) -> Iterator[Readers]:
    readers = Readers(kraftpy_nodes)
    yield readers
    readers.stop()


def test_a_batch_waits_for_a_minimum_but_not_for_ever(readers: Readers) -> None:
    reader = readers.make(minOffsetsPerTrigger="11", maxTriggerDelay="1d")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(11)
    assert reader.initialOffset() == readers.at(0)
    assert reader.latestOffset(readers.at(0), limit) == readers.at(0)
    assert reader.reportLatestOffset() == readers.at(10)
    readers.put(1)
    assert reader.latestOffset(readers.at(0), limit) == readers.at(11)

    impatient = readers.make(minOffsetsPerTrigger="100", maxTriggerDelay="0s")
    assert impatient.latestOffset(readers.at(0), ReadMinRows(100)) == readers.at(11)


def test_minimum_and_maximum_together(readers: Readers) -> None:
    reader = readers.make(minOffsetsPerTrigger="4", maxOffsetsPerTrigger="6", maxTriggerDelay="1d")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(6)
    assert reader.latestOffset(readers.at(0), limit) == readers.at(6)
    assert reader.latestOffset(readers.at(6), limit) == readers.at(10)
    assert reader.latestOffset(readers.at(7), limit) == readers.at(7)
    # Trigger.Once says so.
    assert reader.latestOffset(readers.at(0), ReadAllAvailable()) == readers.at(10)


def test_what_comes_after_the_start_is_for_the_next_run(readers: Readers) -> None:
    reader = readers.make(maxOffsetsPerTrigger="8", minOffsetsPerTrigger="5")
    reader.prepareForTriggerAvailableNow()
    readers.put(10)
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset(readers.at(0), limit) == readers.at(8)
    # Two are less than the minimum, and would never become more.
    assert reader.latestOffset(readers.at(8), limit) == readers.at(10)
    assert reader.latestOffset(readers.at(10), limit) == readers.at(10)


def test_who_begins_at_the_end_begins_with_an_empty_batch(readers: Readers) -> None:
    """So that the checkpoint has the beginning before there is anything to lose."""
    reader = readers.make(startingOffsets="latest")
    assert reader.initialOffset() == readers.at(10)
    readers.put(5)
    assert reader.initialOffset() == readers.at(10)
    assert reader.latestOffset(readers.at(10), ReadAllAvailable()) == readers.at(10)
    assert reader.latestOffset(readers.at(10), ReadAllAvailable()) == readers.at(15)

    # The query was stopped before that batch was committed, and more has come since.
    again = readers.make(startingOffsets="latest")
    assert again.initialOffset() == readers.at(15)
    assert again.partitions(readers.at(15), readers.at(10)) == []
    [part] = again.partitions(readers.at(10), readers.at(15))
    assert part.value == OffsetRange(readers.topic, 0, 10, 15)


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_missing_topic_is_told_to_those_who_read_and_end(readers: Readers, starting: str) -> None:
    reader = readers.make(subscribe="nowhere", startingOffsets=starting)
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(TopicMissing, match="kraftpy topics create nowhere"):
        reader.initialOffset()


def test_an_end_before_the_start_is_a_loss(readers: Readers) -> None:
    with pytest.raises(DataLoss, match="before the 12 that was read"):
        readers.make().partitions(readers.at(12), readers.at(10))
    lenient = readers.make(failOnDataLoss="false")
    assert lenient.partitions(readers.at(12), readers.at(10)) == []
