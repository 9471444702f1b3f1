"""The writers of `format("kraftpy")`: at least once, as Spark's own sink; or exactly once.

Spark tries tasks again that have failed or seem lost, and a query that was stopped begins with its
last batch again. Rows that an earlier attempt had written are then written a second time: that is
"at least once". With `deliveryGuarantee=exactly-once` a task writes its rows in one transaction,
and in the same transaction it leaves a mark: see exactly_once.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from kraftpy_spark.exactly_once import check_batch, write_once
from kraftpy_spark.options import OptionMistake, SinkOptions
from kraftpy_spark.rows import check_columns
from kraftpy_spark.writing import Written, write_rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["KraftpyStreamWriter", "KraftpyWriter"]


class KraftpyWriter(DataSourceArrowWriter):
    """One batch write."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionMistake('a topic can only be appended to: use mode("append")')
        check_columns(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(self._options, iterator)


class KraftpyStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        write = write_once if self._options.is_exactly_once else write_rows
        return write(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if self._options.is_exactly_once:
            written = [message for message in messages if isinstance(message, Written)]
            check_batch(self._options, written, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: what a task has written stays, and its mark says so."""
