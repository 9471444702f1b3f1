"""Real clients connect, negotiate, and see an empty cluster, without a word of complaint."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
from pathlib import Path

import pytest
from aiokafka.client import AIOKafkaClient
from compat.node_process import NodeProcess
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from support.components import require
from support.kafka_jars import run_java

pytestmark = pytest.mark.compat

NODE_ID = 1


class Complaints(logging.Handler):
    """Everything a client's logger says at WARNING or above."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_confluent_kafka(node: NodeProcess) -> None:
    complaints = Complaints()
    logger = logging.getLogger("tests.librdkafka")
    logger.addHandler(complaints)
    errors: list[KafkaError] = []
    admin = AdminClient(
        {"bootstrap.servers": node.bootstrap, "error_cb": errors.append}, logger=logger
    )
    metadata = admin.list_topics(timeout=60)
    assert metadata.cluster_id == node.cluster_id
    assert metadata.controller_id == NODE_ID
    brokers = [f"{broker.id}@{broker.host}:{broker.port}" for broker in metadata.brokers.values()]
    assert brokers == [f"{NODE_ID}@{node.bootstrap}"]
    assert metadata.topics == {}
    missing = admin.list_topics(topic="missing", timeout=60).topics["missing"]
    assert missing.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    admin.poll(0)
    assert (complaints.lines, errors) == ([], [])


# On Python 3.11 the client's own import uses what that release deprecated for a while.
@pytest.mark.filterwarnings("ignore:(read_text|open_text) is deprecated:DeprecationWarning")
def test_kafka_python(node: NodeProcess, caplog: pytest.LogCaptureFixture) -> None:
    from kafka.admin import KafkaAdminClient

    caplog.set_level(logging.WARNING)
    admin = KafkaAdminClient(bootstrap_servers=node.bootstrap)
    try:
        assert admin.list_topics() == []
        cluster = admin.describe_cluster()
        versions = admin.api_versions()
    finally:
        admin.close()
    assert cluster["cluster_id"] == node.cluster_id
    [broker] = cluster["brokers"]
    assert f"{broker['host']}:{broker['port']}" == node.bootstrap
    assert versions
    # It times its own tasks, and on a busy machine complains of itself.
    assert [line for line in caplog.messages if "blocking the event loop" not in line] == []


def test_aiokafka(node: NodeProcess, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def brokers() -> list[tuple[int, str, int]]:
        client = AIOKafkaClient(bootstrap_servers=node.bootstrap)
        try:
            await client.bootstrap()
            metadata = await client.fetch_all_metadata()
            assert metadata.topics() == set()
            return [(each.nodeId, each.host, each.port) for each in metadata.brokers()]
        finally:
            await client.close()

    host, port = node.listeners["broker"]
    assert asyncio.run(brokers()) == [(NODE_ID, host, port)]
    assert caplog.messages == []


def test_kcat(node: NodeProcess) -> None:
    """librdkafka 2.0: an old client, which tests for exact versions."""
    require("kcat")
    done = subprocess.run(
        ["kcat", "-L", "-J", "-m", "60", "-b", node.bootstrap],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert (done.returncode, done.stderr) == (0, "")
    listing = json.loads(done.stdout)
    assert listing["controllerid"] == NODE_ID
    assert listing["brokers"] == [{"id": NODE_ID, "name": node.bootstrap}]
    assert listing["topics"] == []


@pytest.mark.java
@pytest.mark.parametrize(
    ("setting", "listener"),
    [("bootstrap.servers", "broker"), ("bootstrap.controllers", "controller")],
)
def test_java_admin_client(node: NodeProcess, setting: str, listener: str) -> None:
    host, port = node.listeners[listener]
    probe = Path(__file__).with_name("AdminProbe.java")
    done = run_java(probe, setting, f"{host}:{port}")
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if "=" in line]
    expected = [
        f"cluster={node.cluster_id}",
        f"controller={NODE_ID}",
        f"node={NODE_ID}@{host}:{port}",
    ]
    if listener == "broker":
        expected.append("topics=[]")
    assert said == expected


@pytest.mark.java
def test_kafka_broker_api_versions_tool(node: NodeProcess) -> None:
    """kafka-broker-api-versions.sh prints our ranges, and which version it would use."""
    done = run_java(
        "org.apache.kafka.tools.BrokerApiVersionsCommand", "--bootstrap-server", node.bootstrap
    )
    assert done.returncode == 0, done.stderr
    assert f"{node.bootstrap} (id: {NODE_ID} rack: null" in done.stdout
    assert "Metadata(3): 0 to 13 [usable: 13]" in done.stdout
    assert "ApiVersions(18): 0 to 4 [usable: 4]" in done.stdout
    assert "DescribeCluster(60): 0 to 2 [usable: 2]" in done.stdout
    assert "Fetch(1): 4 to 18 [usable: 18]" in done.stdout
    assert "ShareGroupHeartbeat(76): UNSUPPORTED" in done.stdout
