"""The data source `kraftpy`: what Spark makes readers and writers from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)

from kraftpy_spark.filters import Pushed, push
from kraftpy_spark.offsets import OffsetRange, ranges_between, split
from kraftpy_spark.options import SinkOptions, SourceOptions
from kraftpy_spark.reading import DDL, DDL_WITH_HEADERS, read_range
from kraftpy_spark.sink import KraftpyStreamWriter, KraftpyWriter
from kraftpy_spark.stream import KraftpyStreamReader
from kraftpy_spark.topics import Topics

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["KraftpyDataSource", "KraftpyReader"]


class KraftpyDataSource(DataSource):
    """Made by Spark, with the options of the user; `kraftpy_spark.register` makes it known."""

    @classmethod
    def name(cls) -> str:
        return "kraftpy"

    def schema(self) -> str:
        headers = self.options.get("includeHeaders", "false").strip().lower()
        return DDL_WITH_HEADERS if headers == "true" else DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        return KraftpyReader(SourceOptions.parse(self.options, is_stream=False))

    def streamReader(self, schema: StructType) -> KraftpyStreamReader:  # noqa: N802 (Spark's name)
        return KraftpyStreamReader(SourceOptions.parse(self.options, is_stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return KraftpyWriter(SinkOptions.parse(self.options, is_stream=False), schema, overwrite)

    def streamWriter(  # noqa: N802 (Spark's name)
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        return KraftpyStreamWriter(SinkOptions.parse(self.options, is_stream=True), schema)


class KraftpyReader(DataSourceReader):
    """One batch read: it is planned in the driver, and its ranges are read by tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pushed = Pushed()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        self._pushed, left = push(filters)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        topics = Topics(options)
        try:
            ranges = self._ranges(topics)
        finally:
            topics.close()
        parts = split(
            ranges,
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
        return [InputPartition(part) for part in parts]

    def _ranges(self, topics: Topics) -> list[OffsetRange]:
        options = self._options
        pushed = self._pushed
        wheres = topics.partitions()
        starts = topics.resolve(options.starting, wheres, is_start=True)
        ends = topics.resolve(options.ending, wheres, is_start=False)
        starts = pushed.starts({where: starts[where] for where in wheres if pushed.has(where)})
        ends = pushed.ends({where: ends[where] for where in starts})
        if pushed.not_before_ms is not None and starts:
            young = topics.at_times(dict.fromkeys(starts, pushed.not_before_ms))
            for where, offset in young.items():
                # No record at all is young enough: there is nothing to read.
                starts[where] = ends[where] if offset < 0 else max(starts[where], offset)
        return ranges_between(starts, ends)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Where there is nothing to plan, Spark makes one task of its own.
        if partition.value is None:
            return iter(())
        return read_range(self._options, partition.value)
