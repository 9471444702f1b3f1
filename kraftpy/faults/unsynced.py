"""What a loss of power would take from a node's files: how to have them as they were last synced.

For each file with unsynced changes the size that it had is kept, and the bytes that were written
over or cut off since. Names are taken to be durable at once, which is kinder than a real disk: the
simulator has the whole truth (`kraftpy.world.memory_disk_crash`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kraftpy.world import Disk, File

__all__ = ["Undo", "UnsyncedChanges"]


@dataclass(slots=True)
class Undo:
    """The way back of one file."""

    size: int
    replaced: list[tuple[int, bytes]] = field(default_factory=list)
    """Position and bytes, in the order in which they were lost."""


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
            undo.replaced.append((size, file.pread(undo.size - size, size)))

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
