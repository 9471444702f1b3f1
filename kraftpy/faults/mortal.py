"""The network of a node that shares its process with others, and must pause and die alone.

A paused node neither receives nor sends nor accepts; its connections stay, and what others send to
it waits in the system's buffers. A dead one's connections are reset and its ports are free, as the
system sees to it for a process.

Unlike in a process that is stopped, timers of a paused node go on. What they lead to can't leave
it.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from kraftpy.world import Address, Buffer, FileSlice, Listener, Network, SocketOptions, Stream

__all__ = ["MortalNetwork"]


class _Gate:
    """Shut while the node is paused."""

    __slots__ = ("_opened", "is_shut")

    def __init__(self) -> None:
        self.is_shut = False
        self._opened = trio.Event()

    def shut(self) -> None:
        self.is_shut = True

    def open(self) -> None:
        self.is_shut = False
        self._opened.set()
        self._opened = trio.Event()

    async def wait_open(self) -> None:
        while self.is_shut:
            await self._opened.wait()


class _MortalStream:
    __slots__ = ("_gate", "_owner", "_stream")

    def __init__(self, stream: Stream, gate: _Gate, owner: MortalNetwork) -> None:
        self._stream = stream
        self._gate = gate
        self._owner = owner

    @property
    def local_address(self) -> Address:
        return self._stream.local_address

    @property
    def remote_address(self) -> Address:
        return self._stream.remote_address

    def receive_into(self, buffer: memoryview) -> int | None:
        return None if self._gate.is_shut else self._stream.receive_into(buffer)

    def send(self, parts: Sequence[Buffer], *, more: bool = False) -> int:
        return 0 if self._gate.is_shut else self._stream.send(parts, more=more)

    def send_slice(self, part: FileSlice, skip: int, *, more: bool = False) -> int:
        return 0 if self._gate.is_shut else self._stream.send_slice(part, skip, more=more)

    async def wait_readable(self) -> None:
        await self._stream.wait_readable()
        await self._gate.wait_open()

    async def wait_writable(self) -> None:
        await self._stream.wait_writable()
        await self._gate.wait_open()

    def finish(self) -> None:
        self._stream.finish()

    def close(self) -> None:
        self._owner.forget(self)
        self._stream.close()

    def reset(self) -> None:
        self._owner.forget(self)
        self._stream.reset()


class _MortalListener:
    __slots__ = ("_gate", "_listener", "_owner")

    def __init__(self, listener: Listener, gate: _Gate, owner: MortalNetwork) -> None:
        self._listener = listener
        self._gate = gate
        self._owner = owner

    @property
    def address(self) -> Address:
        return self._listener.address

    async def accept(self) -> Stream:
        stream = self._owner.keep(await self._listener.accept())
        await self._gate.wait_open()
        return stream

    def close(self) -> None:
        self._listener.close()


class MortalNetwork:
    __slots__ = ("_gate", "_listeners", "_network", "_streams")

    def __init__(self, network: Network) -> None:
        self._network = network
        self._gate = _Gate()
        self._streams: dict[_MortalStream, None] = {}
        self._listeners: list[_MortalListener] = []

    async def listen(
        self,
        host: str | None,
        port: int,
        *,
        backlog: int = 50,
        options: SocketOptions = SocketOptions(),  # noqa: B008 (frozen)
    ) -> Listener:
        inner = await self._network.listen(host, port, backlog=backlog, options=options)
        listener = _MortalListener(inner, self._gate, self)
        self._listeners.append(listener)
        return listener

    async def connect(
        self,
        host: str,
        port: int,
        *,
        options: SocketOptions = SocketOptions(),  # noqa: B008 (frozen)
    ) -> Stream:
        await self._gate.wait_open()
        return self.keep(await self._network.connect(host, port, options=options))

    def keep(self, stream: Stream) -> Stream:
        kept = _MortalStream(stream, self._gate, self)
        self._streams[kept] = None
        return kept

    def forget(self, stream: _MortalStream) -> None:
        self._streams.pop(stream, None)

    def pause(self) -> None:
        self._gate.shut()

    def resume(self) -> None:
        self._gate.open()

    def end(self) -> None:
        """Reset every connection, and listen no more."""
        for listener in self._listeners:
            listener.close()
        for stream in list(self._streams):
            stream.reset()
