"""Servers to measure: kraftpy nodes and Apache Kafka brokers, each a process on free ports.

Both are configured, formatted, started and found ready in the same way.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Long enough for a JVM on a machine that has much else to do.
START_TIMEOUT_SECONDS = 180
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


@dataclass(frozen=True)
class Server:
    name: str
    host: str
    port: int
    process: subprocess.Popen[bytes]
    folder: Path
    """Its own; `data` in there is its data directory."""

    @property
    def pid(self) -> int:
        return self.process.pid

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for_port(server: Server) -> None:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while True:
        if server.process.poll() is not None or time.monotonic() > deadline:
            output = (server.folder / "output.txt").read_text(errors="replace")
            tail = "\n".join(output.splitlines()[-20:])
            raise SystemExit(
                f"the server did not start (exit code {server.process.poll()}):\n{tail}"
            )
        with contextlib.suppress(OSError), socket.create_connection((server.host, server.port), 1):
            return
        time.sleep(0.02)


@contextlib.contextmanager
def _process(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs for as long as the block; what it prints goes to `output.txt`."""
    with (folder / "output.txt").open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, cwd=folder)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@dataclass(frozen=True)
class Flavour:
    """How to run what is measured."""

    name: str
    format_command: tuple[str, ...]
    node_command: tuple[str, ...]


def _kraftpy() -> Flavour:
    base = (sys.executable, "-m", "kraftpy.cli.main")
    return Flavour("kraftpy", (*base, "storage", "format"), (*base, "node"))


def _kafka(java: Sequence[str] = ("java",)) -> Flavour:
    """Apache Kafka of the release that we follow, with its default heap settings' 1 GiB."""
    from support.kafka_jars import jar_folder

    base = (*java, "-Xmx1g", "-Xms1g", "-cp", f"{jar_folder()}/*")
    return Flavour("Kafka", (*base, "kafka.tools.StorageTool", "format"), (*base, "kafka.Kafka"))


@dataclass(frozen=True)
class _Ports:
    """Of all nodes, in the order of their ids, which begin with 1."""

    clients: Sequence[int]
    controllers: Sequence[int]


def _properties(node_id: int, ports: _Ports, folder: Path, *, has_brokers: bool) -> str:
    own_listener = f"CONTROLLER://127.0.0.1:{ports.controllers[node_id - 1]}"
    clients_listener = f"PLAINTEXT://127.0.0.1:{ports.clients[node_id - 1]}"
    voters = enumerate(ports.controllers, 1)
    return "\n".join(
        [
            f"process.roles={'broker,' * has_brokers}controller",
            f"node.id={node_id}",
            f"listeners={(clients_listener + ',') * has_brokers}{own_listener}",
            "controller.listener.names=CONTROLLER",
            f"controller.quorum.voters={','.join(f'{id_}@127.0.0.1:{at}' for id_, at in voters)}",
            f"log.dirs={folder / 'data'}",
            f"offsets.topic.replication.factor={min(3, len(ports.clients))}",
            "",
        ]
    )


@contextlib.contextmanager
def _nodes(
    flavour: Flavour,
    count: int,
    properties: Mapping[str, str] | None = None,
    *,
    has_brokers: bool = True,
) -> Iterator[list[Server]]:
    """Formatted nodes whose processes were started a moment ago, and nothing more.

    Each is a controller, and a broker too unless they have none.
    """
    from support.ports import unused_ports

    added = "".join(f"{key}={value}\n" for key, value in (properties or {}).items())
    first = unused_ports(2 * count)
    ports = _Ports(range(first, first + count), range(first + count, first + 2 * count))
    with contextlib.ExitStack() as stack:
        prefix = f"{flavour.name.lower()}-bench-"
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix)))
        folders = [root / f"node-{node_id}" for node_id in range(1, count + 1)]
        for node_id, folder in enumerate(folders, 1):
            folder.mkdir()
            config = folder / "server.properties"
            text = _properties(node_id, ports, folder, has_brokers=has_brokers)
            config.write_text(text + added)
            identity = ["-t", CLUSTER_ID, "-c", str(config)]
            subprocess.run([*flavour.format_command, *identity], check=True, capture_output=True)
        servers = []
        served = ports.clients if has_brokers else ports.controllers
        for folder, port in zip(folders, served, strict=True):
            command = [*flavour.node_command, str(folder / "server.properties")]
            process = stack.enter_context(_process(command, folder))
            servers.append(Server(flavour.name, "127.0.0.1", port, process, folder))
        try:
            yield servers
        finally:
            # All at once: the last one alone would wait for the others.
            for server in servers:
                server.process.terminate()


@contextlib.contextmanager
def kraftpy_controllers(count: int, properties: Mapping[str, str]) -> Iterator[list[Server]]:
    """Controllers without a broker; their ports are those of the controllers' listeners."""
    with _nodes(_kraftpy(), count, properties, has_brokers=False) as servers:
        for server in servers:
            wait_for_port(server)
        yield servers


@contextlib.contextmanager
def kraftpy_node() -> Iterator[Server]:
    with _nodes(_kraftpy(), 1) as [server]:
        wait_for_port(server)
        yield server


@contextlib.contextmanager
def apache_kafka(
    properties: Mapping[str, str] | None = None, *, java: Sequence[str] = ("java",)
) -> Iterator[Server]:
    """One node; `properties` are added to its configuration."""
    with _nodes(_kafka(java), 1, properties) as [server]:
        wait_for_port(server)
        yield server


@dataclass(frozen=True)
class Cluster:
    """Nodes that are brokers and controllers, each a process."""

    name: str
    servers: list[Server]
    ready_seconds: float
    """From the start of the processes until clients see every broker."""

    @property
    def bootstrap(self) -> str:
        return _bootstrap(self.servers)

    def resident_bytes(self) -> int:
        return sum(server.resident_bytes() for server in self.servers)

    def cpu_seconds(self) -> float:
        return sum(server.cpu_seconds() for server in self.servers)


def kraftpy_cluster(
    count: int, properties: Mapping[str, str] | None = None
) -> contextlib.AbstractContextManager[Cluster]:
    """`properties` are added to the configuration of each node."""
    return _cluster(_kraftpy(), count, properties)


def kafka_cluster(
    count: int, properties: Mapping[str, str] | None = None
) -> contextlib.AbstractContextManager[Cluster]:
    return _cluster(_kafka(), count, properties)


@contextlib.contextmanager
def _cluster(
    flavour: Flavour, count: int, properties: Mapping[str, str] | None
) -> Iterator[Cluster]:
    with _nodes(flavour, count, properties) as servers:
        started = time.monotonic()
        _wait_for_brokers(servers)
        yield Cluster(flavour.name, servers, time.monotonic() - started)


def _wait_for_brokers(servers: list[Server]) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    for server in servers:
        wait_for_port(server)
    settings: dict[str, Any] = {
        "bootstrap.servers": _bootstrap(servers),
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 50,
        "log_level": 0,
        "error_cb": lambda _: None,
    }
    admin = AdminClient(settings)
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(KafkaException):
            if len(admin.list_topics(timeout=1).brokers) == len(servers):
                return
        time.sleep(0.02)
    raise SystemExit(f"{servers[0].name}: not all of {len(servers)} brokers are in the metadata")


def _bootstrap(servers: list[Server]) -> str:
    return ",".join(f"{server.host}:{server.port}" for server in servers)
