"""The stream reader: micro-batches of offsets, planned by one long-lived process of the driver.

Spark keeps the end of each batch in its checkpoint, but not where the first one began: when a
query stops before its first batch is committed, it asks for the initial offsets again. Offsets that
depend on the moment of asking (latest) would then be later ones, and the records in between lost.
So a query that begins at such offsets begins with an empty batch, whose end is its start: from then
on the checkpoint knows it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kraftpy_spark.offsets import (
    Ends,
    from_json,
    losses,
    ranges_between,
    split,
    to_json,
    within_limit,
)
from kraftpy_spark.options import LATEST, ByTimestamp, ByTopicTimestamp, SourceOptions
from kraftpy_spark.reading import read_range
from kraftpy_spark.topics import DataLoss, Topics

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KraftpyStreamReader"]


class KraftpyStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._topics = Topics(options)
        self._initial: Ends | None = None
        # Of a trigger that reads what is there and ends: the end, seen once.
        self._target: Ends | None = None
        self._known_latest: Ends | None = None
        self._is_first = True
        self._last_batch_seconds = time.monotonic()

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802 (Spark's name)
        # Spark asks twice for one batch, and must hear the same.
        if self._initial is None:
            wheres = self._topics.partitions()
            if self._target is not None and self._options.starting == LATEST:
                # The end that this run goes to is the latest that there is for it.
                self._initial = self._target
            else:
                starting = self._options.starting
                self._initial = self._topics.resolve(starting, wheres, is_start=True)
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """The maximum says more than the minimum; `latestOffset` knows both."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(  # noqa: N802 (Spark's name)
        self, start: Mapping[str, Mapping[str, int]], limit: ReadLimit
    ) -> dict[str, dict[str, int]]:
        starts = from_json(start)
        if self._begins_empty(starts):
            return to_json(starts)
        ends = self._target if self._target is not None else self._latest()
        self._known_latest = ends
        added = self._topics.earliest(where for where in ends if where not in starts)
        starts |= added
        if isinstance(limit, ReadAllAvailable):
            return to_json(ends)
        waiting = sum(max(0, end - starts[where]) for where, end in ends.items())
        if self._waits_for_more(waiting):
            return {topic: dict(offsets) for topic, offsets in start.items()}
        if waiting:
            self._last_batch_seconds = time.monotonic()
        maximum = self._options.max_offsets_per_trigger
        return to_json(ends if maximum is None else within_limit(starts, ends, maximum))

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802 (Spark's name)
        return None if self._known_latest is None else to_json(self._known_latest)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        self._target = self._latest()

    def partitions(
        self, start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]
    ) -> Sequence[InputPartition]:
        starts = from_json(start)
        ends = from_json(end)
        added = self._topics.earliest(where for where in ends if where not in starts)
        if starts == self._initial and self._may_move:
            # The first batch, which was empty, once more: what came since is for the next one.
            starts = {
                where: min(offset, ends.get(where, offset)) for where, offset in starts.items()
            }
        lost = losses(starts, ends, added)
        if lost and self._options.fails_on_data_loss:
            raise DataLoss("; ".join(lost))
        parts = split(
            ranges_between(starts | added, ends),
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition.value)

    def commit(self, end: Mapping[str, Mapping[str, int]]) -> None:
        """The checkpoint is Spark's; a cluster is told nothing."""

    def stop(self) -> None:
        self._topics.close()

    @property
    def _may_move(self) -> bool:
        """Could the initial offsets be others when they are asked for again?"""
        starting = self._options.starting
        if isinstance(starting, dict):
            return any(LATEST in offsets.values() for offsets in starting.values())
        if isinstance(starting, ByTimestamp | ByTopicTimestamp):
            return self._options.if_no_timestamp == "latest"
        return starting == LATEST

    def _begins_empty(self, starts: Ends) -> bool:
        is_first, self._is_first = self._is_first, False
        return is_first and starts == self._initial and self._may_move

    def _latest(self) -> Ends:
        # Of a topic that is gone, planning speaks: with or without failOnDataLoss.
        return self._topics.latest(self._topics.partitions(may_miss=True))

    def _waits_for_more(self, waiting: int) -> bool:
        minimum = self._options.min_offsets_per_trigger
        if minimum is None or waiting >= minimum or self._target is not None:
            return False
        delay_ms = (time.monotonic() - self._last_batch_seconds) * 1_000
        return delay_ms < self._options.max_trigger_delay_ms
