"""Connections between the nodes of both kinds of network, held by the test itself.

A socket belongs for ever to the network namespace in which it was made: a thread goes there, makes
one, and ends. Behind the proxy, a node's connections go the way of `kraftpy node --faults`.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
import trio
from support.components import require

from jepsen_tests.cluster.capabilities import namespaces_problem
from jepsen_tests.cluster.namespaces import NamespaceNet
from jepsen_tests.cluster.networks import Links, NamespaceLinks, open_links
from jepsen_tests.cluster.reaper import open_reaper
from kraftpy.faults.exchange import read_exactly, send_all
from kraftpy.faults.routing import RoutedNetwork
from kraftpy.faults.switchboard import Switchboard
from kraftpy.world import Address, Listener, Stream, World
from kraftpy.world.real import real_world
from kraftpy.world.real_network import RealNetwork
from kraftpy.world.real_processes import RealProcesses

NODES = (1, 2, 3)
PORT = 4711
_CLONE_NEWNET = 0x40000000


class End(Protocol):
    """One end of a connection."""

    async def send(self, data: bytes) -> None: ...

    async def receive(self, length: int) -> bytes: ...


class Machines(Protocol):
    """The nodes of a network, as far as connections go. None is a client."""

    async def connect(self, caller: int | None, called: int) -> tuple[End, End]: ...


@dataclass
class StreamEnd:
    stream: Stream

    async def send(self, data: bytes) -> None:
        await send_all(self.stream, data)

    async def receive(self, length: int) -> bytes:
        return await read_exactly(self.stream, length)


@dataclass
class SocketEnd:
    socket: trio.socket.SocketType

    async def send(self, data: bytes) -> None:
        while data:
            data = data[await self.socket.send(data) :]

    async def receive(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            more = await self.socket.recv(length - len(data))
            if not more:
                raise ConnectionResetError("the peer has left")
            data += more
        return data


class NamespaceMachines:
    def __init__(self, net: NamespaceNet) -> None:
        self._net = net
        self._listeners: dict[int, trio.socket.SocketType] = {}
        self._made: list[trio.socket.SocketType] = []

    async def listen(self) -> None:
        for node in NODES:
            listener = await self._socket(node)
            await listener.bind((self._net.host(node), PORT))
            listener.listen()
            self._listeners[node] = listener

    async def connect(self, caller: int | None, called: int) -> tuple[End, End]:
        stream = await self._socket(caller)
        await stream.connect((self._net.host(called), PORT))
        accepted, _ = await self._listeners[called].accept()
        self._made.append(accepted)
        return SocketEnd(stream), SocketEnd(accepted)

    def close(self) -> None:
        for each in self._made:
            each.close()

    async def _socket(self, node: int | None) -> trio.socket.SocketType:
        if node is None:
            made = trio.socket.socket()
        else:
            name = self._net.prefix(node)[-1]
            made = trio.socket.from_stdlib_socket(await trio.to_thread.run_sync(_made_in, name))
        self._made.append(made)
        return made


def _made_in(namespace: str) -> socket.socket:
    """A thread of its own namespace goes back before others use it."""
    libc = ctypes.CDLL(None, use_errno=True)
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        if libc.setns(there, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        try:
            return socket.socket()
        finally:
            libc.setns(here, _CLONE_NEWNET)
    finally:
        os.close(there)
        os.close(here)


class ProxyMachines:
    def __init__(self, switchboard: Address, doors: Callable[[int], Address]) -> None:
        self._switchboard = switchboard
        self._doors = doors
        self.listeners: dict[int, Listener] = {}
        self._made: list[Stream] = []

    async def listen(self) -> None:
        for node in NODES:
            self.listeners[node] = await RealNetwork().listen("127.0.0.1", 0)

    async def connect(self, caller: int | None, called: int) -> tuple[End, End]:
        if caller is None:
            stream = await RealNetwork().connect(*self._doors(called))
        else:
            network = RoutedNetwork(RealNetwork(), caller, self._switchboard)
            stream = await network.connect(*self.listeners[called].address)
        self._made.append(stream)
        accepted = await self.listeners[called].accept()
        self._made.append(accepted)
        return StreamEnd(stream), StreamEnd(accepted)

    def close(self) -> None:
        for each in (*self._made, *self.listeners.values()):
            each.close()


async def require_namespaces() -> None:
    """Skip the test on a machine that has none: they can't be installed."""
    if os.geteuid() == 0:
        require("ip")
    reason = await namespaces_problem()
    if reason is not None:
        pytest.skip(f"missing: network namespaces ({reason})")


@asynccontextmanager
async def opened(kind: str, directory: Path) -> AsyncIterator[tuple[Links, Machines]]:
    """A network of three nodes. Skips the test where there is none of that kind."""
    world: World = real_world()
    machines: list[ProxyMachines] = []

    def address_of(node: int) -> Address:
        return machines[0].listeners[node].address

    def owner_of(address: Address) -> int | None:
        return next((node for node in NODES if address_of(node) == address), None)

    board = Switchboard(world.clock, world.network, owner_of)
    if kind == "namespaces":
        await require_namespaces()
    async with (
        open_reaper(directory, RealProcesses()) as reaper,
        open_links(
            "namespaces" if kind == "namespaces" else "proxy",
            NODES,
            NODES,
            world=world,
            board=board,
            address_of=address_of,
            reaper=reaper,
        ) as links,
    ):
        if isinstance(links, NamespaceLinks):
            inside = NamespaceMachines(links.net)
            try:
                await inside.listen()
                yield links, inside
            finally:
                inside.close()
        else:
            host, _, port = links.node_arguments[1].rpartition(":")

            def door(node: int) -> Address:
                where, _, number = (links.places[node].advertised or "").rpartition(":")
                return where, int(number)

            machines.append(ProxyMachines((host, int(port)), door))
            try:
                await machines[0].listen()
                yield links, machines[0]
            finally:
                machines[0].close()
