"""Looking for messages in the trace topic, and what a person reads of what is found.

First the ids of the messages that are looked for, then all traces of those: a message that is found
by what its consumer said of it has its producer in its chain, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (Spark's own habit)

from kraftpy_spark.jobs.trace_records import Chain, Trace, chains

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["Wanted", "chain_text", "find_chains", "search"]

_FIELDS = (
    "message_id STRING, key STRING, topic STRING, at_ms BIGINT, status STRING,"
    " tags ARRAY<STRUCT<key: STRING, value: STRING>>"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """All that is given must hold, of one trace of the message."""

    message_id: str | None = None
    key: str | None = None
    """A part of it is enough."""
    topic: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    tags: Sequence[tuple[str, str]] = ()
    status: str | None = None
    limit: int = 20

    def conditions(self) -> Iterable[Column]:
        if self.message_id is not None:
            yield F.col("message_id") == self.message_id
        if self.key is not None:
            yield F.col("key").contains(self.key)
        if self.topic is not None:
            yield F.col("topic") == self.topic
        if self.from_ms is not None:
            yield F.col("at_ms") >= self.from_ms
        if self.to_ms is not None:
            yield F.col("at_ms") < self.to_ms
        if self.status is not None:
            yield F.col("status") == self.status
        for key, value in self.tags:
            wanted = F.struct(F.lit(key).alias("key"), F.lit(value).alias("value"))
            yield F.array_contains("tags", wanted)


def find_chains(
    spark: SparkSession,
    source_format: str,
    source_options: Mapping[str, str],
    topic: str,
    wanted: Wanted,
) -> list[Chain]:
    """Those of the earliest messages, up to the limit."""
    options = {**source_options, "subscribe": topic, "startingOffsets": "earliest"}
    return search(spark.read.format(source_format).options(**options).load(), wanted)


def search(records: DataFrame, wanted: Wanted) -> list[Chain]:
    texts = records.select(F.col("value").cast("string").alias("text"))
    traces = texts.withColumn("trace", F.from_json("text", _FIELDS)).select("text", "trace.*")
    traces = traces.filter(F.col("message_id").isNotNull()).persist()
    try:
        found = traces
        for condition in wanted.conditions():
            found = found.filter(condition)
        ids = found.groupBy("message_id").agg(F.min("at_ms").alias("first"))
        ids = ids.orderBy("first", "message_id").limit(wanted.limit)
        rows = traces.join(ids, "message_id", "left_semi").select("text").collect()
    finally:
        traces.unpersist()
    return chains(Trace.from_json(row["text"]) for row in rows)


def chain_text(chain: Chain) -> str:
    first = chain.traces[0]
    key = "" if first.key is None else f", key {first.key}"
    lines = [f"message {chain.message_id}{key}"]
    for each in chain.traces:
        offset = "" if each.offset is None else f"@{each.offset}"
        did = "sent to" if each.side == "producer" else "read from"
        who = f"{each.group} " if each.group else ""
        words = [
            f"  {_time(each.at_ms)} {did} {each.topic}-{each.partition}{offset} of {each.cluster}"
        ]
        words.append(f"by {who}({each.client_id} at {each.address})")
        outcome = each.status if each.reason is None else f"{each.status}: {each.reason}"
        retries = f", retry {each.retries}" if each.retries else ""
        words.append(f"{outcome}, {each.duration_ms} ms{retries}")
        if each.appended_ms is not None:
            words.append(f"appended {_time(each.appended_ms)}")
        words += [f"{tag.key}={tag.value}" for tag in each.tags]
        lines.append(", ".join(words))
    return "\n".join(lines)


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(" ", "milliseconds")
