"""The producer snapshots of a partition directory: `<offset>.snapshot` files.

Written to the page cache when a segment is rolled, or when the last transaction marker before that
is replicated, and synced with the flush that follows, before segments are deleted at the latest. So
after a crash the latest may be torn: its checksum tells, and then it is removed and an older one,
with a longer replay, takes its place.
"""

from __future__ import annotations

import logging
from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Iterator

from kraftpy.log.errors import CorruptSnapshotError
from kraftpy.log.producer_entries import ProducerEntry, decode_snapshot
from kraftpy.log.segment_files import FileKind, file_name
from kraftpy.world import Disk

__all__ = ["ProducerSnapshots"]

_log = logging.getLogger(__name__)


class ProducerSnapshots:
    """Which snapshots there are, in memory and in files alike."""

    __slots__ = ("_directory", "_disk", "_offsets", "_unsynced")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._offsets: list[int] = []
        self._unsynced: list[int] = []

    def found(self, offsets: Iterable[int]) -> None:
        """These are there, says the directory."""
        self._offsets = sorted(offsets)

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(self._offsets)

    @property
    def latest(self) -> int | None:
        return self._offsets[-1] if self._offsets else None

    @property
    def has_unsynced(self) -> bool:
        return bool(self._unsynced)

    def path(self, offset: int) -> str:
        return f"{self._directory}/{file_name(offset, FileKind.SNAPSHOT)}"

    def moved(self, directory: str) -> None:
        """The directory was renamed."""
        self._directory = directory

    def write(self, offset: int, data: bytes) -> None:
        file = self._disk.open(self.path(offset), write=True, create=True)
        try:
            file.truncate(0)
            file.pwrite([data], 0)
        finally:
            file.close()
        if offset not in self._offsets:
            insort(self._offsets, offset)
        self._unsynced.append(offset)

    async def sync(self) -> None:
        """Make those written since the last time durable, but for their names."""
        while self._unsynced:
            offset = self._unsynced[-1]
            if offset in self._offsets:
                file = self._disk.open(self.path(offset))
                try:
                    await file.sync()
                finally:
                    file.close()
            self._unsynced.remove(offset)

    async def load(self, end_offset: int) -> tuple[int, Iterator[ProducerEntry]] | None:
        """The latest sound one that does not reach beyond `end_offset`; damaged ones are removed.

        None: there is none, and the log must be replayed from its start.
        """
        while (index := bisect_right(self._offsets, end_offset)) > 0:
            offset = self._offsets[index - 1]
            path = self.path(offset)
            file = self._disk.open(path)
            try:
                data = await file.read(file.size(), 0)
            finally:
                file.close()
            try:
                return offset, decode_snapshot(data, path)
            except CorruptSnapshotError as failure:
                _log.warning("removed a producer snapshot: %s", failure.message)
                await self.remove(offset)
        return None

    async def remove(self, offset: int) -> None:
        """Remove the one at `offset`, if there is one."""
        if offset in self._offsets:
            self._offsets.remove(offset)
            await self._disk.unlink(self.path(offset))

    async def remove_strays(self, bases: Collection[int]) -> None:
        """Remove those that belong to none of the segments with these base offsets.

        All but the latest: a shutdown leaves one at the log end, and nobody else would remove it.
        """
        for offset in self._offsets[:-1]:
            if offset not in bases:
                await self.remove(offset)

    async def remove_above(self, offset: int) -> None:
        for above in self._offsets[bisect_right(self._offsets, offset) :]:
            await self.remove(above)
