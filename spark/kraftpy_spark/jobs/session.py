"""The session that a job runs in: made here for a terminal, or found as spark-submit made it."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kraftpy_spark.jobs.failure import JobFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["open_session"]


def open_session(
    name: str,
    *,
    master: str | None = None,
    jars: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """With `format("kraftpy")`, in UTC. Raises JobFailed where Spark can't run.

    Without a master: the one of spark-submit or of SPARK_HOME's settings, otherwise local[*].
    """
    _require_java()
    from pyspark.sql import SparkSession

    from kraftpy_spark import register

    # Spark's workers are started by this name, and `python3` may be one without kraftpy.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = master or os.environ.get("MASTER") or _submitted_master() or "local[*]"
    builder = SparkSession.builder.appName(name).master(chosen)
    wanted = {
        # Hours and days of the lake are UTC's, whatever the machine's are.
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
    }
    if chosen.startswith("local"):
        wanted |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if jars:
        wanted["spark.jars"] = ",".join(jars)
    for key, value in {**wanted, **(settings or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    # What a batch raises is told by the job itself.
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    register(session)
    return session


def _submitted_master() -> str | None:
    """Under spark-submit the JVM runs already, and knows."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    from pyspark import SparkConf

    return SparkConf().get("spark.master")


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME is {home}, and there is no bin/java in it" if home else "there is none"
        raise JobFailed(
            f"Spark needs Java 17 or newer, and {where}.\n"
            "Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17;"
            " or set JAVA_HOME."
        )
