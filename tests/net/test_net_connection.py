"""Connections, in both worlds: order, mute, run-ahead, and what becomes of bad ones."""

from __future__ import annotations

import logging
import struct

import pytest
import trio
from netkit import (
    Recorder,
    Surrounding,
    WordService,
    eventually,
    framed,
    memory_surrounding,
    serving,
    settle,
)

from kraftpy.net.limits import NetworkLimits
from kraftpy.net.mute import MuteState
from kraftpy.world import InternalInvariant
from kraftpy.world.memory_network import LinkProfile


async def test_a_frame_byte_by_byte_and_many_in_one_segment(surrounding: Surrounding) -> None:
    """NET-28"""
    async with serving(surrounding, WordService()) as running:
        client = await running.connect()
        for byte in framed(b"slowly"):
            await client.send_bytes(bytes([byte]))
            await trio.sleep(0.0005)
        assert await client.read() == b"slowly"
        payloads = [b"word %d" % number for number in range(500)]
        await client.send(*payloads)
        assert [await client.read() for _ in payloads] == payloads


async def test_large_frames_and_large_answers(surrounding: Surrounding) -> None:
    """More than any buffer holds, both ways at once, small ones between."""
    async with serving(surrounding, WordService()) as running:
        client = await running.connect()
        payloads = [b"large " + bytes([number]) * 700_000 for number in range(3)] + [b"small"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, *payloads)
            assert [await client.read() for _ in payloads] == payloads


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
async def test_an_impossible_frame_size_closes_the_connection(
    surrounding: Surrounding, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    """NET-29: one beyond the limit too; another connection is not concerned."""
    limits = NetworkLimits(request_max_bytes=1000)
    async with serving(surrounding, WordService(), limits=limits) as running:
        good, bad = await running.connect(), await running.connect()
        assert await good.ask(b"x" * 1000) == b"x" * 1000
        await bad.send_bytes(struct.pack(">i", size) + b"abc")
        assert await bad.rest() == b""
        assert await good.ask(b"still here") == b"still here"
    assert f"frame size {size}" in caplog.text


async def test_a_finish_in_the_middle_of_a_frame_is_no_noise(
    surrounding: Surrounding, caplog: pytest.LogCaptureFixture
) -> None:
    """NET-30"""
    caplog.set_level(logging.INFO, "kraftpy.net.connection")
    async with serving(surrounding, WordService()) as running:
        client = await running.connect()
        await client.ask(b"hello")
        await client.send_bytes(framed(b"never whole")[:9])
        client.close()
        await eventually(lambda: not running.server.connections)
        assert running.server.quotas.total == 0
    assert not [record for record in caplog.records if record.name == "kraftpy.net.connection"]


async def test_a_bad_request_closes_its_connection_with_one_line(
    surrounding: Surrounding, caplog: pytest.LogCaptureFixture
) -> None:
    """NET-31: answers to the good ones before it still leave; nobody else notices."""
    async with serving(surrounding, WordService()) as running:
        good, bad = await running.connect(), await running.connect()
        await bad.send(b"good", b"bad", b"never served")
        assert await bad.rest() == framed(b"good")
        assert await good.ask(b"still here") == b"still here"
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    for fact in ("api_key=77", "version=1", "listener=PLAINTEXT", "principal=User:ANONYMOUS"):
        assert fact in line
    assert f"connection={running.address()[0]}:{running.address()[1]}-" in line


async def test_a_fault_in_the_service_closes_with_its_stack(
    surrounding: Surrounding, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(surrounding, WordService()) as running:
        good, bad = await running.connect(), await running.connect()
        await bad.send(b"boom", b"never served")
        assert await bad.rest() == b""
        assert await good.ask(b"still here") == b"still here"
    assert "RuntimeError: a handler failed" in caplog.text


async def test_a_broken_invariant_stops_the_server(surrounding: Surrounding) -> None:
    """NET-53, JEP-137: rather stop than go on wrong."""
    with pytest.RaisesGroup(InternalInvariant, flatten_subgroups=True):
        async with serving(surrounding, WordService()) as running:
            client = await running.connect()
            await client.send(b"broken")
            await trio.sleep_forever()


async def test_answers_leave_in_request_order_however_they_are_finished(
    surrounding: Surrounding,
) -> None:
    """NET-36"""
    service = WordService()
    async with serving(surrounding, service) as running:
        client = await running.connect()
        payloads = [b"ahead %d" % number for number in range(5)]
        await client.send(*payloads)
        await eventually(lambda: len(service.held) == 5)
        for index in (4, 2, 2, 1):
            service.release(index)
        await settle()
        assert service.sent == []
        service.release()
        assert [await client.read() for _ in payloads] == payloads
        assert service.sent == payloads


async def test_while_an_answer_is_pending_nothing_more_is_served(surrounding: Surrounding) -> None:
    """NET-37: a completion from another task wakes the muted reader."""
    service = WordService()
    async with serving(surrounding, service) as running:
        client = await running.connect()
        await client.send(b"hold 1", b"word", b"hold 2", b"last")
        await eventually(lambda: service.held)
        await settle()
        assert service.served == [b"hold 1"]
        (connection,) = running.server.connections
        assert connection.mute_state is MuteState.MUTED_AND_RESPONSE_PENDING
        service.release()
        # The completer served nothing itself.
        assert service.served == [b"hold 1"]
        await eventually(lambda: service.held)
        assert service.served == [b"hold 1", b"word", b"hold 2"]
        service.release()
        assert [await client.read() for _ in range(4)] == [b"hold 1", b"word", b"hold 2", b"last"]
        assert connection.mute_state is MuteState.NOT_MUTED


async def test_the_run_ahead_window_is_sixteen_frames(surrounding: Surrounding) -> None:
    """NET-37: and one that leaves makes room for one."""
    service = WordService()
    async with serving(surrounding, service) as running:
        client = await running.connect()
        await client.send(*[b"ahead %d" % number for number in range(20)])
        await eventually(lambda: len(service.held) == 16)
        await settle()
        assert len(service.held) == 16
        service.release(5)
        await settle()
        # It stands behind others, so it has not left and takes its place still.
        assert len(service.held) == 15
        service.release(0)
        await eventually(lambda: len(service.held) == 15)
        await settle()
        assert len(service.served) == 17
        assert await client.read() == b"ahead 0"


async def test_a_service_may_keep_the_order(surrounding: Surrounding) -> None:
    """One that might run ahead turns out to have to wait itself: those behind it wait as well."""
    service = WordService()
    async with serving(surrounding, service) as running:
        client = await running.connect()
        await client.send(b"ahead 1", b"ahead in order", b"ahead 2", b"ahead 3")
        await eventually(lambda: len(service.held) == 2)
        await settle()
        assert len(service.held) == 2
        service.release(0)
        await settle()
        assert service.served == [b"ahead 1", b"ahead in order"]
        service.release(0)
        await eventually(lambda: len(service.held) == 2)
        assert service.served[2:] == [b"ahead 2", b"ahead 3"]


async def test_the_run_ahead_window_is_bounded_in_bytes(surrounding: Surrounding) -> None:
    """NET-37: together no more than socket.request.max.bytes, and one beyond waits."""
    service = WordService()
    limits = NetworkLimits(request_max_bytes=1000)
    async with serving(surrounding, service, limits=limits) as running:
        client = await running.connect()
        await client.send(b"ahead " + b"a" * 494, b"ahead " + b"b" * 494, b"ahead")
        await eventually(lambda: len(service.held) == 2)
        await settle()
        assert len(service.held) == 2
        service.release()
        await eventually(lambda: len(service.served) == 3)


async def test_a_large_frame_may_run_ahead_too(surrounding: Surrounding) -> None:
    service = WordService()
    async with serving(surrounding, service) as running:
        client = await running.connect()
        large = b"ahead " + b"L" * 300_000
        await client.send(b"ahead", large, large)
        await eventually(lambda: len(service.held) == 3)
        for _ in range(3):
            service.release()
        assert [await client.read() for _ in range(3)] == [b"ahead", large, large]


@pytest.mark.parametrize("words", [(b"hold", b"ahead"), (b"ahead", b"hold"), (b"ahead", b"word")])
async def test_only_ahead_behind_ahead_runs_ahead(
    surrounding: Surrounding, words: tuple[bytes, bytes]
) -> None:
    """NET-37: Produce behind a pending Produce; not Produce behind Fetch, nor Fetch behind it."""
    service = WordService()
    async with serving(surrounding, service) as running:
        client = await running.connect()
        await client.send(*words)
        await eventually(lambda: service.held)
        await settle()
        assert service.served == [words[0]]
        service.release()
        await eventually(lambda: len(service.served) == 2)
        while service.held:
            service.release()
        # What kept the order is over; the window is open again.
        await client.send(b"ahead", b"ahead")
        await eventually(lambda: len(service.held) == 2)


async def test_a_muted_connection_notices_that_its_peer_is_gone(surrounding: Surrounding) -> None:
    """NET-37: with frames in hand and without; the late answer is dropped quietly (NET-42)."""
    recorder = Recorder()
    service = WordService(recorder)
    async with serving(surrounding, service) as running:
        for behind in ((), (b"word",)):
            client = await running.connect()
            await client.send(b"hold", *behind)
            await eventually(lambda: service.held)
            client.stream.reset()
            await eventually(lambda: not running.server.connections)
            service.release()
        assert service.sent == []
        assert len(recorder.recorded) == 2


async def test_a_muted_connection_receives_only_so_much(surrounding: Surrounding) -> None:
    """NET-37: one read-ahead buffer, however much the peer sends; then it is served all."""
    service = WordService()
    async with serving(surrounding, service) as running:
        client = await running.connect()
        payloads = [b"word " + b"x" * 1000 for _ in range(2_000)]
        await client.send(b"hold")
        await eventually(lambda: service.held)
        (connection,) = running.server.connections
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, *payloads)
            await eventually(lambda: connection.held_bytes > 0)
            await settle()
            assert connection.held_bytes <= 65536
            service.release()
            assert await client.read() == b"hold"
            assert [await client.read() for _ in payloads] == payloads


async def test_a_muted_connection_does_not_begin_a_large_frame(surrounding: Surrounding) -> None:
    service = WordService()
    async with serving(surrounding, service) as running:
        client = await running.connect()
        await client.send(b"hold")
        await eventually(lambda: service.held)
        (connection,) = running.server.connections
        large = b"word" + b"L" * 1_000_000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, large)
            await eventually(lambda: connection.held_bytes > 0)
            await settle()
            assert connection.held_bytes <= 65536
            service.release()
            assert [await client.read(), await client.read()] == [b"hold", large]


async def test_slow_requests_do_not_delay_other_connections(surrounding: Surrounding) -> None:
    """NET-38, NET-49: a hundred pending ones hold nothing that another needs."""
    service = WordService()
    async with serving(surrounding, service) as running:
        slow = [await running.connect() for _ in range(100)]
        for client in slow:
            await client.send(b"hold")
        await eventually(lambda: len(service.held) == 100)
        quick = await running.connect()
        assert await quick.ask(b"word") == b"word"
        while service.held:
            service.release()
        for client in slow:
            assert await client.read() == b"hold"


async def test_no_answer_writes_nothing_and_the_next_request_is_served(
    surrounding: Surrounding,
) -> None:
    """NET-39"""
    async with serving(surrounding, WordService()) as running:
        client = await running.connect()
        await client.send(b"nothing", b"nothing", b"word")
        assert await client.read() == b"word"


async def test_disconnect_closes_without_writing(surrounding: Surrounding) -> None:
    """NET-40: earlier answers leave before, later requests get none."""
    service = WordService()
    async with serving(surrounding, service) as running:
        client = await running.connect()
        await client.send(b"close")
        assert await client.rest() == b""
        client = await running.connect()
        await client.send(b"ahead 1", b"ahead 2", b"ahead 3")
        await eventually(lambda: len(service.held) == 3)
        service.held.pop(1)[1].disconnect()
        await client.send(b"ahead 4")
        await settle()
        assert service.served[-1] == b"ahead 3"
        service.release()
        assert await client.rest() == framed(b"ahead 1")
        assert service.served[-1] == b"ahead 3"
        service.release()
        assert service.sent == [b"ahead 1"]


async def test_on_sent_runs_once_after_the_last_byte(surrounding: Surrounding) -> None:
    """NET-41"""
    service = WordService()
    async with serving(surrounding, service) as running:
        client = await running.connect()
        await client.send(b"hold", b"word")
        await eventually(lambda: service.held)
        assert service.sent == []
        service.release()
        assert [await client.read(), await client.read()] == [b"hold", b"word"]
        assert service.sent == [b"hold", b"word"]


async def test_on_sent_does_not_run_if_the_peer_went_first(surrounding: Surrounding) -> None:
    """NET-41: amid an answer too large to be handed over at once."""
    recorder = Recorder()
    service = WordService(recorder)
    async with serving(surrounding, service) as running:
        client = await running.connect()
        await client.send(b"hold")
        await eventually(lambda: service.held)
        _, answer = service.held.pop()
        answer.send((bytes(50_000_000),), lambda: service.sent.append(b"large"))
        await settle()
        client.stream.reset()
        await eventually(lambda: not running.server.connections)
        assert service.sent == []
        assert len(recorder.recorded) == 1


async def test_completing_towards_a_closed_peer_never_raises(surrounding: Surrounding) -> None:
    """A handler of one connection completes another's answer: what that peer did is not its
    concern, whether the server has noticed yet or not.
    """
    service = WordService()
    async with serving(surrounding, service) as running:
        for _ in range(20):
            gone = await running.connect()
            await gone.send(b"ahead", b"ahead")
            await eventually(lambda: len(service.held) == 2)
            gone.stream.reset()
            service.release()
            service.release()
        await eventually(lambda: not running.server.connections)


async def test_an_answer_is_finished_once(surrounding: Surrounding) -> None:
    service = WordService()
    async with serving(surrounding, service) as running:
        client = await running.connect()
        await client.send(b"hold")
        await eventually(lambda: service.held)
        _, answer = service.held[0]
        service.release()
        with pytest.raises(InternalInvariant, match="finished-twice"):
            answer.nothing()
        with pytest.raises(InternalInvariant, match="after-finishing"):
            answer.throttle(1)
        assert await client.read() == b"hold"


async def test_on_sent_may_finish_the_next_answer(surrounding: Surrounding) -> None:
    service = WordService()
    async with serving(surrounding, service) as running:
        client = await running.connect()
        await client.send(b"ahead 1", b"ahead 2")
        await eventually(lambda: len(service.held) == 2)
        (_, first), second = service.held.pop(0), service.held.pop(0)
        first.send((framed(b"1"),), lambda: service.answer(*second))
        assert [await client.read(), await client.read()] == [b"1", b"ahead 2"]


async def test_a_peer_that_finished_sending_gets_its_answers(surrounding: Surrounding) -> None:
    """Frames that may be served are served, and what is finished leaves, before we close."""
    async with serving(surrounding, WordService()) as running:
        client = await running.connect()
        large = b"word" + b"L" * 1_000_000
        await client.send(b"nothing", b"word")
        await client.send(large)
        client.stream.finish()
        assert await client.rest() == framed(b"word") + framed(large)


@pytest.mark.parametrize("word", [b"big", b"word " + b"?" * 50_000])
async def test_a_peer_that_does_not_read_is_served_no_more(
    surrounding: Surrounding, word: bytes
) -> None:
    """One slow reader does not grow the process: what is held is a turn's answers."""
    service = WordService()
    async with serving(surrounding, service) as running:
        client, other = await running.connect(), await running.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, *[word] * 400)
            await eventually(lambda: service.served)
            served = 0
            while served < len(service.served):
                served = len(service.served)
                await trio.sleep(0.1)
            # 256 KB of answers end a turn's collecting.
            unsent = len(service.served) - len(service.sent)
            assert 0 < unsent <= 7
            assert await other.ask(b"word") == b"word"
            (slow,) = [each for each in running.server.connections if each.outstanding_count]
            assert slow.outstanding_count == unsent
            assert slow.held_bytes <= 65536
            nursery.cancel_scope.cancel()


async def test_a_waiting_connection_holds_no_buffer(surrounding: Surrounding) -> None:
    """Idle, amid a small frame, or muted with a small one in hand."""
    service = WordService()
    async with serving(surrounding, service) as running:
        client = await running.connect()
        assert await client.ask(b"word") == b"word"
        (connection,) = running.server.connections
        await eventually(lambda: connection.held_bytes == 0)
        await client.send_bytes(framed(b"hold")[:6])
        await settle()
        assert connection.held_bytes == 6
        await client.send_bytes(framed(b"hold")[6:] + framed(b"word"))
        await eventually(lambda: service.held)
        await settle()
        assert connection.held_bytes == 8
        service.release()
        assert [await client.read(), await client.read()] == [b"hold", b"word"]


async def test_what_on_sent_finishes_is_not_sent_twice() -> None:
    """A write that ends amid the second answer, while the first one's callback finishes a third."""
    service = WordService()
    async with memory_surrounding() as surrounding:
        assert surrounding.fabric is not None
        profile = LinkProfile(chunk_max_bytes=3, send_buffer_bytes=3, receive_buffer_bytes=3)
        surrounding.fabric.set_profile("server", "server", profile)
        async with serving(surrounding, service) as running:
            client = await running.connect()
            await client.send(b"ahead", b"ahead", b"ahead")
            await eventually(lambda: len(service.held) == 3)
            first, second, third = (answer for _, answer in service.held)
            second.send((framed(b"second"),))
            first.send((framed(b"1"),), lambda: third.send((framed(b"third"),)))
            assert [await client.read() for _ in range(3)] == [b"1", b"second", b"third"]


async def test_who_wants_to_know_hears_of_the_end_once(surrounding: Surrounding) -> None:
    """By the peer's doing or ours; who asks behind the end is told at once."""
    heard: list[str] = []
    async with serving(surrounding, WordService()) as running:
        client, other = await running.connect(), await running.connect()
        await client.ask(b"a")
        await other.ask(b"b")
        first, second = running.server.connections
        first.on_end(lambda: heard.append("first"))
        first.on_end(lambda: heard.append("again"))
        second.on_end(lambda: heard.append("second"))
        assert heard == []
        client.close()
        await eventually(lambda: first.is_closed)
        assert heard == ["first", "again"]
        second.close()
        second.close()
        assert heard == ["first", "again", "second"]
        second.on_end(lambda: heard.append("late"))
        assert heard == ["first", "again", "second", "late"]
