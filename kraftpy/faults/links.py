"""The state of the links between nodes: which directions are cut, and which are slow.

A link is directed, from a sender to a receiver. Whoever carries bytes asks for the delay when they
set out, and waits for the link to be whole before they arrive.
"""

from __future__ import annotations

from itertools import product
from typing import Final

import trio

from kraftpy.faults.language import CutClients, Delay, Nodes, OneWay, Partition

__all__ = ["CLIENTS", "Links"]

CLIENTS: Final = -1
"""All clients, where a node stands otherwise."""


class Links:
    __slots__ = ("_changed", "_cuts", "_delays_ms")

    def __init__(self) -> None:
        self._cuts: dict[tuple[int, int], None] = {}
        self._delays_ms: dict[tuple[int, int], int] = {}
        # Set, and replaced, when something has been healed.
        self._changed = trio.Event()

    def apply(self, fault: Partition | OneWay | Delay | CutClients) -> None:
        match fault:
            case OneWay(senders, receivers):
                self._cuts |= dict.fromkeys(product(senders, receivers))
            case Partition(a, b):
                self._cuts |= dict.fromkeys(_both_ways(a, b))
            case CutClients(nodes):
                self._cuts |= dict.fromkeys(_both_ways(nodes, (CLIENTS,)))
            case Delay(a, b, milliseconds):
                self._delays_ms |= dict.fromkeys(_both_ways(a, b), milliseconds)

    def heal(self) -> None:
        self._cuts.clear()
        self._delays_ms.clear()
        self._changed.set()
        self._changed = trio.Event()

    @property
    def cut_count(self) -> int:
        """Of directions."""
        return len(self._cuts)

    def is_cut(self, sender: int, receiver: int) -> bool:
        return (sender, receiver) in self._cuts

    def delay_ms(self, sender: int, receiver: int) -> int:
        return self._delays_ms.get((sender, receiver), 0)

    async def wait_whole(self, sender: int, receiver: int) -> None:
        """Return when what the one sends can reach the other."""
        while self.is_cut(sender, receiver):
            await self._changed.wait()


def _both_ways(a: Nodes, b: Nodes) -> list[tuple[int, int]]:
    return [*product(a, b), *product(b, a)]
