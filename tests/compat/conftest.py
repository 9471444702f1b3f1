"""Processes shared by all tests with clients, and stopped after the last of them; no client gives
them a reason to complain.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from compat.data_cluster import DataCluster, running_cluster
from compat.node_process import NodeProcess, complaints_in, running_node
from support.kafka_jars import QUICK_JAVA

from bench._peers import Server, apache_kafka
from kraftpy.world import Address


@pytest.fixture(scope="package")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One that never has a topic."""
    options = ("--set", "auto.create.topics.enable=false")
    with running_node(tmp_path_factory.mktemp("node"), *options) as process:
        yield process
        assert process.stop() == 0, process.log()
        # A request that was refused, and a connection that it cost, would be here. The Java client
        # has no other voice: its jars come without a logger.
        assert complaints_in(process.log()) == []


@pytest.fixture(scope="package")
def one_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataCluster]:
    with running_cluster(tmp_path_factory.mktemp("one-node"), 1) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataCluster]:
    with running_cluster(tmp_path_factory.mktemp("three-nodes"), 3) as cluster:
        yield cluster


@pytest.fixture(params=["one_node", "three_nodes"])
def cluster(request: pytest.FixtureRequest) -> DataCluster:
    """For data, with as many replicas as nodes: each of the two in its turn."""
    found: DataCluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="package")
def kafka() -> Iterator[Server]:
    """Apache Kafka, for our own client beside other people's."""
    settings = {
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
    }
    with apache_kafka(settings, java=QUICK_JAVA) as server:
        yield server


@pytest.fixture
def servers(kafka: Server) -> list[Address]:
    return [(kafka.host, kafka.port)]
