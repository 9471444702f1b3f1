"""The clock of a node whose wall time may be moved. Monotonic time, and sleeping, stay as they are:
nothing that waits may notice.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from kraftpy.faults.state import NodeFaults
from kraftpy.world import Clock

if TYPE_CHECKING:
    import trio

__all__ = ["FaultyClock"]


class FaultyClock:
    __slots__ = ("_clock", "_faults", "bell", "monotonic", "monotonic_ms", "sleep", "sleep_until")

    def __init__(self, clock: Clock, faults: NodeFaults) -> None:
        self._clock = clock
        self._faults = faults
        # Asked for with every request: no call of ours lies between.
        self.monotonic = clock.monotonic
        self.monotonic_ms = clock.monotonic_ms
        self.bell = clock.bell
        self.sleep = clock.sleep
        self.sleep_until = clock.sleep_until

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + self._faults.wall_offset_ms(self.monotonic_ms())

    def move_on_after(self, seconds: float) -> trio.CancelScope:
        return self._clock.move_on_after(seconds)

    def fail_after(self, seconds: float) -> AbstractContextManager[trio.CancelScope]:
        return self._clock.fail_after(seconds)
