"""The stream of batches from topics to a lake, and what is told of it."""

from __future__ import annotations

import json
import re
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kraftpy.client.errors import KafkaError
from kraftpy_spark.jobs.cluster_view import find_topics
from kraftpy_spark.jobs.compaction import compact_lake
from kraftpy_spark.jobs.failure import EXPLAINED, SLOW_START, JobFailed, explained_by_spark
from kraftpy_spark.jobs.lake import Lake
from kraftpy_spark.jobs.lake_files import LakeFiles, open_files
from kraftpy_spark.jobs.reports import BatchReport, Reporter
from kraftpy_spark.jobs.writing import BatchWriter
from kraftpy_spark.topics import TopicMissing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from kraftpy_spark.jobs.cluster_view import ClusterView

__all__ = ["Ingestion", "Pace", "clear_unfinished_plan", "writer_of"]

_WRITER_FILE = "kraftpy-writer.json"
_PLANS = "offsets"
# As Spark names it; and the checksum that Hadoop adds on a local disk.
_UNFINISHED_PLAN = re.compile(r"\.\d+\..+\.tmp|\.\.\d+\..+\.tmp\.crc")
_POLL_SECONDS = 0.2
_STARTS = 3


@dataclass(frozen=True, slots=True)
class Pace:
    trigger_ms: int | None
    """None: to the topics' ends of now, and end."""
    max_offsets_per_trigger: int | None = None
    starting_offsets: str = "earliest"


def writer_of(checkpoint: LakeFiles, lake_root: str) -> str:
    """The name under which this checkpoint's batches are in the lake's log; made once.

    Raises JobFailed if the checkpoint belongs to another lake.
    """
    fresh = {"writer": f"stream-{uuid.uuid4().hex[:12]}", "lake": lake_root}
    checkpoint.create(_WRITER_FILE, json.dumps(fresh).encode())
    found = json.loads(checkpoint.read(_WRITER_FILE))
    if found["lake"] != lake_root:
        raise JobFailed(
            f"the checkpoint belongs to the lake {found['lake']}, not to {lake_root}.\n"
            "Give each lake a checkpoint of its own; a new checkpoint begins at --starting-offsets,"
            " and what the lake has already is left out."
        )
    return str(found["writer"])


def clear_unfinished_plan(checkpoint: LakeFiles) -> None:
    """Remove what a driver has left that died while it wrote the plan of its first batch.

    Spark writes a batch's offsets to a file of another name, and a rename makes them the plan.
    Without any plan it takes the query for a new one, and refuses it if there is something in
    `offsets`, even such a file, of which nothing was read or written yet.

    It refuses it for what is in `commits` and `state`, too, and that is to stay so: they come after
    the plan, which somebody must have removed. The lake would take another batch 0 for its own.
    """
    names = checkpoint.names(_PLANS)
    if any(name.isdecimal() for name in names):
        return
    for name in names:
        if _UNFINISHED_PLAN.fullmatch(name):
            checkpoint.delete(f"{_PLANS}/{name}")


class Ingestion:
    def __init__(
        self,
        *,
        spark: SparkSession,
        lake: Lake,
        batches: BatchWriter,
        name: str,
        view: ClusterView | None,
        reporter: Reporter,
        compact_every: int = 0,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_stopped` is asked several times a second, in the thread that runs the job."""
        self._spark = spark
        self._lake = lake
        self._batches = batches
        self._name = name
        self._view = view
        self._reporter = reporter
        self._compact_every = compact_every
        self._topic_ids: Mapping[str, str] = {}
        self._written: dict[int, BatchReport] = {}
        self._failure: Exception | None = None
        self._is_stopped = is_stopped

    def run(
        self, source_format: str, options: Mapping[str, str], checkpoint: str, pace: Pace
    ) -> None:
        """Until it is done, or stopped. Raises JobFailed."""
        self._lake.recover()
        for start in range(1, _STARTS + 1):
            try:
                self._follow(self._start(source_format, options, checkpoint, pace))
            except Exception as error:
                if SLOW_START in str(error) and start < _STARTS and not self._is_stopped():
                    # The machine had no time for it. The checkpoint knows where to go on.
                    continue
                # What the batch raised reads better than what Spark makes of it.
                raise self._failure or explained_by_spark(error) from error
            return

    def _follow(self, query: StreamingQuery) -> None:
        try:
            while not query.awaitTermination(_POLL_SECONDS):  # type: ignore[arg-type]
                self._tell(query)
                if self._is_stopped():
                    break
            self._tell(query)
        finally:
            query.stop()

    def _start(
        self, source_format: str, options: Mapping[str, str], checkpoint: str, pace: Pace
    ) -> StreamingQuery:
        clear_unfinished_plan(open_files(self._spark, checkpoint))
        reader = self._spark.readStream.format(source_format)
        reader = reader.option("startingOffsets", pace.starting_offsets)
        if pace.max_offsets_per_trigger is not None:
            reader = reader.option("maxOffsetsPerTrigger", str(pace.max_offsets_per_trigger))
        records = reader.options(**options).load()
        writer = records.writeStream.foreachBatch(self._write).option(
            "checkpointLocation", checkpoint
        )
        if pace.trigger_ms is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{pace.trigger_ms} milliseconds").start()

    def _write(self, records: DataFrame, batch: int) -> None:
        """Called by Spark for each batch, and again for one that it isn't sure of."""
        try:
            self._check_order(batch)
            report = self._batches.write(
                records, self._name, batch, topic_ids=self._current_topic_ids()
            )
            if report is not None:
                self._written[batch] = report
            if self._compact_every and (batch + 1) % self._compact_every == 0:
                compact_lake(self._spark, self._lake)
        except EXPLAINED as failure:
            self._failure = failure
            raise
        except Exception:
            # Spark tells of it in one line, which is not enough for what nobody expects. That a
            # stop ends the batch in the middle is expected.
            if not self._is_stopped():
                traceback.print_exc()
            raise

    def _check_order(self, batch: int) -> None:
        done = self._lake.state().writer(self._name).batch
        if batch > done + 1:
            raise JobFailed(
                f"the lake has batches up to {done} of this checkpoint, and Spark goes on with"
                f" {batch}: the lake was replaced or restored from an older copy.\n"
                "Use a new checkpoint: records that the lake has are left out."
            )

    def _current_topic_ids(self) -> Mapping[str, str]:
        """By name. A cluster that can't be asked now has the topics that it had."""
        if self._view is not None:
            try:
                found = self._view.topics()
            except (OSError, KafkaError, TopicMissing):
                if not self._topic_ids:
                    # Rows without the id of their topic would be taken for another topic's.
                    raise
                return self._topic_ids
            self._topic_ids = {name: str(info.topic_id) for name, info in found.items()}
        return self._topic_ids

    def _tell(self, query: StreamingQuery) -> None:
        """Report batches that are finished, with the lag behind them."""
        for progress in query.recentProgress:
            report = self._written.pop(int(progress["batchId"]), None)
            if report is not None:
                self._reporter.tell(replace(report, lag=self._lag(progress["sources"])))

    def _lag(self, sources: list[Any]) -> int | None:
        """What the topics have beyond the batch's end, as far as the cluster can be asked."""
        if self._view is None:
            return None
        reached: dict[str, dict[str, int]] = {}
        for source in sources:
            end = source["endOffset"]
            reached.update(json.loads(end) if isinstance(end, str) else end or {})
        try:
            topics = find_topics(self._view.topics(), reached, None)
            ends = self._view.ends(topics)
        except (OSError, KafkaError, TopicMissing):
            return None
        return sum(
            max(0, end - reached[source.topic].get(str(source.partition), 0))
            for source, end in ends.items()
        )
