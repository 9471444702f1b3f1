"""What the network does by the clock, in virtual time: idling, throttling, rates, pauses."""

from __future__ import annotations

import errno
import itertools
import logging

import pytest
import trio
import trio.testing
from netkit import Recorder, Running, WordService, eventually, memory_surrounding, serving

from kraftpy.net import server
from kraftpy.net.limits import NetworkLimits
from kraftpy.net.mute import MuteState
from kraftpy.observe.metrics import Gauge, Meter, MetricName
from kraftpy.world import Listener, SocketOptions, Stream
from kraftpy.world.memory_network import MemoryNetwork

pytestmark = pytest.mark.usefixtures("autojump_clock")


async def elapsed_until_closed(running: Running, count: int) -> float:
    start = trio.current_time()
    while len(running.server.connections) > count:  # noqa: ASYNC110 (virtual time)
        await trio.sleep(0.1)
    return trio.current_time() - start


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """NET-27"""
    limits = NetworkLimits(connection_max_idle_ms=10_000)
    async with (
        memory_surrounding() as surrounding,
        serving(surrounding, WordService(), limits=limits) as running,
    ):
        idle, busy = await running.connect(), await running.connect()
        assert await idle.ask(b"word") == b"word"
        start = trio.current_time()
        for _ in range(9):
            await trio.sleep(1)
            assert await busy.ask(b"word") == b"word"
        assert len(running.server.connections) == 2
        assert await idle.rest() == b""
        assert trio.current_time() - start == pytest.approx(10, abs=0.1)
        for _ in range(20):
            assert await busy.ask(b"word") == b"word"
            await trio.sleep(5)
        assert await busy.rest() == b""


async def test_waiting_for_a_slow_answer_is_no_activity(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """NET-27, NET-42: the answer to the closed connection is dropped, and recorded."""
    recorder = Recorder()
    service = WordService(recorder)
    limits = NetworkLimits(connection_max_idle_ms=10_000)
    async with (
        memory_surrounding() as surrounding,
        serving(surrounding, service, limits=limits) as running,
    ):
        client = await running.connect()
        await client.send(b"hold")
        assert await client.rest() == b""
        assert trio.current_time() == pytest.approx(10, abs=0.1)
        assert recorder.recorded == []
        service.release()
        assert len(recorder.recorded) == 1


async def test_idling_can_be_switched_off_and_on(autojump_clock: trio.testing.MockClock) -> None:
    """NET-25 for connections.max.idle.ms"""
    limits = NetworkLimits(connection_max_idle_ms=-1)
    async with (
        memory_surrounding() as surrounding,
        serving(surrounding, WordService(), limits=limits) as running,
    ):
        client = await running.connect()
        assert await client.ask(b"word") == b"word"
        await trio.sleep(80_000)
        assert len(running.server.connections) == 1
        running.server.change_limits(NetworkLimits(connection_max_idle_ms=80_100_000))
        assert await elapsed_until_closed(running, 0) == pytest.approx(100, abs=1)


async def test_a_throttled_connection_is_served_when_its_time_is_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """NET-44: the answer leaves at once, the next frame waits; also one that comes later."""
    service = WordService()
    async with memory_surrounding() as surrounding, serving(surrounding, service) as running:
        client = await running.connect()
        start = trio.current_time()
        await client.send(b"throttle 5000", b"next")
        assert await client.read() == b"throttle 5000"
        assert trio.current_time() - start < 0.1
        (connection,) = running.server.connections
        assert connection.mute_state is MuteState.MUTED_AND_THROTTLED
        assert await client.read() == b"next"
        assert trio.current_time() - start == pytest.approx(5, abs=0.1)
        assert connection.mute_state is MuteState.NOT_MUTED
        assert await client.ask(b"throttle 5000") == b"throttle 5000"
        await trio.sleep(2)
        start = trio.current_time()
        assert await client.ask(b"next") == b"next"
        assert trio.current_time() - start == pytest.approx(3, abs=0.1)
        assert await client.ask(b"throttle 5000") == b"throttle 5000"
        await trio.sleep(100)
        start = trio.current_time()
        assert await client.ask(b"next") == b"next"
        assert trio.current_time() - start < 0.1


async def test_a_throttle_that_ends_before_its_answer_has_left(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """NET-44, the other order: the peer takes the answer late."""
    service = WordService()
    async with memory_surrounding() as surrounding, serving(surrounding, service) as running:
        client = await running.connect()
        await client.send(b"hold", b"next")
        await eventually(lambda: service.held)
        _, answer = service.held.pop()
        answer.throttle(5000)
        answer.send(((400_000).to_bytes(4, "big") + bytes(400_000),))
        await trio.sleep(20)
        assert service.served == [b"hold"]
        (connection,) = running.server.connections
        assert connection.mute_state is MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING
        assert len(await client.read()) == 400_000
        start = trio.current_time()
        assert await client.read() == b"next"
        assert trio.current_time() - start < 0.1
        assert connection.mute_state is MuteState.NOT_MUTED


async def test_throttles_of_a_window_end_with_the_latest(
    autojump_clock: trio.testing.MockClock,
) -> None:
    service = WordService()
    async with memory_surrounding() as surrounding, serving(surrounding, service) as running:
        client = await running.connect()
        await client.send(b"ahead 1", b"ahead 2", b"next")
        await eventually(lambda: len(service.held) == 2)
        for milliseconds in (9000, 4000):
            service.held[0][1].throttle(milliseconds)
            service.release()
        start = trio.current_time()
        assert [await client.read() for _ in range(2)] == [b"ahead 1", b"ahead 2"]
        assert trio.current_time() - start < 0.1
        assert await client.read() == b"next"
        assert trio.current_time() - start == pytest.approx(9, abs=0.1)


async def test_a_throttled_peer_that_goes_is_noticed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """NET-37"""
    async with memory_surrounding() as surrounding, serving(surrounding, WordService()) as running:
        for behind in ((), (b"next",)):
            client = await running.connect()
            await client.send(b"throttle 100000", *behind)
            assert await client.read() == b"throttle 100000"
            client.close()
            assert await elapsed_until_closed(running, 0) < 1


async def test_new_connections_come_at_their_rate(autojump_clock: trio.testing.MockClock) -> None:
    """max.connection.creation.rate; NET-25: a change wakes who waits."""
    limits = NetworkLimits(max_connection_creation_rate=2)
    async with (
        memory_surrounding() as surrounding,
        serving(surrounding, WordService(), limits=limits) as running,
    ):
        moments = []
        for _ in range(6):
            assert await (await running.connect()).ask(b"word") == b"word"
            moments.append(trio.current_time())
        assert moments[1] - moments[0] < 0.1
        for earlier, later in itertools.pairwise(moments[1:]):
            assert later - earlier == pytest.approx(0.5, abs=0.05)
        running.server.change_limits(NetworkLimits(max_connection_creation_rate=0))
        client = await running.connect()
        await client.send(b"patient")
        await trio.sleep(100)
        assert len(running.server.connections) == 6
        running.server.change_limits(NetworkLimits(max_connection_creation_rate=1))
        start = trio.current_time()
        assert await client.read() == b"patient"
        assert trio.current_time() - start < 1.1


async def test_an_address_that_connects_too_quickly(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """connection_creation_rate (KIP-612): one a second are ten at once. Those beyond are held
    before they are closed, and closed at once if too many are.
    """
    monkeypatch.setattr(server, "_MAX_HELD", 1)
    async with (
        memory_surrounding() as surrounding,
        serving(surrounding, WordService()) as running,
    ):
        running.server.change_address_rate(None, 1)
        for _ in range(10):
            assert await (await running.connect()).ask(b"word") == b"word"
        held, beyond = await running.connect(), await running.connect()
        start = trio.current_time()
        assert await beyond.rest() == b""
        assert trio.current_time() - start < 0.1
        assert await held.rest() == b""
        assert trio.current_time() - start == pytest.approx(1, abs=0.05)
        assert len(running.server.connections) == 10
        await trio.sleep(11)
        assert await (await running.connect()).ask(b"word") == b"word"
        [rate] = [
            metric
            for name, metric in running.registry
            if name.name == "connection-accept-rate" and isinstance(metric, Gauge)
        ]
        assert rate.read() == pytest.approx(0.1, abs=0.01)
        running.server.change_address_rate(None, None)
        for _ in range(10):
            assert await (await running.connect()).ask(b"word") == b"word"


async def test_an_acceptor_that_waits_shows(autojump_clock: trio.testing.MockClock) -> None:
    """NET-18"""
    limits = NetworkLimits(max_connections=1)
    async with (
        memory_surrounding() as surrounding,
        serving(surrounding, WordService(), limits=limits) as running,
    ):
        meter = running.registry.get(
            MetricName(
                "kafka.network",
                "Acceptor",
                "AcceptorBlockedPercent",
                (("listener", "PLAINTEXT"),),
            )
        )
        assert isinstance(meter, Meter)
        first = await running.connect()
        assert await first.ask(b"word") == b"word"
        assert meter.count == 0
        second = await running.connect()
        await second.send(b"patient")
        await trio.sleep(30)
        first.close()
        assert await second.read() == b"patient"
        assert meter.count == pytest.approx(30, abs=0.1)


class FailingListener:
    def __init__(self, listener: Listener, failures: list[int]) -> None:
        self._listener = listener
        self._failures = failures
        self.address = listener.address

    async def accept(self) -> Stream:
        if self._failures:
            await trio.lowlevel.checkpoint()
            raise OSError(self._failures.pop(), "accept went wrong")
        return await self._listener.accept()

    def close(self) -> None:
        self._listener.close()


class FailingNetwork:
    def __init__(self, network: MemoryNetwork, failures: list[int]) -> None:
        self._network = network
        self._failures = failures

    async def listen(
        self, host: str | None, port: int, *, backlog: int, options: SocketOptions
    ) -> Listener:
        listener = await self._network.listen(host, port, backlog=backlog, options=options)
        return FailingListener(listener, self._failures)


async def test_an_accept_that_fails_is_logged_and_accepting_goes_on(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """NET-16: with one line for failures in a row."""
    caplog.set_level(logging.INFO)
    failures = [errno.EMFILE] * 3
    async with memory_surrounding() as surrounding:
        surrounding.server_network = FailingNetwork(  # type: ignore[assignment]
            surrounding.server_network,  # type: ignore[arg-type]
            failures,
        )
        async with serving(surrounding, WordService()) as running:
            assert await (await running.connect()).ask(b"word") == b"word"
            assert await (await running.connect()).ask(b"word") == b"word"
    assert failures == []
    assert caplog.text.count("accept went wrong") == 1
    assert caplog.text.count("accepts again") == 1


class NetworkSteps(trio.abc.Instrument):
    """How often the network's tasks run."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += "net-" in task.name or "drain" in task.name


@pytest.mark.parametrize(
    "state",
    ["idle", "muted", "throttled", "blocked", "blocked, throttle over", "ending", "memory", "full"],
)
async def test_nobody_polls(autojump_clock: trio.testing.MockClock, state: str) -> None:
    """Whatever a connection waits for, it does so without waking up in between."""
    service = WordService()
    limits = NetworkLimits(
        queued_request_max_bytes=200_000, request_max_bytes=200_000, connection_max_idle_ms=-1
    )
    large = (100_000).to_bytes(4, "big") + bytes(60_000)
    async with (
        memory_surrounding() as surrounding,
        serving(surrounding, service, limits=limits) as running,
    ):
        client = await running.connect()
        await client.send(b"hold", *([] if state == "idle" else [b"next"]))
        await eventually(lambda: service.held)
        _, answer = service.held.pop()
        if state == "full":
            with trio.move_on_after(1):
                await client.send(*[b"next" * 100] * 5_000)
        if "throttle" in state:
            answer.throttle(10_000 if "over" in state else 10_000_000)
        if "blocked" in state or state == "ending":
            answer.send((bytes(1_000_000),))
        elif state not in ("muted", "full"):
            answer.send((bytes(10),))
        if state == "ending":
            running.nursery.start_soon(running.server.stop, 10_000)
        if state == "memory":
            for each in [await running.connect() for _ in range(4)]:
                await each.send_bytes(large)
        await trio.sleep(100)
        steps = NetworkSteps()
        trio.lowlevel.add_instrument(steps)
        await trio.sleep(1000)
        trio.lowlevel.remove_instrument(steps)
        assert steps.count <= 2
