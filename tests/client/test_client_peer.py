"""A Peer connects when needed and again after a loss, spaced by the back-off; in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
import trio
from client.peers import Places, ScriptedConnection, memory_places, own_server, scripted_server
from trio.testing import MockClock

from kraftpy.client.connection import Peer
from kraftpy.client.errors import ConnectionLost, Evidence
from kraftpy.client.settings import ClientSettings
from kraftpy.protocol.schema.k03_metadata import MetadataRequest, MetadataResponse

SETTINGS = ClientSettings(
    request_timeout_ms=5_000, reconnect_backoff_ms=100, reconnect_backoff_max_ms=1_000
)
PORT = 9092


@pytest.fixture
async def places() -> AsyncIterator[Places]:
    async with memory_places() as made:
        yield made


async def test_attempts_are_spaced_by_the_backoff(
    places: Places, autojump_clock: MockClock
) -> None:
    places.world("node")
    async with trio.open_nursery() as nursery:
        peer = Peer(places.world("us"), nursery, ("node", PORT), SETTINGS)
        times = []
        for _ in range(6):
            with pytest.raises(ConnectionLost) as lost:
                await peer.request(MetadataRequest())
            assert lost.value.evidence is Evidence.REFUSED
            times.append(trio.current_time())
    gaps = [later - earlier for earlier, later in pairwise(times)]
    for gap, middle in zip(gaps, [0.1, 0.2, 0.4, 0.8, 1.0], strict=True):
        assert middle * 0.79 <= gap <= min(middle * 1.2, 1.0) + 0.01


async def test_comes_back_when_the_node_does(places: Places, autojump_clock: MockClock) -> None:
    places.world("node")
    async with trio.open_nursery() as nursery:
        peer = Peer(places.world("us"), nursery, ("node", PORT), SETTINGS)
        with pytest.raises(ConnectionLost):
            await peer.request(MetadataRequest())
        async with own_server(places.world("node"), "node", PORT):
            assert (await peer.request(MetadataRequest())).controller_id == 5
            assert peer.last_failure is None
        peer.close()


async def test_backoff_starts_over_after_success(places: Places, autojump_clock: MockClock) -> None:
    places.world("node")
    async with trio.open_nursery() as nursery:
        peer = Peer(places.world("us"), nursery, ("node", PORT), SETTINGS)
        for _ in range(6):
            with pytest.raises(ConnectionLost):
                await peer.request(MetadataRequest())
        async with own_server(places.world("node"), "node", PORT):
            await peer.request(MetadataRequest())
        times = []
        for _ in range(3):
            with pytest.raises(ConnectionLost):
                await peer.request(MetadataRequest())
            times.append(trio.current_time())
        # The loss, the first refusal, and after the shortest of waits the second.
        assert times[2] - times[1] < 0.13


async def test_connection_is_kept(places: Places, autojump_clock: MockClock) -> None:
    connections = []

    async def serve(peer: ScriptedConnection) -> None:
        connections.append(peer)
        await peer.negotiate()
        while True:
            _, version, correlation_id = await peer.read_request()
            await peer.answer(MetadataResponse(), version, correlation_id)

    async with (
        scripted_server(places.world("node"), "node", serve, port=PORT),
        trio.open_nursery() as nursery,
    ):
        peer = Peer(places.world("us"), nursery, ("node", PORT), SETTINGS)
        async with trio.open_nursery() as callers:
            for _ in range(10):
                callers.start_soon(peer.request, MetadataRequest())
        assert len(connections) == 1
        peer.close()


class _Steps(trio.abc.Instrument):
    """How often a task of that name had the loop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task.name == self.name


async def test_a_request_costs_two_turns(places: Places, autojump_clock: MockClock) -> None:
    """One in which it leaves, at once, and one in which its answer is taken: each turn of the loop
    more would delay all that is replicated."""
    async with (
        own_server(places.world("node"), "node", PORT),
        trio.open_nursery() as nursery,
    ):
        peer = Peer(places.world("us"), nursery, ("node", PORT), SETTINGS)
        await peer.request(MetadataRequest())
        steps = _Steps("asks")
        trio.lowlevel.add_instrument(steps)
        async with trio.open_nursery() as callers:
            callers.start_soon(peer.request, MetadataRequest(), name="asks")
        assert steps.count == 2
        peer.close()


async def test_who_is_cancelled_asks_nothing(places: Places, autojump_clock: MockClock) -> None:
    async with (
        own_server(places.world("node"), "node", PORT),
        trio.open_nursery() as nursery,
    ):
        peer = Peer(places.world("us"), nursery, ("node", PORT), SETTINGS)
        await peer.request(MetadataRequest())
        connection = await peer.connected()
        with trio.CancelScope() as scope:
            scope.cancel()
            await peer.request(MetadataRequest())
        assert scope.cancelled_caught
        assert connection.core.in_flight_count == 0
        peer.close()


async def test_first_attempt_after_a_useful_connection_comes_at_once(
    places: Places, autojump_clock: MockClock
) -> None:
    """Decision 14: whether the peer refuses a new connection must be known soon."""

    async def answer_one(peer: ScriptedConnection) -> None:
        await peer.negotiate()
        _, version, correlation_id = await peer.read_request()
        await peer.answer(MetadataResponse(), version, correlation_id)
        await peer.read_request()

    async with (
        scripted_server(places.world("node"), "node", answer_one, port=PORT),
        trio.open_nursery() as nursery,
    ):
        peer = Peer(places.world("us"), nursery, ("node", PORT), SETTINGS)
        await peer.request(MetadataRequest())
        with pytest.raises(ConnectionLost) as lost:
            await peer.request(MetadataRequest())
        assert lost.value.evidence is Evidence.BROKEN
        assert peer.last_failure is lost.value
        started = trio.current_time()
        await peer.request(MetadataRequest())
        assert trio.current_time() - started < 0.05
        peer.close()


async def test_node_that_accepts_and_hangs_up_is_not_stormed(
    places: Places, autojump_clock: MockClock
) -> None:
    attempts = []

    async def hang_up(peer: ScriptedConnection) -> None:
        attempts.append(trio.current_time())
        await peer.negotiate()

    async with (
        scripted_server(places.world("node"), "node", hang_up, port=PORT),
        trio.open_nursery() as nursery,
    ):
        peer = Peer(places.world("us"), nursery, ("node", PORT), SETTINGS)
        with trio.move_on_after(10):
            while True:
                with pytest.raises(ConnectionLost):
                    await peer.request(MetadataRequest())
        assert 10 <= len(attempts) <= 18


async def test_cancelled_while_waiting_to_connect(
    places: Places, autojump_clock: MockClock
) -> None:
    places.world("node")
    async with trio.open_nursery() as nursery:
        peer = Peer(places.world("us"), nursery, ("node", PORT), SETTINGS)
        with pytest.raises(ConnectionLost):
            await peer.request(MetadataRequest())
        with trio.move_on_after(0.01) as scope:
            await peer.request(MetadataRequest())
        assert scope.cancelled_caught
        async with own_server(places.world("node"), "node", PORT):
            await peer.request(MetadataRequest())
        peer.close()
