"""One batch of records into the lake, whole and once.

Spark runs a batch again when it is not sure that it was finished: after a crash, from the offsets
in its checkpoint. So a batch is known by its number: `BatchWriter.write` does nothing for one
that the lake's log has. What a batch leaves behind before its commit (staged files) is thrown away
by the next attempt; dead letters are sent before the commit, so that none is lost.

Records that other writers have brought already (a back-fill that overlaps, a checkpoint that was
lost) are left out by their offsets; with `dedup_keys`, rows whose keys the same folder of the lake
has are left out, too. The lake itself is the memory of both: there is no state to lose.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from pyspark.sql import Observation, Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's own habit)
from pyspark.sql.types import StructType

from kraftpy_spark.jobs.decode import OWN_COLUMNS, Shape, decode
from kraftpy_spark.jobs.delta_log import table_schema
from kraftpy_spark.jobs.failure import JobFailed
from kraftpy_spark.jobs.lake import Lake
from kraftpy_spark.jobs.lake_state import (
    AddedFile,
    Commit,
    Conflict,
    LakeState,
    Source,
    Span,
    Table,
)
from kraftpy_spark.jobs.reports import BatchReport
from kraftpy_spark.jobs.staged import COORDINATES, look_at_staged
from kraftpy_spark.jobs.traces import BatchFacts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["BatchWriter", "DeadLetters", "Rules", "Traces", "Transform"]

Transform: TypeAlias = "Callable[[DataFrame], DataFrame]"
LatePolicy: TypeAlias = Literal["keep", "dead-letter"]

_ATTEMPTS = 5
_LAST_OFFSET = 2**63 - 1


class DeadLetters(Protocol):
    """Where bad records go."""

    def send(self, bad: DataFrame, writer: str, batch: int, /) -> None:
        """All of these decoded records, before it returns."""
        ...


class Traces(Protocol):
    """Whoever is told what became of each record."""

    def tell(self, decoded: DataFrame, facts: BatchFacts, /) -> str | None:
        """None, or why these are lost. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class Rules:
    """How records become rows, and which do not."""

    shape: Shape
    watermark_delay_ms: int = 10 * 60 * 1000
    late: LatePolicy = "keep"
    dedup_keys: tuple[str, ...] = ()
    transform: Transform | None = None


@dataclass(slots=True)
class _Attempt:
    """What one attempt at a batch knows and counts."""

    writer: str
    batch: int
    state: LakeState
    topic_ids: Mapping[str, str]
    wanted: Mapping[Source, Span]
    started: float
    counts: Mapping[str, int] = field(default_factory=dict)
    bad_ends: Mapping[Source, int] = field(default_factory=dict)
    table: Table | None = None


def _nothing(_point: str, _batch: int) -> None:
    """Nobody wants to know how far a batch is."""


class BatchWriter:
    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        rules: Rules,
        dead_letters: DeadLetters | None,
        *,
        traces: Traces | None = None,
        reached: Callable[[str, int], None] = _nothing,
    ) -> None:
        """`reached` hears when a batch is staged, dead-lettered, committed, published."""
        self._spark = spark
        self._lake = lake
        self._rules = rules
        self._dead_letters = dead_letters
        self._traces = traces
        self._reached = reached

    def write(
        self,
        records: DataFrame,
        writer: str,
        batch: int,
        *,
        topic_ids: Mapping[str, str],
        wanted: Mapping[Source, Span] | None = None,
    ) -> BatchReport | None:
        """None: it was in the lake already. `wanted` says which offsets the batch can have; without
        it they follow those that this writer has written.
        """
        started = time.monotonic()
        if self._lake.state().is_done(writer, batch):
            self._lake.recover()
            return None
        for _ in range(_ATTEMPTS):
            state = self._lake.state()
            span = self._following(state, writer, topic_ids) if wanted is None else wanted
            attempt = _Attempt(writer, batch, state, topic_ids, span, started)
            try:
                return self._try(records, attempt)
            except Conflict as conflict:
                failure = conflict
        raise JobFailed(f"other writers got in the way {_ATTEMPTS} times; the last time: {failure}")

    def _following(
        self, state: LakeState, writer: str, topic_ids: Mapping[str, str]
    ) -> dict[Source, Span]:
        """Everything behind what this writer has written, of the topics as they are now."""
        ends = state.writer(writer).ends
        there = {source for each in state.files.values() for source in each.spans}
        return {
            source: Span(ends.get(source, -1) + 1, _LAST_OFFSET)
            for source in sorted(there)
            if topic_ids.get(source.topic, "") == source.topic_id
        }

    def _try(self, records: DataFrame, attempt: _Attempt) -> BatchReport:
        rules = self._rules
        newest = attempt.state.writer(attempt.writer).max_event_ms
        watermark_ms = None if newest is None else newest - rules.watermark_delay_ms
        decoded = decode(records, rules.shape, attempt.topic_ids, watermark_ms)
        if rules.late == "dead-letter":
            decoded = _reject_late(decoded)
        known = attempt.state.files_with(attempt.wanted)
        # With something to compare with, a batch is looked at more than once, and read once.
        is_compared = bool(known or rules.dedup_keys or self._traces)
        kept = decoded.persist() if is_compared else decoded
        try:
            folder = self._lake.staging(attempt.writer, attempt.batch)
            if is_compared:
                row = kept.agg(*_counts()).first()
                assert row is not None
                attempt.counts = row.asDict()
                self._stage(kept, attempt, known, folder)
            else:
                # Counted on the way. Behind a shuffle that turns out empty, Spark would forget to.
                seen = Observation()
                self._stage(kept.observe(seen, *_counts()), attempt, known, folder)
                attempt.counts = seen.get
            self._reached("staged", attempt.batch)
            self._send_dead_letters(kept, attempt)
            self._reached("dead-lettered", attempt.batch)
            commit = self._describe(attempt, folder)
            if not (known or rules.dedup_keys or rules.transform):
                self._check_rows(attempt, commit)
            self._lake.commit(commit, attempt.state)
            self._reached("committed", attempt.batch)
            self._lake.publish(commit)
            self._reached("published", attempt.batch)
            untraced = self._tell_traces(kept, attempt)
        finally:
            if is_compared:
                kept.unpersist()
        return self._report(attempt, commit, watermark_ms, untraced)

    def _check_rows(self, attempt: _Attempt, commit: Commit) -> None:
        """Of a batch that leaves out nothing: what the executors have written is found here."""
        wanted = attempt.counts["records"] - attempt.counts["bad"]
        found = sum(each.rows for each in commit.added)
        if found != wanted:
            raise JobFailed(
                f"Spark has written {wanted:,} rows, and {found:,} of them are found in"
                f" {self._lake.files.root}: nothing of this batch counts.\n"
                "--lake must be a place that the driver and all executors share: hdfs://..., or a"
                " directory that is mounted on every machine."
            )

    def _tell_traces(self, decoded: DataFrame, attempt: _Attempt) -> str | None:
        if self._traces is None:
            return None
        duration_ms = int((time.monotonic() - attempt.started) * 1_000)
        began_ms = time.time_ns() // 1_000_000 - duration_ms
        return self._traces.tell(decoded, BatchFacts(attempt.writer, began_ms, duration_ms))

    def _report(
        self, attempt: _Attempt, commit: Commit, watermark_ms: int | None, untraced: str | None
    ) -> BatchReport:
        rows = sum(each.rows for each in commit.added)
        counts = attempt.counts
        return BatchReport(
            batch=attempt.batch,
            records=counts["records"],
            rows=rows,
            bad=counts["bad"],
            late=counts["late"],
            duplicates=counts["records"] - counts["bad"] - rows,
            files=len(commit.added),
            size_bytes=sum(each.size for each in commit.added),
            seconds=time.monotonic() - attempt.started,
            watermark_ms=watermark_ms,
            untraced=untraced,
        )

    def _stage(
        self, decoded: DataFrame, attempt: _Attempt, known: Sequence[AddedFile], folder: str
    ) -> None:
        rules = self._rules
        rows = self._rows(decoded.filter("reason IS NULL"))
        if known:
            rows = self._without_known_offsets(rows, known)
        if rules.dedup_keys:
            rows = self._without_known_keys(rows, decoded, attempt.state)
        if self._lake.is_delta:
            attempt.table = Table(table_schema(rows.schema), rules.shape.folders)
        (
            rows.write.partitionBy(*rules.shape.folders)
            .mode("overwrite")
            .parquet(self._lake.staged_uri(folder))
        )

    def _rows(self, good: DataFrame) -> DataFrame:
        shape = self._rules.shape
        names = {"_key": "key", "_topic": "topic", "_partition": "partition", "_offset": "offset"}
        renamed = {new: F.col(old) for new, old in names.items()}
        wide = good.withColumns(
            {**renamed, "_timestamp": F.col("timestamp"), "_ingested_at": F.current_timestamp()}
        )
        fields = [F.col("row")[name].alias(name) for name in shape.schema.names]
        own = [name for name in shape.columns if name not in shape.schema.names]
        rows = wide.select(*fields, *own)
        if self._rules.transform is None:
            return rows
        made = self._rules.transform(rows)
        lost = [name for name in (*OWN_COLUMNS, *shape.folders) if name not in made.columns]
        if lost:
            raise JobFailed(f"--transform has to leave the column {lost[0]} in place")
        return made

    def _without_known_offsets(self, rows: DataFrame, files: Sequence[AddedFile]) -> DataFrame:
        known = self._spark.read.schema(COORDINATES).parquet(*self._lake.uris(files))
        names = ["_topic", "_topic_id", "_partition", "_offset"]
        return rows.join(known.select(*names), names, "left_anti").select(*rows.columns)

    def _without_known_keys(
        self, rows: DataFrame, decoded: DataFrame, state: LakeState
    ) -> DataFrame:
        """The first row of each key, unless the lake has the key in the same folder already.

        A row with a null among its keys has no key.
        """
        folders, keys = self._rules.shape.folders, list(self._rules.dedup_keys)
        first = Window.partitionBy(*folders, *keys).orderBy(
            "_timestamp", "_topic", "_partition", "_offset"
        )
        keyless = reduce(lambda one, other: one | other, [F.col(key).isNull() for key in keys])
        fresh = (
            rows.withColumn("_place", F.when(keyless, 1).otherwise(F.row_number().over(first)))
            .filter("_place = 1")
            .drop("_place")
        )
        touched = decoded.filter("reason IS NULL").select(*folders).distinct().collect()
        paths = ["/".join(f"{name}={row[name]}" for name in folders) for row in touched]
        files = state.files_in(paths)
        if not files:
            return fresh
        # With the types given, folders' names are not taken for numbers: an hour is `03`.
        schema = StructType([fresh.schema[name] for name in [*folders, *keys]])
        known = self._spark.read.schema(schema).option("basePath", self._lake.files.root)
        there = known.parquet(*self._lake.uris(files)).distinct()
        return fresh.join(there, [*folders, *keys], "left_anti").select(*rows.columns)

    def _send_dead_letters(self, decoded: DataFrame, attempt: _Attempt) -> None:
        if not attempt.counts["bad"]:
            return
        bad = decoded.filter("reason IS NOT NULL")
        if self._dead_letters is None:
            row = bad.select("topic", "partition", "offset", "explanation").first()
            assert row is not None
            raise JobFailed(
                f"{row['topic']}-{row['partition']} at offset {row['offset']}:"
                f" {row['explanation']}. This batch has {attempt.counts['bad']} such records.\n"
                "--dead-letters TOPIC puts them there and goes on; or correct --schema."
            )
        found = bad.groupBy("topic", "_topic_id", "partition").agg(F.max("offset").alias("last"))
        attempt.bad_ends = {
            Source(row["topic"], row["_topic_id"], row["partition"]): row["last"]
            for row in found.collect()
        }
        self._dead_letters.send(bad, attempt.writer, attempt.batch)

    def _describe(self, attempt: _Attempt, folder: str) -> Commit:
        """The commit, from what is really in the staged files."""
        writer, batch = attempt.writer, attempt.batch
        staged = look_at_staged(self._spark, self._lake, folder, writer, batch)
        ends: dict[Source, int] = dict(attempt.bad_ends)
        for each in staged.files:
            for source, span in each.spans.items():
                ends[source] = max(span.last, ends.get(source, -1))
        return Commit(
            writer,
            batch,
            "append",
            staged.files,
            max_event_ms=staged.newest_event_ms,
            ends=ends,
            table=None if attempt.table == attempt.state.table else attempt.table,
        )


def _counts() -> tuple[Column, ...]:
    return (
        F.count(F.lit(1)).alias("records"),
        F.count(F.col("reason")).alias("bad"),
        F.count(F.when(F.col("is_late"), 1)).alias("late"),
    )


def _reject_late(decoded: DataFrame) -> DataFrame:
    is_late = F.col("reason").isNull() & F.col("is_late")
    return decoded.withColumns(
        {
            "reason": F.when(is_late, "rejected").otherwise(F.col("reason")),
            "explanation": F.when(is_late, "older than the watermark").otherwise(
                F.col("explanation")
            ),
        }
    )
