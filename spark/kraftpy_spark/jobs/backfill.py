"""A range of a topic's past into the lake, in one batch.

What the lake has of it is left out by its offsets, so that a back-fill may overlap with anything,
be run twice, or be run after a schema was corrected: then the dead letters of the first time become
rows, and those that are still bad are sent again. One that is killed has added no row, and is run
again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kraftpy_spark.jobs.failure import JobFailed
from kraftpy_spark.jobs.lake import Lake
from kraftpy_spark.jobs.lake_state import Source, Span
from kraftpy_spark.jobs.reports import BatchReport
from kraftpy_spark.jobs.writing import BatchWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kraftpy.client.cluster import TopicInfo
    from kraftpy_spark.jobs.cluster_view import ClusterView

__all__ = ["Offsets", "Range", "back_fill", "resolve"]

Offsets = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Range:
    """From the first, up to and without the second; offsets go before times, and what is given by
    neither is the beginning or the end of now.
    """

    from_ms: int | None = None
    to_ms: int | None = None
    from_offsets: Offsets = field(default_factory=dict)
    to_offsets: Offsets = field(default_factory=dict)


def back_fill(
    spark: SparkSession,
    lake: Lake,
    batches: BatchWriter,
    view: ClusterView,
    chosen: Range,
    *,
    topics: Mapping[str, TopicInfo],
    source_format: str,
    source_options: Mapping[str, str],
) -> BatchReport:
    lake.recover()
    spans = resolve(view, topics, chosen)
    records = (
        spark.read.format(source_format)
        .options(**source_options)
        .option("startingOffsets", _as_json({each: span.first for each, span in spans.items()}))
        .option("endingOffsets", _as_json({each: span.last + 1 for each, span in spans.items()}))
        .load()
    )
    report = batches.write(
        records,
        f"backfill-{uuid.uuid4().hex[:12]}",
        0,
        topic_ids={name: str(info.topic_id) for name, info in topics.items()},
        wanted=spans,
    )
    assert report is not None
    return report


def resolve(
    view: ClusterView, topics: Mapping[str, TopicInfo], chosen: Range
) -> dict[Source, Span]:
    """The offsets of every partition; an empty span ends before it begins."""
    beginnings, ends = view.beginnings(topics), view.ends(topics)
    first = beginnings if chosen.from_ms is None else view.at_time(topics, chosen.from_ms)
    last = ends if chosen.to_ms is None else view.at_time(topics, chosen.to_ms)
    spans = {}
    for source in ends:
        start = _given(chosen.from_offsets, source, first[source])
        end = _given(chosen.to_offsets, source, last[source])
        where = f"{source.topic}-{source.partition}"
        if not beginnings[source] <= start or end > ends[source]:
            raise JobFailed(
                f"{where} has offsets {beginnings[source]} to {ends[source]}, and"
                f" {start} to {end} are asked for; what is deleted can't be brought back"
            )
        if start > end:
            raise JobFailed(f"{where}: the range ends at {end} before it begins at {start}")
        spans[source] = Span(start, end - 1)
    return spans


def _given(offsets: Offsets, source: Source, otherwise: int) -> int:
    return offsets.get(source.topic, {}).get(str(source.partition), otherwise)


def _as_json(offsets: Mapping[Source, int]) -> str:
    """In the shape of Spark's options."""
    made: dict[str, dict[str, int]] = {}
    for source, offset in offsets.items():
        made.setdefault(source.topic, {})[str(source.partition)] = offset
    return json.dumps(made)
