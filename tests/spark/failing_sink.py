"""The sink of kraftpy with tasks that fail when they have done their work; Spark tries again."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from kraftpy_spark.options import SinkOptions
from kraftpy_spark.sink import KraftpyStreamWriter
from kraftpy_spark.source import KraftpyDataSource
from kraftpy_spark.writing import Written
from pyspark import TaskContext
from pyspark.sql.types import StructType


class FailingDataSource(KraftpyDataSource):
    @classmethod
    def name(cls) -> str:
        return "kraftpy-failing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> FailingStreamWriter:
        return FailingStreamWriter(SinkOptions.parse(self.options, is_stream=True), schema)


class FailingStreamWriter(KraftpyStreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        written = super().write(iterator)
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise RuntimeError("the task is lost after its rows were written")
        return written
