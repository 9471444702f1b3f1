"""The peer dies at every byte, the task is cancelled at every wait: nothing is left behind."""

from __future__ import annotations

import logging

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

from kraftpy.net.connection import Connection, ConnectionIdentity, Surroundings
from kraftpy.net.framing import BufferPool
from kraftpy.net.limits import NetworkLimits
from kraftpy.net.memory import RequestMemory
from kraftpy.world import Stream
from kraftpy.world.memory_network import LinkProfile

IDENTITY = ConnectionIdentity("here:1-there:2-0", "PLAINTEXT", "PLAINTEXT", "there")


@pytest.mark.parametrize("way", ["close", "reset", "finish"])
async def test_the_peer_dies_at_each_byte(
    surrounding: Surrounding, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """NET-30: of a question answered at once, one that is pending, and what follows it."""
    caplog.set_level(logging.INFO, "kraftpy.net")
    recorder = Recorder()
    service = WordService(recorder)
    data = framed(b"word") + framed(b"ahead") + framed(b"hold") + framed(b"word")
    async with serving(surrounding, service) as running:
        caplog.clear()
        for length in range(len(data) + 1):
            client = await running.connect()
            await client.send_bytes(data[:length])
            if length % 2:
                await settle()
            getattr(client.stream, way)()
            await eventually(
                lambda: not running.server.connections and running.server.quotas.total == 0
            )
            while service.held:
                service.release()
            client.close()
        assert len(recorder.recorded) == len(service.served)
        assert await (await running.connect()).ask(b"alive") == b"alive"
    assert caplog.text == ""


async def test_the_peer_dies_at_each_byte_of_its_answer() -> None:
    """NET-41, NET-42: with a peer that takes 1 to 3 bytes at a time."""
    recorder = Recorder()
    service = WordService(recorder)
    async with memory_surrounding() as surrounding:
        assert surrounding.fabric is not None
        surrounding.fabric.set_profile(
            "server",
            "server",
            LinkProfile(chunk_max_bytes=3, send_buffer_bytes=3, receive_buffer_bytes=3),
        )
        async with serving(surrounding, service) as running:
            for length in range(len(framed(b"hold"))):
                client = await running.connect()
                await client.send(b"hold")
                await eventually(lambda: service.held)
                service.release()
                buffer = bytearray(1)
                for _ in range(length):
                    while client.stream.receive_into(memoryview(buffer)) is None:
                        await client.stream.wait_readable()
                client.stream.reset()
                await eventually(lambda: not running.server.connections)
                assert len(recorder.recorded) == length + 1


class ManyWaits:
    """A stream whose every wait can be the one at which the task is cancelled."""

    def __init__(self, data: bytes, cancel_at: int, scope: trio.CancelScope) -> None:
        self._data = data
        self._cancel_at = cancel_at
        self._scope = scope
        self._has_waited = False
        self.waits = 0
        self.closed = 0
        self.sent = 0

    def receive_into(self, buffer: memoryview) -> int | None:
        if not self._has_waited:
            return None
        self._has_waited = False
        count = min(5, len(self._data), len(buffer))
        buffer[:count] = self._data[:count]
        self._data = self._data[count:]
        return count

    def send(self, parts: list[bytes], *, more: bool = False) -> int:
        if not self._has_waited:
            return 0
        self._has_waited = False
        count = min(3, sum(map(len, parts)))
        self.sent += count
        return count

    async def wait_readable(self) -> None:
        await self._wait()

    async def wait_writable(self) -> None:
        await self._wait()

    async def _wait(self) -> None:
        self.waits += 1
        if self.waits == self._cancel_at:
            self._scope.cancel()
        await trio.lowlevel.checkpoint()
        self._has_waited = True

    def close(self) -> None:
        self.closed += 1


async def run_cancelled_at(wait: int) -> int:
    """Serve a small conversation, cancelled at that wait; say how many waits there were."""
    recorder = Recorder()
    service = WordService(recorder)
    closed: list[Connection] = []
    buffers = BufferPool()
    memory = RequestMemory(1_000_000)
    async with trio.open_nursery() as nursery, memory_surrounding() as surrounding:
        scope = trio.CancelScope()
        data = framed(b"word") + framed(b"x" * 70_000)[:40] + b""
        stream = ManyWaits(framed(b"word one") + framed(b"nothing") + data, wait, scope)
        connection = Connection(
            stream,  # type: ignore[arg-type]
            service,
            IDENTITY,
            Surroundings(
                clock=surrounding.clock,
                limits=NetworkLimits(),
                buffers=buffers,
                memory=memory,
                spawn=nursery.start_soon,
                on_activity=lambda _: None,
                on_closed=closed.append,
            ),
        )
        with scope:
            await connection.run()
    assert closed == [connection]
    assert stream.closed == 1
    assert connection.held_bytes == 0
    assert memory.used_bytes == memory.waiting_count == 0
    assert len(recorder.recorded) == len(service.served)
    return stream.waits


async def test_cancellation_at_each_wait_leaves_nothing() -> None:
    """Buffers, memory, counts, and the times of what was served."""
    waits = await run_cancelled_at(0)
    assert waits > 10
    for wait in range(1, waits + 1):
        assert await run_cancelled_at(wait) == wait


async def test_pump_survives_whatever_a_stream_raises(surrounding: Surrounding) -> None:
    """A completer is never hit by the connection it completes for."""

    class Broken:
        def __init__(self, error: Exception) -> None:
            self.error = error

        def send(self, parts: object, *, more: bool = False) -> int:
            raise self.error

        def __getattr__(self, name: str) -> object:
            return getattr(stream, name)

    errors: list[Exception] = [
        ConnectionResetError(),
        BrokenPipeError(),
        trio.ClosedResourceError(),
        trio.BrokenResourceError(),
        OSError(5, "disk"),
        ValueError("our own fault"),
    ]
    listener = await surrounding.server_network.listen("127.0.0.1", 0)
    for error in errors:
        service = WordService()
        peer = await surrounding.client_network.connect(*listener.address)
        stream: Stream = await listener.accept()
        closed: list[Connection] = []
        async with trio.open_nursery() as nursery:
            connection = Connection(
                Broken(error),  # type: ignore[arg-type]
                service,
                IDENTITY,
                Surroundings(
                    clock=surrounding.clock,
                    limits=NetworkLimits(),
                    buffers=BufferPool(),
                    memory=RequestMemory(None),
                    spawn=nursery.start_soon,
                    on_activity=lambda _: None,
                    on_closed=closed.append,
                ),
            )
            nursery.start_soon(connection.run)
            peer.send((framed(b"hold"),))
            await eventually(lambda held=service.held: held)  # type: ignore[misc]
            service.release()
            assert closed == [connection]
        peer.close()
    listener.close()
