"""`kraftpy node` as a process: how it becomes ready, how it ends, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat.node_process import LISTENERS, NodeProcess, running_node
from support.ports import unused_ports

from kraftpy.api.api_keys import BROKER_LISTENER_APIS
from kraftpy.cli.main import main
from kraftpy.cli.node import choose_ports
from kraftpy.client.blocking import BlockingConnection
from kraftpy.protocol.schema.k03_metadata import MetadataRequest

BREAKS_DOWN = """
import sys
from kraftpy.api.k03_metadata import MetadataHandler
from kraftpy.cli.main import main
from kraftpy.world import InternalInvariant

def break_down(self, request, context):
    raise InternalInvariant("two-leaders")

MetadataHandler.handle = break_down
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path) as process:
        yield process


def run_command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kraftpy.cli.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_stop_it_cleanly(node: NodeProcess, number: int) -> None:
    """NET-56: also with a client that does not leave."""
    with BlockingConnection(node.listeners["broker"]) as connection:
        connection.request(MetadataRequest())
        node.process.send_signal(number)
        assert node.process.wait(60) == 0
    assert "node is down" in node.log()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(node.listeners["broker"])


def test_ready_file_tells_scripts_everything(node: NodeProcess, tmp_path: Path) -> None:
    ready = json.loads((tmp_path / "ready.json").read_text())
    assert ready["bootstrap"] == node.bootstrap
    [described] = ready["nodes"]
    assert described["id"] == 1
    assert described["pid"] == node.pid
    assert f"127.0.0.1:{described['port']}" == node.bootstrap
    assert described["controller_port"] not in (0, None, described["port"])
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".tmp"] == []


def test_log_lines_have_time_level_room_and_node(node: NodeProcess) -> None:
    first = node.log().splitlines()[0]
    pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO [a-z.]+ node=1 .*listener=\w+.*"
    assert re.fullmatch(pattern, first), first


def test_asked_by_our_own_command(node: NodeProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["api-versions", "-b", node.bootstrap, "--format", "json"]) == 0
    listing = json.loads(capsys.readouterr().out)
    assert listing["node"] == node.bootstrap
    versions = {api["name"]: api["used_version"] for api in listing["apis"]}
    asked = ("Metadata", "ApiVersions", "DescribeCluster", "CreateTopics")
    assert [versions[name] for name in asked] == [13, 4, 2, 7]
    # What `kraftpy --version` and docs/support.md say without a node.
    assert sorted(api["key"] for api in listing["apis"]) == sorted(BROKER_LISTENER_APIS)
    assert main(["api-versions", "-b", f"127.0.0.1:1,{node.bootstrap}"]) == 0
    assert "Metadata" in capsys.readouterr().out


def test_file_environment_and_set_in_their_order(tmp_path: Path) -> None:
    """A file under the environment under --set; the cluster's id comes from CLUSTER_ID."""
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=3\ncontroller.listener.names=CONTROLLER\n"
        "controller.quorum.voters=3@localhost:9093\nbroker.rack=from-file\nlog.dirs=/nowhere\n"
        "num.partitions=none\n"
    )
    done = run_command(
        "node",
        str(properties),
        "--set",
        "socket.listen.backlog.size=0",
        KAFKA_NODE_ID="x",
        KAFKA_NUM_PARTITIONS="7",
        KAFKA_SOCKET_LISTEN_BACKLOG_SIZE="70",
    )
    assert done.returncode == 2
    # num.partitions is repaired by the environment; two others are broken, each where it was set.
    assert "num.partitions" not in done.stderr
    assert "node.id=x (environment KAFKA_NODE_ID)" in done.stderr
    assert "socket.listen.backlog.size=0 (--set)" in done.stderr


def test_cluster_id_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER_ID", "Zm9yLXRlc3RzLW9ubHktMA")
    monkeypatch.setenv("KAFKA_BROKER_RACK", "r9")
    with (
        running_node(tmp_path) as node,
        BlockingConnection(node.listeners["broker"]) as connection,
    ):
        answer = connection.request(MetadataRequest())
    assert answer.cluster_id == "Zm9yLXRlc3RzLW9ubHktMA"
    assert answer.brokers[0].rack == "r9"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--set", "num.partitions"], "must have the form key=value"),
        (["--set", "num.partitions=0"], "num.partitions=0 (--set)"),
        # A misspelt key may be why another is missing, so it is told with what refuses the start.
        (["--set", "num.partitons=3", "--set", "node.id=x"], "did you mean num.partitions?"),
        (["/no/such/file"], "/no/such/file can't be read"),
    ],
)
def test_wrong_configuration(
    capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    assert main(["node", *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_taken_port(tmp_path: Path) -> None:
    """NET-5."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listeners = f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"
        done = run_command("node", "--set", listeners)
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"127.0.0.1:{port}" in done.stderr
    assert "chooses other addresses" in done.stderr
    assert "Traceback" not in done.stderr


def test_unknown_key_is_a_warning(tmp_path: Path) -> None:
    with running_node(tmp_path, "--set", "num.partition=3") as node:
        assert "did you mean num.partitions?" in node.log()


def test_broken_invariant_is_exit_code_70(tmp_path: Path) -> None:
    """NET-53."""
    with subprocess.Popen(
        [sys.executable, "-c", BREAKS_DOWN, "node", "--set", LISTENERS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            host, port = line.strip().removeprefix("bootstrap.servers=").split(":")
            with (
                BlockingConnection((host, int(port))) as connection,
                pytest.raises(ConnectionError),
            ):
                connection.request(MetadataRequest())
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 70
    assert "CRITICAL cli.node node=1 a broken invariant stops the node" in said
    assert "two-leaders" in said


def test_ports_for_development() -> None:
    """All as wanted if all are free; otherwise none of them, and no number twice."""
    free = unused_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = taken.getsockname()[1]
        assert choose_ports("127.0.0.1", (free,)) == [free]
        chosen = choose_ports("127.0.0.1", (free, busy))
        assert len(set(chosen)) == 2
        assert busy not in chosen
