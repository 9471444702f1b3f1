"""`kraftpy up` as a process: a real cluster in the foreground, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from support.up_process import TIMEOUT_SECONDS, alive, running_up

from kraftpy.cli.main import main
from kraftpy.cli.up import examples
from kraftpy.client.blocking import BlockingConnection
from kraftpy.protocol.schema.k03_metadata import MetadataRequest


def seen_by(node: dict[str, Any], *, brokers: int) -> Any:
    """What it says of the cluster when it knows all brokers: each hears of them in its turn."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    with BlockingConnection((node["host"], node["port"])) as connection:
        while True:
            answer = connection.request(MetadataRequest())
            found = [broker.node_id for broker in answer.brokers]
            if found == list(range(1, brokers + 1)):
                return answer
            assert time.monotonic() < deadline, found


def test_a_cluster_from_start_to_end_and_again(tmp_path: Path) -> None:
    """Ready means that clients are served by every node. The same directory goes on with it."""
    data = tmp_path / "data"
    with running_up(tmp_path, "--dir", str(data)) as up:
        lines = up.wait_ready()
        ready = json.loads(up.ready_file.read_text())
        assert lines[0] == f"bootstrap.servers={ready['bootstrap']}\n"
        assert [line.strip() for line in lines[2:]] == list(examples(ready["bootstrap"]))
        assert [node["id"] for node in ready["nodes"]] == [1, 2, 3]
        assert len(alive([node["pid"] for node in ready["nodes"]])) == 3
        for node in ready["nodes"]:
            assert Path(node["data_dir"]).is_dir()
            assert seen_by(node, brokers=3).cluster_id == ready["cluster_id"]
        with running_up(tmp_path / "data", "--dir", str(data)) as second:
            assert "in use by a cluster that runs" in second.rest()
            assert second.process.returncode == 1
        up.signal(signal.SIGINT)
        said = up.rest()
        assert up.process.returncode == 0, said
    assert "is killed" not in said
    assert alive([node["pid"] for node in ready["nodes"]]) == []
    assert not up.ready_file.exists()
    with running_up(tmp_path, "--dir", str(data)) as up:
        up.wait_ready()
        assert json.loads(up.ready_file.read_text())["cluster_id"] == ready["cluster_id"]
        up.signal(signal.SIGTERM)
        assert "formatted" not in up.rest()
    assert list(up.temporary.iterdir()) == []


def test_two_clusters_at_the_same_moment(tmp_path: Path) -> None:
    """Both want the usual ports, and find them free; both come up, on ports of their own."""
    homes = [tmp_path / name for name in ("a", "b")]
    for home in homes:
        home.mkdir()
    with (
        running_up(homes[0], "--nodes", "2", at_usual_ports=True) as first,
        running_up(homes[1], "--nodes", "2", at_usual_ports=True) as second,
    ):
        ports = []
        for up in (first, second):
            up.wait_ready()
            for node in json.loads(up.ready_file.read_text())["nodes"]:
                ports += [node["port"], node["controller_port"], node["http_port"]]
                seen_by(node, brokers=2)
        assert len(set(ports)) == 12
        for up in (first, second):
            up.signal(signal.SIGINT)
            said = up.rest()
            assert up.process.returncode == 0, said
    assert list(first.temporary.iterdir()) == list(second.temporary.iterdir()) == []


def test_a_node_that_dies_is_reported_and_the_last_ends_it(tmp_path: Path) -> None:
    with running_up(tmp_path, "--nodes", "2") as up:
        up.wait_ready()
        first, second = json.loads(up.ready_file.read_text())["nodes"]
        os.kill(first["pid"], signal.SIGKILL)
        line = up.wait_for("node 1 ended")
        assert f"by SIGKILL; the last lines of {up.temporary}" in line
        assert "node=1" in up.wait_for("kraftpy up:   ")
        assert alive([second["pid"]])
        os.kill(second["pid"], signal.SIGKILL)
        assert "no node is left" in up.rest()
        assert up.process.returncode == 1
    assert list(up.temporary.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_while_starting(tmp_path: Path, number: int) -> None:
    with running_up(tmp_path) as up:
        up.wait_for("node 2 starts")
        up.signal(number)
        said = up.rest()
        # On a busy machine it may have been quicker than this test.
        was_ready = "bootstrap.servers=" in up.printed
        assert up.process.returncode == (0 if was_ready else 130), said
    assert len(up.pids()) >= 2
    assert alive(up.pids()) == []
    assert list(up.temporary.iterdir()) == []
    assert not up.ready_file.exists()


def test_a_start_that_fails(tmp_path: Path) -> None:
    """One node can't be what it should: everything is stopped, and it is said why."""
    data = tmp_path / "data"
    (data / "node-2/data/t-0").mkdir(parents=True)
    with running_up(tmp_path, "--dir", str(data)) as up:
        said = up.rest()
        assert up.process.returncode == 1
    assert "node 2 can't be formatted" in said
    assert "Traceback" not in said
    assert not up.ready_file.exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--nodes", "0"], "is no number of nodes from 1 to 100"),
        (["--nodes", "101"], "is no number of nodes from 1 to 100"),
        (["--port", "65536"], "is no port"),
        (["--nodes", "2", "--brokers", "2"], "give one or the other"),
        (["--ready-file", "/no/such/directory/file"], "there is no directory /no/such/directory"),
        (["--set", "num.partitions"], "must have the form key=value"),
        (["--set", "num.partitions=0"], "num.partitions=0 (--set)"),
        (["--set", "listeners=PLAINTEXT://:1"], "listeners can't be set for all nodes"),
    ],
)
def test_wrong_command_lines(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    complaint: str,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    try:
        code = main(["up", *arguments])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else -1
    assert code == 2
    assert complaint in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
