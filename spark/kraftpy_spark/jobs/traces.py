"""What the ingestion tells of single messages: one trace for each record that it has read.

They are sent when the batch is in the lake, and nothing hangs on them: a batch is as good without.
If they can't be sent, they are lost and counted, and the next batches don't try for a while, so
that a trace topic that is gone does not keep the ingestion either.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (Spark's own habit)

from kraftpy_spark.jobs.decode import header, header_number
from kraftpy_spark.jobs.failure import explained_by_spark
from kraftpy_spark.jobs.trace_records import MESSAGE_ID, SAMPLE_RANGE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["BatchFacts", "TopicTraces", "traces_of"]

_PAUSE_SECONDS = 60.0
_LOG_APPEND_TIME = 1
_OWN_HEADERS = (MESSAGE_ID, "audit.pid", "audit.seq", "audit.ts")


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What all traces of a batch have in common."""

    group: str
    """The writer."""
    began_ms: int
    duration_ms: int


@dataclass(slots=True)
class TopicTraces:
    topic: str
    sink_format: str
    sink_options: Mapping[str, str]
    cluster: str
    sample_rate: float = 1.0
    clock: Callable[[], float] = time.monotonic
    _rests_until: float = float("-inf")

    def tell(self, decoded: DataFrame, facts: BatchFacts) -> str | None:
        """None, or why the traces of this batch are lost."""
        if self.clock() < self._rests_until:
            return "the trace topic could not be written to a moment ago"
        try:
            self._send(decoded, facts)
        except Exception as failure:
            self._rests_until = self.clock() + _PAUSE_SECONDS
            return str(explained_by_spark(failure)).splitlines()[0]
        return None

    def _send(self, decoded: DataFrame, facts: BatchFacts) -> None:
        traces = traces_of(decoded, facts, self.cluster, self.sample_rate)
        writer = traces.write.mode("append").format(self.sink_format)
        writer.options(**self.sink_options).option("topic", self.topic).save()


def traces_of(
    decoded: DataFrame, facts: BatchFacts, cluster: str, sample_rate: float = 1.0
) -> DataFrame:
    """Keys (the message's id, so that its traces stay together) and values of the trace topic."""
    context = decoded.sparkSession.sparkContext
    message_id = header(MESSAGE_ID)
    place = F.concat_ws("", "topic", F.lit("-"), "partition", F.lit("@"), "offset")
    named = decoded.withColumn(
        "message_id",
        F.when(F.length(message_id) == 16, F.lower(F.hex(message_id))).otherwise(place),
    )
    if sample_rate < 1:
        chosen = F.crc32(F.col("message_id").cast("binary")) < sample_rate * SAMPLE_RANGE
        named = named.filter(chosen)
    fields = {
        "side": F.lit("consumer"),
        "message_id": F.col("message_id"),
        "key": _text(F.col("key")),
        "at_ms": F.lit(facts.began_ms),
        "duration_ms": F.lit(facts.duration_ms),
        "status": F.when(F.col("reason").isNull(), "ok").otherwise("failed"),
        "cluster": F.lit(cluster),
        "topic": F.col("topic"),
        "partition": F.col("partition"),
        "offset": F.col("offset"),
        "address": F.lit(context.getConf().get("spark.driver.host", "")),
        "client_id": F.lit(context.applicationId),
        "tags": _tags(),
        "group": F.lit(facts.group),
        "retries": F.coalesce(header_number("retry.attempt", 4), F.lit(0)),
        "reason": F.col("explanation"),
        "appended_ms": F.when(
            F.col("timestampType") == _LOG_APPEND_TIME, F.unix_millis("timestamp")
        ),
    }
    value = F.to_json(F.struct(*[column.alias(name) for name, column in fields.items()]))
    return named.select(F.col("message_id").alias("key"), value.alias("value"))


def _tags() -> Column:
    def is_users(each: Column) -> Column:
        return ~each["key"].isin(*_OWN_HEADERS)

    def as_text(each: Column) -> Column:
        return F.struct(each["key"].alias("key"), _text(each["value"]).alias("value"))

    return F.transform(F.filter("headers", is_users), as_text)


def _text(value: Column) -> Column:
    return F.make_valid_utf8(value.cast("string"))
