"""The memory that large requests may take together: `queued.max.request.bytes`.

A frame too large for the read-ahead buffer is received only after its size was reserved here; the
bytes are given back when the frame was served. Who finds no room waits in line, first come first
served, so that a large frame is not overtaken for ever by smaller ones. A reservation larger than
the whole pool is granted when nothing else is reserved: the pool may then be exceeded, but it can't
lock up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kraftpy.world import assert_always

__all__ = ["RequestMemory", "Reservation"]


class Reservation:
    """A part of the pool, or a place in the line for it. Released once, by `release`."""

    __slots__ = ("_memory", "_on_granted", "is_granted", "is_released", "size_bytes")

    def __init__(
        self, memory: RequestMemory, size_bytes: int, on_granted: Callable[[], None]
    ) -> None:
        self._memory = memory
        self._on_granted = on_granted
        self.size_bytes = size_bytes
        self.is_granted = False
        self.is_released = False

    def grant(self) -> None:
        assert_always(not self.is_granted, "memory.granted-twice")
        self.is_granted = True
        self._on_granted()

    def release(self) -> None:
        """Give the bytes back, or leave the line. Idempotent."""
        if not self.is_released:
            self.is_released = True
            self._memory.take_back(self)


class RequestMemory:
    """A pool of `capacity_bytes`; None is no bound."""

    __slots__ = ("_line", "capacity_bytes", "used_bytes")

    def __init__(self, capacity_bytes: int | None) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self._line: deque[Reservation] = deque()

    @property
    def available_bytes(self) -> int | None:
        if self.capacity_bytes is None:
            return None
        return max(0, self.capacity_bytes - self.used_bytes)

    @property
    def waiting_count(self) -> int:
        return len(self._line)

    def reserve(self, size_bytes: int, on_granted: Callable[[], None]) -> Reservation:
        """Ask for memory; `on_granted` is called when it is there, at once or later."""
        reservation = Reservation(self, size_bytes, on_granted)
        self._line.append(reservation)
        self._serve_line()
        return reservation

    def change_capacity(self, capacity_bytes: int | None) -> None:
        self.capacity_bytes = capacity_bytes
        self._serve_line()

    def take_back(self, reservation: Reservation) -> None:
        """For Reservation.release only."""
        if reservation.is_granted:
            self.used_bytes -= reservation.size_bytes
            assert_always(self.used_bytes >= 0, "memory.negative", used=self.used_bytes)
        else:
            self._line.remove(reservation)
        self._serve_line()

    def _serve_line(self) -> None:
        while self._line and self._fits(self._line[0].size_bytes):
            reservation = self._line.popleft()
            self.used_bytes += reservation.size_bytes
            reservation.grant()

    def _fits(self, size_bytes: int) -> bool:
        return (
            self.capacity_bytes is None
            or self.used_bytes == 0
            or self.used_bytes + size_bytes <= self.capacity_bytes
        )
