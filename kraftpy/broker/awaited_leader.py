"""A request that waits for a partition to be led here, which the metadata says it will be.

Whoever makes the replicas tells when that is so. It may take longer than the request has time: then
it goes on as well, and finds no leader.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftpy.purgatory.operation import DelayedOperation

__all__ = ["AwaitedLeader"]


class AwaitedLeader(DelayedOperation):
    __slots__ = ("_go_on", "_is_led")

    def __init__(self, delay_ms: int, go_on: Callable[[bool], None]) -> None:
        """`go_on` is told whether there is a leader; if not, time is over or the node stops."""
        super().__init__(delay_ms)
        self._is_led = False
        self._go_on: Callable[[bool], None] | None = go_on

    def try_complete(self) -> bool:
        """No event of a purgatory says that the roles of an image are taken; see `led`."""
        return False

    def led(self) -> None:
        self._is_led = True
        self.force_complete()

    def on_complete(self) -> None:
        go_on, self._go_on = self._go_on, None
        # Whoever was to tell of the leader may keep this for longer, but not the request.
        if go_on is not None:
            go_on(self._is_led)
