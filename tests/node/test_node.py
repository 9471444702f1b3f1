"""The composition root: what a node makes of its configuration, and that it leaves nothing."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from kraftpy.api.dispatch import Dispatcher
from kraftpy.api.handler import RequestContext
from kraftpy.api.k03_metadata import MetadataHandler
from kraftpy.client.connection import Connection, connect
from kraftpy.client.errors import ConnectionLost
from kraftpy.client.settings import ClientSettings
from kraftpy.config import NodeConfig, from_mapping
from kraftpy.net.limits import NetworkLimits
from kraftpy.net.listener import ListenerRole
from kraftpy.node import Node, NodeAddresses
from kraftpy.node.network import listener_settings, network_limits
from kraftpy.observe.metrics import Meter
from kraftpy.protocol.schema.k03_metadata import MetadataRequest, MetadataResponse
from kraftpy.protocol.schema.k60_describe_cluster import DescribeClusterRequest
from kraftpy.sim.whole.machines import CLUSTER_ID, formatted_node
from kraftpy.world import InternalInvariant, World
from kraftpy.world.real import real_world

CONTROLLERS = 2


@pytest.fixture(autouse=True)
def data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the nodes of this test keep their data, each in a place of its own."""
    monkeypatch.setenv("NODES", str(tmp_path))


def make_config(settings: Mapping[str, str] | None = None) -> NodeConfig:
    base = {
        "process.roles": "broker,controller",
        "node.id": "7",
        "controller.quorum.voters": "7@127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    }
    merged = {**base, **(settings or {})}
    merged["log.dirs"] = f"{os.environ['NODES']}/{merged['node.id']}"
    return NodeConfig(from_mapping(merged, "the test"))


@asynccontextmanager
async def running(config: NodeConfig, world: World) -> AsyncIterator[tuple[Node, NodeAddresses]]:
    node = await formatted_node(config, world, host_name="this.host")
    async with trio.open_nursery() as nursery:
        addresses: NodeAddresses = await nursery.start(node.run)
        yield node, addresses
        node.stop()


@asynccontextmanager
async def connected(world: World, address: tuple[str, int]) -> AsyncIterator[Connection]:
    async with trio.open_nursery() as nursery:
        connection = await connect(world, nursery, address, ClientSettings())
        yield connection
        connection.close()


async def test_ports_are_told_as_they_are() -> None:
    """NET-2: port 0 is replaced in what clients are told; NET-80: by listener."""
    config = make_config(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,OUT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
        }
    )
    world = real_world()
    async with running(config, world) as (_, addresses):
        assert set(addresses.brokers) == {"PLAINTEXT", "OUT"}
        for address in addresses.brokers.values():
            async with connected(world, address) as connection:
                answer = await connection.request(MetadataRequest())
                [broker] = answer.brokers
                assert (broker.node_id, broker.host, broker.port) == (7, *address)
                assert (answer.cluster_id, answer.controller_id) == (CLUSTER_ID, 7)


async def test_advertised_address_wins() -> None:
    config = make_config({"advertised.listeners": "PLAINTEXT://kafka.example:19092"})
    async with running(config, real_world()) as (_, addresses):
        assert addresses.brokers == {"PLAINTEXT": ("kafka.example", 19092)}


async def test_listener_on_every_interface_is_told_by_the_name_of_the_host() -> None:
    config = make_config({"listeners": "PLAINTEXT://:0,CONTROLLER://127.0.0.1:0"})
    async with running(config, real_world()) as (_, addresses):
        host, port = addresses.brokers["PLAINTEXT"]
        assert host == "this.host"
        assert port > 0


async def test_controllers_listener_serves_controllers_apis() -> None:
    """What controller.listener.names names is not for clients."""
    world = real_world()
    async with (
        running(make_config(), world) as (_, addresses),
        connected(world, addresses.controllers["CONTROLLER"]) as connection,
    ):
        assert {1, 18, 52, 55, 58, 60, 62, 63} <= set(connection.core.versions)
        request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
        answer = await connection.request(request)
        assert (answer.cluster_id, answer.controller_id) == (CLUSTER_ID, 7)


async def test_taken_port_names_itself() -> None:
    """NET-5: and what was bound before is free again."""
    world = real_world()
    taken = await world.network.listen("127.0.0.1", 0)
    port = taken.address[1]
    config = make_config({"listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}"})
    with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
        await (await formatted_node(config, world)).run()
    taken.close()


async def test_answers_in_flight_leave_before_the_node_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NET-56."""
    held: list[RequestContext] = []
    arrived = trio.Event()

    def hold(self: MetadataHandler, request: MetadataRequest, context: RequestContext) -> None:
        held.append(context)
        arrived.set()

    monkeypatch.setattr(MetadataHandler, "handle", hold)
    world = real_world()
    async with (
        running(make_config(), world) as (node, addresses),
        connected(world, addresses.brokers["PLAINTEXT"]) as connection,
    ):
        answers = []

        async def ask() -> None:
            answers.append(await connection.request(MetadataRequest()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await arrived.wait()
            node.stop()
            await trio.testing.wait_all_tasks_blocked()
            held[0].respond(MetadataResponse(controller_id=77))
        assert answers[0].controller_id == 77


async def test_broken_invariant_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """NET-53."""

    def break_down(self: MetadataHandler, request: object, context: object) -> None:
        raise InternalInvariant("two-leaders")

    async def ask_and_wait() -> None:
        world = real_world()
        async with (
            running(make_config(), world) as (_, addresses),
            connected(world, addresses.brokers["PLAINTEXT"]) as connection,
        ):
            await connection.request(MetadataRequest())
            await trio.sleep_forever()

    monkeypatch.setattr(MetadataHandler, "handle", break_down)
    with pytest.raises(BaseExceptionGroup) as raised:
        await ask_and_wait()
    assert raised.value.subgroup(InternalInvariant) is not None


async def two_nodes_for_a_moment(world: World) -> int:
    """Start two nodes and talk to both; their clients never leave by themselves. A port."""
    other = {"node.id": "8", "controller.quorum.voters": "8@127.0.0.1:9093"}
    async with (
        trio.open_nursery() as nursery,
        running(make_config(), real_world()) as (_, first),
        running(make_config(other), real_world()) as (_, second),
    ):
        for addresses, node_id in ((first, 7), (second, 8)):
            address = addresses.brokers["PLAINTEXT"]
            connection = await connect(world, nursery, address, ClientSettings())
            assert (await connection.request(MetadataRequest())).controller_id == node_id
        return first.brokers["PLAINTEXT"][1]


async def test_nodes_come_and_go_without_a_trace(caplog: pytest.LogCaptureFixture) -> None:
    """JEP-133, JEP-134: many starts and stops in one interpreter, two nodes at a time: no task, no
    descriptor and no object stays, and the ports are free.
    """
    world = real_world()
    # Once before anything is counted: what is made on first use is made now.
    await two_nodes_for_a_moment(world)
    gc.collect()
    tasks_before = trio.lowlevel.current_statistics().tasks_living
    descriptors_before, objects_before = open_descriptors(), objects_of_nodes()
    ports = [await two_nodes_for_a_moment(world) for _ in range(12)]
    # On a busy machine nodes complain of each other, and pytest keeps such errors, with frames.
    caplog.clear()
    gc.collect()
    assert trio.lowlevel.current_statistics().tasks_living == tasks_before
    # Whatever other tests had left here may have gone meanwhile.
    assert open_descriptors() <= descriptors_before
    assert [each for each in objects_of_nodes() if each not in objects_before] == []
    assert len([port for port in ports if await is_free(world, port)]) > len(ports) // 2


async def is_free(world: World, port: int) -> bool:
    """Since it was ours, the system may have given it to another process."""
    try:
        listener = await world.network.listen("127.0.0.1", port)
    except OSError:
        return False
    listener.close()
    return True


def objects_of_nodes() -> list[object]:
    return [each for each in gc.get_objects() if isinstance(each, Node | Connection | Dispatcher)]


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_warnings_of_the_configuration_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with running(make_config({"num.partition": "3"}), real_world()):
        pass
    assert any("num.partitions" in message for message in caplog.messages)


async def test_requests_are_counted_once() -> None:
    """NET-61, NET-62: through network and dispatch together, by version and by error."""
    asked = ("Metadata", "DescribeCluster")
    world = real_world()
    async with running(make_config(), world) as (node, addresses):
        async with connected(world, addresses.brokers["PLAINTEXT"]) as connection:
            for _ in range(3):
                await connection.request(MetadataRequest(), max_version=9)
            await connection.request(DescribeClusterRequest(endpoint_type=CONTROLLERS))
        counts = {
            (name.name, *(value for _, value in name.tags)): metric.count
            for name, metric in node.registry
            if isinstance(metric, Meter) and name.type == "RequestMetrics"
        }
    # The node's own connections to itself are counted as well.
    clients = {key: count for key, count in counts.items() if key[1] in asked}
    assert clients == {
        ("RequestsPerSec", "Metadata", "9"): 3,
        ("RequestsPerSec", "DescribeCluster", "2"): 1,
        ("ErrorsPerSec", "Metadata", "NONE"): 3,
        ("ErrorsPerSec", "DescribeCluster", "MISMATCHED_ENDPOINT_TYPE"): 1,
    }


async def test_limits_change_while_the_node_runs() -> None:
    """NET-25: a dynamic setting holds for connections that come after it."""
    world = real_world()
    async with running(make_config(), world) as (node, addresses):
        address = addresses.brokers["PLAINTEXT"]
        async with connected(world, address) as first:
            await first.request(MetadataRequest())
            assert node.config.update(cluster={"max.connections.per.ip": "1"}) == []
            with pytest.RaisesGroup(ConnectionLost):
                async with connected(world, address) as second:
                    await second.request(MetadataRequest())
            node.config.update(cluster={})
            async with connected(world, address) as third:
                await third.request(MetadataRequest())


async def test_health_and_metrics_over_http() -> None:
    """Ready when clients are served; metrics under Kafka's names."""
    world = real_world()
    settings = {"kraftpy.http.port": "0", "kraftpy.http.host": "127.0.0.2"}
    async with running(make_config(settings), world) as (_, addresses):
        assert addresses.http is not None
        assert addresses.http[0] == "127.0.0.2"
        assert (await get(world, addresses.http, "/healthz")).startswith(b"HTTP/1.1 200")
        assert (await get(world, addresses.http, "/readyz")).startswith(b"HTTP/1.1 200")
        metrics = await get(world, addresses.http, "/metrics")
    assert b"kafka_controller_kafkacontroller_activecontrollercount 1" in metrics
    assert b"kafka_server_replicamanager_partitioncount" in metrics


async def get(world: World, address: tuple[str, int], path: str) -> bytes:
    stream = await world.network.connect(*address)
    stream.send([f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()])
    answer = bytearray()
    buffer = bytearray(65536)
    while True:
        count = stream.receive_into(memoryview(buffer))
        if count is None:
            await stream.wait_readable()
        elif count == 0:
            stream.close()
            return bytes(answer)
        else:
            answer += buffer[:count]


async def test_dynamic_settings_reach_the_replicas() -> None:
    async with running(make_config(), real_world()) as (node, _):
        settings = {"num.replica.fetchers": "3"}
        assert node.config.update(cluster=settings) == []
        await trio.testing.wait_all_tasks_blocked()
        assert node.config.current.get_int("num.replica.fetchers") == 3


async def test_two_stops_are_one() -> None:
    async with running(make_config(), real_world()) as (node, _):
        node.stop()
        node.stop()


def test_limits_come_from_the_configuration() -> None:
    config = make_config(
        {
            "socket.request.max.bytes": "5000",
            "queued.max.request.bytes": "6000",
            "connections.max.idle.ms": "7000",
            "max.connections": "8",
            "max.connections.per.ip": "9",
            "max.connections.per.ip.overrides": "10.0.0.1:3,host:4",
            "max.connection.creation.rate": "10",
            "listener.name.plaintext.max.connections": "5",
            "listener.name.plaintext.max.connection.creation.rate": "6",
        }
    )
    assert network_limits(config) == NetworkLimits(
        request_max_bytes=5000,
        queued_request_max_bytes=6000,
        connection_max_idle_ms=7000,
        max_connections=8,
        listener_max_connections={"PLAINTEXT": 5},
        max_connections_per_ip=9,
        max_connections_per_ip_overrides={"10.0.0.1": 3, "host": 4},
        max_connection_creation_rate=10,
        listener_max_connection_creation_rate={"PLAINTEXT": 6},
    )


def test_kafkas_defaults_are_the_networks() -> None:
    assert network_limits(make_config()) == NetworkLimits()


def test_listeners_come_from_the_configuration() -> None:
    """NET-14: -1 leaves the system's buffer sizes."""
    config = make_config(
        {
            "listeners": "IN://127.0.0.1:1,OUT://:2,CONTROLLER://h:3",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "IN",
            "advertised.listeners": "IN://127.0.0.1:1,OUT://o:2",
            "controller.quorum.voters": "7@h:3",
            "socket.send.buffer.bytes": "-1",
            "socket.receive.buffer.bytes": "4096",
            "socket.listen.backlog.size": "77",
        }
    )
    inside, outside, controller = listener_settings(config)
    assert (inside.name, inside.host, inside.port) == ("IN", "127.0.0.1", 1)
    assert (outside.name, outside.host) == ("OUT", None)
    roles = (inside.role, outside.role, controller.role)
    assert roles == (ListenerRole.INTER_BROKER, ListenerRole.CLIENT, ListenerRole.CONTROLLER)
    assert inside.socket_options.send_buffer_bytes is None
    assert inside.socket_options.receive_buffer_bytes == 4096
    assert inside.backlog == 77
