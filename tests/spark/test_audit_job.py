"""The audit finds exactly what is missing and what is double, at each tier, with real records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kraftpy_spark.jobs.audit import AuditSettings, audit_lake
from kraftpy_spark.jobs.audit_judge import Audit, Doubled, Gap
from kraftpy_spark.jobs.audit_records import AuditCounter, Stamp, headers_of
from kraftpy_spark.jobs.cluster_view import ClusterView
from kraftpy_spark.jobs.lake import Lake
from kraftpy_spark.jobs.lake_files import LocalFiles
from spark.lake_frames import NOON_MS, KeptLetters, batch_writer
from spark.spark_brokers import SparkBroker

from kraftpy.client.blocking_clients import BlockingProducer
from kraftpy.client.settings import ProducerSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL_MS = 1_000
LATER_MS = NOON_MS + 3_600_000


class Pipeline:
    """A topic with audited records, and a lake that some of them get to."""

    def __init__(self, spark: SparkSession, nodes: SparkBroker, root: Path) -> None:
        self.spark = spark
        self.nodes = nodes
        self.topic = nodes.topic(1)
        self.told = nodes.topic(1, name=f"{self.topic}.audit")
        self.counter = AuditCounter("p", INTERVAL_MS)
        self.root = root
        self.options = {"kafka.bootstrap.servers": nodes.bootstrap, "subscribe": self.topic}
        topics = ClusterView(self.options).topics()
        self.ids = {self.topic: str(topics[self.topic].topic_id)}

    def stamp(self, at_ms: int) -> Stamp:
        return self.counter.stamp(self.topic, 0, at_ms)

    def acknowledge(self, stamps: Sequence[Stamp]) -> None:
        for stamp in stamps:
            self.counter.acknowledged(self.topic, 0, stamp, 10, stamp.time_ms + 3)

    def send(self, stamps: Sequence[Stamp]) -> None:
        self._send(stamps, ProducerSettings(), aborts=False)

    def abort(self, stamps: Sequence[Stamp]) -> None:
        settings = ProducerSettings(transactional_id=f"{self.topic}-aborting")
        self._send(stamps, settings, aborts=True)

    def _send(self, stamps: Sequence[Stamp], settings: ProducerSettings, *, aborts: bool) -> None:
        with BlockingProducer(self.nodes.addresses, settings) as producer:
            if aborts:
                producer.init_transactions()
                producer.begin_transaction()
            for stamp in stamps:
                producer.send(
                    self.topic,
                    b'{"id": %d}' % stamp.seq,
                    partition=0,
                    timestamp_ms=stamp.time_ms,
                    headers=headers_of(stamp),
                )
            producer.flush()
            if aborts:
                producer.abort_transaction()

    def ingest(
        self, where: str, writer: str = "w", reached: Callable[[str, int], None] | None = None
    ) -> None:
        frame = (
            self.spark.read.format("kraftpy")
            .options(**self.options)
            .option("includeHeaders", "true")
            .option("kafka.isolation.level", "read_committed")
            .load()
            .filter(where)
        )
        rules: dict[str, Any] = {"schema": "id BIGINT", "event_time": None, "keeps_audit": True}
        if reached is not None:
            rules["reached"] = reached
        batches = batch_writer(self.spark, self.root, KeptLetters(), **rules)
        # As a writer that does not know what is there, which is what doubles come from.
        batches.write(frame, writer, 0, topic_ids=self.ids, wanted={})

    def audit(self, *, now_ms: int = LATER_MS, tells: bool = True) -> Audit:
        if tells:
            texts = [record.to_json().encode() for record in self.counter.flush()]
            self.nodes.produce(self.told, texts)
        settings = AuditSettings(
            source_format="kraftpy",
            source_options=self.options,
            topic_ids=self.ids,
            audit_topic=self.told if tells else None,
            interval_ms=INTERVAL_MS,
        )
        return audit_lake(self.spark, Lake(LocalFiles(self.root)), settings, now_ms)


@pytest.fixture
def pipeline(spark: SparkSession, kraftpy_nodes: SparkBroker, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, kraftpy_nodes, tmp_path / "lake")


class Dead(Exception):  # noqa: N818 (it names what happened)
    """The writer has died."""


def die_when_committed(point: str, _batch: int) -> None:
    if point == "committed":
        raise Dead


def test_nothing_is_wrong_with_what_is_whole(pipeline: Pipeline) -> None:
    """PAT-64, PAT-66, PAT-68: counts are equal at all tiers; aborted records count nowhere.

    The writer has died before its files were at their places; the audit puts them there.
    """
    stamps = [pipeline.stamp(NOON_MS + 100 * at) for at in range(20)]
    pipeline.send(stamps)
    pipeline.acknowledge(stamps)
    aborted = [pipeline.stamp(NOON_MS + 500) for _ in range(3)]
    pipeline.abort(aborted)
    for stamp in aborted:
        pipeline.counter.failed(pipeline.topic, 0, stamp)
    after = [pipeline.stamp(NOON_MS + 1_999)]
    pipeline.send(after)
    pipeline.acknowledge(after)
    with pytest.raises(Dead):
        pipeline.ingest("true", reached=die_when_committed)
    assert Lake(LocalFiles(pipeline.root)).visible_files() == []
    found = pipeline.audit()
    assert found.is_clean, found
    counts = [
        (each.bucket_ms, [each.tiers[tier].records for tier in ("producer", "topic", "lake")])
        for each in found.buckets
    ]
    assert counts == [(NOON_MS, [10, 10, 10]), (NOON_MS + 1_000, [11, 11, 11])]
    tiers = found.buckets[0].tiers
    assert (tiers["producer"].p50_ms, tiers["producer"].max_ms) == (3, 3)
    assert tiers["topic"].p99_ms == 0
    assert (tiers["lake"].p50_ms or 0) > 0


def test_losses_and_doubles_are_named(pipeline: Pipeline) -> None:
    """PAT-56, PAT-65, PAT-67, PAT-69: by tier, partition and number, after the grace."""
    stamps = [pipeline.stamp(NOON_MS + at) for at in range(12)]
    # The producer thinks that all were taken; 4, 5 and the last one never got to the topic.
    pipeline.acknowledge(stamps)
    pipeline.send([stamp for stamp in stamps if stamp.seq not in (4, 5, 11)])
    # And 2 got there twice.
    pipeline.send([stamps[2]])
    end = 10
    # Of the topic, the lake misses offsets 0, 6 and 7; and has offset 3 twice.
    pipeline.ingest(f"offset not in (0, 6, 7) and offset < {end}")
    pipeline.ingest("offset = 3", writer="careless")
    topic = pipeline.topic
    found = pipeline.audit()
    assert found.gaps == [
        Gap("lake", topic, 0, "offset", "", 0, 0),
        Gap("lake", topic, 0, "offset", "", 6, 7),
        Gap("topic", topic, 0, "seq", "p", 4, 5),
        Gap("topic", topic, 0, "seq", "p", 11, 11),
    ]
    assert found.doubled == [
        Doubled("topic", topic, 0, "seq", "p", 2, 2),
        Doubled("lake", topic, 0, "offset", "", 3, 2),
        Doubled("lake", topic, 0, "seq", "p", 2, 2),
        Doubled("lake", topic, 0, "seq", "p", 3, 2),
    ]
    [bucket] = found.buckets
    assert [bucket.tiers[tier].records for tier in ("producer", "topic", "lake")] == [12, 10, 8]
    assert found.verdicts == {"loss": 1}
    early = pipeline.audit(now_ms=NOON_MS + 3 * INTERVAL_MS - 1)
    assert early.verdicts == {"open": 1}
    assert early.gaps == []
    # What comes late makes it good.
    pipeline.send([replace(stamps[seq]) for seq in (4, 5, 11)])
    pipeline.ingest(f"offset in (0, 6, 7) or offset > {end - 1}", writer="late")
    assert pipeline.audit(tells=False).gaps == []
