"""A real `kraftpy node` process on free ports, for tests with real clients."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LISTENERS = "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
STOP_TIMEOUT_SECONDS = 60
# Of nodes that are late for each other, on a machine that does other work: no client's fault.
_LATE = re.compile(
    r" WARNING (broker\.(lifecycle|lifecycle_core|forwarder|isr_sender|directory_assignments"
    r"|producer_ids)|node\.registrar|metadata\.controller\.runner) "
)


def complaints_in(log: str) -> list[str]:
    """Whatever a node has logged that is more than information, and may be about a client."""
    return [
        line
        for line in log.splitlines()
        if not (" INFO " in line or line.startswith("bootstrap.servers=") or _LATE.search(line))
    ]


@dataclass
class NodeProcess:
    """A node that serves; `stop` ends it as an operator would."""

    process: subprocess.Popen[str]
    bootstrap: str
    controller: str
    cluster_id: str
    log_file: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def listeners(self) -> dict[str, tuple[str, int]]:
        broker_host, _, broker_port = self.bootstrap.rpartition(":")
        controller_host, _, controller_port = self.controller.rpartition(":")
        return {
            "broker": (broker_host, int(broker_port)),
            "controller": (controller_host, int(controller_port)),
        }

    def resident_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS: is the node alive?")

    def log(self) -> str:
        return self.log_file.read_text()

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_SECONDS)


@contextmanager
def running_node(directory: Path, *options: str) -> Iterator[NodeProcess]:
    """Start a node and wait for its line on standard output; stop it at the end."""
    ready_file = directory / "ready.json"
    log_file = directory / "node.log"
    command = [sys.executable, "-m", "kraftpy.cli.main", "node", "--set", LISTENERS]
    command += ["--ready-file", str(ready_file), *options]
    with log_file.open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("bootstrap.servers="), f"not ready: {line!r} {log_file.read_text()}"
        ready = json.loads(ready_file.read_text())
        described = ready["nodes"][0]
        yield NodeProcess(
            process=process,
            bootstrap=ready["bootstrap"],
            controller=f"{described['host']}:{described['controller_port']}",
            cluster_id=ready["cluster_id"],
            log_file=log_file,
        )
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
