"""Rows into topics exactly once, for readers of committed records.

A task writes its rows in a transaction, and in the same transaction commits an offset of a group of
its own, whose metadata is the mark: batch, partition of the plan, digest of the rows. So the mark
is there if, and only if, the rows are. Before a task writes, it looks for the mark of its batch:

- There is none, or one of an earlier batch: the task writes.
- It is of this batch: an earlier attempt has written it all, and died before Spark knew. The task
  writes nothing. It still reads its rows, for their digest: if it differs from the mark's, the plan
  has given other rows to the same task, and DigestMismatch says so.
- It is of a later batch: the checkpoint is older than what was written, which no restart explains.

Two attempts of one task may be alive at the same time. They have the same transactional id, so that
the later one fences the earlier (whose transaction is aborted) before it looks for the mark.

What this can't see: rows that move between tasks, when an interrupted batch is run again with other
partitions, and no task with a mark gets other rows. `check_batch` finds the marks of tasks that the
plan no longer has. And each task has a transaction of its own: readers may see one task's rows
before another's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext

from kraftpy.client.admin_groups import group_offsets, list_groups
from kraftpy.client.blocking_clients import BlockingAdmin, BlockingProducer
from kraftpy.client.calls import TopicPartition
from kraftpy.client.group_member import GroupMetadata
from kraftpy.client.group_offsets import OffsetAndMetadata
from kraftpy.client.settings import AdminSettings
from kraftpy_spark.options import SinkOptions
from kraftpy_spark.rows import Digest, OutgoingRow, rows_of
from kraftpy_spark.topics import require_reachable
from kraftpy_spark.writing import Sender, Written

__all__ = ["DigestMismatch", "Mark", "MarkAhead", "PlanChanged", "check_batch", "write_once"]

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
# Enough to see the failure of a record before the buffer is full of others.
_ROWS_BETWEEN_LOOKS = 1_000


class DigestMismatch(Exception):  # noqa: N818 (it names what is wrong)
    """A batch that had been written was run again, and came out differently."""


class MarkAhead(Exception):  # noqa: N818 (it names what is wrong)
    """A batch after this one has been written already."""


class PlanChanged(Exception):  # noqa: N818 (it names what is wrong)
    """A batch was run again with fewer partitions, and one that is gone had written its rows."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What a task has written last."""

    batch_id: int
    partition_id: int
    digest: str

    def metadata(self) -> str:
        return json.dumps(
            {"batchId": self.batch_id, "partition": self.partition_id, "digest": self.digest}
        )

    @classmethod
    def parse(cls, metadata: str) -> Mark | None:
        try:
            found = json.loads(metadata)
            return cls(int(found["batchId"]), int(found["partition"]), str(found["digest"]))
        except (ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class Task:
    """Which part of which batch of which query; the same for every attempt."""

    query_id: str
    batch_id: int
    partition_id: int

    @classmethod
    def current(cls) -> Task:
        context = TaskContext.get()
        query_id = context.getLocalProperty(_QUERY_ID) if context else None
        batch_id = context.getLocalProperty(_BATCH_ID) if context else None
        if context is None or not query_id or batch_id is None:
            raise RuntimeError("deliveryGuarantee=exactly-once works in tasks of a query only")
        return cls(query_id, int(batch_id), context.partitionId())

    @property
    def name(self) -> str:
        """Of the group that has the mark, and of the transactions."""
        return f"{group_prefix(self.query_id)}{self.partition_id}"


def group_prefix(query_id: str) -> str:
    return f"kraftpy-sink-{query_id}-"


def write_once(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write the rows of this task, unless an earlier attempt has."""
    require_reachable(options.bootstrap, options.producer.client)
    return write_task(options, Task.current(), batches)


def write_task(options: SinkOptions, task: Task, batches: Iterator[pa.RecordBatch]) -> Written:
    rows = (row for batch in batches for row in rows_of(batch, options.topic))
    settings = replace(options.producer, transactional_id=task.name)
    with BlockingProducer(options.bootstrap, settings) as producer:
        producer.init_transactions()
        mark = _mark(options, task)
        if mark is not None and mark.batch_id >= task.batch_id:
            return _written_before(task, mark, rows)
        first = next(rows, None)
        if first is None:
            return Written(0, task.query_id)
        return _write(producer, task, chain([first], rows), first.topic)


def _mark(options: SinkOptions, task: Task) -> Mark | None:
    """The newest: it is an offset of the topic of a task's first row, whichever that was."""
    with BlockingAdmin(options.bootstrap, AdminSettings(options.producer.client)) as admin:
        offsets = admin.run(group_offsets(task.name, is_stable=True))
    marks = [Mark.parse(each.metadata) for each in offsets.values()]
    return max(
        (mark for mark in marks if mark is not None),
        key=lambda mark: mark.batch_id,
        default=None,
    )


def _written_before(task: Task, mark: Mark, rows: Iterator[OutgoingRow]) -> Written:
    if mark.batch_id > task.batch_id:
        raise MarkAhead(
            f"batch {mark.batch_id} of query {task.query_id} was written before batch"
            f" {task.batch_id}: the checkpoint is an old copy, or two queries share it. Use the"
            " newest checkpoint; or a new one, and accept that rows are written again"
        )
    digest = Digest()
    for row in rows:
        digest.add(row)
    if str(digest) != mark.digest:
        raise DigestMismatch(
            f"batch {task.batch_id} was written by an earlier attempt of task {task.partition_id}"
            f" with rows that have the digest {mark.digest}, and now they have {digest}: the query"
            " is not deterministic (rand, current_timestamp, another number of partitions, an input"
            " that has changed), so that it can't be written exactly once. Make it so, or begin"
            " with a new checkpoint"
        )
    return Written(digest.count, task.query_id, was_there=True)


def _write(
    producer: BlockingProducer, task: Task, rows: Iterator[OutgoingRow], topic: str
) -> Written:
    digest = Digest()
    sender = Sender(producer)
    producer.begin_transaction()
    for row in rows:
        digest.add(row)
        sender.send(row)
        if digest.count % _ROWS_BETWEEN_LOOKS == 0:
            sender.settle()
    mark = Mark(task.batch_id, task.partition_id, str(digest))
    producer.send_offsets_to_transaction(
        {TopicPartition(topic, 0): OffsetAndMetadata(task.batch_id, metadata=mark.metadata())},
        GroupMetadata(task.name),
    )
    sender.finish()
    producer.commit_transaction()
    return Written(digest.count, task.query_id)


def check_batch(options: SinkOptions, written: list[Written], batch_id: int) -> None:
    """After a batch, by the driver: has a task that is not part of it written for it?"""
    query_ids = [message.query_id for message in written if message.query_id]
    if not query_ids:
        return
    prefix = group_prefix(query_ids[0])
    with BlockingAdmin(options.bootstrap, AdminSettings(options.producer.client)) as admin:
        for group in admin.run(list_groups()):
            name = group.group_id
            if not name.startswith(prefix) or int(name.removeprefix(prefix)) < len(written):
                continue
            for found in admin.run(group_offsets(name)).values():
                mark = Mark.parse(found.metadata)
                if mark is not None and mark.batch_id == batch_id:
                    raise PlanChanged(
                        f"task {mark.partition_id} of batch {batch_id} had written its rows before"
                        f" the query was stopped, and the batch was run again with {len(written)}"
                        " tasks: its rows may be there twice. Let the number of partitions"
                        " (spark.sql.shuffle.partitions, minPartitions, coalesce) be the same"
                        " after a restart"
                    )
