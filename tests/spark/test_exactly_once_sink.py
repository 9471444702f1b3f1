"""Rows into topics exactly once: attempts that die, that come twice, and that come too late.

What a task does is tried without Spark, attempt by attempt, against kraftpy and against Apache
Kafka. With Spark, a query is stopped between its rows and its commit, and tasks fail when they are
done. The same is done at least once, to show that the test sees what is there twice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest
from kraftpy_spark.exactly_once import (
    DigestMismatch,
    MarkAhead,
    PlanChanged,
    Task,
    check_batch,
    write_task,
)
from kraftpy_spark.marks import Entry
from kraftpy_spark.topics import TopicMissing
from kraftpy_spark.writing import Written
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from spark.once_tasks import ROWS, counts, first_task, options_of, write
from spark.spark_brokers import Route, SparkBroker, run_to_end

from kraftpy.client.blocking_clients import BlockingProducer
from kraftpy.client.transaction_errors import ProducerFenced
from spark import failing_sink


@pytest.fixture
def task() -> Task:
    """The first of a query of its own."""
    return first_task()


def test_an_attempt_after_a_success_writes_nothing(broker: SparkBroker, task: Task) -> None:
    topic = broker.topic(2)
    entry = Entry(partition_id=0, place=0)
    assert write(broker, topic, task) == Written(len(ROWS), task.query_id, entry=entry)
    # The order of rows is not Spark's promise.
    again = write(broker, topic, task, ROWS[::-1])
    assert again == Written(len(ROWS), task.query_id, was_there=True, entry=entry)
    assert counts(broker, topic) == Counter(ROWS)
    # In one run, the same rows of another task are others.
    write(broker, topic, replace(task, partition_id=1))
    write(broker, topic, replace(task, batch_id=1))
    assert counts(broker, topic) == Counter(ROWS * 3)


def test_an_attempt_after_a_death_writes_all(broker: SparkBroker, task: Task) -> None:
    """The dead one had sent its rows, and left its transaction open."""
    topic = broker.topic(2)
    settings = replace(options_of(broker, topic).producer, transactional_id=task.name)
    dead = BlockingProducer(broker.addresses, settings)
    dead.init_transactions()
    dead.begin_transaction()
    for row in ROWS:
        dead.send(topic, row)
    dead.flush()
    assert not write(broker, topic, task).was_there
    # It was not dead, only late.
    with pytest.raises(ProducerFenced):
        dead.commit_transaction()
    dead.close()
    assert counts(broker, topic) == Counter(ROWS)


def test_other_rows_for_the_same_batch_are_an_error(broker: SparkBroker, task: Task) -> None:
    topic = broker.topic(2)
    write(broker, topic, task)
    for other in (ROWS[:-1], (*ROWS[:-1], b"other"), (*ROWS, ROWS[0]), ()):
        with pytest.raises(DigestMismatch, match="not deterministic"):
            write(broker, topic, task, other)
    assert counts(broker, topic) == Counter(ROWS)


def test_an_old_checkpoint_is_an_error(broker: SparkBroker, task: Task) -> None:
    topic = broker.topic(2)
    write(broker, topic, replace(task, batch_id=7))
    with pytest.raises(MarkAhead, match="old copy"):
        write(broker, topic, replace(task, batch_id=6))
    assert counts(broker, topic) == Counter(ROWS)


def test_a_task_that_the_plan_no_longer_has_is_an_error(broker: SparkBroker, task: Task) -> None:
    topic = broker.topic(2)
    message = write(broker, topic, replace(task, partition_id=2))
    nothing = Written(0, task.query_id)
    options = options_of(broker, topic)
    check_batch(options, [nothing, nothing, message], batch_id=0)
    check_batch(options, [nothing, nothing], batch_id=1)
    with pytest.raises(PlanChanged, match="with 2 tasks"):
        check_batch(options, [nothing, nothing], batch_id=0)


def test_no_rows_leave_no_trace(broker: SparkBroker, task: Task) -> None:
    topic = broker.topic(2)
    assert write(broker, topic, task, ()) == Written(0, task.query_id)
    assert write_task(options_of(broker, None), task, iter(())) == Written(0, task.query_id)
    assert counts(broker, topic) == Counter()
    assert broker.end_offsets(topic, 2) == {0: 0, 1: 0}


def test_rows_that_name_their_topics_are_one_transaction(broker: SparkBroker, task: Task) -> None:
    one, two = broker.topic(1), broker.topic(1)
    rows = pa.record_batch({"topic": pa.array([one, two, one]), "value": pa.array(["a", "b", "c"])})
    options = options_of(broker, None)
    # Another order, as after a shuffle, begins with another topic; the mark is found all the same.
    for was_there, attempt in ((False, rows), (True, rows), (True, rows.take([1, 2, 0]))):
        assert write_task(options, task, iter([attempt])).was_there == was_there
    assert (broker.values(one), broker.values(two)) == ([b"a", b"c"], [b"b"])


def test_a_topic_that_is_missing_is_named(broker: SparkBroker, task: Task) -> None:
    with pytest.raises(TopicMissing, match="kraftpy topics create nowhere"):
        write(broker, "nowhere", task)


def run(frame: DataFrame, format_name: str, route: Route, folder: Path, **options: str) -> None:
    """A query over what is there, until it ends."""
    run_to_end(route.write_stream(frame, folder, **options).format(format_name))


def forget_last_commit(checkpoint: Path) -> None:
    """As if the query had been stopped when its rows were written, and before it knew."""
    commits = [path for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()]
    last = max(commits, key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def own_route(spark: SparkSession, kraftpy_nodes: SparkBroker) -> Route:
    return Route("kraftpy", kraftpy_nodes, spark)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_query_that_is_stopped_before_its_commit(
    own_route: Route, tmp_path: Path, guarantee: str
) -> None:
    broker = own_route.broker
    source, target = broker.topic(2), broker.topic(2)
    broker.produce(source, ROWS)
    stream = own_route.stream(
        subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="1500"
    )
    options = {"topic": target, "deliveryGuarantee": guarantee}
    for _ in range(2):
        run(stream.select("value"), "kraftpy", own_route, tmp_path, **options)
        forget_last_commit(tmp_path)
    found = counts(broker, target)
    assert set(found) == set(ROWS)
    is_once = found == Counter(ROWS)
    assert is_once == (guarantee == "exactly-once")


def test_a_source_that_gives_rows_to_other_tasks_after_a_restart(
    spark: SparkSession, kraftpy_nodes: SparkBroker, tmp_path: Path
) -> None:
    """Spark's own, with a limit to its batches: the order of partitions is that of its log then,
    and before that of a set. With most names of topics it is the same. With this one it is not.
    """
    broker = kraftpy_nodes
    route = Route("kafka", broker, spark)
    source, target = broker.topic(3, name="moves-j"), broker.topic(2)
    rows = [(b"%d first" % partition, b"%d second" % partition) for partition in range(3)]
    for partition in range(3):
        broker.produce(source, rows[partition], partition=partition)
    stream = route.stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="3")
    options = {"topic": target, "deliveryGuarantee": "exactly-once"}
    for _ in range(2):
        run(stream.select("value"), "kraftpy", route, tmp_path, **options)
        forget_last_commit(tmp_path)
    assert counts(broker, target) == Counter(chain(*rows))


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_tasks_that_fail_after_their_work(own_route: Route, tmp_path: Path, guarantee: str) -> None:
    broker = own_route.broker
    cloudpickle.register_pickle_by_value(failing_sink)
    own_route.spark.dataSource.register(failing_sink.FailingDataSource)
    source, target = broker.topic(2), broker.topic(2)
    broker.produce(source, ROWS)
    stream = own_route.stream(subscribe=source, startingOffsets="earliest").select("value")
    options = {"topic": target, "deliveryGuarantee": guarantee}
    run(stream, "kraftpy-failing", own_route, tmp_path, **options)
    copies = 1 if guarantee == "exactly-once" else 2
    assert counts(broker, target) == Counter(ROWS * copies)


def test_a_query_that_is_not_deterministic_is_told(own_route: Route, tmp_path: Path) -> None:
    broker = own_route.broker
    source, target = broker.topic(1), broker.topic(1)
    broker.produce(source, [b"x"])
    stream = own_route.stream(subscribe=source, startingOffsets="earliest")
    stream = stream.selectExpr("uuid() AS value")
    options = {"topic": target, "deliveryGuarantee": "exactly-once"}
    run(stream, "kraftpy", own_route, tmp_path, **options)
    forget_last_commit(tmp_path)
    # The second run can't know before it has written, and every later one does.
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="not deterministic"):
            run(stream, "kraftpy", own_route, tmp_path, **options)
        assert len(broker.values(target)) == 2
