"""JEP-141: the weather and the accidents of the memory network, beyond the contract it shares."""

from __future__ import annotations

import errno
import functools
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio

from kraftpy.sim.runner import run_simulation
from kraftpy.sim.simulation import Simulation
from kraftpy.world import Stream
from kraftpy.world.memory_link import Link
from kraftpy.world.memory_network import LinkProfile, MemoryFabric
from kraftpy.world.memory_rng import MemoryRng

STILL = LinkProfile(latency_min_seconds=0.01, latency_mean_seconds=0, chunk_min_bytes=65_536)


def simulated(test: Callable[[MemoryFabric], Awaitable[None]]) -> Callable[[], None]:
    """Run the test on a fabric with hosts `a` and `b`, links of 10 ms and no chance."""

    @functools.wraps(test)
    def run() -> None:
        async def main(sim: Simulation) -> None:
            for source, target in (("a", "b"), ("b", "a")):
                sim.fabric.set_profile(source, target, STILL)
            sim.fabric.host("a")
            sim.fabric.host("b")
            await test(sim.fabric)

        run_simulation(main, seed=5, time_limit_seconds=10_000)

    del run.__wrapped__  # type: ignore[attr-defined]  # pytest would look for its argument.
    return run


async def connect(fabric: MemoryFabric) -> tuple[Stream, Stream]:
    """A stream of `a` and its end at `b`."""
    listener = await fabric.host("b").listen(None, 0)
    stream = await fabric.host("a").connect("b", listener.address[1])
    accepted = await listener.accept()
    listener.close()
    return stream, accepted


async def receive(stream: Stream) -> bytes:
    buffer = bytearray(200_000)
    while (received := stream.receive_into(memoryview(buffer))) is None:
        await stream.wait_readable()
    return bytes(buffer[:received])


async def is_silent(stream: Stream, seconds: float) -> bool:
    with trio.move_on_after(seconds) as scope:
        await stream.wait_readable()
    return scope.cancelled_caught


@simulated
async def test_latency_is_kept(fabric: MemoryFabric) -> None:
    stream, accepted = await connect(fabric)
    start = trio.current_time()
    stream.send([b"x"])
    await receive(accepted)
    assert trio.current_time() - start == pytest.approx(0.01)


@simulated
async def test_connecting_takes_a_round_trip_and_the_delay(fabric: MemoryFabric) -> None:
    fabric.set_profile("a", "b", LinkProfile(0.01, 0, connect_delay_seconds=0.5))
    await fabric.host("b").listen(None, 9092)
    start = trio.current_time()
    await fabric.host("a").connect("b", 9092)
    assert trio.current_time() - start == pytest.approx(0.52)


@simulated
async def test_bandwidth_is_shared_by_the_streams_of_a_link(fabric: MemoryFabric) -> None:
    one, one_accepted = await connect(fabric)
    two, two_accepted = await connect(fabric)
    fabric.set_profile("a", "b", LinkProfile(0, 0, bandwidth_bytes_per_second=100_000))
    start = trio.current_time()
    assert one.send([bytes(100_000)]) == 100_000
    assert two.send([bytes(50_000)]) == 50_000
    for accepted, size in ((one_accepted, 100_000), (two_accepted, 50_000)):
        while size:
            size -= len(await receive(accepted))
    assert trio.current_time() - start == pytest.approx(1.5)


def test_latencies_and_pieces_follow_their_distributions() -> None:
    """Minimum plus exponential mean, the tail, and pieces of every size down to one byte."""
    profile = LinkProfile(0.010, 0.030, tail_probability=0.05, tail_factor=100)
    link = Link(profile, MemoryRng(3).stream("link"))
    drawn = sorted(link.latency_seconds() for _ in range(20_000))
    assert drawn[0] >= 0.010
    typical = drawn[: int(len(drawn) * 0.94)]
    assert 0.030 < sum(typical) / len(typical) < 0.042
    assert 0.03 < sum(latency > 1.0 for latency in drawn) / len(drawn) < 0.07
    sizes = [link.chunk_size() for _ in range(20_000)]
    assert min(sizes) == 1
    assert 60_000 < max(sizes) <= 65_536
    # Logarithmically even: a quarter of them in each of four ranges.
    for low, high in ((1, 16), (16, 256), (256, 4_096), (4_096, 65_537)):
        assert 0.22 < sum(low <= size < high for size in sizes) / len(sizes) < 0.28


@simulated
async def test_partial_reads_are_common(fabric: MemoryFabric) -> None:
    """JEP-141: chunking. With the default pieces, many messages of 1 kB come in several."""
    fabric.set_profile("a", "b", LinkProfile())
    stream, accepted = await connect(fabric)
    in_pieces = 0
    for _ in range(200):
        stream.send([bytes(1_000)])
        pieces = 0
        size = 0
        while size < 1_000:
            size += len(await receive(accepted))
            pieces += 1
        in_pieces += pieces > 1
    assert 60 < in_pieces < 190


@simulated
async def test_a_cut_is_one_way_and_bytes_wait_for_its_end(fabric: MemoryFabric) -> None:
    stream, accepted = await connect(fabric)
    fabric.cut("a", "b")
    stream.send([b"late"])
    accepted.send([b"back"])
    assert await receive(stream) == b"back"
    assert await is_silent(accepted, 60)
    fabric.heal("a", "b")
    assert await receive(accepted) == b"late"


@simulated
async def test_bytes_of_an_old_connection_arrive_behind_those_of_a_new_one(
    fabric: MemoryFabric,
) -> None:
    """JEP-141: late delivery, although the client has closed and uses another connection."""
    old, old_accepted = await connect(fabric)
    fabric.cut("a", "b")
    old.send([b"first try"])
    await trio.sleep(30)
    old.close()
    fabric.heal("a", "b")
    new, new_accepted = await connect(fabric)
    new.send([b"second try"])
    heard = []

    async def hear(accepted: Stream) -> None:
        heard.append(await receive(accepted))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hear, old_accepted)
        nursery.start_soon(hear, new_accepted)
    assert heard == [b"second try", b"first try"]
    assert await receive(old_accepted) == b""


@simulated
async def test_a_stall_breaks_the_sender_and_leaves_the_other_end_half_open(
    fabric: MemoryFabric,
) -> None:
    """JEP-141: loss means stall and finally reset; a time-out is no evidence about the peer."""
    stream, accepted = await connect(fabric)
    fabric.cut("a", "b")
    start = trio.current_time()
    stream.send([b"lost"])
    await stream.wait_readable()
    assert trio.current_time() - start == pytest.approx(120.01)
    with pytest.raises(ConnectionError) as caught:
        await receive(stream)
    assert type(caught.value) is ConnectionError
    assert caught.value.errno == errno.ETIMEDOUT
    fabric.heal("a", "b")
    assert await is_silent(accepted, 1_000)
    accepted.send([b"still there?"])
    with pytest.raises(ConnectionResetError):
        await receive(accepted)


@simulated
async def test_lost_acknowledgements_stop_the_sender_although_its_data_arrives(
    fabric: MemoryFabric,
) -> None:
    stream, accepted = await connect(fabric)
    fabric.cut("b", "a")
    stream.send([bytes(100_000)])
    assert len(await receive(accepted)) > 0
    stream.send([bytes(100_000)])
    await trio.sleep(1)
    assert stream.send([b"x"]) == 0
    fabric.heal("b", "a")
    await stream.wait_writable()
    assert stream.send([b"x"]) == 1


@simulated
async def test_lost_acknowledgements_break_the_sender_in_the_end(fabric: MemoryFabric) -> None:
    stream, accepted = await connect(fabric)
    fabric.cut("b", "a")
    stream.send([b"heard"])
    assert await receive(accepted) == b"heard"
    with pytest.raises(ConnectionError):
        await receive(stream)


@simulated
async def test_a_clog_holds_everything_until_its_end(fabric: MemoryFabric) -> None:
    stream, accepted = await connect(fabric)
    fabric.clog("a", "b", 5)
    start = trio.current_time()
    stream.send([b"one"])
    await trio.sleep(1)
    stream.send([b"two"])
    await receive(accepted)
    assert trio.current_time() - start == pytest.approx(5)


@simulated
async def test_resets_by_chance_break_both_ends(fabric: MemoryFabric) -> None:
    stream, accepted = await connect(fabric)
    fabric.set_profile("a", "b", LinkProfile(reset_probability=1.0))
    stream.send([b"x"])
    for end in (accepted, stream):
        with pytest.raises(ConnectionResetError):
            await receive(end)


@simulated
async def test_a_reset_on_a_cut_link_is_lost(fabric: MemoryFabric) -> None:
    """JEP-141: half-open, until the other end sends."""
    stream, accepted = await connect(fabric)
    fabric.cut("a", "b")
    stream.reset()
    fabric.heal("a", "b")
    assert await is_silent(accepted, 600)
    accepted.send([b"x"])
    with pytest.raises(ConnectionResetError):
        await receive(accepted)


@simulated
async def test_a_reset_reaches_a_reader_whose_buffer_is_full(fabric: MemoryFabric) -> None:
    stream, accepted = await connect(fabric)
    for _ in range(10):
        stream.send([bytes(100_000)])
        await trio.sleep(0.1)
    stream.reset()
    await trio.sleep(1)
    with pytest.raises(ConnectionResetError):
        accepted.send([b"x"])
    received = 0
    while part := await receive(accepted):
        received += len(part)
    assert received >= 100_000


@simulated
async def test_connecting_through_a_cut_waits_and_then_times_out(fabric: MemoryFabric) -> None:
    await fabric.host("b").listen(None, 9092)
    fabric.cut("b", "a")
    start = trio.current_time()
    with pytest.raises(ConnectionError) as caught:
        await fabric.host("a").connect("b", 9092)
    assert type(caught.value) is ConnectionError
    assert trio.current_time() - start == pytest.approx(127)
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fabric.host("a").connect, "b", 9092)
        await trio.sleep(5)
        fabric.heal_all()
    assert trio.current_time() - start == pytest.approx(7.1, abs=0.1)


@simulated
async def test_connections_are_refused_by_chance(fabric: MemoryFabric) -> None:
    await fabric.host("b").listen(None, 9092)
    fabric.set_profile("a", "b", LinkProfile(refuse_probability=1.0))
    with pytest.raises(ConnectionRefusedError):
        await fabric.host("a").connect("b", 9092)


@simulated
async def test_a_full_backlog_keeps_others_waiting(fabric: MemoryFabric) -> None:
    listener = await fabric.host("b").listen(None, 9092, backlog=1)
    await fabric.host("a").connect("b", 9092)
    await trio.sleep(0.1)
    with trio.move_on_after(0.5) as waited:
        await fabric.host("a").connect("b", 9092)
    assert waited.cancelled_caught
    await listener.accept()
    await fabric.host("a").connect("b", 9092)


@simulated
async def test_a_loopback_listener_is_for_its_own_host(fabric: MemoryFabric) -> None:
    listener = await fabric.host("b").listen("localhost", 9092)
    with pytest.raises(ConnectionRefusedError):
        await fabric.host("a").connect("b", 9092)
    stream = await fabric.host("b").connect("127.0.0.1", 9092)
    accepted = await listener.accept()
    assert accepted.remote_address == stream.local_address
    assert stream.local_address[0] == "127.0.0.1"


@simulated
async def test_a_vanished_host_tells_nobody(fabric: MemoryFabric) -> None:
    """JEP-141: half-open. No end of data, no refusal; a reset only for who sends to its next
    life.
    """
    silent, _ = await connect(fabric)
    stream, _ = await connect(fabric)
    fabric.vanish("b")
    with trio.move_on_after(20) as unanswered:
        await fabric.host("a").connect("b", 9092)
    assert unanswered.cancelled_caught
    assert await is_silent(stream, 20)
    stream.send([b"x"])
    assert await is_silent(stream, 20)
    fabric.host("b")
    with pytest.raises(ConnectionResetError):
        await receive(stream)
    assert await is_silent(silent, 1_000)


@simulated
async def test_a_reset_answers_an_end_of_data_too(fabric: MemoryFabric) -> None:
    stream, _ = await connect(fabric)
    fabric.vanish("b")
    fabric.host("b")
    stream.finish()
    with pytest.raises(ConnectionResetError):
        await receive(stream)


@simulated
async def test_nobody_repeats_what_a_vanished_host_had_sent(fabric: MemoryFabric) -> None:
    """What is on the wire arrives; what waits behind a cut is gone with the machine."""
    stream, accepted = await connect(fabric)
    stream.send([b"on the wire"])
    fabric.vanish("a")
    assert await receive(accepted) == b"on the wire"
    fabric.host("a")
    stream, accepted = await connect(fabric)
    fabric.cut("a", "b")
    stream.send([b"behind the cut"])
    await trio.sleep(1)
    fabric.vanish("a")
    fabric.heal("a", "b")
    assert await is_silent(accepted, 600)


@simulated
async def test_a_killed_process_is_finished_by_its_kernel(fabric: MemoryFabric) -> None:
    """Decision 14: its peers have evidence at once."""
    stream, _ = await connect(fabric)
    unread, _ = await connect(fabric)
    listener = await fabric.host("b").listen(None, 9092)
    waiting = await fabric.host("a").connect("b", 9092)
    unread.send([b"x"])
    await trio.sleep(1)
    fabric.kill("b")
    assert await receive(stream) == b""
    for end in (unread, waiting):
        with pytest.raises(ConnectionResetError):
            await receive(end)
    with pytest.raises(ConnectionRefusedError):
        await fabric.host("a").connect("b", 9092)
    listener.close()
    await fabric.host("b").listen(None, 9092)


@pytest.mark.parametrize("end", ["kill", "vanish"])
def test_a_ghost_has_no_effect_and_is_not_woken(end: str) -> None:
    """What is left of a dead process may run its clean-up; nobody notices."""

    @simulated
    async def test(fabric: MemoryFabric) -> None:
        stream, accepted = await connect(fabric)
        ghost = fabric.host("b")
        listener = await ghost.listen(None, 9092)
        woken = []

        async def wait(waiting: Callable[[], Awaitable[object]]) -> None:
            with suppress(trio.ClosedResourceError):
                await waiting()
            woken.append(waiting)

        async with trio.open_nursery() as nursery:
            for waiting in (accepted.wait_readable, listener.accept):
                nursery.start_soon(wait, waiting)
            await trio.sleep(1)
            getattr(fabric, end)("b")
            fabric.host("b")
            nursery.start_soon(wait, functools.partial(ghost.connect, "a", 1))
            nursery.start_soon(wait, functools.partial(ghost.listen, None, 9093))
            assert accepted.send([b"boo"]) == 3
            assert accepted.receive_into(memoryview(bytearray(1))) is None
            accepted.finish()
            await trio.sleep(10)
            assert woken == []
            accepted.close()
            listener.close()
            nursery.cancel_scope.cancel()
        if end == "vanish":
            assert await is_silent(stream, 10)
        else:
            assert await receive(stream) == b""

    test()


@simulated
async def test_a_paused_host_gets_everything_at_once_later(fabric: MemoryFabric) -> None:
    """Section 7.3, with what its still running tasks send held back as well."""
    stream, accepted = await connect(fabric)
    listener = await fabric.host("b").listen(None, 9092)
    fabric.pause("b")
    accepted.send([b"while paused"])
    for _ in range(3):
        stream.send([b"x"])
        await trio.sleep(1)
    with trio.move_on_after(5) as accepting:
        await listener.accept()
    assert accepting.cancelled_caught
    assert await is_silent(accepted, 5)
    assert await is_silent(stream, 5)
    connected = await fabric.host("a").connect("b", 9092)
    await trio.sleep(1)
    resumed = trio.current_time()
    fabric.resume("b")
    assert await receive(accepted) == b"xxx"
    assert (await listener.accept()).remote_address == connected.local_address
    assert trio.current_time() == resumed
    assert await receive(stream) == b"while paused"


@simulated
async def test_a_pause_may_end_in_death(fabric: MemoryFabric) -> None:
    stream, accepted = await connect(fabric)
    fabric.pause("b")
    stream.send([b"x"])
    accepted.send([b"never sent"])
    await trio.sleep(1)
    fabric.kill("b")
    with pytest.raises(ConnectionResetError):
        await receive(stream)


@simulated
async def test_what_a_process_would_have_sent_after_its_pause_dies_with_it(
    fabric: MemoryFabric,
) -> None:
    stream, accepted = await connect(fabric)
    fabric.pause("b")
    accepted.send([b"never sent"])
    fabric.kill("b")
    assert await receive(stream) == b""


def test_the_observer_sees_every_delivery() -> None:
    seen: list[tuple[str, str, bytes]] = []

    async def main() -> None:
        fabric = MemoryFabric(
            MemoryRng(1), profile=STILL, observer=lambda *event: seen.append(event)
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fabric.run)
            fabric.host("a")
            stream, accepted = await connect(fabric)
            stream.send([b"hello"])
            await receive(accepted)
            stream.close()
            await receive(accepted)
            accepted.close()
            await trio.sleep(1)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    out, back = "10.0.0.1:32768>10.0.0.2:32768", "10.0.0.2:32768>10.0.0.1:32768"
    assert seen == [
        ("open", out, b""),
        ("data", out, b"hello"),
        ("finish", out, b""),
        ("finish", back, b""),
    ]
