"""A request that waits for a partition to be led here, which the metadata says it will be.

Whoever makes the replicas tells when that is so. It may take longer than the request has time: then
it goes on as well, and finds no leader.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftpy.purgatory.operation import DelayedOperation

__all__ = ["AwaitedLeader"]


class AwaitedLeader(DelayedOperation):
    __slots__ = ("_go_on",)

    def __init__(self, delay_ms: int, go_on: Callable[[], None]) -> None:
        super().__init__(delay_ms)
        self._go_on = go_on

    def try_complete(self) -> bool:
        """No event of a purgatory says that the roles of an image are taken; see `led`."""
        return False

    def led(self) -> None:
        self.force_complete()

    def on_complete(self) -> None:
        self._go_on()
