"""The switchboard: all connections between the nodes of a cluster go through it.

It listens on one port. A node asks it to be put through to an address (`routing`); the switchboard
knows who listens there, and carries bytes both ways as the links between the two allow (`links`).

- A direction that is cut carries nothing. What was sent waits, and so do the end of the stream and
  its reset; the sender notices by silence only, as with a real cut. After `heal` all of it arrives.
- To connect takes both directions.
- A delay keeps the order, and holds up nobody else.

An address that belongs to no node of the cluster is connected to without further ado. The
switchboard also holds a control connection to each node, on which faults inside of nodes are sent.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

import trio

from kraftpy.faults.exchange import ERROR_NUMBER, WELCOME, read_line, send_all
from kraftpy.faults.language import (
    DiskError,
    DiskFull,
    Fault,
    Heal,
    LinkFault,
    NodeFault,
    format_fault,
)
from kraftpy.faults.links import Links
from kraftpy.world import Address, Clock, Network, Stream

__all__ = ["FaultRefusedError", "Switchboard"]

log = logging.getLogger(__name__)

_CHUNK_BYTES = 64 * 1024
# In flight on a link, in chunks; with more, the sender has to wait.
_CHUNKS_IN_FLIGHT = 64
_TELL_TIMEOUT_SECONDS = 10.0


class FaultRefusedError(Exception):
    """The node could not be told, or did not understand."""


@dataclass(slots=True, eq=False)
class _Controlled:
    """A node that can be told of faults."""

    stream: Stream
    lock: trio.Lock = field(default_factory=trio.Lock)
    lost: trio.Event = field(default_factory=trio.Event)


@dataclass(frozen=True, slots=True)
class _Chunk:
    due: float
    data: bytes
    """Empty: the sender has finished."""
    is_reset: bool = False


class Switchboard:
    """`run` it as a task. `owner_of` tells which node listens at an address, or None."""

    def __init__(
        self, clock: Clock, network: Network, owner_of: Callable[[Address], int | None]
    ) -> None:
        self.links = Links()
        self._clock = clock
        self._network = network
        self._owner_of = owner_of
        self._controlled: dict[int, _Controlled] = {}
        # What a node that starts again begins with: its disk is still full.
        self._standing: dict[int, list[NodeFault]] = {}

    async def run(
        self, host: str, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; `started` gives the address."""
        listener = await self._network.listen(host, 0, backlog=1024)
        try:
            async with trio.open_nursery() as nursery:
                task_status.started(listener.address)
                while True:
                    stream = await listener.accept()
                    nursery.start_soon(self._serve, stream, name="switchboard-connection")
        finally:
            listener.close()

    def apply(self, fault: LinkFault) -> None:
        self.links.apply(fault)

    async def tell(self, node_id: int, fault: NodeFault) -> None:
        """Have the fault inside of a node; returns when it is there. Raises FaultRefusedError."""
        if isinstance(fault, DiskFull | DiskError):
            self._standing.setdefault(node_id, []).append(fault)
        await self._tell(node_id, fault)

    async def heal(self) -> None:
        """All links are whole, and so is every node that can be told; the others begin so."""
        self.links.heal()
        self._standing.clear()
        for node_id in list(self._controlled):
            try:
                await self._tell(node_id, Heal())
            except FaultRefusedError as error:
                log.info("%s", error)

    async def _tell(self, node_id: int, fault: Fault) -> None:
        controlled = self._controlled.get(node_id)
        if controlled is None:
            raise FaultRefusedError(f"node {node_id} does not run: {format_fault(fault)}")
        reply = ""
        with self._clock.move_on_after(_TELL_TIMEOUT_SECONDS) as scope:
            try:
                async with controlled.lock:
                    await send_all(controlled.stream, f"{format_fault(fault)}\n".encode())
                    reply = await read_line(controlled.stream)
            except (OSError, trio.ClosedResourceError) as error:
                controlled.lost.set()
                raise FaultRefusedError(f"node {node_id} has ended: {error}") from error
        if scope.cancelled_caught:
            # Its answer may still come, and nobody could tell what it answers.
            controlled.lost.set()
            raise FaultRefusedError(f"node {node_id} does not listen; is it paused?")
        if reply:
            raise FaultRefusedError(f"node {node_id}: {reply}")

    async def _serve(self, stream: Stream) -> None:
        try:
            word, *rest = (await read_line(stream)).split()
            if word == "control":
                await self._control(int(rest[0]), stream)
            else:
                await self._put_through(int(rest[0]), (rest[1], int(rest[2])), stream)
        except (OSError, ValueError, trio.ClosedResourceError) as error:
            log.debug("switchboard: a connection ends: %s", error)
        finally:
            stream.reset()

    async def _control(self, node_id: int, stream: Stream) -> None:
        """Tell the node what there is already; then the connection is for `tell`."""
        for fault in self._standing.get(node_id, ()):
            await send_all(stream, f"{format_fault(fault)}\n".encode())
            await read_line(stream)
        await send_all(stream, f"{WELCOME}\n".encode())
        if node_id in self._controlled:
            self._controlled[node_id].lost.set()
        controlled = self._controlled[node_id] = _Controlled(stream)
        try:
            # Whoever tells something reads the answer, and notices a node that has left.
            await controlled.lost.wait()
        finally:
            if self._controlled.get(node_id) is controlled:
                del self._controlled[node_id]

    async def _put_through(self, caller: int, address: Address, stream: Stream) -> None:
        called = self._owner_of(address)
        owner = caller if called is None else called
        await self.links.wait_whole(caller, owner)
        await self.links.wait_whole(owner, caller)
        try:
            target = await self._network.connect(*address)
        except OSError as error:
            await send_all(stream, ERROR_NUMBER.pack(error.errno or errno.ECONNREFUSED))
            stream.close()
            return
        try:
            await send_all(stream, ERROR_NUMBER.pack(0))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._carry, caller, owner, stream, target)
                nursery.start_soon(self._carry, owner, caller, target, stream)
        finally:
            target.reset()

    async def _carry(self, sender: int, receiver: int, source: Stream, target: Stream) -> None:
        """One direction, until its sender has finished or one of the two is gone."""
        put, take = trio.open_memory_channel[_Chunk](_CHUNKS_IN_FLIGHT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deliver, sender, receiver, take, source, target)
            async with put:
                buffer = memoryview(bytearray(_CHUNK_BYTES))
                while True:
                    chunk = await self._receive(sender, receiver, source, buffer)
                    if chunk is None:
                        return
                    try:
                        await put.send(chunk)
                    except trio.BrokenResourceError:
                        return
                    if not chunk.data:
                        return

    async def _receive(
        self, sender: int, receiver: int, source: Stream, buffer: memoryview
    ) -> _Chunk | None:
        """What the sender has to say next; None if this side has hung up."""
        try:
            while (count := source.receive_into(buffer)) is None:
                await source.wait_readable()
        except trio.ClosedResourceError:
            return None
        except OSError:
            return _Chunk(self._due(sender, receiver), b"", is_reset=True)
        return _Chunk(self._due(sender, receiver), bytes(buffer[:count]))

    def _due(self, sender: int, receiver: int) -> float:
        delay_ms = self.links.delay_ms(sender, receiver)
        return self._clock.monotonic() + delay_ms / 1000 if delay_ms else -inf

    async def _deliver(
        self,
        sender: int,
        receiver: int,
        chunks: trio.MemoryReceiveChannel[_Chunk],
        source: Stream,
        target: Stream,
    ) -> None:
        async with chunks:
            async for chunk in chunks:
                if chunk.due > self._clock.monotonic():
                    await self._clock.sleep_until(chunk.due)
                await self.links.wait_whole(sender, receiver)
                try:
                    if chunk.is_reset:
                        target.reset()
                        source.reset()
                    elif chunk.data:
                        await send_all(target, chunk.data)
                    else:
                        target.finish()
                except (OSError, trio.ClosedResourceError):
                    # The receiver is gone. The other direction learns it by itself, and tells.
                    return
