"""Does the lake have what was sent? Every record once, and if not, which ones.

Three tiers are compared for each partition and bucket of time: what producers told the audit topic
(audit_records.py), what the topic has, and what has arrived, in the lake or among the dead letters.
The topic is read as committed, so that aborted records count nowhere.

Counts find out that something is wrong, numbers find out what: offsets that the topic has and that
have not arrived; offsets and producers' numbers that are there more than once; producers' numbers
that are nowhere. Lists are exact, with runs of missing numbers as one line.

Without audit headers a record's timestamp stands for the time of sending, and there are no numbers
but offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's own habit)

from kraftpy_spark.jobs.audit_judge import Audit, BucketCounts, Doubled, Gap, TierCount, judge
from kraftpy_spark.jobs.audit_records import AuditRecord, Latencies, bucket_start
from kraftpy_spark.jobs.decode import audit_columns, header, header_number
from kraftpy_spark.jobs.failure import JobFailed
from kraftpy_spark.jobs.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["AuditSettings", "audit_lake"]

_PLACE = ("topic", "partition")
_LAKE_COLUMNS = (
    "_topic STRING, _topic_id STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP,"
    " _ingested_at TIMESTAMP, _audit_pid STRING, _audit_seq BIGINT, _audit_time TIMESTAMP"
)
_ROW = (
    "topic STRING, partition INT, offset BIGINT, pid STRING, seq BIGINT, sent_ms BIGINT,"
    " there_ms BIGINT"
)


@dataclass(frozen=True, slots=True)
class AuditSettings:
    source_format: str
    source_options: Mapping[str, str]
    """Of the topics that are audited."""
    topic_ids: Mapping[str, str]
    beginnings: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Where retention has left the partitions; buckets before that are not compared with them."""
    dead_letters: str | None = None
    audit_topic: str | None = None
    interval_ms: int = 60_000
    grace_ms: int | None = None
    """None: two intervals."""

    @property
    def grace(self) -> int:
        return 2 * self.interval_ms if self.grace_ms is None else self.grace_ms


def audit_lake(spark: SparkSession, lake: Lake, settings: AuditSettings, now_ms: int) -> Audit:
    # What a dead writer has committed and not moved to its place would be taken for lost.
    lake.recover()
    told = _told(spark, settings)
    # Each is read once, and looked at several times.
    topic = _topic_rows(spark, settings).persist()
    lake_rows = _lake_rows(spark, lake, settings).persist()
    # A dead letter may have been sent again by a back-fill, or have become a row by one.
    letters = _letters(spark, settings).dropDuplicates([*_PLACE, "offset"])
    letters = letters.join(lake_rows, [*_PLACE, "offset"], "left_anti")
    arrived = lake_rows.unionByName(letters).persist()
    try:
        known = arrived.filter("seq IS NOT NULL").select(*_PLACE, "pid", "seq").distinct()
        absent = topic.join(arrived, [*_PLACE, "offset"], "left_anti")
        # A record that was sent twice, and left out of the lake the second time, has arrived.
        doubles = absent.join(known, [*_PLACE, "pid", "seq"], "left_semi")
        lost = absent.join(known, [*_PLACE, "pid", "seq"], "left_anti").filter(
            _closed(settings, now_ms)
        )
        gaps = [
            *_runs(lost.select(*_PLACE, F.lit("").alias("pid"), "offset"), "lake", "offset"),
            *_holes(topic.unionByName(arrived), told, settings, now_ms),
        ]
        doubled = [
            *_doubled(topic, "topic", "seq"),
            *_doubled(lake_rows, "lake", "offset"),
            *_doubled(lake_rows, "lake", "seq"),
        ]
        buckets = _buckets(
            told, topic, arrived.unionByName(doubles.select(arrived.columns)), settings
        )
    finally:
        for frame in (topic, lake_rows, arrived):
            frame.unpersist()
    return judge(
        buckets,
        gaps,
        doubled,
        now_ms=now_ms,
        interval_ms=settings.interval_ms,
        grace_ms=settings.grace,
    )


def _read(spark: SparkSession, settings: AuditSettings, topic: str | None = None) -> DataFrame:
    options = {
        **settings.source_options,
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
        "startingOffsets": "earliest",
        "endingOffsets": "latest",
    }
    if topic is not None:
        options.pop("subscribePattern", None)
        options["subscribe"] = topic
    return spark.read.format(settings.source_format).options(**options).load()


def _sent_ms() -> Column:
    return F.coalesce(F.unix_millis("_audit_time"), F.unix_millis("timestamp"))


def _topic_rows(spark: SparkSession, settings: AuditSettings) -> DataFrame:
    frame = _read(spark, settings).select(*_PLACE, "offset", "timestamp", *audit_columns())
    return frame.select(
        *_PLACE,
        "offset",
        F.col("_audit_pid").alias("pid"),
        F.col("_audit_seq").alias("seq"),
        _sent_ms().alias("sent_ms"),
        F.unix_millis("timestamp").alias("there_ms"),
    )


def _lake_rows(spark: SparkSession, lake: Lake, settings: AuditSettings) -> DataFrame:
    files = lake.visible_files()
    if not files:
        return spark.createDataFrame([], _ROW)
    frame = spark.read.schema(_LAKE_COLUMNS).parquet(*lake.uris(files))
    current = [
        (F.col("_topic") == name) & (F.col("_topic_id") == topic_id)
        for name, topic_id in settings.topic_ids.items()
    ]
    wanted = F.lit(False)
    for each in current:
        wanted |= each
    return frame.filter(wanted).select(
        F.col("_topic").alias("topic"),
        F.col("_partition").alias("partition"),
        F.col("_offset").alias("offset"),
        F.col("_audit_pid").alias("pid"),
        F.col("_audit_seq").alias("seq"),
        F.coalesce(F.unix_millis("_audit_time"), F.unix_millis("_timestamp")).alias("sent_ms"),
        F.unix_millis("_ingested_at").alias("there_ms"),
    )


def _letters(spark: SparkSession, settings: AuditSettings) -> DataFrame:
    if settings.dead_letters is None:
        return spark.createDataFrame([], _ROW)
    frame = _read(spark, settings, settings.dead_letters).select(
        header("retry.origin-topic").cast("string").alias("topic"),
        header_number("retry.origin-partition", 4).cast("int").alias("partition"),
        header_number("retry.origin-offset").alias("offset"),
        header_number("retry.origin-timestamp").alias("origin_ms"),
        "timestamp",
        *audit_columns(),
    )
    return frame.filter(F.col("topic").isin(list(settings.topic_ids))).select(
        *_PLACE,
        "offset",
        F.col("_audit_pid").alias("pid"),
        F.col("_audit_seq").alias("seq"),
        F.coalesce(F.unix_millis("_audit_time"), F.col("origin_ms")).alias("sent_ms"),
        F.unix_millis("timestamp").alias("there_ms"),
    )


def _told(spark: SparkSession, settings: AuditSettings) -> list[AuditRecord]:
    if settings.audit_topic is None:
        return []
    rows = _read(spark, settings, settings.audit_topic).select("value").collect()
    records = [AuditRecord.from_json(bytes(row["value"])) for row in rows]
    wanted = [each for each in records if each.topic in settings.topic_ids]
    for each in wanted:
        if settings.interval_ms % each.interval_ms:
            raise JobFailed(
                f"producers count by intervals of {each.interval_ms} ms, which do not add up to"
                f" --interval {settings.interval_ms}ms; use a multiple"
            )
    return [
        replace(each, bucket_ms=bucket_start(each.bucket_ms, settings.interval_ms))
        for each in wanted
    ]


def _bucket(settings: AuditSettings) -> Column:
    return F.col("sent_ms") - F.pmod(F.col("sent_ms"), F.lit(settings.interval_ms))


def _closed(settings: AuditSettings, now_ms: int) -> Column:
    return _bucket(settings) + settings.interval_ms + settings.grace <= now_ms


def _runs(frame: DataFrame, tier: str, kind: Any) -> list[Gap]:
    """Missing numbers, those that follow each other as one."""
    order = Window.partitionBy(*_PLACE, "pid").orderBy(kind)
    runs = (
        frame.withColumn("run", F.col(kind) - F.row_number().over(order))
        .groupBy(*_PLACE, "pid", "run")
        .agg(F.min(kind).alias("first"), F.max(kind).alias("last"))
        .orderBy(*_PLACE, "pid", "first")
    )
    return [
        Gap(tier, row["topic"], row["partition"], kind, row["pid"], row["first"], row["last"])
        for row in runs.collect()
    ]


def _holes(
    rows: DataFrame, told: Sequence[AuditRecord], settings: AuditSettings, now_ms: int
) -> list[Gap]:
    """Producers' numbers that are neither in the topic nor anywhere else.

    Before the first number that is seen there is no hole, unless the producer told of it: retention
    takes the oldest. What lies in open buckets is not judged.
    """
    order = Window.partitionBy(*_PLACE, "pid").orderBy("seq")
    seen = rows.filter("seq IS NOT NULL").select(*_PLACE, "pid", "seq", "sent_ms").distinct()
    pairs = (
        seen.withColumn("before", F.lag("seq").over(order))
        .filter(F.col("seq") > F.col("before") + 1)
        .filter(_closed(settings, now_ms))
    )
    found = {
        (row["topic"], row["partition"], row["pid"], number)
        for row in pairs.collect()
        for number in range(row["before"] + 1, row["seq"])
    }
    ends = {
        (row["topic"], row["partition"], row["pid"]): row["last"]
        for row in seen.groupBy(*_PLACE, "pid").agg(F.max("seq").alias("last")).collect()
    }
    for each in told:
        if each.bucket_ms + settings.interval_ms + settings.grace > now_ms or not each.count:
            continue
        place = (each.topic, each.partition, each.pid)
        first = max(each.min_seq, ends.get(place, -1) + 1)
        found |= {(*place, number) for number in range(first, each.max_seq + 1)}
    for each in told:
        found -= {(each.topic, each.partition, each.pid, number) for number in each.failed}
    return _as_gaps(sorted(found))


def _as_gaps(numbers: Sequence[tuple[str, int, str, int]]) -> list[Gap]:
    gaps: list[Gap] = []
    for topic, partition, pid, number in numbers:
        last = gaps[-1] if gaps else None
        if last is not None and (last.topic, last.partition, last.pid, last.last + 1) == (
            topic,
            partition,
            pid,
            number,
        ):
            gaps[-1] = last._replace(last=number)
        else:
            gaps.append(Gap("topic", topic, partition, "seq", pid, number, number))
    return gaps


def _doubled(frame: DataFrame, tier: str, kind: Any) -> list[Doubled]:
    pid = F.lit("") if kind == "offset" else F.col("pid")
    counts = (
        frame.filter(F.col(kind).isNotNull())
        .groupBy(*_PLACE, pid.alias("pid"), kind)
        .agg(F.count(F.lit(1)).alias("times"))
        .filter("times > 1")
        .orderBy(*_PLACE, "pid", kind)
    )
    return [
        Doubled(tier, row["topic"], row["partition"], kind, row["pid"], row[kind], row["times"])
        for row in counts.collect()
    ]


def _buckets(
    told: Sequence[AuditRecord], topic: DataFrame, arrived: DataFrame, settings: AuditSettings
) -> list[BucketCounts]:
    tiers: dict[str, dict[tuple[str, int, int], TierCount]] = {
        "topic": _counts(topic, settings),
        "lake": _counts(arrived, settings),
    }
    if settings.audit_topic is not None:
        tiers["producer"] = _told_counts(told)
    places = sorted({place for counts in tiers.values() for place in counts})
    first = {}
    for name, partition, bucket in sorted(tiers["topic"], reverse=True):
        first[name, partition] = bucket
    made = []
    for name, partition, bucket in places:
        there = {
            tier: counts.get((name, partition, bucket), TierCount(0))
            for tier, counts in tiers.items()
        }
        is_cut = settings.beginnings.get((name, partition), 0) > 0
        if is_cut and bucket <= first.get((name, partition), bucket):
            del there["topic"]
        made.append(BucketCounts(name, partition, bucket, there))
    return made


def _counts(frame: DataFrame, settings: AuditSettings) -> dict[tuple[str, int, int], TierCount]:
    latency = F.col("there_ms") - F.col("sent_ms")
    found = (
        frame.groupBy(*_PLACE, _bucket(settings).alias("bucket"))
        .agg(
            F.count(F.lit(1)).alias("records"),
            F.percentile(latency, F.array(F.lit(0.5), F.lit(0.95), F.lit(0.99))).alias("shares"),
            F.max(latency).alias("max"),
        )
        .collect()
    )
    return {
        (row["topic"], row["partition"], row["bucket"]): TierCount._make(
            (row["records"], *row["shares"], float(row["max"]))
        )
        for row in found
    }


def _told_counts(told: Sequence[AuditRecord]) -> dict[tuple[str, int, int], TierCount]:
    """Sums of what all producers said; their percentiles are upper ends of a histogram's bins."""
    counts: dict[tuple[str, int, int], int] = {}
    latencies: dict[tuple[str, int, int], Latencies] = {}
    for each in told:
        place = (each.topic, each.partition, each.bucket_ms)
        counts[place] = counts.get(place, 0) + each.count
        latencies.setdefault(place, Latencies()).merge(each.latencies)
    return {
        place: TierCount._make(
            (
                count,
                *[latencies[place].percentile(share) for share in (0.5, 0.95, 0.99)],
                latencies[place].max_ms,
            )
        )
        for place, count in counts.items()
    }
