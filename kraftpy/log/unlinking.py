"""Files that have left their log, and go when readers under way have finished with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kraftpy.log.chores import Chores
from kraftpy.log.handles import HandlePool
from kraftpy.world import Disk

__all__ = ["DirectoryOwner", "Unlinking"]


class DirectoryOwner(Protocol):
    """The data directory that the files are in."""

    @property
    def is_online(self) -> bool: ...

    def fail(self, reason: str) -> None:
        """Take the directory offline."""
        ...


class Unlinking:
    """A segment may follow another of its name within the delay, as a segment does that is cleaned
    twice. Then there is one file left, and the later one's delay holds.
    """

    __slots__ = ("_chores", "_disk", "_last_requests", "_number", "_owner", "_pool")

    def __init__(
        self, disk: Disk, pool: HandlePool, chores: Chores, *, owner: DirectoryOwner
    ) -> None:
        self._disk = disk
        self._pool = pool
        self._chores = chores
        self._owner = owner
        # By path, the number of the last request for it.
        self._last_requests: dict[str, int] = {}
        self._number = 0

    def later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Unlink the files when the delay is over."""
        self._number += 1
        number = self._number
        self._last_requests.update(dict.fromkeys(paths, number))

        async def unlink() -> None:
            due = [path for path in paths if self._last_requests.get(path) == number]
            for path in due:
                del self._last_requests[path]
            await self._unlink(due)

        self._chores.later(delay_ms, unlink)

    async def _unlink(self, paths: Sequence[str]) -> None:
        if not self._owner.is_online:
            return
        self._pool.close_paths(frozenset(paths))
        for path in paths:
            try:
                await self._disk.unlink(path)
            except FileNotFoundError:
                # It has left with its directory.
                continue
            except OSError as error:
                self._owner.fail(f"{path} can't be unlinked: {error}")
                return
