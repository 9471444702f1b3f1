"""The server, in both worlds: binding, enabling, limits on connections, stopping."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from dataclasses import replace

import pytest
import trio
from netkit import (
    PLAINTEXT,
    Client,
    Recorder,
    Surrounding,
    WordService,
    bound,
    eventually,
    framed,
    real_surrounding,
    serving,
    settle,
)

from kraftpy.net.limits import NetworkLimits
from kraftpy.net.listener import ListenerRole, ListenerSettings, remote_host_of
from kraftpy.net.server import NetworkServer
from kraftpy.observe.metrics import Gauge, MetricName, MetricRegistry
from kraftpy.world import Listener, Network, SocketOptions, Stream

CLIENTS = replace(PLAINTEXT, name="CLIENTS")
BROKERS = replace(PLAINTEXT, name="BROKERS", role=ListenerRole.INTER_BROKER)
CONTROLLER = replace(PLAINTEXT, name="CONTROLLER", role=ListenerRole.CONTROLLER)


class WatchedNetwork:
    """A network that notes who begins to accept, and keeps the streams that were accepted."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.began: list[int] = []
        self.accepted: list[Stream] = []

    async def listen(
        self, host: str | None, port: int, *, backlog: int, options: SocketOptions
    ) -> Listener:
        listener = await self._network.listen(host, port, backlog=backlog, options=options)
        return WatchedListener(self, listener)

    async def connect(self, host: str, port: int) -> Stream:
        return await self._network.connect(host, port)


class WatchedListener:
    def __init__(self, network: WatchedNetwork, listener: Listener) -> None:
        self._network = network
        self._listener = listener
        self.address = listener.address

    async def accept(self) -> Stream:
        if self.address[1] not in self._network.began:
            self._network.began.append(self.address[1])
        stream = await self._listener.accept()
        self._network.accepted.append(stream)
        return stream

    def close(self) -> None:
        self._listener.close()


async def test_two_listeners_on_ports_of_the_systems_choice(surrounding: Surrounding) -> None:
    """NET-1, NET-2"""
    async with serving(surrounding, WordService(), listeners=[CLIENTS, BROKERS]) as running:
        ports = {port for _, port in running.server.addresses.values()}
        assert len(ports) == 2
        assert 0 not in ports
        for name in ("CLIENTS", "BROKERS"):
            client = await running.connect(name)
            assert await client.ask(b"word") == b"word"


async def test_a_port_in_use_is_named_and_no_port_stays_bound(surrounding: Surrounding) -> None:
    """NET-5"""
    async with bound(surrounding) as running:
        _, taken = running.address()
        network = surrounding.server_network
        probe = await network.listen("127.0.0.1", 0)
        free = probe.address
        probe.close()
        second = NetworkServer(
            clock=surrounding.clock,
            network=network,
            limits=NetworkLimits(),
            registry=MetricRegistry(),
        )
        with pytest.raises(OSError, match=f"127.0.0.1:{taken}") as caught:
            await second.bind([replace(CLIENTS, port=free[1]), replace(BROKERS, port=taken)])
        assert caught.value.errno == errno.EADDRINUSE
        assert second.addresses == {}
        (await network.listen("127.0.0.1", free[1])).close()


async def test_nothing_is_served_before_it_is_enabled(surrounding: Surrounding) -> None:
    """NET-10: who connected early is served then. NET-13: enabling twice is harmless."""
    service = WordService()
    async with bound(surrounding) as running:
        client = await running.connect()
        await client.send(b"early")
        await settle()
        assert running.server.connections == []
        await running.server.enable({"PLAINTEXT": service})
        assert await client.read() == b"early"
        await running.server.enable({"PLAINTEXT": service})
        assert await client.ask(b"word") == b"word"
        assert await (await running.connect()).ask(b"word") == b"word"


async def test_a_herd_of_clients_finds_room_while_the_loop_is_busy(
    surrounding: Surrounding,
) -> None:
    """Kafka's default backlog of 50 is for a thread that does nothing but accept; whom the system
    drops beyond it comes back after a second, and again after three.
    """
    async with bound(surrounding, listeners=[replace(PLAINTEXT, backlog=50)]) as running:
        with trio.fail_after(30):
            clients = [await running.connect() for _ in range(100)]
        await running.server.enable({"PLAINTEXT": WordService()})
        for client in clients:
            assert await client.ask(b"word") == b"word"


@pytest.mark.parametrize("order", [(CLIENTS, BROKERS, CONTROLLER), (BROKERS, CONTROLLER, CLIENTS)])
async def test_controllers_are_served_first_then_brokers(
    surrounding: Surrounding, order: Sequence[ListenerSettings]
) -> None:
    """NET-11"""
    network = WatchedNetwork(surrounding.server_network)
    surrounding.server_network = network  # type: ignore[assignment]
    async with serving(surrounding, WordService(), listeners=order) as running:
        await eventually(lambda: len(network.began) == 3)
        names = {port: name for name, (_, port) in running.server.addresses.items()}
        assert [names[port] for port in network.began] == ["CONTROLLER", "BROKERS", "CLIENTS"]


async def test_accepted_sockets_are_tuned() -> None:
    """NET-14: no delay, keep-alive, and buffers of socket.send.buffer.bytes and
    socket.receive.buffer.bytes.
    """
    surrounding = real_surrounding()
    network = WatchedNetwork(surrounding.server_network)
    surrounding.server_network = network  # type: ignore[assignment]
    options = SocketOptions(send_buffer_bytes=50_000, receive_buffer_bytes=60_000)
    listeners = [CLIENTS, replace(BROKERS, socket_options=options)]
    async with serving(surrounding, WordService(), listeners=listeners) as running:
        sizes = {}
        for name in ("CLIENTS", "BROKERS"):
            assert await (await running.connect(name)).ask(b"word") == b"word"
            accepted = network.accepted[-1]._socket  # type: ignore[attr-defined]
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            sizes[name] = (
                accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
                accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
            )
        # Linux books twice the wish.
        assert sizes["BROKERS"] in ((100_000, 120_000), (50_000, 60_000))
        assert sizes["CLIENTS"] != sizes["BROKERS"]


async def test_one_connection_too_many_from_an_address_is_closed_without_a_byte(
    surrounding: Surrounding,
) -> None:
    """NET-19: and the next one succeeds when another has closed (NET-21)."""
    limits = NetworkLimits(max_connections_per_ip=2)
    async with serving(surrounding, WordService(), limits=limits) as running:
        first, second = await running.connect(), await running.connect()
        assert await first.ask(b"word") == await second.ask(b"word") == b"word"
        third = await running.connect()
        assert await third.rest() == b""
        assert running.server.quotas.total == 2
        first.close()
        await eventually(lambda: running.server.quotas.total == 1)
        assert await (await running.connect()).ask(b"word") == b"word"


async def test_an_override_lets_an_address_have_more(surrounding: Surrounding) -> None:
    """NET-20: max.connections.per.ip.overrides."""
    limits = NetworkLimits(
        max_connections_per_ip=0, max_connections_per_ip_overrides={"127.0.0.1": 1}
    )
    async with serving(surrounding, WordService(), limits=limits) as running:
        assert await (await running.connect()).ask(b"word") == b"word"
        assert await (await running.connect()).rest() == b""


async def test_every_end_of_a_connection_is_counted_once(surrounding: Surrounding) -> None:
    """NET-21: by the client, by a reset, by the server, by a bad frame, and by stopping."""
    service = WordService()
    async with serving(surrounding, service) as running:
        quotas = running.server.quotas
        for ending in ("close", "reset", "word", "bad", "boom"):
            client = await running.connect()
            assert await client.ask(b"word") == b"word"
            assert quotas.total == quotas.count_of_listener("PLAINTEXT") == 1
            assert quotas.count_of_address("127.0.0.1") == 1
            match ending:
                case "close":
                    client.close()
                case "reset":
                    client.stream.reset()
                case "word":
                    await client.send(b"close")
                case _:
                    await client.send(ending.encode())
            await eventually(lambda: quotas.total == 0)
            assert quotas.count_of_listener("PLAINTEXT") == 0
            assert quotas.count_of_address("127.0.0.1") == 0
            client.close()
        client = await running.connect()
        assert await client.ask(b"word") == b"word"
        (connection,) = running.server.connections
        connection.close()
        connection.close()
        assert quotas.total == 0
        gauge = running.registry.get(
            MetricName(
                "kafka.server",
                "socket-server-metrics",
                "connection-count",
                (("listener", "PLAINTEXT"),),
                is_attribute=True,
            )
        )
        assert isinstance(gauge, Gauge)
        assert gauge.read() == 0


async def test_at_the_limit_connections_wait_for_a_place(surrounding: Surrounding) -> None:
    """NET-22"""
    limits = NetworkLimits(max_connections=2)
    async with serving(surrounding, WordService(), limits=limits) as running:
        first, second = await running.connect(), await running.connect()
        assert await first.ask(b"word") == await second.ask(b"word") == b"word"
        third = await running.connect()
        await third.send(b"patient")
        await settle()
        assert running.server.quotas.total == 2
        first.close()
        assert await third.read() == b"patient"
        assert await second.ask(b"word") == b"word"


async def test_a_listeners_own_limit(surrounding: Surrounding) -> None:
    """NET-24: other listeners are not concerned."""
    limits = NetworkLimits(listener_max_connections={"CLIENTS": 1})
    listeners = [CLIENTS, replace(PLAINTEXT, name="OTHERS")]
    async with serving(surrounding, WordService(), limits=limits, listeners=listeners) as running:
        first = await running.connect("CLIENTS")
        assert await first.ask(b"word") == b"word"
        second = await running.connect("CLIENTS")
        await second.send(b"patient")
        for _ in range(3):
            assert await (await running.connect("OTHERS")).ask(b"word") == b"word"
        assert running.server.quotas.count_of_listener("CLIENTS") == 1
        first.close()
        assert await second.read() == b"patient"


@pytest.mark.parametrize("protected", [BROKERS, CONTROLLER])
async def test_a_protected_listener_pushes_out_the_least_recently_used(
    surrounding: Surrounding, protected: ListenerSettings
) -> None:
    """NET-23"""
    limits = NetworkLimits(max_connections=3)
    listeners = [CLIENTS, protected]
    async with serving(surrounding, WordService(), limits=limits, listeners=listeners) as running:
        clients = [await running.connect("CLIENTS") for _ in range(3)]
        for client in clients:
            assert await client.ask(b"word") == b"word"
        assert await clients[0].ask(b"used again") == b"used again"
        node = await running.connect(protected.name)
        assert await node.ask(b"word") == b"word"
        assert await clients[1].rest() == b""
        assert await clients[0].ask(b"word") == await clients[2].ask(b"word") == b"word"
        assert running.server.quotas.total == 3


async def test_the_only_listener_is_not_protected(surrounding: Surrounding) -> None:
    """NET-23: brokers and clients share it, and nothing runs ahead of order there."""
    limits = NetworkLimits(max_connections=1)
    service = WordService()
    async with serving(surrounding, service, limits=limits, listeners=[BROKERS]) as running:
        first = await running.connect("BROKERS")
        await first.send(b"hold", b"hold")
        second = await running.connect("BROKERS")
        await second.send(b"patient")
        await eventually(lambda: service.held)
        await settle()
        assert service.served == [b"hold"]
        assert running.server.quotas.total == 1


@pytest.mark.parametrize("dedicated", [BROKERS, CONTROLLER])
async def test_everything_runs_ahead_on_dedicated_listeners(
    surrounding: Surrounding, dedicated: ListenerSettings
) -> None:
    """Decision 5: frames on controller and inter-node connections."""
    service = WordService()
    async with serving(surrounding, service, listeners=[CLIENTS, dedicated]) as running:
        node = await running.connect(dedicated.name)
        await node.send(b"hold 1", b"hold 2", b"word")
        await eventually(lambda: len(service.held) == 2)
        service.release(1)
        service.release(0)
        assert [await node.read() for _ in range(3)] == [b"hold 1", b"hold 2", b"word"]


@pytest.mark.parametrize("dedicated", [BROKERS, CONTROLLER])
async def test_a_service_may_keep_the_order_on_dedicated_listeners(
    surrounding: Surrounding, dedicated: ListenerSettings
) -> None:
    """Decision 5: as long as their own append need not wait."""
    service = WordService()
    async with serving(surrounding, service, listeners=[CLIENTS, dedicated]) as running:
        node = await running.connect(dedicated.name)
        await node.send(b"hold in order", b"word")
        await eventually(lambda: service.held)
        await settle()
        assert service.served == [b"hold in order"]
        service.release()
        assert [await node.read() for _ in range(2)] == [b"hold in order", b"word"]


async def test_a_busy_data_listener_does_not_delay_the_controllers(
    surrounding: Surrounding,
) -> None:
    """NET-9: all requests of the clients pending, their limits used up."""
    service = WordService()
    limits = NetworkLimits(max_connections=50)
    async with serving(
        surrounding, service, limits=limits, listeners=[CLIENTS, CONTROLLER]
    ) as running:
        for _ in range(49):
            await (await running.connect("CLIENTS")).send(b"hold", *[b"word"] * 20)
        await eventually(lambda: len(service.held) == 49)
        node = await running.connect("CONTROLLER")
        assert await node.ask(b"word") == b"word"


async def test_limits_change_while_running(surrounding: Surrounding) -> None:
    """NET-25: who waits is admitted; who is too many goes, least recently used first."""
    limits = NetworkLimits(max_connections=1)
    async with serving(surrounding, WordService(), limits=limits) as running:
        first = await running.connect()
        assert await first.ask(b"word") == b"word"
        second = await running.connect()
        await second.send(b"patient")
        await settle()
        running.server.change_limits(NetworkLimits(max_connections=2))
        assert await second.read() == b"patient"
        running.server.change_limits(NetworkLimits(max_connections=1))
        assert await first.rest() == b""
        assert await second.ask(b"word") == b"word"
        running.server.change_limits(NetworkLimits(max_connections_per_ip=1))
        assert await (await running.connect()).rest() == b""
        running.server.change_limits(
            NetworkLimits(
                max_connections_per_ip=1, max_connections_per_ip_overrides={"127.0.0.1": 2}
            )
        )
        assert await (await running.connect()).ask(b"word") == b"word"


async def test_connection_ids_are_unique_and_services_see_who_it_is(
    surrounding: Surrounding,
) -> None:
    """NET-26"""
    service = WordService()
    listeners = [replace(PLAINTEXT, security_protocol="PLAINTEXT")]
    async with serving(surrounding, service, listeners=listeners) as running:
        for _ in range(5):
            assert await (await running.connect()).ask(b"word") == b"word"
        ids = [channel.connection_id for channel in service.channels]
        assert len(set(ids)) == 5
        host, port = running.address()
        for index, (channel, client) in enumerate(
            zip(service.channels, running.clients, strict=True)
        ):
            remote = client.stream.local_address
            assert channel.connection_id == f"{host}:{port}-{remote[0]}:{remote[1]}-{index}"
            assert remote_host_of(channel.connection_id) == channel.client_host == "127.0.0.1"
            assert channel.listener_name == channel.security_protocol == "PLAINTEXT"
            assert channel.principal == "User:ANONYMOUS"
            assert channel.client_software_name == channel.client_software_version == "unknown"


async def test_large_frames_wait_for_memory(surrounding: Surrounding) -> None:
    """queued.max.request.bytes: muted until another's bytes are released; NET-50: on success, on
    failure and on the peer's going.
    """
    size = 200_000
    limits = NetworkLimits(queued_request_max_bytes=size, request_max_bytes=size)
    service = WordService()
    async with serving(surrounding, service, limits=limits) as running:
        memory = running.server.memory
        large = b"word " + b"L" * (size - 5)
        holder = await running.connect()
        await holder.send_bytes(framed(large)[:70_000])
        await eventually(lambda: memory.used_bytes == size)
        waiting, going = await running.connect(), await running.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(waiting.send, large)
            await eventually(lambda: memory.waiting_count == 1)
            await going.send_bytes(framed(large)[:50_000])
            await eventually(lambda: memory.waiting_count == 2)
            # Small frames need no memory of the pool.
            assert await (await running.connect()).ask(b"word") == b"word"
            going.close()
            await eventually(lambda: memory.waiting_count == 1)
            assert service.served == [b"word"]
            await holder.send_bytes(framed(large)[70_000:])
            assert await holder.read() == large
            assert await waiting.read() == large
        assert memory.used_bytes == 0
        for word in (b"bad ", b"boom "):
            client = await running.connect()
            await client.send(word + b"L" * (size - 5))
            assert await client.rest() == b""
            assert memory.used_bytes == 0
        client = await running.connect()
        await client.send_bytes(framed(large)[:70_000])
        await eventually(lambda: memory.used_bytes == size)
        client.close()
        await eventually(lambda: memory.used_bytes == 0)


async def test_stopping_lets_answers_in_flight_leave(surrounding: Surrounding) -> None:
    """NET-56: no accepting, pending answers leave, everything closes, the port is free."""
    recorder = Recorder()
    service = WordService(recorder)
    async with serving(surrounding, service) as running:
        idle, busy = await running.connect(), await running.connect()
        assert await idle.ask(b"word") == b"word"
        ahead = await running.connect()
        await ahead.send(b"ahead 1")
        await eventually(lambda: service.held)
        await busy.send(b"hold", b"never served")
        await eventually(lambda: len(service.held) == 2)
        large = b"L" * 3_000_000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.server.stop, 60)
            assert await idle.rest() == b""
            with pytest.raises(ConnectionRefusedError):
                await running.connect()
            await ahead.send(b"ahead 2")
            await settle()
            service.release(0)
            assert await ahead.rest() == framed(b"ahead 1")
            service.held.pop()[1].send((framed(large),))
            assert await busy.rest() == framed(large)
        assert running.server.connections == []
        assert running.server.quotas.total == 0
        assert service.served == [b"word", b"ahead 1", b"hold"]
        await eventually(lambda: not running.nursery.child_tasks)
        host, port = running.address()
        (await surrounding.server_network.listen(host, port)).close()
        await running.server.stop(60)


async def test_one_listener_ends_while_others_are_served(surrounding: Surrounding) -> None:
    """NET-56: for the others, and for whoever comes to them later, nothing changes."""
    service = WordService()
    async with serving(surrounding, service, listeners=[CLIENTS, CONTROLLER]) as running:
        idle, busy = await running.connect("CLIENTS"), await running.connect("CLIENTS")
        other = await running.connect("CONTROLLER")
        for client in (idle, other):
            assert await client.ask(b"word") == b"word"
        await busy.send(b"hold")
        await eventually(lambda: service.held)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.server.disable, ["CLIENTS"], 60)
            assert await idle.rest() == b""
            with pytest.raises(ConnectionRefusedError):
                await running.connect("CLIENTS")
            assert await other.ask(b"still") == b"still"
            service.release(0)
            assert await busy.rest() == framed(b"hold")
        assert len(running.server.connections) == 1
        late = await running.connect("CONTROLLER")
        assert await late.ask(b"word") == b"word"
        await running.server.disable(["CLIENTS"], 60)


async def test_an_answer_in_flight_arrives_though_more_requests_came_than_were_read(
    surrounding: Surrounding,
) -> None:
    """NET-56: closing over unread bytes would have the system reset the connection, and drop what
    the peer has not taken yet.
    """
    service = WordService()
    async with serving(surrounding, service) as running:
        client = await running.connect()
        await client.send(b"hold")
        await eventually(lambda: service.held)
        # More than is read ahead, so that the rest stays with the system.
        await client.send(*[b"never served" + bytes(1000)] * 100)
        await settle()
        large = bytes(1_000_000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.server.stop, 60)
            await settle()
            service.held.pop()[1].send((framed(large),))
            await settle()
            assert await client.rest() == framed(large)
        assert service.served == [b"hold"]


async def test_stopping_waits_no_longer_than_the_time_of_grace(surrounding: Surrounding) -> None:
    """NET-56: an answer that never comes, and a peer that never reads, end with it."""
    service = WordService()
    async with serving(surrounding, service) as running:
        busy, deaf = await running.connect(), await running.connect()
        await deaf.send(b"hold")
        await eventually(lambda: service.held)
        service.held.pop()[1].send((bytes(50_000_000),))
        await busy.send(b"hold")
        await eventually(lambda: service.held)
        with trio.fail_after(60):
            await running.server.stop(0.01)
        assert await busy.rest() == b""
        await eventually(lambda: not running.nursery.child_tasks)
        service.release()
        assert service.sent == []


async def test_cancelling_a_server_closes_everything(surrounding: Surrounding) -> None:
    """The root scope of a node stops everything within a checkpoint, and leaves no task."""
    service = WordService()
    server = NetworkServer(
        clock=surrounding.clock,
        network=surrounding.server_network,
        limits=NetworkLimits(),
        registry=MetricRegistry(),
    )
    await server.bind([PLAINTEXT])
    host, port = server.addresses["PLAINTEXT"]
    connect = surrounding.client_network.connect
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        await server.enable({"PLAINTEXT": service})
        waiting, deaf, idle = [Client(await connect(host, port)) for _ in range(3)]
        assert await idle.ask(b"word") == b"word"
        await deaf.send(b"hold")
        await eventually(lambda: service.held)
        service.held.pop()[1].send((bytes(50_000_000),))
        await waiting.send(b"hold", b"word")
        await eventually(lambda: service.held)
        nursery.cancel_scope.cancel()
    assert server.connections == []
    assert server.quotas.total == 0
    for client in (waiting, idle):
        assert await client.rest() == b""
        client.close()
    deaf.close()
    with pytest.raises(ConnectionRefusedError):
        await connect(host, port)
    service.release()
    assert service.sent == [b"word"]
