"""What Spark's tests share: one session of Spark for all of them, and the clusters that it uses.

PySpark, a JDK and Maven are needed; where one is missing, the tests skip, and under CI=true fail.
A session takes 7 s to start, so that this folder runs in one process, beside the others
(`make unit`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kraftpy_spark.jobs.lake_files import HadoopFiles, LakeFiles, LocalFiles
from spark.spark_brokers import Route, SparkBroker, kafka_broker, kraftpy_broker
from support.kafka_jars import QUICK_JAVA_OPTIONS
from support.spark_session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEST_SECONDS = 2_400
# Spark's own way of using sockets and processes; the tests look at what comes out of it.
SPARKS_WARNINGS = (
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore:.*:DeprecationWarning:pyspark",
    "ignore:.*:FutureWarning:pyspark",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("spark")
            # One that is ended in the middle of a question to Spark takes all others with it.
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))
            for warning in SPARKS_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(warning))


def pytest_unconfigure() -> None:
    """What Spark has left to the collector may come to light after the last test, in pytest's own
    end.
    """
    warnings.simplefilter("ignore", ResourceWarning)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # Tests run everything a few times, on few rows: less than the better compiler and code made for
    # each plan need to pay.
    quick = {
        "spark.driver.extraJavaOptions": " ".join(QUICK_JAVA_OPTIONS),
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    session = spark_session(tmp_path_factory.mktemp("warehouse"), quick)
    yield session
    session.stop()


@pytest.fixture(params=["local", "hadoop"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> LakeFiles:
    if request.param == "local":
        return LocalFiles(tmp_path)
    return HadoopFiles(request.getfixturevalue("spark"), tmp_path.as_uri())


@pytest.fixture(scope="session")
def kraftpy_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkBroker]:
    """Three nodes of kraftpy, that must have no reason to complain; topics have three replicas."""
    with kraftpy_broker(tmp_path_factory.mktemp("nodes")) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_node() -> Iterator[SparkBroker]:
    """Apache Kafka, to show that what is asked of kraftpy is right."""
    with kafka_broker() as broker:
        yield broker


@pytest.fixture(params=["kraftpy_nodes", "kafka_node"])
def broker(request: pytest.FixtureRequest) -> SparkBroker:
    """Each of the two in its turn."""
    found: SparkBroker = request.getfixturevalue(request.param)
    return found


@pytest.fixture(
    params=["kafka on kafka_node", "kafka on kraftpy_nodes", "kraftpy on kraftpy_nodes"],
    ids=["official-on-kafka", "official-on-kraftpy", "kraftpy-on-kraftpy"],
)
def route(request: pytest.FixtureRequest, spark: SparkSession) -> Route:
    """Spark's own connector against Kafka, which shows what is right; and the two of kraftpy."""
    format_name, _, broker_name = request.param.partition(" on ")
    return Route(format_name, request.getfixturevalue(broker_name), spark)
