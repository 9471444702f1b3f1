"""The state of the links between nodes: which directions are cut, and which are slow.

A link is directed, from a sender to a receiver. Whoever carries bytes asks for the delay when they
set out, and waits for the link to be whole before they arrive.
"""

from __future__ import annotations

from itertools import product

import trio

from kraftpy.faults.language import LinkFault, OneWay, Partition

__all__ = ["Links"]


class Links:
    __slots__ = ("_changed", "_cuts", "_delays_ms")

    def __init__(self) -> None:
        self._cuts: dict[tuple[int, int], None] = {}
        self._delays_ms: dict[tuple[int, int], int] = {}
        # Set, and replaced, when something has been healed.
        self._changed = trio.Event()

    def apply(self, fault: LinkFault) -> None:
        if isinstance(fault, OneWay):
            self._cuts |= dict.fromkeys(product(fault.senders, fault.receivers))
            return
        both = (*product(fault.a, fault.b), *product(fault.b, fault.a))
        if isinstance(fault, Partition):
            self._cuts |= dict.fromkeys(both)
        else:
            self._delays_ms |= dict.fromkeys(both, fault.milliseconds)

    def heal(self) -> None:
        self._cuts.clear()
        self._delays_ms.clear()
        self._changed.set()
        self._changed = trio.Event()

    def is_cut(self, sender: int, receiver: int) -> bool:
        return (sender, receiver) in self._cuts

    def delay_ms(self, sender: int, receiver: int) -> int:
        return self._delays_ms.get((sender, receiver), 0)

    async def wait_whole(self, sender: int, receiver: int) -> None:
        """Return when what the one sends can reach the other."""
        while self.is_cut(sender, receiver):
            await self._changed.wait()
