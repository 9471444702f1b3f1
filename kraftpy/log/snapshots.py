"""The producer snapshots of a partition directory: `<offset>.snapshot` files.

Taken when a segment is rolled, or when the last transaction marker before that is replicated. The
file is written in the background, because there may be very many producers, and synced with the
flush that follows, before segments are deleted at the latest. So after a crash the latest may be
missing or torn: its checksum tells, and then it is removed and an older one, with a longer replay,
takes its place.
"""

from __future__ import annotations

import logging
from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Sequence

from kraftpy.log.errors import CorruptSnapshotError
from kraftpy.log.pacing import Pace
from kraftpy.log.producer_entries import (
    ProducerEntry,
    TakenSnapshot,
    decode_snapshot,
    encode_entries,
    in_slices,
    snapshot_parts,
)
from kraftpy.log.segment_files import FileKind, file_name
from kraftpy.world import Disk

__all__ = ["ProducerSnapshots"]

_log = logging.getLogger(__name__)


class ProducerSnapshots:
    """Which snapshots there are, in files or about to be."""

    __slots__ = ("_directory", "_disk", "_offsets", "_taken", "_unsynced")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._offsets: list[int] = []
        # Those that have no file yet, or one of before; the oldest first.
        self._taken: dict[int, tuple[ProducerEntry, ...]] = {}
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
    def has_unwritten(self) -> bool:
        return bool(self._taken)

    @property
    def has_unsynced(self) -> bool:
        return bool(self._unsynced)

    def path(self, offset: int) -> str:
        return f"{self._directory}/{file_name(offset, FileKind.SNAPSHOT)}"

    def moved(self, directory: str) -> None:
        """The directory was renamed."""
        self._directory = directory

    def take(self, snapshot: TakenSnapshot) -> None:
        """It counts from now on; `write` gives it its file."""
        offset, entries = snapshot
        self._taken[offset] = entries
        if offset not in self._offsets:
            insort(self._offsets, offset)

    async def write(self, pace: Pace) -> None:
        """Write those taken, in slices. None may be removed meanwhile."""
        while self._taken:
            offset, entries = next(iter(self._taken.items()))
            encoded = []
            for some in in_slices(entries):
                encoded.append(encode_entries(some))
                await pace.rest(len(encoded[-1]))
            # At one stroke: who finds the file finds it whole, unless the machine has failed.
            self._write(offset, snapshot_parts(encoded))
            del self._taken[offset]
            self._unsynced.append(offset)

    def _write(self, offset: int, parts: Sequence[bytes]) -> None:
        file = self._disk.open(self.path(offset), write=True, create=True)
        try:
            file.truncate(0)
            file.pwrite(parts, 0)
        finally:
            file.close()

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
            if offset in self._taken:
                return offset, iter(self._taken[offset])
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
            is_written = self._taken.pop(offset, None) is None
            try:
                await self._disk.unlink(self.path(offset))
            except FileNotFoundError:
                if is_written:
                    raise

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
