"""What tests of the network share: a small real Service, a client on the Stream port, a server
running in either world.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from kraftpy.net.limits import NetworkLimits
from kraftpy.net.listener import ListenerSettings
from kraftpy.net.server import NetworkServer
from kraftpy.net.service import Answer, BadRequest, Channel, Service
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.observe.request_metrics import RequestTimes
from kraftpy.world import Address, Clock, InternalInvariant, Network, Stream
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_network import MemoryFabric
from kraftpy.world.memory_rng import MemoryRng
from kraftpy.world.real_clock import RealClock
from kraftpy.world.real_network import RealNetwork

PLAINTEXT = ListenerSettings("PLAINTEXT", "127.0.0.1", 0)


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


@dataclass
class Recorder:
    recorded: list[RequestTimes] = field(default_factory=list)

    def record(self, times: RequestTimes) -> None:
        self.recorded.append(times)


class WordService:
    """Does what a frame's first word says, and echoes the frame as its answer.

    `hold` and `ahead` keep their answers in `held` until the test finishes them; `ahead` may run
    ahead, and `ahead in order` lets nothing run ahead of it. `big` is answered with 100 KB.
    `throttle`, `nothing`, `close`, `bad`, `boom` and `broken` are what they are called, `worse` is
    refused and finished all the same, and any other word is answered at once.
    """

    def __init__(self, recorder: Recorder | None = None) -> None:
        self.recorder = recorder
        self.served: list[bytes] = []
        self.held: list[tuple[bytes, Answer]] = []
        self.sent: list[bytes] = []
        self.channels: list[Channel] = []

    def may_run_ahead(self, frame: memoryview) -> bool:
        return bytes(frame[:5]) == b"ahead"

    def serve(self, channel: Channel, frame: memoryview, answer: Answer) -> None:
        payload = bytes(frame)
        self.served.append(payload)
        if channel not in self.channels:
            self.channels.append(channel)
        if self.recorder is not None:
            answer.measure(self.recorder)
        word, _, rest = payload.partition(b" ")
        match word:
            case b"hold" | b"ahead":
                if rest == b"in order":
                    answer.keep_order()
                self.held.append((payload, answer))
            case b"big":
                self.answer(bytes(100_000), answer)
            case b"nothing":
                answer.nothing()
            case b"close":
                answer.disconnect()
            case b"bad" | b"worse":
                if word == b"worse":
                    self.held.append((payload, answer))
                raise BadRequest("api_key=77 version=1 is not a request")
            case b"boom":
                raise RuntimeError("a handler failed")
            case b"broken":
                raise InternalInvariant("the service is wrong")
            case b"throttle":
                answer.throttle(int(rest))
                self.answer(payload, answer)
            case _:
                self.answer(payload, answer)

    def answer(self, payload: bytes, answer: Answer) -> None:
        answer.send((framed(payload),), lambda: self.sent.append(payload))

    def release(self, index: int = 0) -> None:
        """Finish a held answer."""
        self.answer(*self.held.pop(index))


class Client:
    """The other end, frame by frame."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._received = bytearray()

    async def send(self, *payloads: bytes) -> None:
        await self.send_bytes(b"".join(map(framed, payloads)))

    async def send_bytes(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            sent = self.stream.send((view,))
            view = view[sent:]
            if not sent:
                await self.stream.wait_writable()

    async def read(self) -> bytes:
        """One frame's payload."""
        await self._receive(4)
        size = int.from_bytes(self._received[:4], "big")
        await self._receive(4 + size)
        payload = bytes(self._received[4 : 4 + size])
        del self._received[: 4 + size]
        return payload

    async def ask(self, payload: bytes) -> bytes:
        await self.send(payload)
        return await self.read()

    async def rest(self) -> bytes:
        """Everything until the server closes, by a finish or by a reset."""
        try:
            while await self._receive_some():
                pass
        except ConnectionError:
            pass
        return bytes(self._received)

    async def _receive(self, count: int) -> None:
        while len(self._received) < count:
            if not await self._receive_some():
                raise EOFError(f"closed after {len(self._received)} of {count} bytes")

    async def _receive_some(self) -> int:
        buffer = bytearray(65536)
        while (count := self.stream.receive_into(memoryview(buffer))) is None:
            await self.stream.wait_readable()
        self._received += buffer[:count]
        return count

    def close(self) -> None:
        self.stream.close()


@dataclass
class Surrounding:
    """A clock and the networks of a server and of its clients."""

    clock: Clock
    server_network: Network
    client_network: Network
    fabric: MemoryFabric | None = None


@asynccontextmanager
async def memory_surrounding(seed: int = 1) -> AsyncIterator[Surrounding]:
    fabric = MemoryFabric(MemoryRng(seed))
    network = fabric.host("server")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fabric.run)
        yield Surrounding(MemoryClock(), network, network, fabric)
        nursery.cancel_scope.cancel()


def real_surrounding() -> Surrounding:
    return Surrounding(RealClock(), RealNetwork(), RealNetwork())


class Running:
    """A server that serves."""

    def __init__(
        self,
        server: NetworkServer,
        surrounding: Surrounding,
        registry: MetricRegistry,
        nursery: trio.Nursery,
    ) -> None:
        self.server = server
        self.surrounding = surrounding
        self.registry = registry
        self.nursery = nursery
        self.clients: list[Client] = []

    async def connect(self, listener: str = "PLAINTEXT") -> Client:
        host, port = self.server.addresses[listener]
        client = Client(await self.surrounding.client_network.connect(host, port))
        self.clients.append(client)
        return client

    def address(self, listener: str = "PLAINTEXT") -> Address:
        return self.server.addresses[listener]


@asynccontextmanager
async def bound(
    surrounding: Surrounding,
    *,
    limits: NetworkLimits = NetworkLimits(),  # noqa: B008 (frozen)
    listeners: Sequence[ListenerSettings] = (PLAINTEXT,),
) -> AsyncIterator[Running]:
    """A server whose ports are bound and whose task runs, but which serves nobody yet."""
    registry = MetricRegistry()
    server = NetworkServer(
        clock=surrounding.clock,
        network=surrounding.server_network,
        limits=limits,
        registry=registry,
    )
    await server.bind(listeners)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        running = Running(server, surrounding, registry, nursery)
        try:
            yield running
        finally:
            for client in running.clients:
                client.close()
            await server.stop(0)


@asynccontextmanager
async def serving(
    surrounding: Surrounding,
    service: Service,
    *,
    limits: NetworkLimits = NetworkLimits(),  # noqa: B008 (frozen)
    listeners: Sequence[ListenerSettings] = (PLAINTEXT,),
) -> AsyncIterator[Running]:
    async with bound(surrounding, limits=limits, listeners=listeners) as running:
        await running.server.enable({listener.name: service for listener in listeners})
        yield running


async def eventually(condition: Callable[[], object]) -> None:
    """Give the loop and the kernel time until `condition` holds."""
    with trio.fail_after(60):
        while not condition():  # noqa: ASYNC110 (the kernel tells nobody)
            await trio.sleep(0.0005)


async def settle() -> None:
    """Give everything that could happen the time to happen, where nothing is expected to."""
    for _ in range(20):
        await trio.sleep(0.0005)
