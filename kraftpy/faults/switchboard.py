"""The switchboard: all connections between the nodes of a cluster go through it.

It listens on one port. A node asks it to be put through to an address (`routing`); the switchboard
knows who listens there, and carries bytes both ways as the links between the two allow (`links`).

- A direction that is cut carries nothing. What was sent waits, and so do the end of the stream and
  its reset; the sender notices by silence only, as with a real cut. After `heal` all of it arrives.
- To connect takes both directions.
- A delay keeps the order, and holds up nobody else.
- A message that is held holds up what follows it on its connection (`holds`).

Clients are connected to nodes directly, unless these tell them to come through a door: a port of
the switchboard's that leads to one node. Then links to clients can be cut, and their messages held.

An address that belongs to no node of the cluster is connected to without further ado. The
switchboard also holds a control connection to each node, on which faults inside of nodes are sent.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from math import inf
from typing import cast

import trio

from kraftpy.faults.exchange import ERROR_NUMBER, WELCOME, read_line, send_all
from kraftpy.faults.holds import Conversation, Held, Holds
from kraftpy.faults.language import (
    ClockJump,
    ClockStrobe,
    DiskError,
    DiskFull,
    Fault,
    Heal,
    Hold,
    LinkFault,
    NodeFault,
    Reset,
    SlowDisk,
    format_fault,
)
from kraftpy.faults.links import CLIENTS, Links
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
    held: Held | None = None


@dataclass(slots=True, eq=False)
class _Joined:
    """A connection that was put through."""

    caller: int
    owner: int
    streams: tuple[Stream, Stream]
    conversation: Conversation


class Switchboard:
    """`run` it as a task. `owner_of` tells which node listens at an address, or None."""

    def __init__(
        self, clock: Clock, network: Network, owner_of: Callable[[Address], int | None]
    ) -> None:
        self.links = Links()
        self.holds = Holds()
        # Since the beginning: chunks that set out on a slow link, and connections that were reset.
        self.delayed_count = 0
        self.reset_count = 0
        self._clock = clock
        self._network = network
        self._owner_of = owner_of
        self._controlled: dict[int, _Controlled] = {}
        # What a node that starts again begins with: its disk is still full.
        self._standing: dict[int, list[NodeFault]] = {}
        # Nodes that have had a fault since the last healing.
        self._told: dict[int, None] = {}
        self._doors: dict[Address, tuple[int, Callable[[], Address]]] = {}
        self._joined: dict[_Joined, None] = {}

    async def run(
        self, host: str, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; `started` gives the address."""
        await self._listen(host, self._serve, task_status)

    async def run_door(
        self,
        host: str,
        node_id: int,
        address_of_node: Callable[[], Address],
        *,
        task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Lead clients to a node until cancelled; `started` gives the address for them."""

        async def lead(stream: Stream) -> None:
            try:
                await self._put_through(CLIENTS, node_id, address_of_node(), stream)
            except (OSError, trio.ClosedResourceError) as error:
                log.debug("switchboard: a client's connection ends: %s", error)
            finally:
                stream.reset()

        class Opened:
            """Before the first client comes, nodes must know whose address it is."""

            @staticmethod
            def started(address: Address) -> None:
                self._doors[address] = (node_id, address_of_node)
                task_status.started(address)

        await self._listen(host, lead, cast("trio.TaskStatus[Address]", Opened))

    def apply(self, fault: LinkFault) -> None:
        if isinstance(fault, Hold):
            self.holds.add(fault)
        elif isinstance(fault, Reset):
            sides = (fault.a, fault.b)
            for joined in list(self._joined):
                if any(joined.caller in a and joined.owner in b for a, b in (sides, sides[::-1])):
                    self.reset_count += 1
                    for stream in joined.streams:
                        stream.reset()
        else:
            self.links.apply(fault)

    async def tell(self, node_id: int, fault: NodeFault) -> None:
        """Have the fault inside of a node; returns when it is there. Raises FaultRefusedError."""
        if isinstance(fault, DiskFull | DiskError | SlowDisk | ClockJump | ClockStrobe):
            self._standing.setdefault(node_id, []).append(fault)
        self._told[node_id] = None
        await self._tell(node_id, fault)

    async def heal(self) -> None:
        """Everything is well again."""
        self.heal_links()
        await self.heal_nodes()

    def heal_links(self) -> None:
        """All links are whole, and nothing is held."""
        self.links.heal()
        self.holds.heal()

    async def heal_nodes(self) -> None:
        """Every node that was told of a fault is told that it is over; the others begin well."""
        self._standing.clear()
        told = [node_id for node_id in self._told if node_id in self._controlled]
        self._told.clear()
        for node_id in told:
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

    async def _listen(
        self,
        host: str,
        serve: Callable[[Stream], Awaitable[None]],
        task_status: trio.TaskStatus[Address],
    ) -> None:
        listener = await self._network.listen(host, 0, backlog=1024)
        try:
            async with trio.open_nursery() as nursery:
                task_status.started(listener.address)
                while True:
                    stream = await listener.accept()
                    nursery.start_soon(serve, stream, name="switchboard-connection")
        finally:
            listener.close()

    async def _serve(self, stream: Stream) -> None:
        try:
            word, *rest = (await read_line(stream)).split()
            if word == "control":
                await self._control(int(rest[0]), stream)
            else:
                await self._connect(int(rest[0]), (rest[1], int(rest[2])), stream)
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

    async def _connect(self, caller: int, address: Address, stream: Stream) -> None:
        """A node wants to be put through; it is told how that went."""
        if address in self._doors:
            called, address_of_node = self._doors[address]
            address = address_of_node()
        else:
            owner = self._owner_of(address)
            called = caller if owner is None else owner
        try:
            await self._put_through(caller, called, address, stream, says=True)
        except OSError as error:
            await send_all(stream, ERROR_NUMBER.pack(error.errno or errno.ECONNREFUSED))
            stream.close()

    async def _put_through(
        self, caller: int, owner: int, address: Address, stream: Stream, *, says: bool = False
    ) -> None:
        """Raises OSError if nobody listens there."""
        await self.links.wait_whole(caller, owner)
        await self.links.wait_whole(owner, caller)
        target = await self._network.connect(*address)
        joined = _Joined(caller, owner, (stream, target), Conversation(self.holds, owner))
        self._joined[joined] = None
        try:
            if says:
                await send_all(stream, ERROR_NUMBER.pack(0))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._carry, joined, "request")
                nursery.start_soon(self._carry, joined, "response")
        finally:
            del self._joined[joined]
            target.reset()

    async def _carry(self, joined: _Joined, direction: str) -> None:
        """One direction, until its sender has finished or one of the two is gone."""
        put, take = trio.open_memory_channel[_Chunk](_CHUNKS_IN_FLIGHT)
        ends = (joined.caller, joined.owner)
        source, target = joined.streams
        if direction == "response":
            ends, (source, target) = ends[::-1], (target, source)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deliver, ends, take, source, target)
            async with put:
                buffer = memoryview(bytearray(_CHUNK_BYTES))
                is_over = False
                while not is_over:
                    chunk = await self._receive(ends, source, buffer)
                    if chunk is None:
                        return
                    is_over = not chunk.data
                    try:
                        for piece in _pieces(joined.conversation, direction, chunk):
                            await put.send(piece)
                    except trio.BrokenResourceError:
                        return

    async def _receive(
        self, ends: tuple[int, int], source: Stream, buffer: memoryview
    ) -> _Chunk | None:
        """What the sender has to say next; None if this side has hung up."""
        try:
            while (count := source.receive_into(buffer)) is None:
                await source.wait_readable()
        except trio.ClosedResourceError:
            return None
        except OSError:
            return _Chunk(self._due(*ends), b"", is_reset=True)
        return _Chunk(self._due(*ends), bytes(buffer[:count]))

    def _due(self, sender: int, receiver: int) -> float:
        delay_ms = self.links.delay_ms(sender, receiver)
        if not delay_ms:
            return -inf
        self.delayed_count += 1
        return self._clock.monotonic() + delay_ms / 1000

    async def _deliver(
        self,
        ends: tuple[int, int],
        chunks: trio.MemoryReceiveChannel[_Chunk],
        source: Stream,
        target: Stream,
    ) -> None:
        async with chunks:
            async for chunk in chunks:
                if chunk.due > self._clock.monotonic():
                    await self._clock.sleep_until(chunk.due)
                if chunk.held is not None:
                    await self._wait_released(chunk.held)
                await self.links.wait_whole(*ends)
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

    async def _wait_released(self, held: Held) -> None:
        seconds = held.milliseconds / 1000 if held.milliseconds else inf
        with self._clock.move_on_after(seconds):
            await held.released.wait()
        held.released.set()


def _pieces(conversation: Conversation, direction: str, chunk: _Chunk) -> Iterator[_Chunk]:
    """The chunk, cut where a message is held."""
    if not chunk.data:
        yield chunk
    for data, held in conversation.cut(direction, chunk.data):
        yield replace(chunk, data=data, held=held)
