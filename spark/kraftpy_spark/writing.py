"""How a task writes its rows: topics are looked for first, and no failure goes unseen."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from kraftpy.client.blocking_clients import BlockingProducer
from kraftpy.client.errors import KafkaError
from kraftpy.protocol.errors import ErrorCode
from kraftpy_spark.marks import Entry
from kraftpy_spark.options import SinkOptions
from kraftpy_spark.rows import OutgoingRow, RowMistake, rows_of
from kraftpy_spark.topics import TopicMissing, require_reachable

if TYPE_CHECKING:
    from kraftpy.client.producer_batch import Delivery

__all__ = ["Sender", "Written", "write_rows"]

# A topic that was made a moment ago is not known to all nodes at once.
_ATTEMPTS = 10
_PAUSE_SECONDS = 0.3


@dataclass
class Written(WriterCommitMessage):
    """What one task did."""

    rows: int
    # Of a sink that writes exactly once: the mark that says so, whether it had been there before,
    # and where it is. A task without rows has none.
    query_id: str = ""
    was_there: bool = False
    entry: Entry | None = None


class Sender:
    """Sends rows with one producer, and makes sure of its topics first."""

    def __init__(self, producer: BlockingProducer) -> None:
        self._producer = producer
        self._partitions: dict[str, int] = {}
        self._pending: deque[Delivery] = deque()

    def send(self, row: OutgoingRow) -> None:
        topic, partition, key, value, headers = row
        count = self._partitions.get(topic)
        if count is None:
            count = self._partitions[topic] = self._partition_count(topic)
        if partition is not None and not 0 <= partition < count:
            raise RowMistake(f"partition {partition} of {topic}, which has {count} partitions")
        self._pending.append(
            self._producer.send(topic, value, key=key, partition=partition, headers=headers)
        )

    def settle(self) -> None:
        """Raise the failure of a record, if one of those that are settled has failed."""
        pending = self._pending
        while pending and pending[0].is_done:
            pending.popleft().result()

    def finish(self) -> None:
        """Wait for all, and raise the failure of any."""
        self._producer.flush()
        self.settle()

    def _partition_count(self, topic: str) -> int:
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_SECONDS)
            try:
                return len(self._producer.partitions_of(topic))
            except KafkaError as failure:
                if not failure.code.retriable:
                    raise
                if failure.code == ErrorCode.REQUEST_TIMED_OUT:
                    break
        raise TopicMissing(
            f"there is no topic {topic!r} to write to; create it with `kraftpy topics create"
            f" {topic}`"
        )


def write_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write all rows, at least once: what both writers do without transactions."""
    require_reachable(options.bootstrap, options.producer.client)
    rows = 0
    with BlockingProducer(options.bootstrap, options.producer) as producer:
        sender = Sender(producer)
        for batch in batches:
            for row in rows_of(batch, options.topic):
                sender.send(row)
            rows += batch.num_rows
            sender.settle()
        sender.finish()
    return Written(rows)
