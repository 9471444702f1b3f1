"""Rows into topics exactly once, for readers of committed records.

A task writes its rows in a transaction, and in the same transaction commits an offset of a group of
its own, whose metadata is the mark: batch, partition of the plan, digest of the rows, run of the
query. So the mark is there if, and only if, the rows are. Before a task writes, it looks for the
mark under its number:

- It is of this run and an earlier batch: the task writes. Only the first batch of a run may have
  been begun by another one, so that nobody has written for this one.
- It is of this run and this batch: an earlier attempt has written it all, and died before Spark
  knew. The task writes nothing. It still reads its rows, for their digest: if it differs from the
  mark's, the plan has given other rows to the same task, and DigestMismatch says so.
- It is of a later batch: the checkpoint is older than what was written, which no restart explains.
- There is none of this run. The query was started again, maybe in the middle of this batch, and
  then numbers say nothing: sources may hand out the same rows in another order (Spark's own Kafka
  connector does: it plans a batch from what the consumer says when it is new, and from its log
  when it is run again). So the task reads the marks of all tasks. If nobody has written for this
  batch, it writes. Otherwise it sets its rows aside, and is known by their digest. If a task of
  another run has written rows of this digest, whatever its number, it takes that mark, which no
  other task of its run can take then, and writes nothing. If not, it writes; its mark keeps the
  digests of what its group was known for, which are for the next run to find.

When all tasks are done, the driver compares (`check_batch`): each mark of the batch must be that of
exactly one task. If one is of nobody, the batch came out differently, and its rows may be there
twice; that is an error, and it is noted, so that no later run writes a third time.

Two attempts of one task may be alive at the same time. They have the same transactional id, so that
the later one fences the earlier (whose transaction is aborted) before it looks for the mark.

What this can't prevent:

- A query that is not deterministic is told before anything is written if the attempts are of one
  run. Between runs the driver tells it, when readers may have seen rows of both.
- A task of a run whose driver has died may still be alive. As long as no task of the same number
  has begun in the new run, it may commit rows that another has looked for in vain: they are there
  twice, and the driver tells it if it happens before the batch is done.
- Each task has a transaction of its own: readers may see one task's rows before another's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext

from kraftpy.client.blocking_clients import BlockingProducer
from kraftpy.client.group_member import GroupMetadata
from kraftpy_spark.marks import Entry, Mark, QueryMarks, TooManyRuns, group_of_task, offsets_with
from kraftpy_spark.options import SinkOptions
from kraftpy_spark.rows import Digest, OutgoingRow, ShortDigest, rows_of
from kraftpy_spark.rows_aside import RowsAside
from kraftpy_spark.topics import require_reachable
from kraftpy_spark.writing import Sender, Written

__all__ = [
    "DigestMismatch",
    "MarkAhead",
    "MarkLost",
    "PlanChanged",
    "Task",
    "TooManyRuns",
    "check_batch",
    "write_once",
    "write_task",
]

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
# Spark runs the jobs of a query as a group, which has the id of the query's run.
_RUN_ID = "spark.jobGroup.id"
# Enough to see the failure of a record before the buffer is full of others.
_ROWS_BETWEEN_LOOKS = 1_000
_NOT_DETERMINISTIC = (
    "the query is not deterministic (rand, current_timestamp, another number of partitions, an"
    " input that has changed), so that it can't be written exactly once. Make it so, or begin with"
    " a new checkpoint"
)


class DigestMismatch(Exception):  # noqa: N818 (it names what is wrong)
    """A batch that had been written was run again, and came out differently."""


class MarkAhead(Exception):  # noqa: N818 (it names what is wrong)
    """A batch after this one has been written already."""


class MarkLost(Exception):  # noqa: N818 (it names what is wrong)
    """Tasks count on marks that are not there, or not for each of them."""


class PlanChanged(Exception):  # noqa: N818 (it names what is wrong)
    """A batch was run again with fewer partitions, and one that is gone had written its rows."""


@dataclass(frozen=True, slots=True)
class Task:
    """Which part of which batch of which query; the same for every attempt.

    Without a run, rows belong to the task's number alone, whatever is run again.
    """

    query_id: str
    batch_id: int
    partition_id: int
    run_id: str = ""

    @classmethod
    def current(cls) -> Task:
        context = TaskContext.get()
        query_id = context.getLocalProperty(_QUERY_ID) if context else None
        batch_id = context.getLocalProperty(_BATCH_ID) if context else None
        run_id = context.getLocalProperty(_RUN_ID) if context else None
        if context is None or not query_id or batch_id is None or not run_id:
            raise RuntimeError("deliveryGuarantee=exactly-once works in tasks of a query only")
        return cls(query_id, int(batch_id), context.partitionId(), run_id)

    @property
    def name(self) -> str:
        """Of the group that has the mark, and of the transactions."""
        return group_of_task(self.query_id, self.partition_id)


def write_once(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write the rows of this task, unless an earlier attempt has."""
    require_reachable(options.bootstrap, options.producer.client)
    return write_task(options, Task.current(), batches)


def write_task(options: SinkOptions, task: Task, batches: Iterator[pa.RecordBatch]) -> Written:
    settings = replace(options.producer, transactional_id=task.name)
    with BlockingProducer(options.bootstrap, settings) as producer:
        producer.init_transactions()
        return _Attempt(options, task, producer).write(batches)


class _Attempt:
    """One attempt of a task, whose producer has fenced the ones before."""

    def __init__(self, options: SinkOptions, task: Task, producer: BlockingProducer) -> None:
        self._options = options
        self._task = task
        self._producer = producer
        self._marks = QueryMarks(options, task.query_id)
        # What its own group says.
        self._mark: Mark | None = None

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        task = self._task
        mark = self._mark = self._marks.of_task(task.partition_id)
        _require_not_ahead(task, mark)
        is_of_this_run = mark is not None and mark.run_id == task.run_id
        if mark is not None and is_of_this_run and mark.batch_id == task.batch_id:
            return self._written_before(mark, batches)
        with_rows = (batch for batch in batches if batch.num_rows)
        first = next(with_rows, None)
        if first is None:
            return Written(0, task.query_id)
        batches = chain([first], with_rows)
        others = {} if is_of_this_run or not task.run_id else self._entries_of_other_runs()
        if not others:
            return self._write(batches)
        return self._write_what_is_not_there(batches, others)

    def _written_before(self, mark: Mark, batches: Iterator[pa.RecordBatch]) -> Written:
        count, digests = self._digests(batches)
        if mark.digest not in digests:
            raise DigestMismatch(
                f"batch {mark.batch_id} was written by an earlier attempt of task"
                f" {mark.partition_id} with rows that have the digest {mark.digest}, and now they"
                f" have {digests[0]}: {_NOT_DETERMINISTIC}"
            )
        return Written(count, self._task.query_id, was_there=True, entry=_last_entry(mark))

    def _entries_of_other_runs(self) -> dict[Entry, str]:
        """What they have written for this batch, under all numbers."""
        task = self._task
        found: dict[Entry, str] = {}
        for mark in self._marks.of_all_tasks(task.partition_id + 1).values():
            _require_not_ahead(task, mark)
            if mark.batch_id == task.batch_id:
                found |= mark.entries_of_others(task.run_id)
        return found

    def _write_what_is_not_there(
        self, batches: Iterator[pa.RecordBatch], others: Mapping[Entry, str]
    ) -> Written:
        task = self._task
        refused = self._marks.refused()
        if refused is not None and refused.batch_id == task.batch_id:
            raise _mismatch_between_runs(refused)
        with RowsAside() as aside:
            count, digests = self._digests(aside.take_in(batches))
            same = [entry for entry, digest in others.items() if digest in digests]
            # Its own first: if the numbers are as they were, nobody waits for another.
            same.sort(key=lambda entry: (entry.partition_id != task.partition_id, entry))
            claim = Mark(task.batch_id, task.partition_id, digests[0], task.run_id)
            topic = next(self._rows(aside.again())).topic
            for entry in same:
                if self._marks.take(entry, claim, topic):
                    return Written(count, task.query_id, was_there=True, entry=entry)
            return self._write(aside.again())

    def _digests(self, batches: Iterable[pa.RecordBatch]) -> tuple[int, tuple[str, str]]:
        """How many rows, and by what they may be known: the second is that of old marks."""
        digest, short = Digest(), ShortDigest()
        for row in self._rows(batches):
            digest.add(row)
            short.add(row)
        return digest.count, (str(digest), str(short))

    def _rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[OutgoingRow]:
        return (row for batch in batches for row in rows_of(batch, self._options.topic))

    def _write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """There must be rows."""
        rows = self._rows(batches)
        first = next(rows)
        digest = Digest()
        sender = Sender(self._producer)
        self._producer.begin_transaction()
        for row in chain([first], rows):
            digest.add(row)
            sender.send(row)
            if digest.count % _ROWS_BETWEEN_LOOKS == 0:
                sender.settle()
        mark = self._next_mark(str(digest))
        self._producer.send_offsets_to_transaction(
            offsets_with(mark, first.topic), GroupMetadata(self._task.name)
        )
        sender.finish()
        self._producer.commit_transaction()
        return Written(digest.count, self._task.query_id, entry=_last_entry(mark))

    def _next_mark(self, digest: str) -> Mark:
        """It replaces the present one, and keeps what that says about the same batch."""
        task, mark = self._task, self._mark
        is_same_batch = mark is not None and mark.batch_id == task.batch_id
        earlier = (*mark.earlier, mark.digest) if mark is not None and is_same_batch else ()
        return Mark(task.batch_id, task.partition_id, digest, task.run_id, earlier)


def _last_entry(mark: Mark) -> Entry:
    return Entry(mark.partition_id, len(mark.earlier))


def _require_not_ahead(task: Task, mark: Mark | None) -> None:
    if mark is not None and mark.batch_id > task.batch_id:
        raise MarkAhead(
            f"batch {mark.batch_id} of query {task.query_id} was written before batch"
            f" {task.batch_id}: the checkpoint is an old copy, or two queries share it. Use the"
            " newest checkpoint; or a new one, and accept that rows are written again"
        )


def _mismatch_between_runs(mark: Mark) -> DigestMismatch:
    return DigestMismatch(
        f"batch {mark.batch_id} was run again after a restart, and rows that task"
        f" {mark.partition_id} had written for it (digest {mark.digest}) were not among those of"
        f" any task. Its rows may be there twice: {_NOT_DETERMINISTIC}"
    )


def check_batch(options: SinkOptions, written: list[Written], batch_id: int) -> None:
    """After a batch, by the driver: is all that was written for it the work of its tasks?"""
    query_ids = [message.query_id for message in written if message.query_id]
    if not query_ids:
        return
    marks = QueryMarks(options, query_ids[0])
    there: dict[Entry, str] = {}
    for mark in marks.of_all_tasks(len(written)).values():
        if mark.batch_id == batch_id:
            there |= mark.entries()
    found = Counter(message.entry for message in written if message.entry is not None)
    if found - Counter(list(there)):
        raise MarkLost(
            f"batch {batch_id}: several tasks count on the same mark, or on one that is gone, and"
            " rows may be missing. Start the query again: the batch is then run again. If groups"
            f" named kraftpy-sink-{query_ids[0]}-* are deleted by somebody, let them be"
        )
    of_nobody = [
        Mark(batch_id, entry.partition_id, digest)
        for entry, digest in there.items()
        if entry not in found
    ]
    if of_nobody:
        marks.refuse(of_nobody[0])
        raise _why(of_nobody, len(written))


def _why(of_nobody: list[Mark], tasks: int) -> Exception:
    for mark in of_nobody:
        if mark.partition_id >= tasks:
            return PlanChanged(
                f"task {mark.partition_id} of batch {mark.batch_id} had written its rows before the"
                f" query was stopped, and the batch was run again with {tasks} tasks, none of"
                " which had the same rows: they may be there twice. Let the number of partitions"
                " (spark.sql.shuffle.partitions, minPartitions, coalesce) be the same after a"
                " restart, and begin with a new checkpoint"
            )
    return _mismatch_between_runs(of_nobody[0])
