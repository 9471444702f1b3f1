"""Clusters of real processes, with a stub for a node: how they start, live, break and end."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import sys
from pathlib import Path

import pytest
import trio
from launchkit import Recorder, eventually, exists, is_alive, stub_cluster
from support.ports import unused_ports

from kraftpy.launch.cluster import NodeDeath
from kraftpy.launch.errors import LaunchError, WrongSettingsError
from kraftpy.launch.plan import combined_shape, split_shape
from kraftpy.world.real_processes import RealProcesses


async def test_three_nodes_start_and_end(tmp_path: Path) -> None:
    events = Recorder()
    async with stub_cluster(tmp_path, events) as cluster:
        await cluster.start()
        assert sorted(events.ready_nodes) == cluster.running == [1, 2, 3]
        assert all(is_alive(pid) for pid in events.pids.values())
        ready = cluster.describe()
    assert list(ready) == ["bootstrap", "cluster_id", "nodes"]
    keys = ["id", "pid", "host", "port", "controller_port", "http_port", "data_dir"]
    assert [list(node) for node in ready["nodes"]] == [keys] * 3
    assert ready["bootstrap"] == ",".join(f"127.0.0.1:{node['port']}" for node in ready["nodes"])
    assert {node["id"]: node["pid"] for node in ready["nodes"]} == events.pids
    assert [node["data_dir"] for node in ready["nodes"]] == [
        str(tmp_path / f"node-{number}/data") for number in (1, 2, 3)
    ]
    assert events.deaths == []
    assert events.killed_nodes == []
    assert not any(is_alive(pid) for pid in events.pids.values())
    assert [node.ready_path for node in cluster.nodes.values() if exists(node.ready_path)] == []


async def test_the_same_directory_goes_on(tmp_path: Path) -> None:
    events = Recorder()
    async with stub_cluster(tmp_path, events, shape=combined_shape(2)) as cluster:
        cluster_id = cluster.cluster_id
    async with stub_cluster(tmp_path, events) as cluster:
        assert list(cluster.nodes) == [1, 2]
        assert cluster.cluster_id == cluster_id
    assert events.formattings == [[1, 2], []]
    with pytest.raises(LaunchError, match="holds a cluster of 2 nodes, not of 1 broker and 1 c"):
        async with stub_cluster(tmp_path, shape=split_shape(controllers=1, brokers=1)):
            pass


async def test_formatting_that_was_interrupted_is_continued(tmp_path: Path) -> None:
    async with stub_cluster(tmp_path) as cluster:
        cluster_id = cluster.cluster_id
    (tmp_path / "node-2/data/meta.properties").unlink()
    events = Recorder()
    async with stub_cluster(tmp_path, events) as cluster:
        assert cluster.cluster_id == cluster_id
    assert events.formattings == [[2]]


async def test_one_directory_has_one_cluster(tmp_path: Path) -> None:
    async with stub_cluster(tmp_path):
        with pytest.raises(LaunchError, match="is in use by a cluster that runs"):
            async with stub_cluster(tmp_path):
                pass
    async with stub_cluster(tmp_path):
        pass


async def test_a_directory_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LaunchError, match="can't be used"):
        async with stub_cluster(tmp_path / "file"):
            pass
    (tmp_path / "cluster.json").write_text('{"nodes": []}')
    with pytest.raises(LaunchError, match=r"cluster\.json can't be understood"):
        async with stub_cluster(tmp_path):
            pass


async def test_a_node_that_dies_at_its_start_ends_it(tmp_path: Path) -> None:
    events = Recorder()
    (tmp_path / "node-2").mkdir()
    (tmp_path / "node-2/node.log").write_text("of an earlier run\n")
    with pytest.raises(LaunchError, match="node 2 ended before it was ready"):
        async with stub_cluster(tmp_path, events, settings={"stub.2": "crashes"}) as cluster:
            await cluster.start()
    [death] = events.deaths
    assert (death.node_id, death.exit_code) == (2, 3)
    assert death.last_lines == ("node 2 runs, kafka_variables=[]", "something broke")
    assert (tmp_path / "node-2/node.log").read_text().startswith("of an earlier run\n")
    assert not any(is_alive(pid) for pid in events.pids.values())


LISTENING = {f"stub.{number}": "listens" for number in (1, 2, 3)}


async def test_a_port_that_somebody_took_meanwhile(tmp_path: Path) -> None:
    """The cluster moves to other ports, all of it, and goes on with the same directory."""
    events = Recorder()
    async with stub_cluster(tmp_path, events, settings=LISTENING) as cluster:
        wanted = cluster.nodes[2].port
        assert wanted is not None
        with socket.create_server(("127.0.0.1", wanted)):
            await cluster.start()
        assert events.moved_nodes == [2]
        assert events.deaths == []
        assert sorted(events.ready_nodes[-3:]) == cluster.running == [1, 2, 3]
        ports = [node["port"] for node in cluster.describe()["nodes"]]
        assert wanted not in ports
        assert cluster.bootstrap == ",".join(f"127.0.0.1:{port}" for port in ports)
        for port in ports:
            assert port is not None
            socket.create_connection(("127.0.0.1", port)).close()
    assert events.formattings == [[1, 2, 3]]


async def test_a_port_that_was_asked_for_and_is_taken_meanwhile(tmp_path: Path) -> None:
    events = Recorder()
    base = unused_ports()
    async with stub_cluster(tmp_path, events, settings=LISTENING, base_port=base) as cluster:
        with socket.create_server(("127.0.0.1", base)), pytest.raises(LaunchError):
            await cluster.start()
    assert [death.node_id for death in events.deaths] == [1]
    assert "can't listen" in events.deaths[0].last_lines[-1]


async def test_a_node_that_dies_later_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    events = Recorder()
    async with stub_cluster(tmp_path, events) as cluster:
        await cluster.start()
        os.kill(events.pids[3], signal.SIGKILL)
        await eventually(lambda: events.deaths)
        assert (events.deaths[0].node_id, events.deaths[0].exit_code) == (3, -signal.SIGKILL)
        assert cluster.running == [1, 2]
        for node_id in (1, 2):
            os.kill(events.pids[node_id], signal.SIGKILL)
        await cluster.wait_all_gone()
        assert sorted(death.node_id for death in events.deaths) == [1, 2, 3]


async def test_a_node_that_does_not_become_ready(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"not ready after 8 s: 1\n(.*\n)*  node 1 runs"):
        async with stub_cluster(
            tmp_path,
            shape=combined_shape(1),
            settings={"stub.1": "never-ready"},
            # It has to have said something by then.
            ready_timeout_seconds=8,
        ) as cluster:
            await cluster.start()


async def test_a_node_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    events = Recorder()
    async with stub_cluster(
        tmp_path,
        events,
        shape=combined_shape(1),
        settings={"stub.1": "deaf"},
        stop_timeout_seconds=0.5,
    ) as cluster:
        await cluster.start()
    assert events.killed_nodes == [1]
    assert events.deaths == []
    assert not is_alive(events.pids[1])


async def test_a_paused_node_stops_in_good_order(tmp_path: Path) -> None:
    events = Recorder()
    async with stub_cluster(tmp_path, events) as cluster:
        await cluster.start()
        cluster.pause(1)
    assert events.killed_nodes == []
    assert (tmp_path / "node-1/node.log").read_text().endswith("ends\n")


async def test_controllers_stop_when_the_brokers_have(tmp_path: Path) -> None:
    """A broker that stops asks a controller."""
    alive_meanwhile = []

    class Watching(Recorder):
        def killed(self, node_id: int, seconds: float) -> None:
            alive_meanwhile.append((node_id, is_alive(self.pids[2])))

    async with stub_cluster(
        tmp_path,
        Watching(),
        shape=split_shape(controllers=1, brokers=1),
        settings={"stub.1": "deaf"},
        # Enough for the controller, which is not deaf.
        stop_timeout_seconds=5,
    ) as cluster:
        await cluster.start()
    assert alive_meanwhile == [(1, True)]
    assert (tmp_path / "node-2/node.log").read_text().endswith("ends\n")


async def test_without_a_quorum_nobody_waits_for_one(tmp_path: Path) -> None:
    """The last nodes that stop are asked again; the first are left in peace."""
    events = Recorder()
    settings = {"stub.2": "patient", "stub.3": "patient"}
    async with stub_cluster(tmp_path, events, settings=settings) as cluster:
        await cluster.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.stop_node, 2)
            await eventually(lambda: (tmp_path / "node-2/node.log").read_text().endswith("waits\n"))
            # Longer than it takes to be asked again.
            await trio.sleep(0.8)
            assert cluster.running == [1, 2, 3]
            cluster.pause(1)
            cluster.pause(3)
    assert (tmp_path / "node-2/node.log").read_text().endswith("waits\nends\n")
    assert (tmp_path / "node-3/node.log").read_text().endswith("waits\nends\n")
    assert events.killed_nodes == []


async def test_kill_and_restart_of_single_nodes(tmp_path: Path) -> None:
    """What was asked for is no death. A running node is stopped in good order first."""
    events = Recorder()
    async with stub_cluster(tmp_path, events) as cluster:
        await cluster.start()
        first = dict(events.pids)
        await cluster.kill(1)
        assert cluster.running == [2, 3]
        assert not is_alive(first[1])
        assert not (tmp_path / "node-1/ready.json").exists()
        await cluster.restart(1)
        await cluster.restart(2)
        assert cluster.running == [1, 2, 3]
        assert [node["pid"] for node in cluster.describe()["nodes"]] == list(events.pids.values())
        assert events.pids[1] != first[1]
        assert events.pids[2] != first[2]
        assert "ends" in (tmp_path / "node-2/node.log").read_text()
        assert "ends" not in (tmp_path / "node-1/node.log").read_text()
        with pytest.raises(LaunchError, match="node 3 runs already"):
            await cluster.start_node(3)
    assert events.deaths == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="not part of a clone: /proc")
async def test_a_node_is_started_in_the_moment_of_its_death(tmp_path: Path) -> None:
    """Its end may still be tidied up, which takes a turn of the loop or two."""
    begun = trio.Event()

    class Impatient(Recorder):
        def died(self, death: NodeDeath) -> None:
            super().died(death)
            begun.set()

    events = Impatient()
    async with stub_cluster(tmp_path, events) as cluster:
        await cluster.start()
        for _ in range(3):
            begun = trio.Event()
            first = cluster.pid(2)
            os.kill(first, signal.SIGKILL)
            await begun.wait()
            assert not cluster.is_ready(2)
            await cluster.begin_node(2)
            assert cluster.pid(2) != first
            await eventually(lambda: cluster.is_ready(2))
    assert [death.node_id for death in events.deaths] == [2, 2, 2]


async def test_pause_and_resume(tmp_path: Path) -> None:
    def state(pid: int) -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    events = Recorder()
    async with stub_cluster(tmp_path, events, shape=combined_shape(1)) as cluster:
        await cluster.start()
        cluster.pause(1)
        await eventually(lambda: state(events.pids[1]) == "T")
        cluster.resume(1)
        await eventually(lambda: state(events.pids[1]) != "T")


async def test_cancelled_while_starting(tmp_path: Path) -> None:
    """Nothing is left: no process, not even one that is deaf, and no lock."""
    events = Recorder()
    settings = {"stub.1": "deaf", "stub.3": "never-ready"}
    with trio.CancelScope() as scope:
        async with (
            stub_cluster(tmp_path, events, settings=settings, stop_timeout_seconds=1) as cluster,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(cluster.start)
            await eventually(lambda: len(events.ready_nodes) == 2)
            scope.cancel()
    assert scope.cancelled_caught
    assert len(events.pids) == 3
    assert 1 in events.killed_nodes
    assert not any(is_alive(pid) for pid in events.pids.values())
    async with stub_cluster(tmp_path):
        pass


async def test_kill_all_does_not_wait(tmp_path: Path) -> None:
    events = Recorder()
    async with stub_cluster(tmp_path, events, settings={"stub.2": "deaf"}) as cluster:
        await cluster.start()
        cluster.kill_all()
        await cluster.wait_all_gone()
    assert events.deaths == []
    assert events.killed_nodes == []


async def test_an_error_in_the_block_is_raised_as_itself(tmp_path: Path) -> None:
    events = Recorder()

    async def break_down() -> None:
        async with stub_cluster(tmp_path, events) as cluster:
            await cluster.start()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await break_down()
    assert len(events.pids) == 3
    assert not any(is_alive(pid) for pid in events.pids.values())


async def test_settings_reach_every_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were given, and none from the environment."""
    monkeypatch.setenv("KAFKA_NODE_ID", "77")
    events = Recorder()
    settings = {"num.partitions": "9", "num.partitons": "9"}
    async with stub_cluster(tmp_path, events, settings=settings) as cluster:
        await cluster.start()
    for number in (1, 2, 3):
        assert "num.partitions=9\n" in (tmp_path / f"node-{number}/node.properties").read_text()
        assert "kafka_variables=[]" in (tmp_path / f"node-{number}/node.log").read_text()
    assert len(events.warnings) == 1
    assert "did you mean num.partitions?" in events.warnings[0]


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ("node.id", "node.id can't be set for all nodes"),
        ("listeners", "each has its own"),
        ("num.partitions", r"num\.partitions=x \(--set\)"),
    ],
)
async def test_wrong_settings(tmp_path: Path, key: str, complaint: str) -> None:
    with pytest.raises(WrongSettingsError, match=complaint):
        async with stub_cluster(tmp_path, settings={key: "x"}):
            pass
    assert not (tmp_path / "node-1").exists()


async def test_nodes_of_an_earlier_run_are_waited_for(tmp_path: Path) -> None:
    """Their launcher was killed, and they are on their way out."""
    async with stub_cluster(tmp_path):
        pass
    descriptor = os.open(tmp_path / "node-2/data/.lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(LaunchError, match="node 2 of an earlier run still uses"):
            async with stub_cluster(tmp_path, stop_timeout_seconds=0.2):
                pass
    finally:
        os.close(descriptor)
    async with stub_cluster(tmp_path, stop_timeout_seconds=0.2):
        pass


async def test_a_launcher_that_is_killed_takes_its_nodes_along(tmp_path: Path) -> None:
    """Its directory can be used again, as soon as they are gone."""
    program = f"""
import sys, trio
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from launchkit import stub_cluster

async def main():
    async with stub_cluster(Path({str(tmp_path)!r})) as cluster:
        await cluster.start()
        print(*[node["pid"] for node in cluster.describe()["nodes"]], flush=True)
        await trio.sleep_forever()

trio.run(main)
"""
    output = tmp_path / "output"
    launcher = await RealProcesses().spawn(
        [sys.executable, "-c", program],
        environment=RealProcesses().environment,
        output_path=str(output),
    )
    try:
        await eventually(lambda: output.read_text().endswith("\n"))
    finally:
        launcher.kill()
        await launcher.wait()
    assert len(output.read_text().split()) == 3, output.read_text()
    events = Recorder()
    async with stub_cluster(tmp_path, events) as cluster:
        await cluster.start()
    assert events.formattings == [[]]
    assert events.deaths == []


async def test_an_observer_that_breaks_does_not_keep_processes_alive(tmp_path: Path) -> None:
    class Broken(Recorder):
        def died(self, death: NodeDeath) -> None:
            raise ZeroDivisionError

    events = Broken()
    with pytest.RaisesGroup(ZeroDivisionError):
        async with stub_cluster(tmp_path, events, settings={"stub.2": "crashes"}) as cluster:
            await cluster.start()
    assert not any(is_alive(pid) for pid in events.pids.values())


async def test_what_a_cluster_is_stands_in_its_directory(tmp_path: Path) -> None:
    async with stub_cluster(tmp_path, shape=split_shape(controllers=1, brokers=2)) as cluster:
        await cluster.start()
        nodes = cluster.describe()["nodes"]
        assert [(node["port"] is None, node["controller_port"] is None) for node in nodes] == [
            (False, True),
            (False, True),
            (True, False),
        ]
        assert cluster.bootstrap.count(",") == 1
    found = json.loads((tmp_path / "cluster.json").read_text())
    assert found == {
        "cluster_id": cluster.cluster_id,
        "nodes": [
            {"id": 1, "roles": ["broker"]},
            {"id": 2, "roles": ["broker"]},
            {"id": 3, "roles": ["controller"]},
        ],
    }
