"""The data source `kraftpy`: what Spark makes readers and writers from."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

__all__ = ["KraftpyDataSource"]


class KraftpyDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "kraftpy"
