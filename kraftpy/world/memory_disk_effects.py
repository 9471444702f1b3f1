"""Everything that can happen to a memory disk, as values.

Each change is one effect with a number, ascending in the order of issue over all files and
directories. `Write` and `Resize` change a file, `Create`, `Remove` and `Rename` change names; these
five are *unsynced* until a `Sync` covers them, and a power loss may keep any part of them. The
others say what happened to unsynced effects or to the medium. Applied in order to a copy of the
image that they were recorded on, effects give the same image again.

Files and directories are meant by inode, the number of the effect that created them; 0 is the root.
Paths are those by which the caller reached them, for people and for fault patterns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from kraftpy.world.quick import quickly_made

__all__ = [
    "ROOT",
    "Create",
    "Effect",
    "FailedSync",
    "FileEffect",
    "NameEffect",
    "PowerLoss",
    "Remove",
    "Rename",
    "Resize",
    "Rot",
    "Sync",
    "UnsyncedEffect",
    "Write",
]

ROOT = 0


@quickly_made
@dataclass(frozen=True, slots=True)
class Write:
    effect_id: int
    inode: int
    path: str
    position: int
    data: bytes
    # The file's size when this was issued: tells which part made the file grow.
    size_before: int

    @property
    def end(self) -> int:
        return self.position + len(self.data)

    def between(self, start: int, end: int) -> Write:
        """What this write does to the file's bytes from `start` to `end`."""
        start = max(start, self.position)
        return replace(
            self, position=start, data=self.data[start - self.position : end - self.position]
        )


@dataclass(frozen=True, slots=True)
class Resize:
    effect_id: int
    inode: int
    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Create:
    """A file or a directory appears. The new inode's number is `effect_id`."""

    effect_id: int
    directory: int
    name: str
    path: str
    is_directory: bool

    @property
    def inode(self) -> int:
        return self.effect_id


@dataclass(frozen=True, slots=True)
class Remove:
    """The name of a file, or of an empty directory, disappears."""

    effect_id: int
    directory: int
    name: str
    path: str
    inode: int
    is_directory: bool


@dataclass(frozen=True, slots=True)
class Rename:
    """One name disappears and another appears, at once, across directories too.

    `replaced` is the inode that had the new name, if there was one.
    """

    effect_id: int
    directory: int
    name: str
    path: str
    new_directory: int
    new_name: str
    new_path: str
    inode: int
    replaced: int | None
    is_directory: bool


@quickly_made
@dataclass(frozen=True, slots=True)
class Sync:
    """A file's or a directory's effects up to number `covers` became durable."""

    effect_id: int
    inode: int
    path: str
    covers: int


@dataclass(frozen=True, slots=True)
class FailedSync:
    """Those effects will never become durable.

    Until power is lost reading still shows them, unless `reverted`, which applies to files.
    """

    effect_id: int
    inode: int
    path: str
    covers: int
    reverted: bool


@dataclass(frozen=True, slots=True)
class Rot:
    """Bits of one byte flipped on the medium and wherever else that byte is kept."""

    effect_id: int
    inode: int
    path: str
    position: int
    mask: int


@dataclass(frozen=True, slots=True)
class PowerLoss:
    """Of the unsynced effects only these, in this order, reached the medium."""

    effect_id: int
    survivors: tuple[UnsyncedEffect, ...]


FileEffect: TypeAlias = Write | Resize
NameEffect: TypeAlias = Create | Remove | Rename
UnsyncedEffect: TypeAlias = FileEffect | NameEffect
Effect: TypeAlias = UnsyncedEffect | Sync | FailedSync | Rot | PowerLoss
