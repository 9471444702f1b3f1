"""How a task reads its range of offsets: batches from the wire, columns of Arrow out.

This runs in Spark's Python workers, with the blocking client: there is no event loop there. Nothing
is kept between two ranges. The next fetch is under way while Spark takes the rows of the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from kraftpy.client.blocking import now_ms
from kraftpy.client.blocking_clients import BlockingConsumer
from kraftpy.client.errors import LogTruncated, OffsetOutOfRange
from kraftpy.records.batch import RecordBatch
from kraftpy.records.errors import InvalidRecord
from kraftpy.records.walker import AnyBatch
from kraftpy_spark.columns import HEADERS, TIMESTAMP, DecodedRecords, decode
from kraftpy_spark.offsets import OffsetRange
from kraftpy_spark.options import SourceOptions
from kraftpy_spark.topics import DataLoss

__all__ = ["DDL", "DDL_WITH_HEADERS", "read_range"]

DDL = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,"
    " timestampType INT"
)
DDL_WITH_HEADERS = f"{DDL}, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"

_FIELDS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", TIMESTAMP),
    pa.field("timestampType", pa.int32()),
]
_SCHEMA = pa.schema(_FIELDS)
_SCHEMA_WITH_HEADERS = pa.schema([*_FIELDS, pa.field("headers", HEADERS)])
# How long one wait for an answer is, at most, between looks at the time.
_POLL_MS = 1_000


def read_range(options: SourceOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The records of the range that are there, in order; raises DataLoss if others should be."""
    where = wanted.where
    with BlockingConsumer(options.bootstrap, options.consumer) as consumer:
        consumer.assign([where])
        consumer.seek(where, wanted.start)
        position = wanted.start
        moved_ms = now_ms()
        while position < wanted.end:
            try:
                found = consumer.poll_batches(min(_POLL_MS, options.poll_timeout_ms))
            except (OffsetOutOfRange, LogTruncated) as failure:
                position = _after_loss(consumer, options, wanted, failure)
                consumer.seek(where, position)
                continue
            for part in found:
                rows = _rows(options, replace(wanted, start=position), part.batches)
                if rows.num_rows:
                    yield rows
            reached = consumer.position(where)
            if reached > position:
                position, moved_ms = reached, now_ms()
            elif now_ms() - moved_ms > options.poll_timeout_ms:
                raise DataLoss(
                    f"nothing came from {where.topic}-{where.partition} at offset {position} for"
                    f" {options.poll_timeout_ms} ms (kafkaConsumer.pollTimeoutMs), although the"
                    f" plan goes to {wanted.end}: its leader is out of reach, or the log was cut"
                )


def _after_loss(
    consumer: BlockingConsumer, options: SourceOptions, wanted: OffsetRange, failure: Exception
) -> int:
    """Where to go on, if that is wished for: at the first record that is left."""
    where = wanted.where
    [first] = consumer.beginning_offsets([where]).values()
    [end] = consumer.end_offsets([where]).values()
    if options.fails_on_data_loss:
        raise DataLoss(
            f"{where.topic}-{where.partition} has offsets {first} to {end} now, and the plan is to"
            f" read {wanted.start} to {wanted.end} ({failure})"
        ) from None
    position = consumer.position(where)
    return first if position < first <= wanted.end else wanted.end


def _rows(options: SourceOptions, wanted: OffsetRange, batches: list[AnyBatch]) -> pa.RecordBatch:
    """Those of the records that are in the range: batches may begin before it, and end after."""
    modern = [batch for batch in batches if isinstance(batch, RecordBatch)]
    if len(modern) != len(batches):
        raise InvalidRecord(
            f"{wanted.topic}-{wanted.partition} has messages in a format of before Kafka 0.11;"
            ' read them with Spark\'s own connector, format("kafka")'
        )
    decoded = decode(
        modern,
        max_batch_bytes=options.consumer.max_batch_bytes,
        with_headers=options.includes_headers,
    )
    first, last = np.searchsorted(decoded.offsets, [wanted.start, wanted.end])
    return _record_batch(wanted, decoded).slice(first, last - first)


def _record_batch(wanted: OffsetRange, decoded: DecodedRecords) -> pa.RecordBatch:
    count = len(decoded.offsets)
    columns = [
        decoded.keys,
        decoded.values,
        pa.repeat(wanted.topic, count),
        pa.repeat(pa.scalar(wanted.partition, pa.int32()), count),
        pa.array(decoded.offsets),
        decoded.timestamps,
        decoded.timestamp_types,
    ]
    if decoded.headers is None:
        return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
    return pa.RecordBatch.from_arrays([*columns, decoded.headers], schema=_SCHEMA_WITH_HEADERS)
