"""What a loss of power would take from a node's files: how to have them as they were last synced.

For each file with unsynced changes the size that it had is kept, and the bytes that were written
over or cut off since. Of what was cut off, zeros are not kept: after a crash each partition's
indexes, preallocated to 10 MiB, are cut to their entries, and a node would hold all that. Names are
taken to be durable at once, which is kinder than a real disk: the simulator has the whole truth
(`kraftpy.world.memory_disk_crash`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kraftpy.world import Disk, File

__all__ = ["Undo", "UnsyncedChanges"]

_PIECE_BYTES: Final = 64 * 1024
_ZEROS: Final = bytes(_PIECE_BYTES)


@dataclass(slots=True)
class Undo:
    """The way back of one file."""

    size: int
    replaced: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Position and bytes, in the order in which they were lost; None: the file was cut there, and
    had nothing but zeros behind it where no bytes were noted before.
    """


class UnsyncedChanges:
    __slots__ = ("_undos",)

    def __init__(self) -> None:
        self._undos: dict[str, Undo] = {}

    def writes(self, file: File, position: int, length: int) -> None:
        """Called before the bytes are written."""
        undo = self._undo(file)
        overlap = min(position + length, undo.size) - position
        if overlap > 0:
            undo.replaced.append((position, file.pread(overlap, position)))

    def truncates(self, file: File, size: int) -> None:
        """Called before the file is cut, or grows."""
        undo = self._undo(file)
        if size < undo.size:
            undo.replaced += _pieces(file, size, undo.size)
            undo.replaced.append((size, None))

    def begin_sync(self, path: str) -> Undo | None:
        """What the sync that begins makes durable; what is written from now on is not part of it.

        Undo what was taken, too, if the sync fails: `sync_failed`.
        """
        return self._undos.pop(path, None)

    def sync_failed(self, path: str, undo: Undo) -> None:
        later = self._undos.get(path)
        if later is not None:
            undo.replaced += later.replaced
        self._undos[path] = undo

    def renamed(self, old: str, new: str) -> None:
        self._undos.pop(new, None)
        if old in self._undos:
            self._undos[new] = self._undos.pop(old)

    def removed(self, path: str) -> None:
        self._undos.pop(path, None)

    def lose(self, disk: Disk) -> None:
        """Have every file as it was last synced. Nothing may be written meanwhile, or after."""
        for path, undo in self._undos.items():
            try:
                file = disk.open(path, write=True)
            except FileNotFoundError:
                # Its directory was renamed, as that of a deleted topic is.
                continue
            try:
                for position, data in reversed(undo.replaced):
                    if data is None:
                        file.truncate(position)
                    else:
                        file.pwrite([data], position)
                file.truncate(undo.size)
            finally:
                file.close()
        self._undos.clear()

    def _undo(self, file: File) -> Undo:
        undo = self._undos.get(file.path)
        if undo is None:
            undo = self._undos[file.path] = Undo(file.size())
        return undo


def _pieces(file: File, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """What is there between these positions, without pieces that have nothing but zeros."""
    for position in range(start, end, _PIECE_BYTES):
        data = file.pread(min(_PIECE_BYTES, end - position), position)
        if not _ZEROS.startswith(data):
            yield position, data
