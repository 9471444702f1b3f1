"""A session of Spark on this machine, with both formats, for tests and benchmarks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.components import require
from support.kafka_jars import spark_connector_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_session(warehouse: Path, settings: Mapping[str, str] | None = None) -> SparkSession:
    """With Spark's own Kafka connector and with `format("kraftpy")`; the caller stops it."""
    require("java", "mvn")
    pytest.importorskip("pyspark", reason="missing: PySpark (pip install 'kraftpy[spark]')")
    from kraftpy_spark import register
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = sorted(str(path) for path in spark_connector_folder().glob("*.jar"))
    usual = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        # Times are compared as they are, wherever the machine stands.
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.jars": ",".join(jars),
    }
    # A task that has failed is tried again, twice.
    builder = SparkSession.builder.master("local[2,3]").appName("kraftpy")
    for key, value in {**usual, **(settings or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    return session
