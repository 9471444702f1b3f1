"""A lock that costs next to nothing while nobody holds it: a node has one for each log.

trio's takes 280 bytes. Whoever waits holds on to the lock that was there; it is let go of when the
last of them leaves.
"""

from __future__ import annotations

import trio

__all__ = ["Turn"]


class Turn:
    """`async with turn:`, one at a time and in order."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock: trio.Lock | None = None

    def locked(self) -> bool:
        return self._lock is not None

    async def __aenter__(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        lock = self._lock
        if lock is None:
            # At once: a turn of the loop is time that whoever waits for a flush would wait.
            self._lock = trio.Lock()
            self._lock.acquire_nowait()
            return
        try:
            await lock.acquire()
        except BaseException:
            self._forget_unused(lock)
            raise

    async def __aexit__(self, *_: object) -> None:
        lock = self._lock
        assert lock is not None
        lock.release()
        self._forget_unused(lock)

    def _forget_unused(self, lock: trio.Lock) -> None:
        # Released to somebody who waits, it is locked still.
        if not lock.locked() and self._lock is lock:
            self._lock = None
