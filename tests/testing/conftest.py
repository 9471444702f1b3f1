"""Clusters that the tests here share: one kind for all, three nodes in one process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraftpy.testing.cluster import KafkaCluster, open_kafka_cluster
from kraftpy.testing.options import ClusterOptions


@pytest.fixture(scope="session")
def kafka_cluster_options() -> ClusterOptions:
    return ClusterOptions(nodes=3, one_process=True)


@pytest.fixture(scope="module")
def _kafka_cluster_of_session(
    kafka_cluster_options: ClusterOptions, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaCluster]:
    """The plugin's, but stopped after the last test of a module. Its nodes live in this process:
    tests of other rooms, which follow here, count descriptors and objects, replace functions of the
    product, and switch the collector of garbage off and on.
    """
    with open_kafka_cluster(kafka_cluster_options, tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster
