"""Servers to measure: kraftpy nodes and Apache Kafka brokers, each a process on free ports."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

START_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class Server:
    name: str
    host: str
    port: int
    pid: int
    folder: Path
    """Its own; `data` in there is its data directory."""

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]


def wait_for_port(process: subprocess.Popen[bytes], port: int, output: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while True:
        if process.poll() is not None or time.monotonic() > deadline:
            tail = "\n".join(output.read_text(errors="replace").splitlines()[-20:])
            raise SystemExit(f"the server did not start (exit code {process.poll()}):\n{tail}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)


@contextlib.contextmanager
def _process(name: str, command: list[str], port: int, folder: Path) -> Iterator[Server]:
    output = folder / "output.txt"
    with output.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, cwd=folder)
        try:
            wait_for_port(process, port, output)
            yield Server(name, "127.0.0.1", port, process.pid, folder)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _properties(port: int, controller_port: int, folder: Path) -> str:
    return "\n".join(
        [
            "process.roles=broker,controller",
            "node.id=1",
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.listener.names=CONTROLLER",
            f"controller.quorum.voters=1@127.0.0.1:{controller_port}",
            f"log.dirs={folder / 'data'}",
            "offsets.topic.replication.factor=1",
            "",
        ]
    )


@contextlib.contextmanager
def kraftpy_node() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="kraftpy-bench-") as name:
        folder = Path(name)
        port, controller_port = free_ports(2)
        config = folder / "server.properties"
        config.write_text(_properties(port, controller_port, folder))
        command = [sys.executable, "-m", "kraftpy.cli.main", "node", str(config)]
        with _process("kraftpy", command, port, folder) as server:
            yield server


@contextlib.contextmanager
def apache_kafka(properties: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Apache Kafka of the release that we follow, with its default heap settings' 1 GiB.

    `properties` are added to its configuration.
    """
    from support.kafka_jars import jar_folder

    java = ["java", "-Xmx1g", "-Xms1g", "-cp", f"{jar_folder()}/*"]
    with tempfile.TemporaryDirectory(prefix="kafka-bench-") as name:
        folder = Path(name)
        port, controller_port = free_ports(2)
        config = folder / "server.properties"
        added = "".join(f"{key}={value}\n" for key, value in (properties or {}).items())
        config.write_text(_properties(port, controller_port, folder) + added)
        identity = ["-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(config)]
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", *identity],
            check=True,
            capture_output=True,
        )
        with _process("Kafka", [*java, "kafka.Kafka", str(config)], port, folder) as server:
            yield server
