"""A network namespace for each node, on one bridge. Needs root, and `ip` of iproute2.

A node has one interface, eth0, whose other end is a port of the bridge. The bridge has two
addresses on the side of the harness: clients come from the first, and the switchboard, which tells
nodes of faults, listens on the second, so that a node that is cut off from clients can be told.

A direction is cut in the sender's namespace: its neighbour table says that the receiver's address
belongs to a card that nobody has. Whatever is sent then gets lost on the wire, in silence, as with
a pulled cable: connections stall, new ones time out, and after healing TCP sends again. (A
blackhole route would be noticed: connecting fails at once.) From clients a node is cut by such a
route, which together with the check of return paths drops what comes from them, too.

Everything is named after this process, on addresses that no network uses (198.18.0.0/15 is for
benchmarks). It goes when the block is left; if the harness is killed, the reaper removes it; and
leftovers of processes that are no more are removed by the next start. Nothing of the host's own is
touched.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

import trio

from jepsen_tests.cluster.commands import ask, ip_batch
from jepsen_tests.cluster.errors import HarnessError
from jepsen_tests.cluster.reaper import Reaper
from kraftpy.world import Random

__all__ = ["NamespaceNet", "open_namespaces", "ours", "remove_leftovers"]

_NAME = re.compile(r"\b(kj([0-9a-f]+)x[0-9a-f]{2})(?:b|n\d+)\b")
_NOBODY = "02:00:00:00:00:00"
_ATTEMPTS = 20


class NamespaceNet:
    """Made by `open_namespaces`."""

    def __init__(self, name: str, subnet: str, nodes: Sequence[int]) -> None:
        self.name = name
        self._subnet = subnet
        self._nodes = tuple(nodes)

    @property
    def switchboard_host(self) -> str:
        return f"{self._subnet}.2"

    @property
    def _client_host(self) -> str:
        return f"{self._subnet}.1"

    def host(self, node: int) -> str:
        return f"{self._subnet}.{10 + node}"

    def prefix(self, node: int) -> tuple[str, ...]:
        """What runs a command as if it were on that node's machine."""
        return ("ip", "netns", "exec", self._namespace(node))

    async def build(self) -> None:
        """Raises HarnessError."""
        bridge = f"{self.name}b"
        lines = [
            f"link add {bridge} type bridge",
            f"addr add {self._client_host}/24 dev {bridge}",
            f"addr add {self.switchboard_host}/24 dev {bridge}",
            f"link set {bridge} up",
        ]
        for node in self._nodes:
            inside, port = self._namespace(node), f"{self.name}n{node}"
            lines += [
                f"netns add {inside}",
                f"link add {port} type veth peer name eth0 netns {inside}",
                f"link set {port} master {bridge}",
                f"link set {port} up",
            ]
        await ip_batch(lines)
        for node in self._nodes:
            await ip_batch(
                [
                    f"addr add {self.host(node)}/24 dev eth0",
                    "link set eth0 up",
                    "link set lo up",
                ],
                namespace=self._namespace(node),
            )
            for device in ("all", "eth0"):
                path = f"/proc/sys/net/ipv4/conf/{device}/rp_filter"
                await ask([*self.prefix(node), "sh", "-c", f"echo 1 > {path}"])

    async def cut(self, sender: int, receivers: Iterable[int]) -> None:
        """What the one sends reaches none of the others."""
        lines = [
            f"neigh replace {self.host(each)} lladdr {_NOBODY} dev eth0 nud permanent"
            for each in receivers
        ]
        await ip_batch(lines, namespace=self._namespace(sender))

    async def cut_clients(self, node: int) -> None:
        route = f"route replace blackhole {self._client_host}/32"
        await ip_batch([route], namespace=self._namespace(node))

    async def heal(self) -> None:
        for node in self._nodes:
            await ip_batch(
                ["neigh flush nud permanent", "route flush type blackhole"],
                namespace=self._namespace(node),
            )

    async def cuts(self) -> list[str]:
        """What is cut now, as the system shows it."""
        found = []
        for node in self._nodes:
            inside = ["ip", "-n", self._namespace(node)]
            shown = await ask([*inside, "neigh", "show", "nud", "permanent"])
            shown += await ask([*inside, "route", "show", "type", "blackhole"])
            found += [f"{node}: {line.strip()}" for line in shown.splitlines()]
        return found

    def removal(self) -> list[list[str]]:
        """Commands that leave nothing; each may fail without harm."""
        links = [f"{self.name}b", *(f"{self.name}n{node}" for node in self._nodes)]
        return [
            *(["ip", "link", "delete", link] for link in links),
            *(["ip", "netns", "delete", self._namespace(node)] for node in self._nodes),
        ]

    def _namespace(self, node: int) -> str:
        return f"{self.name}n{node}"


@asynccontextmanager
async def open_namespaces(
    nodes: Sequence[int], random: Random, reaper: Reaper
) -> AsyncIterator[NamespaceNet]:
    """Raises HarnessError where that can't be, as without root."""
    await remove_leftovers()
    name = f"kj{os.getpid():x}x{random.randrange(256):02x}"
    net = NamespaceNet(name, await _unused_subnet(random), nodes)
    for command in net.removal():
        reaper.run_at_the_end(command)
    try:
        await net.build()
        yield net
    finally:
        with trio.CancelScope(shield=True):
            for command in net.removal():
                await ask(command, check=False)


async def ours() -> list[str]:
    """Links and namespaces of this suite, of any process."""
    shown = await ask(["ip", "-o", "link", "show"]) + await ask(["ip", "netns", "list"])
    return list(dict.fromkeys(found.group(0) for found in _NAME.finditer(shown)))


async def remove_leftovers() -> None:
    """What processes that are no more have left."""
    for found in await ours():
        match = _NAME.fullmatch(found)
        if match is None or os.path.exists(f"/proc/{int(match.group(2), 16)}"):
            continue
        await ask(["ip", "link", "delete", found], check=False)
        await ask(["ip", "netns", "delete", found], check=False)


async def _unused_subnet(random: Random) -> str:
    routes = await ask(["ip", "-4", "route", "show", "table", "all"])
    for _ in range(_ATTEMPTS):
        subnet = f"198.{random.choice((18, 19))}.{random.randrange(256)}"
        if f"{subnet}." not in routes:
            return subnet
    raise HarnessError("198.18.0.0/15 is in use on this machine")
