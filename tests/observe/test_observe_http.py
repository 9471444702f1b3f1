"""Health, readiness and metrics over HTTP: what is answered, and what a peer can't do."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
import trio
import trio.testing
from contract.both_worlds import Place, in_both_worlds, receive_all, send_all

from kraftpy.observe.http import HttpLimits, HttpServer, Page, Reply, node_pages
from kraftpy.observe.metrics import MetricName, MetricRegistry
from kraftpy.observe.prometheus import CONTENT_TYPE, exposition, exposition_pieces
from kraftpy.sim.runner import run_simulation
from kraftpy.sim.simulation import Simulation
from kraftpy.world import Stream
from kraftpy.world.real import real_world

BYTES_IN = MetricName("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", (("topic", "t"),))


class Asking:
    """A connection that asks and reads answers one by one."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._buffered = b""

    async def send(self, text: str) -> None:
        await send_all(self.stream, text.encode())

    async def get(self, path: str, *fields: str, method: str = "GET") -> tuple[int, str, bytes]:
        lines = [f"{method} {path} HTTP/1.1", "Host: node", *fields]
        await self.send("\r\n".join(lines) + "\r\n\r\n")
        return await self.answer(has_body=method != "HEAD")

    async def answer(self, *, has_body: bool = True) -> tuple[int, str, bytes]:
        while b"\r\n\r\n" not in self._buffered:
            await self._more()
        head, _, rest = self._buffered.partition(b"\r\n\r\n")
        text = head.decode().lower()
        found = re.search(r"content-length: (\d+)", text)
        length = int(found[1]) if found and has_body else 0
        self._buffered = rest
        while len(self._buffered) < length:
            await self._more()
        body, self._buffered = self._buffered[:length], self._buffered[length:]
        return int(text.split()[1]), text, body

    async def _more(self) -> None:
        buffer = bytearray(65_536)
        while (received := self.stream.receive_into(memoryview(buffer))) is None:
            await self.stream.wait_readable()
        assert received, "the server has left"
        self._buffered += buffer[:received]

    async def is_closed(self) -> bool:
        return await receive_all(self.stream) == b""


class Site:
    """A server in a Place, with the pages of a node and one that breaks."""

    def __init__(self, place: Place, limits: HttpLimits) -> None:
        self.place = place
        self.registry = MetricRegistry()
        self.is_ready = False
        clock = place.world.clock
        pages: dict[str, Page] = node_pages(self.registry, lambda: self.is_ready, clock)
        pages["/broken"] = self._broken
        self.server = HttpServer(
            clock=clock, network=place.world.network, pages=pages, limits=limits
        )
        self.address = ("", 0)
        self.streams: list[Stream] = []

    async def _broken(self) -> Reply:
        raise ZeroDivisionError("a gauge")

    async def connect(self) -> Asking:
        stream = await self.place.client.connect(*self.address)
        self.streams.append(stream)
        return Asking(stream)


@asynccontextmanager
async def serving(place: Place, limits: HttpLimits = HttpLimits()) -> AsyncIterator[Site]:  # noqa: B008
    site = Site(place, limits)
    site.address = await site.server.bind(place.host, 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.server.run)
        try:
            yield site
        finally:
            for stream in site.streams:
                stream.close()
        nursery.cancel_scope.cancel()


def real_place() -> Place:
    world = real_world()
    return Place(world, world.network, "127.0.0.1", "")


def in_virtual_time(test: Callable[[Place], Awaitable[None]]) -> Callable[[], None]:
    async def run(sim: Simulation) -> None:
        server, client = sim.world("server"), sim.world("client")
        await test(Place(server, client.network, "server", ""))

    def simulate() -> None:
        run_simulation(run, seed=3, time_limit_seconds=600)

    simulate.__name__ = simulate.__qualname__ = test.__name__
    simulate.__doc__, simulate.__module__ = test.__doc__, test.__module__
    return simulate


@in_both_worlds
async def test_health_readiness_and_metrics_on_one_connection(place: Place) -> None:
    async with serving(place) as site:
        site.registry.meter(BYTES_IN, 0.0).mark(0.0, 17)
        peer = await site.connect()
        assert (await peer.get("/healthz"))[::2] == (200, b"ok\n")
        assert (await peer.get("/readyz"))[::2] == (503, b"not ready\n")
        site.is_ready = True
        assert (await peer.get("/readyz?verbose"))[::2] == (200, b"ready\n")
        status, head, body = await peer.get("/metrics")
        assert status == 200
        assert f"content-type: {CONTENT_TYPE}" in head
        assert body.decode() == exposition(site.registry)
        assert b'{topic="t"} 17\n' in body


@in_both_worlds
async def test_other_pages_and_methods_are_refused_and_the_connection_lives(place: Place) -> None:
    async with serving(place) as site:
        peer = await site.connect()
        status, _, body = await peer.get("/")
        assert (status, b"/metrics" in body) == (404, True)
        status, head, _ = await peer.get("/metrics", method="DELETE")
        assert (status, "allow: get, head" in head) == (405, True)
        status, head, body = await peer.get("/healthz", method="HEAD")
        assert (status, "content-length: 3" in head, body) == (200, True, b"")
        assert (await peer.get("/healthz"))[0] == 200


@in_both_worlds
async def test_pipelined_requests_are_answered_in_their_order(place: Place) -> None:
    async with serving(place) as site:
        peer = await site.connect()
        heads = [f"GET {path} HTTP/1.1\r\nHost: n\r\n\r\n" for path in ("/readyz", "/healthz")]
        await peer.send("".join(heads))
        assert [(await peer.answer())[0] for _ in heads] == [503, 200]


@in_both_worlds
async def test_who_wants_to_leave_is_let_go(place: Place) -> None:
    async with serving(place) as site:
        for fields in (["Connection: close"], ["Content-Length: 9"]):
            peer = await site.connect()
            # A body is not waited for: the answer comes, and then the end.
            assert (await peer.get("/healthz", *fields))[0] == 200
            assert await peer.is_closed()


@in_both_worlds
async def test_a_page_that_breaks_is_an_answer_and_no_more(place: Place) -> None:
    async with serving(place) as site:
        peer = await site.connect()
        assert (await peer.get("/broken"))[0] == 500
        assert (await peer.get("/healthz"))[0] == 200


@in_both_worlds
async def test_nonsense_breaks_its_own_connection_only(place: Place) -> None:
    async with serving(place) as site:
        other = await site.connect()
        peer = await site.connect()
        await peer.send("\x00\x00\x00\x12 a Kafka frame\r\n\r\n")
        status, head, _ = await peer.answer()
        assert (status, "connection: close" in head) == (400, True)
        assert await peer.is_closed()
        assert (await other.get("/healthz"))[0] == 200


@pytest.mark.parametrize("excess", [0, 1])
async def test_a_head_has_a_size(excess: int) -> None:
    """At the limit it is served, one byte beyond it is refused before it is complete."""
    limit = 1_000
    async with serving(real_place(), HttpLimits(head_max_bytes=limit)) as site:
        peer = await site.connect()
        beginning = "GET /healthz HTTP/1.1\r\nHost: n\r\nX: "
        await peer.send(beginning + "x" * (limit - len(beginning) + excess))
        if not excess:
            await trio.testing.wait_all_tasks_blocked()
            await peer.send("\r\n\r\n")
        assert (await peer.answer())[0] == (431 if excess else 200)


@in_virtual_time
async def test_silence_has_an_end(place: Place) -> None:
    """Also in the middle of a head, however busily that is dripping."""
    clock = place.world.clock
    async with serving(place, HttpLimits(idle_seconds=30)) as site:
        silent, dripping = await site.connect(), await site.connect()
        started = clock.monotonic()

        async def drip() -> None:
            await dripping.send("GET /healthz HTTP/1.1\r\n")
            with suppress(ConnectionError):
                while True:
                    await clock.sleep(1)
                    await dripping.send("A: b\r\n")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip)
            assert await silent.is_closed()
            with suppress(ConnectionError):
                assert await dripping.is_closed()
            nursery.cancel_scope.cancel()
        assert 29 < clock.monotonic() - started < 35


async def test_the_longest_silent_connection_makes_room() -> None:
    async with serving(real_place(), HttpLimits(max_connections=3)) as site:
        peers = [await site.connect() for _ in range(3)]
        for peer in peers:
            assert (await peer.get("/healthz"))[0] == 200
        # The first has been heard of last.
        assert (await peers[0].get("/healthz"))[0] == 200
        newcomer = await site.connect()
        assert (await newcomer.get("/healthz"))[0] == 200
        assert await peers[1].is_closed()
        for peer in (peers[0], peers[2]):
            assert (await peer.get("/healthz"))[0] == 200


@in_virtual_time
async def test_a_peer_that_does_not_read_is_dropped(place: Place) -> None:
    async with serving(place, HttpLimits(send_seconds=10)) as site:
        for number in range(5_000):
            name = MetricName("kafka.server", "Fat", "Gauge", (("n", f"{number:01000}"),))
            site.registry.gauge(name, lambda: 1.0)
        peer = await site.connect()
        await peer.send("GET /metrics HTTP/1.1\r\nHost: n\r\n\r\n")
        await place.world.clock.sleep(12)
        with pytest.raises((ConnectionError, AssertionError)):
            await peer.answer()
        other = await site.connect()
        assert (await other.get("/healthz"))[0] == 200


async def test_metrics_leave_the_loop_to_others() -> None:
    """Many of them, and heavy ones: others get their turn at least every few milliseconds of work.

    Counted in turns and not in time, which on a shared machine proves nothing.
    """
    world = real_world()
    for kind, count in (("gauge", 3_000), ("histogram", 300)):
        registry = MetricRegistry()
        for number in range(count):
            name = MetricName("kafka.network", "RequestMetrics", "T", (("n", str(number)),))
            if kind == "gauge":
                registry.gauge(name, lambda: 1.0)
                continue
            histogram = registry.histogram(name)
            for value in range(1_024):
                histogram.update(value * 7919 % 1_024)
        turns = 0

        async def take_turns() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        page = node_pages(registry, lambda: True, world.clock)["/metrics"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_turns)
            reply = await page()
            nursery.cancel_scope.cancel()
        assert turns >= 6, kind
        assert reply.body.decode() == exposition(registry)


def test_a_piece_is_the_work_of_one_metric() -> None:
    """Grouping counts too. Families come in the order of their names."""
    registry = MetricRegistry()
    for name in ("Zebra", "Ant"):
        for number in range(100):
            registry.gauge(MetricName("k", "T", name, (("n", str(number)),)), lambda: 1.0)
    pieces = list(exposition_pieces(registry))
    assert len(pieces) == 200 + 2 + 200
    families = [piece for piece in pieces if piece.startswith("# TYPE")]
    assert families == ["# TYPE k_t_ant gauge\n", "# TYPE k_t_zebra gauge\n"]
