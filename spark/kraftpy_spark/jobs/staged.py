"""What is really in the files that Spark has staged, for the commit that will name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from pyspark.sql import functions as F  # noqa: N812 (Spark's own habit)

from kraftpy_spark.jobs.lake import Lake
from kraftpy_spark.jobs.lake_state import AddedFile, Source, Span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["COORDINATES", "Staged", "look_at_staged"]

COORDINATES = "_topic STRING, _topic_id STRING, _partition INT, _offset BIGINT"
"""The columns that name a record."""


class Staged(NamedTuple):
    files: tuple[AddedFile, ...]
    newest_event_ms: int | None

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)


def look_at_staged(spark: SparkSession, lake: Lake, folder: str, writer: str, batch: int) -> Staged:
    """Each file with its rows, offsets and the place that it will get."""
    sizes = lake.files.sizes(folder)
    found: dict[str, list[Any]] = {path: [] for path in sizes if path.endswith(".parquet")}
    for row in _facts(spark, lake, folder) if found else ():
        found[unquote(row["path"]).partition(f"{folder}/")[2]].append(row)
    files = tuple(
        AddedFile(
            path=f"{path.rpartition('/')[0]}/{writer}-{batch:06d}-{number:04d}.parquet",
            staged=path,
            rows=sum(row["rows"] for row in rows),
            size=sizes[path],
            spans={_source(row): Span(row["first"], row["last"]) for row in rows},
        )
        for number, (path, rows) in enumerate(found.items())
    )
    newest = max((row["newest"] for rows in found.values() for row in rows), default=None)
    return Staged(files, newest)


def _facts(spark: SparkSession, lake: Lake, folder: str) -> Sequence[Any]:
    staged = spark.read.schema(f"{COORDINATES}, _event_time TIMESTAMP")
    return (
        staged.parquet(lake.staged_uri(folder))
        .groupBy(F.input_file_name().alias("path"), "_topic", "_topic_id", "_partition")
        .agg(
            F.count(F.lit(1)).alias("rows"),
            F.min("_offset").alias("first"),
            F.max("_offset").alias("last"),
            F.max(F.unix_millis("_event_time")).alias("newest"),
        )
        .collect()
    )


def _source(row: Any) -> Source:
    return Source(row["_topic"], row["_topic_id"], row["_partition"])
