"""Kafka's own Java clients, of two releases, and its console and performance tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from compat.data_cluster import MEBIBYTE, DataCluster
from support.kafka_jars import run_java

pytestmark = [pytest.mark.compat, pytest.mark.java]

PROBE = Path(__file__).with_name("DataProbe.java")


@pytest.mark.parametrize(
    ("cluster", "release"),
    [("one_node", "4.3"), ("three_nodes", "4.3"), ("three_nodes", "3.9")],
    indirect=["cluster"],
)
def test_producer_consumer_and_admin(cluster: DataCluster, release: str) -> None:
    replicas = cluster.replication_factor
    name = cluster.topic(2)
    done = run_java(PROBE, cluster.bootstrap, str(replicas), name, release=release, logs=True)
    assert done.stderr == ""
    assert done.returncode == 0
    found = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert found == {
        "too-large": "RecordTooLargeException",
        "allowed": "stored",
        "config": str(11 * MEBIBYTE),
        "read": "101",
        "values": "0,1,all,idempotent",
        "last": "null null RecordHeaders(headers = ["
        "RecordHeader(key = a, value = [1]), RecordHeader(key = b, value = null)],"
        " isReadOnly = false)",
        "at-end": "0",
        "from-offset": "3",
        "from-time": "100 1",
        "large": "[true]",
        "replicas": str([replicas] * 3),
        "end": "101",
        "deleted": "true",
    }


def tool(cluster: DataCluster, name: str, arguments: str, **options: Any) -> tuple[str, str]:
    """What a tool says on standard output, and on standard error."""
    arguments = arguments.format(bootstrap=cluster.bootstrap)
    done = run_java(f"org.apache.kafka.tools.{name}", *arguments.split(), logs=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_console_tools(three_nodes: DataCluster) -> None:
    """A consumer of one partition needs no group; options have been the same for years."""
    topic = three_nodes.topic()
    lines = [f"line {number}" for number in range(20)]
    server = f"--bootstrap-server {{bootstrap}} --topic {topic}"
    _, warned = tool(
        three_nodes,
        "ConsoleProducer",
        f"{server} --compression-codec zstd --request-required-acks all",
        stdin="\n".join(lines),
    )
    assert [line for line in warned.splitlines() if "deprecated" not in line] == []
    read = f"{server} --partition 0 --timeout-ms 60000 --offset"
    out, warned = tool(
        three_nodes, "consumer.ConsoleConsumer", f"{read} earliest --max-messages 20"
    )
    assert out.splitlines() == lines
    assert [line for line in warned.splitlines() if "deprecated" not in line] == [
        "Processed a total of 20 messages"
    ]
    out, _ = tool(three_nodes, "consumer.ConsoleConsumer", f"{read} 17 --max-messages 3")
    assert out.splitlines() == lines[17:]
    out, _ = tool(three_nodes, "GetOffsetShell", server)
    assert out.splitlines() == [f"{topic}:0:20"]


def test_performance_tool(three_nodes: DataCluster) -> None:
    topic = three_nodes.topic(3)
    out, warned = tool(
        three_nodes,
        "ProducerPerformance",
        f"--topic {topic} --num-records 5000 --record-size 200 --throughput -1"
        " --producer-props bootstrap.servers={bootstrap} compression.type=lz4",
    )
    assert "5000 records sent" in out
    assert [line for line in warned.splitlines() if "deprecated" not in line] == []
    out, _ = tool(
        three_nodes, "GetOffsetShell", f"--bootstrap-server {{bootstrap}} --topic {topic}"
    )
    assert sum(int(line.rpartition(":")[2]) for line in out.splitlines()) == 5000
