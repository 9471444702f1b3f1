"""A batch that another run of the query has begun: rows are known by what they are.

Sources may give the same rows to other tasks after a restart. Tasks are plain calls here, against
kraftpy and Apache Kafka. With Spark, make spark-faults does it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, combinations, permutations
from unittest.mock import patch

import pyarrow as pa
import pytest
from kraftpy_spark import exactly_once
from kraftpy_spark import marks as marks_module
from kraftpy_spark.exactly_once import (
    DigestMismatch,
    MarkAhead,
    MarkLost,
    PlanChanged,
    TooManyRuns,
    check_batch,
    write_task,
)
from kraftpy_spark.marks import MAX_EARLIER, Entry, Mark, QueryMarks, offsets_with
from kraftpy_spark.rows import OutgoingRow, ShortDigest
from kraftpy_spark.rows_aside import RowsAside
from kraftpy_spark.writing import Written
from spark.once_tasks import counts, first_task, options_of, write
from spark.spark_brokers import SparkBroker

from kraftpy.client.admin_core import Operation
from kraftpy.client.admin_groups import alter_group_offsets
from kraftpy.client.admin_many_groups import wait_for_decided
from kraftpy.client.blocking_clients import BlockingAdmin, BlockingProducer
from kraftpy.client.calls import TopicPartition
from kraftpy.client.group_member import GroupMetadata
from kraftpy.client.group_offsets import OffsetAndMetadata

PARTS = ((b"p0 a", b"p0 b"), (b"p1 a", b"p1 b"), (b"p2",))
SECOND = "second run"
THIRD = "third run"


class Query:
    """One batch of a query of its own, whose tasks are given rows by hand."""

    def __init__(self, broker: SparkBroker, topic: str | None = None) -> None:
        self.broker = broker
        self.topic = topic or broker.topic(1)
        self.options = options_of(broker, self.topic)
        self.first = first_task()

    def write(
        self, number: int, rows: Sequence[bytes], run_id: str = "first run", batch_id: int = 0
    ) -> Written:
        task = replace(self.first, partition_id=number, run_id=run_id, batch_id=batch_id)
        return write(self.broker, self.topic, task, rows)

    def run(self, parts: Sequence[Sequence[bytes]], run_id: str) -> list[Written]:
        """All tasks of a run, and what the driver says about them."""
        written = [self.write(number, rows, run_id) for number, rows in enumerate(parts)]
        check_batch(self.options, written, batch_id=0)
        return written

    def counts(self) -> Counter[bytes | None]:
        return counts(self.broker, self.topic, 1)


@pytest.fixture
def query(broker: SparkBroker) -> Query:
    return Query(broker)


def subsets(numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(numbers, size) for size in range(len(numbers) + 1))


def test_rows_that_come_to_another_task_are_not_written_again(query: Query) -> None:
    """Only task 2 had written, and its rows are those of task 0 now, which has no mark at all."""
    query.write(2, PARTS[0])
    written = query.run(PARTS, SECOND)
    assert written[0] == Written(2, query.first.query_id, was_there=True, entry=Entry(2, 0))
    assert [each.was_there for each in written] == [True, False, False]
    assert query.counts() == Counter(chain(*PARTS))


def test_all_orders_after_all_that_may_have_been_written(kraftpy_nodes: SparkBroker) -> None:
    for order in permutations(PARTS):
        query = Query(kraftpy_nodes)
        for batch, numbers in enumerate(subsets(range(len(PARTS)))):
            query.first = replace(query.first, query_id=f"{query.first.query_id}-{batch}")
            for number in numbers:
                query.write(number, order[number])
            written = query.run(PARTS, SECOND)
            assert sum(each.was_there for each in written) == len(numbers)
            expected = Counter(dict.fromkeys(chain(*PARTS), batch + 1))
            assert query.counts() == expected, (order, numbers)


def test_a_third_run_knows_what_both_have_written(query: Query) -> None:
    """Each under the number 0, and a fourth finds everything."""
    query.write(0, PARTS[0])
    query.write(0, PARTS[1], SECOND)
    written = query.run((PARTS[2], PARTS[0], PARTS[1]), THIRD)
    assert [each.entry for each in written] == [Entry(0, 2), Entry(0, 0), Entry(0, 1)]
    query.run((PARTS[1], PARTS[2], PARTS[0]), "fourth run")
    assert query.counts() == Counter(chain(*PARTS))
    # And the next batch begins anew.
    written = [query.write(0, PARTS[0], "fourth run", batch_id=1)]
    assert written[0].entry == Entry(0, 0)
    check_batch(query.options, written, batch_id=1)


def test_an_attempt_of_the_second_run_is_tried_again(query: Query) -> None:
    """One that has written, and one that has taken another's mark."""
    query.write(0, PARTS[0])
    for was_there in (False, True):
        assert query.write(0, PARTS[1], SECOND).was_there == was_there
        assert query.write(1, PARTS[0], SECOND).was_there
    with pytest.raises(DigestMismatch, match="earlier attempt of task 0"):
        query.write(0, PARTS[0], SECOND)
    query.run((PARTS[1], PARTS[0], PARTS[2]), SECOND)
    assert query.counts() == Counter(chain(*PARTS))


def test_tasks_with_the_same_rows(query: Query) -> None:
    """Two of four had written: any two of them are left to be written, and no more."""
    same = (b"tick",)
    for number in (1, 3):
        query.write(number, same)
    written = query.run([same] * 4, SECOND)
    assert sum(each.was_there for each in written) == 2
    assert query.counts() == Counter({b"tick": 4})


def test_tasks_with_the_same_rows_at_the_same_time(query: Query) -> None:
    same = (b"tick",)
    for number in range(2):
        query.write(number, same)
    with ThreadPoolExecutor(4) as threads:
        tasks = [threads.submit(query.write, number, same, SECOND) for number in range(4)]
        written = [task.result() for task in tasks]
    check_batch(query.options, written, batch_id=0)
    assert query.counts() == Counter({b"tick": 4})


def test_a_task_that_has_no_rows_any_more(query: Query) -> None:
    query.write(0, PARTS[0])
    written = query.run(((), PARTS[0]), SECOND)
    assert written == [
        Written(0, query.first.query_id),
        Written(2, query.first.query_id, was_there=True, entry=Entry(0, 0)),
    ]
    assert query.counts() == Counter(PARTS[0])


def test_marks_of_earlier_versions(query: Query) -> None:
    """They know no runs, and have digests of another kind."""
    short = ShortDigest()
    for row in PARTS[0]:
        short.add(OutgoingRow(query.topic, None, None, row, ()))
    mark = f'{{"batchId": 0, "partition": 1, "digest": "{short}"}}'
    assert Mark.parse(mark) == Mark(0, 1, str(short))
    query.broker.produce(query.topic, PARTS[0])
    where = TopicPartition(query.topic, 0)
    with BlockingAdmin(query.broker.addresses) as admin:
        name = replace(query.first, partition_id=1).name
        admin.run(alter_group_offsets(name, {where: OffsetAndMetadata(0, metadata=mark)}))
    # Whoever hangs on numbers alone, as dead letters do, goes on as before.
    assert query.write(1, PARTS[0], run_id="").was_there
    with pytest.raises(DigestMismatch):
        query.write(1, PARTS[1], run_id="")
    assert [each.was_there for each in query.run(PARTS, SECOND)] == [True, False, False]
    assert query.counts() == Counter(chain(*PARTS))


def test_a_batch_that_comes_out_differently_is_told_and_written_no_third_time(
    query: Query,
) -> None:
    query.run(PARTS, "first run")
    others = [(b"other",), *PARTS[1:]]
    with pytest.raises(DigestMismatch, match="not deterministic"):
        query.run(others, SECOND)
    found = query.counts()
    assert found == Counter([*chain(*PARTS), b"other"])
    for run_id in (THIRD, "fourth run"):
        for number in range(3):
            with pytest.raises(DigestMismatch, match="may be there twice"):
                query.write(number, (b"one more",), run_id)
    assert query.counts() == found


def test_a_batch_with_fewer_tasks_is_told(query: Query) -> None:
    query.write(2, PARTS[2])
    with pytest.raises(PlanChanged, match="with 2 tasks"):
        query.run((PARTS[0], (*PARTS[1], *PARTS[2])), SECOND)


def test_fewer_tasks_with_the_same_rows_are_no_problem(query: Query) -> None:
    query.write(2, PARTS[0])
    query.run(PARTS[:2], SECOND)
    assert query.counts() == Counter(chain(*PARTS[:2]))


def test_one_mark_is_not_that_of_two_tasks(query: Query) -> None:
    """If it ever were, rows would be missing."""
    query.write(0, PARTS[0])
    query.write(1, PARTS[1])
    with patch.object(QueryMarks, "take", lambda *_: True), pytest.raises(MarkLost, match="again"):
        query.run((PARTS[0], PARTS[1], PARTS[0]), SECOND)
    query.run((PARTS[0], PARTS[1], PARTS[0]), THIRD)
    assert query.counts() == Counter([*PARTS[0], *PARTS[1], *PARTS[0]])


def test_a_later_batch_of_any_task_is_ahead(query: Query) -> None:
    query.write(1, PARTS[0], batch_id=7)
    for number in range(2):
        with pytest.raises(MarkAhead, match="old copy"):
            query.write(number, PARTS[0], SECOND, batch_id=6)
    # Of its own run, it looks at no others.
    query.write(0, PARTS[1], SECOND, batch_id=8)
    assert query.counts() == Counter([*PARTS[0], *PARTS[1]])


def test_only_the_first_batch_of_a_run_looks_at_others(query: Query) -> None:
    query.write(0, PARTS[0])
    query.write(0, PARTS[0], SECOND, batch_id=1)
    with patch.object(QueryMarks, "of_all_tasks", side_effect=AssertionError):
        query.write(0, PARTS[0], SECOND, batch_id=2)
        query.write(1, (), SECOND, batch_id=2)
        with pytest.raises(AssertionError):
            query.write(1, PARTS[1], SECOND, batch_id=2)


def test_all_that_is_committed_is_seen_at_once(kraftpy_nodes: SparkBroker) -> None:
    """And nothing of transactions that are open, which nobody waits for."""
    query = Query(kraftpy_nodes)
    name = replace(query.first, partition_id=5).name
    settings = replace(query.options.producer, transactional_id=name)
    with BlockingProducer(query.broker.addresses, settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        mark = Mark(0, 5, "digest", "first run")
        producer.send_offsets_to_transaction(offsets_with(mark, query.topic), GroupMetadata(name))
        marks = QueryMarks(query.options, query.first.query_id)
        assert marks.of_all_tasks(1) == {}
        producer.commit_transaction()
        assert marks.of_all_tasks(1) == {5: mark}


def test_marks_are_found_that_no_list_has(query: Query) -> None:
    """While a coordinator has died and nobody has taken over. Far away, a list is needed."""
    for number in (1, 150, 300, 900):
        query.write(number, [b"%d" % number])
    marks = QueryMarks(query.options, query.first.query_id)
    assert sorted(marks.of_all_tasks(1)) == [1, 150, 300, 900]
    with patch.object(QueryMarks, "_numbers", lambda *_: []):
        assert sorted(marks.of_all_tasks(1)) == [1, 150, 300]
        assert sorted(marks.of_all_tasks(800)) == [1, 150, 300, 900]


def test_decided_transactions_are_waited_for_before_marks_are_read(query: Query) -> None:
    query.write(1, PARTS[0])
    asked: list[str] = []

    def waits(names: Sequence[str]) -> Operation[None]:
        asked.extend(names)
        # Without a run: it looks at no others, and does not come back here.
        query.write(2, PARTS[1], run_id="")
        yield from wait_for_decided(names)

    with patch.object(marks_module, "wait_for_decided", waits):
        found = QueryMarks(query.options, query.first.query_id).of_all_tasks(1)
    assert sorted(found) == [1, 2]
    assert {replace(query.first, partition_id=number).name for number in range(3)} <= set(asked)


def test_a_task_of_a_dead_driver_that_commits_late_is_told(kraftpy_nodes: SparkBroker) -> None:
    """Nobody has fenced it: task 1 has not begun in the new run when task 0 looks for its rows."""
    query = Query(kraftpy_nodes)
    late = replace(query.first, partition_id=1)
    settings = replace(query.options.producer, transactional_id=late.name)
    with BlockingProducer(query.broker.addresses, settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for row in PARTS[0]:
            producer.send(query.topic, row)
        written = [query.write(0, PARTS[0], SECOND)]
        mark = offsets_with(Mark(0, 1, "2-of-the-late-one", late.run_id), query.topic)
        producer.send_offsets_to_transaction(mark, GroupMetadata(late.name))
        producer.commit_transaction()
    written.append(query.write(1, PARTS[1], SECOND))
    assert [each.was_there for each in written] == [False, False]
    with pytest.raises(DigestMismatch, match="may be there twice"):
        check_batch(query.options, written, batch_id=0)


def test_topics_of_rows_that_begin_with_others(query: Query) -> None:
    """Marks are offsets of the topic of the first row: of two in one group the newer one counts."""
    one, two = query.broker.topic(1), query.broker.topic(1)
    options = options_of(query.broker, None)

    def rows(*topics: str) -> Iterator[pa.RecordBatch]:
        return iter([pa.record_batch({"topic": pa.array(topics), "value": pa.array(topics)})])

    task = query.first
    write_task(options, task, rows(one))
    second, third = replace(task, run_id=SECOND), replace(task, run_id=THIRD)
    write_task(options, second, rows(two, one))
    written = [
        write_task(options, replace(third, partition_id=0), rows(one)),
        write_task(options, replace(third, partition_id=1), rows(one, two)),
    ]
    assert [each.was_there for each in written] == [True, True]
    check_batch(options, written, batch_id=0)


def test_so_many_runs_and_no_more(kraftpy_nodes: SparkBroker) -> None:
    """One beyond is an error, and leaves nothing."""
    longest = f"{10**18}-{2**128 - 1:x}"
    mark = Mark(10**9, 10**5, longest, "0" * 36, (longest,) * MAX_EARLIER)
    assert len(mark.metadata()) <= 4_096
    assert Mark.parse(mark.metadata()) == mark
    query = Query(kraftpy_nodes)
    where = TopicPartition(query.topic, 0)
    almost = Mark(0, 0, longest, "first run", (longest,) * (MAX_EARLIER - 1))
    with BlockingAdmin(query.broker.addresses) as admin:
        offset = OffsetAndMetadata(0, metadata=almost.metadata())
        admin.run(alter_group_offsets(query.first.name, {where: offset}))
    assert query.write(0, PARTS[0], SECOND).entry == Entry(0, MAX_EARLIER)
    with pytest.raises(TooManyRuns, match="new checkpoint"):
        query.write(0, PARTS[1], THIRD)
    assert query.counts() == Counter(PARTS[0])


@pytest.mark.parametrize("in_memory_bytes", [10, 1_000_000])
def test_rows_are_set_aside_in_memory_or_in_a_file(in_memory_bytes: int) -> None:
    batches = [pa.record_batch({"value": pa.array([b"a" * 1_000] * 10)}) for _ in range(3)]
    with RowsAside(in_memory_bytes) as aside:
        assert list(aside.take_in(iter(batches))) == batches
        for _ in range(2):
            assert list(aside.again()) == batches


def test_many_rows_of_another_task(query: Query) -> None:
    """More than are kept in memory."""
    rows = [b"%d" % number for number in range(5_000)]
    query.write(1, rows)

    def small() -> RowsAside:
        return RowsAside(in_memory_bytes=1_000)

    with patch.object(exactly_once, "RowsAside", small):
        assert [each.was_there for each in query.run((rows, rows[1:]), SECOND)] == [True, False]
    assert query.counts() == Counter(rows + rows[1:])
