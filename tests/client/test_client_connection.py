"""The trio connection: pipelining, cancellation, loss and what it shows; mostly in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
import trio
from client.peers import (
    Places,
    Script,
    ScriptedConnection,
    memory_places,
    own_server,
    scripted_server,
)
from trio.testing import MockClock, wait_all_tasks_blocked

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.client.connection import Connection, connect
from kraftpy.client.errors import ConnectionLost, Evidence, UnsupportedVersion
from kraftpy.client.settings import ClientSettings
from kraftpy.protocol.schema.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kraftpy.protocol.schema.k12_heartbeat import HeartbeatRequest
from kraftpy.protocol.schema.k60_describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kraftpy.world import Buffer
from kraftpy.world.memory_network import LinkProfile
from kraftpy.world.real import real_world

SETTINGS = ClientSettings(
    client_id="tests", request_timeout_ms=5_000, socket_connection_setup_timeout_ms=3_000
)
PORT = 9092


@pytest.fixture
async def places() -> AsyncIterator[Places]:
    async with memory_places() as made:
        yield made


async def ask_once(places: Places) -> None:
    async with trio.open_nursery() as nursery:
        try:
            connection = await connect(places.world("us"), nursery, ("node", PORT), SETTINGS)
            await connection.request(MetadataRequest())
        except ConnectionLost as lost:
            # Nurseries would wrap it in a group.
            places.lost = lost


async def lost_by(places: Places, script: Script) -> ConnectionLost:
    """What a request shows when the peer behaves as scripted."""
    async with scripted_server(places.world("node"), "node", script, port=PORT):
        await ask_once(places)
    assert places.lost is not None
    return places.lost


async def stay_silent(peer: ScriptedConnection) -> None:
    await peer.negotiate()
    await trio.sleep_forever()


class HeldDescribe(Handler):
    """DescribeCluster, answered when the test says so."""

    api_key = 60

    def __init__(self) -> None:
        self.contexts: list[RequestContext] = []

    def handle(self, request: DescribeClusterRequest, context: RequestContext) -> None:
        self.contexts.append(context)


async def test_talks_to_our_own_node(places: Places, autojump_clock: MockClock) -> None:
    async with (
        own_server(places.world("node"), "node", PORT) as address,
        trio.open_nursery() as nursery,
    ):
        connection = await connect(places.world("us"), nursery, address, SETTINGS)
        answer = await connection.request(MetadataRequest())
        assert (answer.cluster_id, answer.controller_id) == ("peers-cluster", 5)
        assert connection.core.versions[3] == (0, 13)
        connection.close()
    assert not connection.is_open


async def test_talks_over_real_sockets() -> None:
    world = real_world()
    async with own_server(world, "127.0.0.1") as address, trio.open_nursery() as nursery:
        connection = await connect(world, nursery, address, SETTINGS)
        answer = await connection.request(MetadataRequest())
        assert answer.cluster_id == "peers-cluster"
        connection.close()


async def test_refused_is_evidence(places: Places, autojump_clock: MockClock) -> None:
    """Decision 14."""
    places.world("node")
    async with trio.open_nursery() as nursery:
        with pytest.raises(ConnectionLost) as lost:
            await connect(places.world("us"), nursery, ("node", PORT), SETTINGS)
    assert lost.value.evidence is Evidence.REFUSED


async def test_refused_over_real_sockets() -> None:
    world = real_world()
    listener = await world.network.listen("127.0.0.1", 0)
    address = listener.address
    listener.close()
    async with trio.open_nursery() as nursery:
        with pytest.raises(ConnectionLost) as lost:
            await connect(world, nursery, address, SETTINGS)
    assert lost.value.evidence is Evidence.REFUSED


async def test_unknown_host_is_no_evidence() -> None:
    async with trio.open_nursery() as nursery:
        with pytest.raises(ConnectionLost) as lost:
            await connect(real_world(), nursery, ("no.such.host.invalid", PORT), SETTINGS)
    assert lost.value.evidence is Evidence.UNREACHABLE


async def test_cut_link_is_a_timeout_while_connecting(
    places: Places, autojump_clock: MockClock
) -> None:
    async with own_server(places.world("node"), "node", PORT):
        places.fabric.cut("us", "node")
        started = trio.current_time()
        async with trio.open_nursery() as nursery:
            with pytest.raises(ConnectionLost) as lost:
                await connect(places.world("us"), nursery, ("node", PORT), SETTINGS)
        assert lost.value.evidence is Evidence.TIMED_OUT
        assert trio.current_time() - started == pytest.approx(3, abs=0.01)
        places.fabric.heal("us", "node")


async def test_killed_process_is_evidence(places: Places, autojump_clock: MockClock) -> None:
    async with (
        scripted_server(places.world("node"), "node", stay_silent, port=PORT),
        trio.open_nursery() as nursery,
    ):
        connection = await connect(places.world("us"), nursery, ("node", PORT), SETTINGS)
        places.fabric.kill("node")
        with pytest.raises(ConnectionLost) as lost:
            await connection.request(MetadataRequest())
        assert lost.value.evidence is Evidence.BROKEN


async def test_reset_is_evidence(places: Places, autojump_clock: MockClock) -> None:
    async def reset(peer: ScriptedConnection) -> None:
        await peer.negotiate()
        await peer.read_request()
        peer.stream.reset()

    assert (await lost_by(places, reset)).evidence is Evidence.BROKEN


async def test_close_during_negotiation_is_evidence(
    places: Places, autojump_clock: MockClock
) -> None:
    async def hang_up(peer: ScriptedConnection) -> None:
        await peer.read_request()

    assert (await lost_by(places, hang_up)).evidence is Evidence.BROKEN


async def test_silence_during_negotiation(places: Places, autojump_clock: MockClock) -> None:
    async def be_silent(peer: ScriptedConnection) -> None:
        await peer.read_request()
        await trio.sleep_forever()

    started = trio.current_time()
    assert (await lost_by(places, be_silent)).evidence is Evidence.TIMED_OUT
    assert trio.current_time() - started == pytest.approx(5, abs=0.01)


async def test_silence_fails_all_requests_of_the_connection(
    places: Places, autojump_clock: MockClock
) -> None:
    failures = []

    async with (
        scripted_server(places.world("node"), "node", stay_silent, port=PORT),
        trio.open_nursery() as nursery,
    ):
        connection = await connect(places.world("us"), nursery, ("node", PORT), SETTINGS)

        async def ask(timeout_ms: int) -> None:
            with pytest.raises(ConnectionLost) as lost:
                await connection.request(MetadataRequest(), timeout_ms=timeout_ms)
            failures.append((lost.value.evidence, trio.current_time()))

        async with trio.open_nursery() as callers:
            started = trio.current_time()
            callers.start_soon(ask, 2_000)
            callers.start_soon(ask, 4_000)
        assert [evidence for evidence, _ in failures] == [Evidence.TIMED_OUT] * 2
        assert {round(at - started, 2) for _, at in failures} == {2.0}
        with pytest.raises(ConnectionLost):
            await connection.request(MetadataRequest())


async def test_silence_is_noticed_though_every_caller_gives_up(
    places: Places, autojump_clock: MockClock
) -> None:
    """Callers with shorter patience than the connection must not keep a dead one alive."""
    world = places.world("us")
    async with (
        scripted_server(places.world("node"), "node", stay_silent, port=PORT),
        trio.open_nursery() as nursery,
    ):
        connection = await connect(world, nursery, ("node", PORT), SETTINGS)
        for _ in range(5):
            with trio.move_on_after(1):
                await connection.request(MetadataRequest())
        assert connection.is_open
        started = trio.current_time()
        with pytest.raises(ConnectionLost) as lost:
            await connection.request(MetadataRequest())
        assert lost.value.evidence is Evidence.TIMED_OUT
        assert trio.current_time() == started
        assert connection.core.in_flight_count == 0


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"\0\0\0\x05\0\0\0\x01\xee",
        b"\0\0\0\x05\0\0\0\x63\xee",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
    ids=["huge", "negative", "no Metadata", "wrong id", "HTTP"],
)
async def test_garbage_is_no_evidence(
    places: Places, autojump_clock: MockClock, garbage: bytes
) -> None:
    async def talk_garbage(peer: ScriptedConnection) -> None:
        await peer.negotiate()
        await peer.read_request()
        await peer.send(garbage)
        await trio.sleep_forever()

    lost = await lost_by(places, talk_garbage)
    assert lost.evidence is Evidence.GARBLED


async def test_many_callers_share_the_connection(places: Places, autojump_clock: MockClock) -> None:
    """Requests go out without waiting for each other; each caller gets its own answer."""
    count = 40
    received: list[int] = []

    async def answer_all_at_the_end(peer: ScriptedConnection) -> None:
        await peer.negotiate()
        requests = [await peer.read_request() for _ in range(count)]
        for number, (_, version, correlation_id) in enumerate(requests):
            received.append(correlation_id)
            await peer.answer(MetadataResponse(controller_id=number), version, correlation_id)
        await trio.sleep_forever()

    answers: dict[int, int] = {}

    async with (
        scripted_server(places.world("node"), "node", answer_all_at_the_end, port=PORT),
        trio.open_nursery() as nursery,
    ):
        connection = await connect(places.world("us"), nursery, ("node", PORT), SETTINGS)

        async def ask(number: int) -> None:
            answers[number] = (await connection.request(MetadataRequest())).controller_id

        async with trio.open_nursery() as callers:
            for number in range(count):
                callers.start_soon(ask, number)
        assert sorted(answers.values()) == list(range(count))
        assert received == sorted(received)
        connection.close()


async def test_in_flight_limit(places: Places, autojump_clock: MockClock) -> None:
    """The request one beyond the limit waits until an answer makes room."""
    settings = ClientSettings(max_in_flight_requests_per_connection=2)
    seen = trio.Event()
    go_on = trio.Event()
    third = trio.Event()

    async def answer_later(peer: ScriptedConnection) -> None:
        await peer.negotiate()
        first = await peer.read_request()
        await peer.read_request()
        with trio.move_on_after(1):
            await peer.read_request()
            raise AssertionError("a third request beside two that were not answered")
        seen.set()
        await go_on.wait()
        await peer.answer(MetadataResponse(), first[1], first[2])
        await peer.read_request()
        third.set()
        await trio.sleep_forever()

    async with (
        scripted_server(places.world("node"), "node", answer_later, port=PORT),
        trio.open_nursery() as nursery,
    ):
        connection = await connect(places.world("us"), nursery, ("node", PORT), settings)
        for _ in range(3):
            nursery.start_soon(connection.request, MetadataRequest())
        await seen.wait()
        assert connection.core.in_flight_count == 2
        go_on.set()
        with trio.fail_after(60):
            await third.wait()
        nursery.cancel_scope.cancel()


async def test_cancelled_caller_leaves_the_connection_whole(
    places: Places, autojump_clock: MockClock
) -> None:
    """Its answer is dropped when it comes, and goes to nobody else."""
    handler = HeldDescribe()
    async with (
        own_server(places.world("node"), "node", PORT, [handler]) as address,
        trio.open_nursery() as nursery,
    ):
        connection = await connect(places.world("us"), nursery, address, SETTINGS)
        with trio.move_on_after(1) as scope:
            await connection.request(DescribeClusterRequest())
        assert scope.cancelled_caught
        assert connection.is_open
        handler.contexts[0].respond(DescribeClusterResponse(cluster_id="too late"))
        got = []

        async def ask() -> None:
            got.append((await connection.request(DescribeClusterRequest())).cluster_id)

        async with trio.open_nursery() as callers:
            callers.start_soon(ask)
            await trio.sleep(1)
            handler.contexts[1].respond(DescribeClusterResponse(cluster_id="in time"))
        assert got == ["in time"]
        connection.close()


async def test_cancelled_while_the_peer_takes_no_bytes(
    places: Places, autojump_clock: MockClock
) -> None:
    """A request that is half in the system's buffers is finished by a task of the connection."""
    profile = LinkProfile(send_buffer_bytes=4_000, receive_buffer_bytes=4_000)
    for pair in (("us", "node"), ("node", "us")):
        places.fabric.set_profile(*pair, profile)
    go_on = trio.Event()
    requests: list[int] = []

    async def read_late(peer: ScriptedConnection) -> None:
        await peer.negotiate()
        await go_on.wait()
        for _ in range(2):
            _, version, correlation_id = await peer.read_request()
            requests.append(correlation_id)
            await peer.answer(MetadataResponse(controller_id=9), version, correlation_id)
        await trio.sleep_forever()

    topics = [MetadataRequestTopic(name="t" * 100) for _ in range(500)]
    async with (
        scripted_server(places.world("node"), "node", read_late, port=PORT),
        trio.open_nursery() as nursery,
    ):
        connection = await connect(places.world("us"), nursery, ("node", PORT), SETTINGS)
        with trio.move_on_after(1):
            await connection.request(MetadataRequest(topics=topics))
        go_on.set()
        answer = await connection.request(MetadataRequest())
        assert answer.controller_id == 9
        assert requests == [1, 2]
        connection.close()


async def test_large_answer(places: Places, autojump_clock: MockClock) -> None:
    """Larger than the read-ahead buffer, so received into a buffer of its own."""
    topics = [MetadataResponseTopic(name=f"topic-{number:04}") for number in range(9_000)]

    async def answer_at_length(peer: ScriptedConnection) -> None:
        await peer.negotiate()
        for _ in range(2):
            _, version, correlation_id = await peer.read_request()
            await peer.answer(MetadataResponse(topics=topics), version, correlation_id)
        await trio.sleep_forever()

    async with (
        scripted_server(places.world("node"), "node", answer_at_length, port=PORT),
        trio.open_nursery() as nursery,
    ):
        connection = await connect(places.world("us"), nursery, ("node", PORT), SETTINGS)
        for _ in range(2):
            answer = await connection.request(MetadataRequest())
            assert [topic.name for topic in answer.topics] == [topic.name for topic in topics]
        connection.close()


async def test_unsupported_api_costs_nothing(places: Places, autojump_clock: MockClock) -> None:
    async with (
        own_server(places.world("node"), "node", PORT) as address,
        trio.open_nursery() as nursery,
    ):
        connection = await connect(places.world("us"), nursery, address, SETTINGS)
        with pytest.raises(UnsupportedVersion):
            await connection.request(HeartbeatRequest())
        await connection.request(MetadataRequest())
        connection.close()


async def test_close_fails_pending_requests(places: Places, autojump_clock: MockClock) -> None:
    async with (
        own_server(places.world("node"), "node", PORT, [HeldDescribe()]) as address,
        trio.open_nursery() as nursery,
    ):
        connection = await connect(places.world("us"), nursery, address, SETTINGS)

        async def ask() -> None:
            with pytest.raises(ConnectionLost) as lost:
                await connection.request(DescribeClusterRequest())
            assert lost.value.evidence is Evidence.ENDED_HERE

        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        connection.close()
        connection.close()


async def test_owner_cancelled_closes_the_stream(places: Places, autojump_clock: MockClock) -> None:
    """No stream outlives the nursery it was opened in."""
    closed = trio.Event()

    async def notice_end(peer: ScriptedConnection) -> None:
        await peer.negotiate()
        try:
            await peer.read_request()
        except (EOFError, ConnectionError):
            closed.set()

    async with scripted_server(places.world("node"), "node", notice_end, port=PORT):
        async with trio.open_nursery() as nursery:
            connection = await connect(places.world("us"), nursery, ("node", PORT), SETTINGS)
            nursery.cancel_scope.cancel()
        assert not connection.is_open
        with trio.fail_after(60):
            await closed.wait()


class EndlessStream:
    """A peer that never pauses: there are always more bytes of one huge answer to be had."""

    local_address = ("here", 1)
    remote_address = ("there", 2)

    def __init__(self) -> None:
        self.receive_count = 0
        self.is_closed = False

    def receive_into(self, buffer: memoryview) -> int:
        self.receive_count += 1
        if self.receive_count == 1:
            buffer[:4] = (1 << 27).to_bytes(4, "big")
            return 4
        return min(len(buffer), 100)

    def send(self, parts: Sequence[Buffer], *, more: bool = False) -> int:
        return sum(map(len, parts))

    def close(self) -> None:
        self.is_closed = True


async def test_endless_answer_leaves_the_loop_to_others() -> None:
    """Decision 1: turns are short, however much there is to receive."""
    stream = EndlessStream()
    async with trio.open_nursery() as nursery:
        connection = Connection(stream, real_world().clock, nursery, SETTINGS)  # type: ignore[arg-type]
        nursery.start_soon(connection._negotiate)
        # A reader that never pauses would receive the whole answer, in a million calls.
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        assert 1 < stream.receive_count < 100_000
        nursery.cancel_scope.cancel()
    assert stream.is_closed
