"""The two kinds of network between nodes, and between them and clients, with one meaning.

`NamespaceLinks` has the whole of TCP/IP between nodes, and cuts it. `ProxyLinks` leads every
connection through the switchboard, needs no privileges, and can also delay, hold and reset.
What differs: a one-way cut of the proxy stops data, not the acknowledgements of TCP beneath it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import trio

from jepsen_tests.cluster.errors import HarnessError, NotHereError
from jepsen_tests.cluster.namespaces import NamespaceNet, open_namespaces
from jepsen_tests.cluster.options import NetworkKind
from jepsen_tests.cluster.reaper import Reaper
from kraftpy.faults.language import CutClients, LinkFault, OneWay, Partition
from kraftpy.faults.switchboard import Switchboard
from kraftpy.launch.plan import Place
from kraftpy.world import Address, World

__all__ = ["AddressOf", "Links", "NamespaceLinks", "ProxyLinks", "open_links"]

LOCAL_HOST = "127.0.0.1"


class AddressOf(Protocol):
    def __call__(self, node: int) -> Address:
        """Where a node listens for clients."""
        ...


class Links(Protocol):
    """What is between the nodes."""

    kind: NetworkKind
    places: Mapping[int, Place]
    """Where and how each node runs."""
    node_arguments: Sequence[str]
    """For `kraftpy node`."""

    async def apply(self, fault: LinkFault) -> None:
        """Raises NotHereError for what this kind of network can't do."""
        ...

    async def heal(self) -> None: ...

    async def cut_count(self) -> int:
        """Of directions that carry nothing now, as whoever cuts them shows it."""
        ...


class NamespaceLinks:
    kind: NetworkKind = "namespaces"

    def __init__(self, net: NamespaceNet, nodes: Sequence[int], switchboard: Address) -> None:
        host, port = switchboard
        self.places: Mapping[int, Place] = {
            node: Place(host=net.host(node), prefix=net.prefix(node)) for node in nodes
        }
        self.node_arguments: Sequence[str] = (
            "--faults",
            f"{host}:{port}",
            "--faults-without-routing",
        )
        self.net = net

    async def apply(self, fault: LinkFault) -> None:
        match fault:
            case Partition(a, b):
                for sender in a:
                    await self.net.cut(sender, b)
                for sender in b:
                    await self.net.cut(sender, a)
            case OneWay(senders, receivers):
                for sender in senders:
                    await self.net.cut(sender, receivers)
            case CutClients(nodes):
                for node in nodes:
                    await self.net.cut_clients(node)
            case _:
                raise NotHereError(f"{fault.name} needs the proxy, and this is the real network")

    async def heal(self) -> None:
        await self.net.heal()

    async def cut_count(self) -> int:
        return len(await self.net.cuts())


class ProxyLinks:
    kind: NetworkKind = "proxy"

    def __init__(
        self, board: Switchboard, switchboard: Address, doors: Mapping[int, Address]
    ) -> None:
        self.places: Mapping[int, Place] = {
            node: Place(advertised=f"{host}:{port}") for node, (host, port) in doors.items()
        }
        self.node_arguments: Sequence[str] = ("--faults", f"{switchboard[0]}:{switchboard[1]}")
        self._board = board

    async def apply(self, fault: LinkFault) -> None:
        self._board.apply(fault)

    async def heal(self) -> None:
        self._board.heal_links()

    async def cut_count(self) -> int:
        return self._board.links.cut_count


@asynccontextmanager
async def open_links(
    kind: NetworkKind,
    nodes: Sequence[int],
    brokers: Sequence[int],
    *,
    world: World,
    board: Switchboard,
    address_of: AddressOf,
    reaper: Reaper,
) -> AsyncIterator[Links]:
    """The network, with the switchboard serving on it. Raises HarnessError."""
    if kind == "auto":
        kind = "namespaces" if may_have_namespaces() is None else "proxy"
    async with trio.open_nursery() as nursery:
        if kind == "namespaces":
            reason = may_have_namespaces()
            if reason is not None:
                raise HarnessError(f"there are no network namespaces here: {reason}")
            random = world.rng.stream("namespaces")
            async with open_namespaces(nodes, random, reaper) as net:
                address = await nursery.start(board.run, net.switchboard_host)
                yield NamespaceLinks(net, nodes, address)
                # Before its address goes.
                nursery.cancel_scope.cancel()
        else:
            address = await nursery.start(board.run, LOCAL_HOST)
            doors = {}
            for node in brokers:

                def target(node: int = node) -> Address:
                    return address_of(node)

                doors[node] = await nursery.start(board.run_door, LOCAL_HOST, node, target)
            yield ProxyLinks(board, address, doors)
            nursery.cancel_scope.cancel()


def may_have_namespaces() -> str | None:
    """Why not, as far as it can be told without trying."""
    if os.geteuid() != 0:
        return "that takes root"
    if shutil.which("ip") is None:
        return "ip (iproute2) is not installed"
    return None
