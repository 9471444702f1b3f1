"""The blocking connection, against our own server and against peers that misbehave."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
import trio
from client.peers import ScriptedConnection, own_server, scripted_server

from kraftpy.client.blocking import BlockingConnection
from kraftpy.client.errors import ConnectionLost, Evidence, UnsupportedVersion
from kraftpy.client.settings import ClientSettings
from kraftpy.protocol.schema.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kraftpy.protocol.schema.k12_heartbeat import HeartbeatRequest
from kraftpy.world import Address
from kraftpy.world.real import real_world

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """The blocking side runs beside the loop that serves it."""
    return await trio.to_thread.run_sync(work)


async def test_talks_to_our_own_node() -> None:
    async with own_server(real_world(), "127.0.0.1") as address:

        def ask() -> MetadataResponse:
            with BlockingConnection(address) as connection:
                assert connection.core.versions[3] == (0, 13)
                answer: MetadataResponse = connection.request(MetadataRequest(), max_version=4)
                return answer

        assert (await in_thread(ask)).controller_id == 5


async def test_unsupported_api_costs_nothing() -> None:
    async with own_server(real_world(), "127.0.0.1") as address:

        def ask() -> None:
            with BlockingConnection(address) as connection:
                with pytest.raises(UnsupportedVersion):
                    connection.request(HeartbeatRequest())
                connection.request(MetadataRequest())

        await in_thread(ask)


async def test_pipeline_larger_than_every_buffer() -> None:
    """More requests than may be in flight, more bytes each way than the system holds: neither side
    waits for the other for ever.
    """
    count = 50
    settings = ClientSettings(max_in_flight_requests_per_connection=40)
    topics = [MetadataRequestTopic(name=f"{number:03}" + "t" * 200) for number in range(300)]
    async with own_server(real_world(), "127.0.0.1") as address:

        def ask() -> list[MetadataResponse]:
            with BlockingConnection(address, settings) as connection:
                return connection.pipeline([MetadataRequest(topics=topics)] * count)

        answers = await in_thread(ask)
    assert len(answers) == count
    assert all(len(answer.topics) == len(topics) for answer in answers)


async def test_request_larger_than_every_buffer() -> None:
    """Nothing comes back before all of it has gone, so it must not wait for bytes alone."""
    topics = [MetadataRequestTopic(name="t" * 249)] * 60_000
    async with own_server(real_world(), "127.0.0.1") as address:

        def ask() -> MetadataResponse:
            with BlockingConnection(address) as connection:
                answer: MetadataResponse = connection.request(MetadataRequest(topics=topics))
                return answer

        assert [topic.name for topic in (await in_thread(ask)).topics] == ["t" * 249]


async def test_refused() -> None:
    listener = await real_world().network.listen("127.0.0.1", 0)
    address = listener.address
    listener.close()
    assert (await in_thread(lambda: lost_by(address))).evidence is Evidence.REFUSED


async def test_closed_by_the_peer() -> None:
    async def hang_up(peer: ScriptedConnection) -> None:
        await peer.negotiate()
        await peer.read_request()

    async with scripted_server(real_world(), "127.0.0.1", hang_up) as address:
        assert (await in_thread(lambda: lost_by(address))).evidence is Evidence.BROKEN


async def test_silent_peer() -> None:
    async def be_silent(peer: ScriptedConnection) -> None:
        await peer.negotiate()
        await trio.sleep_forever()

    async with scripted_server(real_world(), "127.0.0.1", be_silent) as address:
        lost = await in_thread(lambda: lost_by(address, timeout_ms=50))
        assert lost.evidence is Evidence.TIMED_OUT


@pytest.mark.parametrize("garbage", [b"\x7f\xff\xff\xff", b"\0\0\0\x04\0\0\0\x63"])
async def test_garbage(garbage: bytes) -> None:
    async def talk_garbage(peer: ScriptedConnection) -> None:
        await peer.negotiate()
        await peer.read_request()
        await peer.send(garbage)
        await trio.sleep_forever()

    async with scripted_server(real_world(), "127.0.0.1", talk_garbage) as address:
        assert (await in_thread(lambda: lost_by(address))).evidence is Evidence.GARBLED


def lost_by(address: Address, timeout_ms: int = 60_000) -> ConnectionLost:
    """What a request to this address shows; a silent peer is given up after that time."""
    settings = ClientSettings(request_timeout_ms=60_000)
    try:
        with BlockingConnection(address, settings) as connection:
            connection.request(MetadataRequest(), timeout_ms=timeout_ms)
    except ConnectionLost as lost:
        return lost
    raise AssertionError("it was answered")
