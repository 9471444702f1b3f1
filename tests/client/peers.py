"""Peers for the client's tests: our own server, and scripted ones that misbehave."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio
from support.lone_node import LoneNode, broker_handlers

from kraftpy.api.dispatch import Dispatcher
from kraftpy.api.handler import Handler
from kraftpy.client.errors import ConnectionLost
from kraftpy.net.framing import BufferPool, FrameReader
from kraftpy.net.limits import NetworkLimits
from kraftpy.net.listener import ListenerSettings
from kraftpy.net.server import NetworkServer
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.observe.request_metrics import RequestMetrics
from kraftpy.protocol.codec import decode
from kraftpy.protocol.frames import decode_request_header, encode_response
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema.k18_api_versions import ApiVersion, ApiVersionsResponse
from kraftpy.protocol.tables import Request, Response
from kraftpy.world import Address, Listener, Stream, World
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_network import MemoryFabric
from kraftpy.world.memory_rng import MemoryRng

SEED = 11
CLUSTER = LoneNode(
    cluster_id="peers-cluster",
    node_id=5,
    rack=None,
    broker_endpoints={"PLAINTEXT": ("node", 9092)},
    controller_endpoints={},
)


@dataclass
class Places:
    """Two machines in memory, and the weather between them."""

    fabric: MemoryFabric
    lost: ConnectionLost | None = None

    def world(self, name: str) -> World:
        return World(
            clock=MemoryClock(),
            rng=MemoryRng(SEED, name),
            network=self.fabric.host(name),
            disk=MemoryDisk(),
        )


@asynccontextmanager
async def memory_places() -> AsyncIterator[Places]:
    fabric = MemoryFabric(MemoryRng(SEED, "network"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fabric.run)
        yield Places(fabric)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def own_server(
    world: World, host: str, port: int = 0, handlers: list[Handler] | None = None
) -> AsyncIterator[Address]:
    """Our dispatcher behind our network."""
    registry = MetricRegistry()
    server = NetworkServer(
        clock=world.clock, network=world.network, limits=NetworkLimits(), registry=registry
    )
    await server.bind([ListenerSettings("PLAINTEXT", host, port)])
    dispatcher = Dispatcher(
        broker_handlers(CLUSTER) if handlers is None else handlers,
        features=CLUSTER,
        metrics=RequestMetrics(registry),
        clock=world.clock,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        await server.enable({"PLAINTEXT": dispatcher})
        yield server.addresses["PLAINTEXT"]
        await server.stop(grace_seconds=1)


Script = Callable[["ScriptedConnection"], Awaitable[None]]


class ScriptedConnection:
    """The node's side of one connection, by hand."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._reader = FrameReader(1 << 20, BufferPool())

    async def read_request(self) -> tuple[int, int, int]:
        """Key, version and correlation id of the next request."""
        header, _ = decode_request_header(await self._read_frame())
        return header.request_api_key, header.request_api_version, header.correlation_id

    async def read_message(self) -> tuple[Request, int, int]:
        """The next request, its version and its correlation id."""
        frame = await self._read_frame()
        header, position = decode_request_header(frame)
        version = header.request_api_version
        request_class = API[header.request_api_key].request_class
        return decode(request_class, version, frame[position:]), version, header.correlation_id

    async def _read_frame(self) -> bytes:
        while (frame := self._reader.peek()) is None:
            count = self.stream.receive_into(self._reader.receive_view())
            if count is None:
                await self.stream.wait_readable()
            elif count == 0:
                raise EOFError
            else:
                self._reader.received(count)
            if self._reader.large_frame_bytes:
                self._reader.begin_large()
        copy = bytes(frame)
        self._reader.pop()
        return copy

    async def send(self, data: bytes) -> None:
        while data:
            sent = self.stream.send([data])
            data = data[sent:]
            if not sent:
                await self.stream.wait_writable()

    async def answer(self, response: Response, version: int, correlation_id: int) -> None:
        parts = encode_response(response, version, correlation_id)
        await self.send(b"".join(bytes(part) for part in parts))  # type: ignore[arg-type]

    async def negotiate(self) -> None:
        """Offer every API there is."""
        _, version, correlation_id = await self.read_request()
        keys = [
            ApiVersion(api_key=key, min_version=spec.min_version, max_version=spec.max_version)
            for key, spec in API.items()
        ]
        await self.answer(ApiVersionsResponse(api_keys=keys), version, correlation_id)


@asynccontextmanager
async def scripted_server(
    world: World, host: str, *scripts: Script, port: int = 0
) -> AsyncIterator[Address]:
    """Each connection follows the next script; who comes later gets the last one again."""
    listener = await world.network.listen(host, port)

    async def accept(listener: Listener, nursery: trio.Nursery) -> None:
        for count in range(1_000_000):
            script = scripts[min(count, len(scripts) - 1)]
            nursery.start_soon(run_script, script, await listener.accept())

    async def run_script(script: Script, stream: Stream) -> None:
        try:
            await script(ScriptedConnection(stream))
        except (EOFError, ConnectionError):
            pass
        finally:
            stream.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept, listener, nursery)
        yield listener.address
        nursery.cancel_scope.cancel()
        listener.close()
