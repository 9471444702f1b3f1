"""Tasks of a query that writes exactly once, without Spark: attempt by attempt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count

import pyarrow as pa
from kraftpy_spark.exactly_once import Task, write_task
from kraftpy_spark.options import SinkOptions
from kraftpy_spark.writing import Written
from spark.spark_brokers import SparkBroker

QUERY_NUMBERS = count(1)
ROWS = tuple(b"row %d" % number for number in range(2_500))


def first_task(run_id: str = "first run") -> Task:
    """Of the first batch of a query of its own."""
    return Task(f"query-{next(QUERY_NUMBERS)}", batch_id=0, partition_id=0, run_id=run_id)


def options_of(broker: SparkBroker, topic: str | None) -> SinkOptions:
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "deliveryGuarantee": "exactly-once",
        "kafka.batch.size": "4000",
    }
    if topic is not None:
        options["topic"] = topic
    return SinkOptions.parse(options, is_stream=True)


def write(broker: SparkBroker, topic: str, task: Task, values: Sequence[bytes] = ROWS) -> Written:
    batches = [
        pa.record_batch({"value": pa.array(values[start : start + 1_000], pa.binary())})
        for start in range(0, len(values), 1_000)
    ]
    return write_task(options_of(broker, topic), task, iter(batches))


def counts(broker: SparkBroker, topic: str, partitions: int = 2) -> Counter[bytes | None]:
    return Counter(broker.values(topic, partitions))
