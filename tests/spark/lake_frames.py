"""Frames as a source gives them, and lakes, for tests of the jobs without a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kraftpy_spark.jobs.dead_letters import letters
from kraftpy_spark.jobs.decode import Shape
from kraftpy_spark.jobs.lake import Lake
from kraftpy_spark.jobs.lake_files import LocalFiles
from kraftpy_spark.jobs.schema import parse_schema
from kraftpy_spark.jobs.trace_records import Trace
from kraftpy_spark.jobs.traces import BatchFacts, traces_of
from kraftpy_spark.jobs.writing import BatchWriter, Rules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE_COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,"
    " timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
SCHEMA = "id BIGINT NOT NULL, url STRING, at BIGINT"
NOON_MS = 1_794_830_400_000
"""2026-11-16T12:00:00Z"""
IDS = {"clicks": "id-1"}


def click(number: int, at_ms: int = NOON_MS, **more: object) -> bytes:
    return json.dumps({"id": number, "url": f"/{number}", "at": at_ms, **more}).encode()


@dataclass
class Topic:
    """Records with their places, handed out batch by batch."""

    spark: SparkSession
    name: str = "clicks"
    partition: int = 0
    end: int = 0

    def frame(
        self,
        values: Iterable[bytes | None],
        *,
        at_ms: int = NOON_MS,
        headers: Iterable[tuple[str, bytes]] | None = None,
    ) -> DataFrame:
        rows = []
        time = datetime.fromtimestamp(at_ms / 1000, UTC)
        extra = None if headers is None else list(headers)
        for value in values:
            rows.append((b"k", value, self.name, self.partition, self.end, time, 0, extra))
            self.end += 1
        return self.spark.createDataFrame(rows, SOURCE_COLUMNS)


@dataclass
class KeptLetters:
    """Takes dead letters, and fails when it is told to."""

    topic: str = "clicks.dlq"
    rows: list[Any] = field(default_factory=list)
    fails: bool = False

    def send(self, bad: DataFrame, writer: str, batch: int) -> None:
        if self.fails:
            raise OSError("nobody takes letters")
        self.rows += letters(bad, self.topic).collect()


@dataclass
class KeptTraces:
    """Takes traces, and loses them when it is told to."""

    traces: list[Trace] = field(default_factory=list)
    why_lost: str | None = None

    def tell(self, decoded: DataFrame, facts: BatchFacts) -> str | None:
        if self.why_lost is None:
            rows = traces_of(decoded, facts, "c:9092").collect()
            self.traces += [Trace.from_json(row["value"]) for row in rows]
        return self.why_lost


def rules(schema: str = SCHEMA, **more: Any) -> Rules:
    names = ("event_time", "event_time_unit", "partition_by", "future_limit_ms", "keeps_audit")
    shape = {name: more.pop(name) for name in names if name in more}
    return Rules(Shape(parse_schema(schema), **{"event_time": "at", **shape}), **more)


def batch_writer(
    spark: SparkSession, root: Path, letters: KeptLetters | None = None, **more: Any
) -> BatchWriter:
    reached = more.pop("reached", lambda _point, _batch: None)
    traces = more.pop("traces", None)
    lake = Lake(LocalFiles(root))
    return BatchWriter(spark, lake, rules(**more), letters, traces=traces, reached=reached)


def lake_rows(spark: SparkSession, root: Path, *columns: str) -> list[tuple[Any, ...]]:
    """As somebody reads it who knows nothing of its log; sorted."""
    frame = spark.read.parquet(root.as_uri())
    return sorted(tuple(row) for row in frame.select(*columns).collect())


def header_dict(row: Any) -> Mapping[str, bytes]:
    return {each["key"]: bytes(each["value"]) for each in row["headers"]}
