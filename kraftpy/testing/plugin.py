"""The pytest plugin: fixtures, a marker and an option. Loaded by pytest wherever kraftpy is
installed, so it imports nothing that a test run without clusters would have to pay for.

- `kafka_cluster`: a cluster of the test's own. `@pytest.mark.kafka_cluster(nodes=3)` says its kind;
  the arguments are those of `kraftpy.testing.options.ClusterOptions`.
- `kafka_cluster_session`: one cluster for the whole run, healed after each test. A fixture
  `kafka_cluster_options` (scope session) in a conftest.py says its kind, and that of tests without
  a marker.
- `--kafka-seed N`: what tests draw at random, they draw again.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kraftpy.testing.cluster import KafkaCluster
    from kraftpy.testing.options import ClusterOptions

__all__ = [
    "kafka_cluster",
    "kafka_cluster_options",
    "kafka_cluster_session",
    "pytest_addoption",
    "pytest_configure",
    "pytest_runtest_makereport",
]

_FIXTURES = ("kafka_cluster", "kafka_cluster_session")
_SEED = pytest.StashKey[int]()
_SEED_LIMIT = 2**32


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("kraftpy").addoption(
        "--kafka-seed", type=int, metavar="N", help="seed of the faults that tests draw at random"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "kafka_cluster(nodes=1, controllers=0, settings={}, one_process=False): the cluster that "
        "the fixture of that name gives to this test",
    )
    given = config.getoption("--kafka-seed")
    config.stash[_SEED] = secrets.randbelow(_SEED_LIMIT) if given is None else given


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed tells what befell its cluster, and how to have it again."""
    report = yield
    arguments: dict[str, object] = getattr(item, "funcargs", {})
    for name in _FIXTURES:
        cluster: KafkaCluster | None = arguments.get(name)  # type: ignore[assignment]
        if report.failed and cluster is not None:
            repeat = f"pytest --kafka-seed {item.config.stash[_SEED]} '{item.nodeid}'"
            report.sections.append((name, f"again: {repeat}\n{cluster.describe()}"))
    return report


@pytest.fixture(scope="session")
def kafka_cluster_options() -> ClusterOptions:
    """To be overridden: what kind of cluster tests without a marker get, and the session's."""
    from kraftpy.testing.options import ClusterOptions

    return ClusterOptions()


@pytest.fixture
def kafka_cluster(
    request: pytest.FixtureRequest,
    kafka_cluster_options: ClusterOptions,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[KafkaCluster]:
    """A Kafka cluster of this test's own."""
    from kraftpy.testing.cluster import open_kafka_cluster
    from kraftpy.testing.options import ClusterOptions

    marker = request.node.get_closest_marker("kafka_cluster")
    options = kafka_cluster_options if marker is None else ClusterOptions(**marker.kwargs)
    directory = tmp_path_factory.mktemp("kafka")
    with open_kafka_cluster(options, directory, seed=_seed(request)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _kafka_cluster_of_session(
    kafka_cluster_options: ClusterOptions, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaCluster]:
    from kraftpy.testing.cluster import open_kafka_cluster

    with open_kafka_cluster(kafka_cluster_options, tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster_session(
    request: pytest.FixtureRequest, _kafka_cluster_of_session: KafkaCluster
) -> Iterator[KafkaCluster]:
    """The cluster of the whole run; what this test does to it is healed afterwards."""
    cluster = _kafka_cluster_of_session
    cluster.begin(_seed(request))
    yield cluster
    if cluster.journal:
        cluster.heal()


def _seed(request: pytest.FixtureRequest) -> str:
    """Of one test: it hangs on the seed of the run and on the test's name alone."""
    return f"{request.config.stash[_SEED]} {request.node.nodeid}"
