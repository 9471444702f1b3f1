"""The way to the controller: whom it asks, when it asks again, and when it gives up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
from client.peers import Places, Script, ScriptedConnection, memory_places, scripted_server

from kraftpy.broker.controller_channel import ControllerChannel, ControllerUnreachable
from kraftpy.client.errors import UnsupportedVersion
from kraftpy.client.settings import ClientSettings
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k18_api_versions import ApiVersionsResponse
from kraftpy.protocol.schema.k19_create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kraftpy.protocol.schema.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

SETTINGS = ClientSettings(request_timeout_ms=5_000, reconnect_backoff_ms=10)
ASK = AllocateProducerIdsRequest(broker_id=3, broker_epoch=9)


def answers(start: int, asked: list[int], *, error_code: int = 0) -> Script:
    """A controller that answers with its own number."""

    async def script(connection: ScriptedConnection) -> None:
        await connection.negotiate()
        while True:
            key, version, correlation_id = await connection.read_request()
            asked.append(key)
            answer = AllocateProducerIdsResponse(producer_id_start=start, error_code=error_code)
            await connection.answer(answer, version, correlation_id)

    return script


async def hangs_up_when_asked(connection: ScriptedConnection) -> None:
    await connection.negotiate()
    await connection.read_request()


async def never_answers(connection: ScriptedConnection) -> None:
    await connection.negotiate()
    while True:
        await connection.read_request()


async def serves_nothing(connection: ScriptedConnection) -> None:
    _, version, correlation_id = await connection.read_request()
    await connection.answer(ApiVersionsResponse(api_keys=[]), version, correlation_id)
    await connection.read_request()


class Quorum:
    """Who leads, as Raft would say it."""

    def __init__(self) -> None:
        self._leader: tuple[int, str, int] | None = None
        self._watchers: list[Callable[[], None]] = []

    @property
    def leader(self) -> tuple[int, str, int] | None:
        return self._leader

    @leader.setter
    def leader(self, leader: tuple[int, str, int] | None) -> None:
        self._leader = leader
        for changed in self._watchers:
            changed()

    def active_controller(self) -> tuple[int, str, int] | None:
        return self.leader

    def watch(self, changed: Callable[[], None]) -> None:
        self._watchers.append(changed)


@asynccontextmanager
async def channel_to(quorum: Quorum) -> AsyncIterator[tuple[ControllerChannel, Places]]:
    async with memory_places() as places, trio.open_nursery() as nursery:
        world = places.world("broker")
        channel = ControllerChannel(
            world, nursery, quorum.active_controller, quorum.watch, SETTINGS
        )
        yield channel, places
        channel.close()
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def controllers(
    quorum: Quorum, *scripts: Script
) -> AsyncIterator[tuple[ControllerChannel, list[int]]]:
    """A channel, and a host with a controller on some port for each script."""
    async with channel_to(quorum) as (channel, places), AsyncExitStack() as stack:
        ports = []
        for number, script in enumerate(scripts, 1):
            name = f"c{number}"
            server = scripted_server(places.world(name), name, script)
            _, port = await stack.enter_async_context(server)
            ports.append(port)
        yield channel, ports


async def test_waits_for_a_controller_and_asks_it(autojump_clock: object) -> None:
    quorum = Quorum()
    asked: list[int] = []
    async with controllers(quorum, answers(100, asked)) as (channel, [port]):

        async def elect() -> None:
            await trio.sleep(3)
            quorum.leader = (1, "c1", port)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(elect)
            answer = await channel.request(ASK, timeout_ms=60_000)
        assert answer.producer_id_start == 100
        assert asked == [67]


@pytest.mark.parametrize("first", ["not the controller", "lost"])
async def test_asks_again_the_one_who_leads_now(autojump_clock: object, first: str) -> None:
    """KRF 18.2: NOT_CONTROLLER, or a lost connection, sends the request to the next leader."""
    quorum = Quorum()
    asked: list[int] = []
    refusing = answers(0, [], error_code=ErrorCode.NOT_CONTROLLER)
    script = refusing if first == "not the controller" else hangs_up_when_asked
    async with controllers(quorum, script, answers(200, asked)) as (channel, [old, new]):
        quorum.leader = (1, "c1", old)
        began = trio.current_time()

        async def elect() -> None:
            await trio.sleep(1)
            quorum.leader = (2, "c2", new)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(elect)
            answer = await channel.request(ASK, timeout_ms=60_000)
        assert answer.producer_id_start == 200
        assert asked == [67]
        assert 1 <= trio.current_time() - began < 2.5


async def test_an_answer_with_codes_of_its_items_alone(autojump_clock: object) -> None:
    """CreateTopics: NOT_CONTROLLER for an item is that of the controller."""
    codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.TOPIC_ALREADY_EXISTS]

    async def script(connection: ScriptedConnection) -> None:
        await connection.negotiate()
        while True:
            _, version, correlation_id = await connection.read_request()
            topics = [CreatableTopicResult(name="t", error_code=codes.pop(0))]
            answer = CreateTopicsResponse(topics=topics)
            await connection.answer(answer, version, correlation_id)

    quorum = Quorum()
    async with controllers(quorum, script) as (channel, [port]):
        quorum.leader = (1, "c1", port)
        answer = await channel.request(CreateTopicsRequest(), timeout_ms=60_000)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.TOPIC_ALREADY_EXISTS]


async def test_does_not_wait_for_a_controller_that_hangs(autojump_clock: object) -> None:
    """A new leader is asked at once, long before the old one's time is up; to hear again of the
    same one, or of none, changes nothing.
    """
    quorum = Quorum()
    asked: list[int] = []
    async with controllers(quorum, never_answers, answers(200, asked)) as (channel, [old, new]):
        quorum.leader = (1, "c1", old)
        began = trio.current_time()

        async def elect() -> None:
            for leader in ((1, "c1", old), None, (2, "c2", new)):
                await trio.sleep(0.5)
                assert not asked
                quorum.leader = leader

        async with trio.open_nursery() as nursery:
            nursery.start_soon(elect)
            answer = await channel.request(ASK)
        assert answer.producer_id_start == 200
        assert asked == [67]
        assert trio.current_time() - began < 2


async def test_gives_up_in_time_and_leaves_the_connection_to_others(
    autojump_clock: object,
) -> None:
    """Somebody's short deadline must not cost others their connection, or their answers."""
    quorum = Quorum()
    connections = 0

    async def answers_after_two_seconds(connection: ScriptedConnection) -> None:
        nonlocal connections
        connections += 1
        await connection.negotiate()
        while True:
            _, version, correlation_id = await connection.read_request()
            await trio.sleep(2)
            await connection.answer(AllocateProducerIdsResponse(), version, correlation_id)

    async with controllers(quorum, answers_after_two_seconds) as (channel, [port]):
        quorum.leader = (1, "c1", port)

        async def impatient() -> None:
            with pytest.raises(ControllerUnreachable, match="within 100 ms"):
                await channel.request(ASK, timeout_ms=100)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(impatient)
            await channel.request(ASK, timeout_ms=10_000)
        assert connections == 1


async def test_without_a_controller_time_runs_out(autojump_clock: object) -> None:
    async with channel_to(Quorum()) as (channel, _):
        began = trio.current_time()
        with pytest.raises(ControllerUnreachable):
            await channel.request(ASK, timeout_ms=60_000)
        assert trio.current_time() - began == pytest.approx(60)


async def test_a_controller_that_knows_no_version_is_not_asked_again(
    autojump_clock: object,
) -> None:
    quorum = Quorum()
    async with controllers(quorum, serves_nothing) as (channel, [port]):
        quorum.leader = (1, "c1", port)
        with pytest.raises(UnsupportedVersion):
            await channel.request(ASK, timeout_ms=60_000)
