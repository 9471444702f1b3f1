"""Clusters that clients put data into: `kraftpy up` with one node, and with three."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from compat.node_process import complaints_in
from confluent_kafka.admin import AdminClient, NewTopic
from support.ports import unused_ports

from kraftpy.client.blocking import BlockingConnection
from kraftpy.protocol.schema.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kraftpy.protocol.schema.k03_metadata import MetadataRequest, MetadataRequestTopic

SECONDS = 60
STOP_TIMEOUT_SECONDS = 150
MEBIBYTE = 1 << 20
# A machine that does other work may hold up a node for some seconds. Clients that have to look for
# another leader then complain of it, and with reason.
LEADERS_STAY = ("broker.session.timeout.ms=120000", "controller.quorum.fetch.timeout.ms=60000")


@dataclass
class DataCluster:
    """A cluster that serves; topics have a replica on every node."""

    process: subprocess.Popen[str]
    bootstrap: str
    nodes: list[dict[str, Any]]
    directory: Path
    names: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def replication_factor(self) -> int:
        return len(self.nodes)

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        return {node["id"]: (node["host"], node["port"]) for node in self.nodes}

    @cached_property
    def admin(self) -> AdminClient:
        """One for all: what it is asked for ends with it."""
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def topic(self, partitions: int = 1, **configs: str) -> str:
        """A new one, with a name of its own, that its leaders serve already."""
        name = f"topic-{self.replication_factor}-{next(self.names)}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        wanted = NewTopic(name, partitions, self.replication_factor, config=settings)
        [future] = self.admin.create_topics([wanted], operation_timeout=SECONDS).values()
        future.result(SECONDS)
        self.wait_until_served(name, partitions)
        return name

    def wait_until_served(self, topic: str, partitions: int) -> None:
        """Brokers hear of a topic later than whoever asked the controller for it."""
        deadline = time.monotonic() + SECONDS
        for address in self.addresses.values():
            with BlockingConnection(address) as connection:
                while not self._serves(connection, topic, partitions):
                    assert time.monotonic() < deadline, f"{topic} is not served"

    def _serves(self, connection: BlockingConnection, topic: str, partitions: int) -> bool:
        """Whether this broker knows all partitions, and answers for those that it leads."""
        wanted = [MetadataRequestTopic(name=topic)]
        [known] = connection.request(MetadataRequest(topics=wanted)).topics
        node_id = next(
            node_id for node_id, address in self.addresses.items() if address == connection.address
        )
        ends = [
            ListOffsetsPartition(partition_index=each.partition_index, timestamp=-1)
            for each in known.partitions
            if each.leader_id == node_id
        ]
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=ends)]
        )
        [told] = connection.request(request).topics
        return len(known.partitions) == partitions and all(
            each.error_code == 0 for each in told.partitions
        )

    def complaints(self) -> list[str]:
        """Of all nodes."""
        return [
            f"{log.parent.name}: {line}"
            for log in sorted(self.directory.glob("node-*/node.log"))
            for line in complaints_in(log.read_text())
        ]


@contextmanager
def running_cluster(
    directory: Path, nodes: int, settings: Sequence[str] = LEADERS_STAY
) -> Iterator[DataCluster]:
    """Start it; stop it as an operator would. Nothing that clients do makes a node complain."""
    ready_file = directory / "ready.json"
    command = [sys.executable, "-m", "kraftpy.cli.main", "up", "--nodes", str(nodes)]
    command += ["--port", str(unused_ports())]
    command += ["--dir", str(directory / "cluster"), "--ready-file", str(ready_file)]
    # As whoever allows larger messages should.
    command += ["--set", f"replica.fetch.max.bytes={11 * MEBIBYTE}"]
    # Clients of the cluster that was on these ports before must leave no traces here.
    command += ["--set", "auto.create.topics.enable=false"]
    # Members of the new protocol hear of changes at their heartbeats: tests need not wait long.
    command += ["--set", "group.consumer.min.heartbeat.interval.ms=500"]
    command += ["--set", "group.consumer.heartbeat.interval.ms=500"]
    command += ["--set", "group.consumer.min.session.timeout.ms=6000"]
    for setting in settings:
        command += ["--set", setting]
    said_file = directory / "said"
    with said_file.open("w") as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("bootstrap.servers="), said_file.read_text()
        ready = json.loads(ready_file.read_text())
        cluster = DataCluster(process, ready["bootstrap"], ready["nodes"], directory / "cluster")
        yield cluster
        assert process.poll() is None, said_file.read_text()
        assert cluster.complaints() == []
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_SECONDS)
        finally:
            process.kill()
            process.communicate()
