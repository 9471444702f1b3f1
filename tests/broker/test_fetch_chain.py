"""Fetches that follow one another without a task: what a chain takes, and what ends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from client.peers import ScriptedConnection, memory_places, scripted_server

from kraftpy.broker.fetch_chain import FetchChain
from kraftpy.client.connection import Connection, connect
from kraftpy.client.errors import ConnectionLost, Evidence
from kraftpy.client.settings import ClientSettings
from kraftpy.protocol.schema.k01_fetch import FetchRequest, FetchResponse

Take = Callable[[FetchResponse], FetchRequest | None]


def fetch(number: int) -> FetchRequest:
    return FetchRequest(session_id=7, session_epoch=number)


async def echo(connection: ScriptedConnection, count: int) -> None:
    """Answers with the number of the fetch as its session id; then it hangs up."""
    await connection.negotiate()
    for number in range(1, count + 1):
        _, version, correlation_id = await connection.read_request()
        await connection.answer(FetchResponse(session_id=number), version, correlation_id)


async def chained(
    script: Callable[[ScriptedConnection], Any],
    make_take: Callable[[Connection], Take],
    settings: ClientSettings | None = None,
) -> FetchResponse | ConnectionLost:
    """The answer that ended a chain, or what else did."""
    async with memory_places() as places:
        world = places.world("b1")
        async with (
            scripted_server(places.world("b2"), "b2", script, port=9092),
            trio.open_nursery() as nursery,
        ):
            connection = await connect(world, nursery, ("b2", 9092), settings or ClientSettings())
            chain = FetchChain(connection, world.clock, make_take(connection))
            try:
                end: FetchResponse | ConnectionLost = await chain.run(fetch(1))
            except ConnectionLost as error:
                end = error
            nursery.cancel_scope.cancel()
    return end


async def test_each_answer_is_followed_by_the_next_fetch_until_one_is_left(
    autojump_clock: object,
) -> None:
    taken: list[tuple[int, object]] = []

    def make_take(_: Connection) -> Take:
        def take(answer: FetchResponse) -> FetchRequest | None:
            taken.append((answer.session_id, trio.lowlevel.current_task()))
            return fetch(answer.session_id + 1) if answer.session_id < 5 else None

        return take

    last = await chained(lambda connection: echo(connection, 9), make_take)
    assert isinstance(last, FetchResponse)
    assert last.session_id == 5
    assert [number for number, _ in taken] == [1, 2, 3, 4, 5]
    # By who reads the connection, and never by who waits for the chain.
    assert trio.lowlevel.current_task() not in {task for _, task in taken}


async def test_a_connection_that_is_lost_ends_it(autojump_clock: object) -> None:
    """REP-63: with the evidence, also in the middle of a chain."""
    end = await chained(
        lambda connection: echo(connection, 3),
        lambda _: lambda answer: fetch(answer.session_id + 1),
    )
    assert isinstance(end, ConnectionLost)
    assert end.evidence is Evidence.BROKEN


async def test_a_connection_that_is_closed_by_what_an_answer_brings_ends_it(
    autojump_clock: object,
) -> None:
    def make_take(connection: Connection) -> Take:
        def take(answer: FetchResponse) -> FetchRequest | None:
            connection.close()
            return fetch(2)

        return take

    end = await chained(lambda connection: echo(connection, 3), make_take)
    assert isinstance(end, ConnectionLost)
    assert end.evidence is Evidence.ENDED_HERE


async def test_an_answer_that_does_not_come_ends_it_in_time(autojump_clock: object) -> None:
    """The time counts from the last fetch, not from the first."""

    async def slow(connection: ScriptedConnection) -> None:
        await connection.negotiate()
        for number in range(1, 5):
            _, version, correlation_id = await connection.read_request()
            await trio.sleep(0.7)
            await connection.answer(FetchResponse(session_id=number), version, correlation_id)
        await trio.sleep_forever()

    began = trio.current_time()
    end = await chained(
        slow,
        lambda _: lambda answer: fetch(answer.session_id + 1),
        ClientSettings(request_timeout_ms=1_000),
    )
    assert isinstance(end, ConnectionLost)
    assert end.evidence is Evidence.TIMED_OUT
    assert trio.current_time() - began == pytest.approx(4 * 0.7 + 1.0, abs=0.1)


async def test_one_that_was_given_up_takes_nothing_more(autojump_clock: object) -> None:
    taken: list[int] = []

    async def late(connection: ScriptedConnection) -> None:
        await connection.negotiate()
        _, version, correlation_id = await connection.read_request()
        await trio.sleep(2)
        await connection.answer(FetchResponse(session_id=1), version, correlation_id)
        await trio.sleep_forever()

    async with memory_places() as places:
        world = places.world("b1")
        async with (
            scripted_server(places.world("b2"), "b2", late, port=9092),
            trio.open_nursery() as nursery,
        ):
            connection = await connect(world, nursery, ("b2", 9092), ClientSettings())

            def take(answer: FetchResponse) -> FetchRequest | None:
                taken.append(answer.session_id)
                return None

            with trio.move_on_after(1) as scope:
                await FetchChain(connection, world.clock, take).run(fetch(1))
            assert scope.cancelled_caught
            await trio.sleep(3)
            assert connection.is_open
            nursery.cancel_scope.cancel()
    assert not taken
