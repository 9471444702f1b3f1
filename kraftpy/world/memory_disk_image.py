"""The state of a memory disk: what is durable, what is seen, and the effects that lie between.

Each file has its durable content and the content that readers see; each directory its durable
names and those that are seen. An effect changes what is seen at once and joins the pending effects.
A sync moves a prefix of one inode's pending effects onto the durable side; a power loss moves a
chosen list of them, forgets the others and starts over from what is durable. Nothing is ever
undone, so that the cost of each step is that of the bytes it moves.

What POSIX leaves open is decided so:

- Syncing a file makes its data and size durable, not its name; a name is durable when its directory
  is synced. An inode without a durable name is lost.
- File effects reach the medium in any order. Effects on names do so too, as long as they don't
  build on each other: one survives only if the names it touches are on the medium as they were when
  it was issued, and no directory is cut off with content in it. This is what journals and
  soft updates guarantee at the least; without it a lost rename could take a synced file with it.
- A rename is one effect. Across directories it is durable when either of them is synced. As it may
  build on others, and so may the removal of a directory, syncing it makes all earlier effects on
  names durable, as the commit of a journal does.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from posixpath import normpath

from kraftpy.world.invariants import InternalInvariant
from kraftpy.world.memory_disk_effects import (
    ROOT,
    Create,
    Effect,
    FailedSync,
    FileEffect,
    NameEffect,
    PowerLoss,
    Remove,
    Rename,
    Resize,
    Rot,
    Sync,
    UnsyncedEffect,
    Write,
)

__all__ = ["Content", "DirectoryInode", "FileInode", "Image", "disk_error"]


class Content:
    """Bytes with a sparse tail: what lies behind `data`, up to `size`, is zeros and takes no room.

    That is enough for files preallocated by truncate.
    """

    __slots__ = ("changes", "data", "size")

    def __init__(self) -> None:
        self.data = bytearray()
        self.size = 0
        # How often bytes below `size` became others or were cut off; not by growing.
        self.changes = 0

    def copy(self) -> Content:
        copy = Content()
        copy.data[:] = self.data
        copy.size = self.size
        return copy

    def read(self, length: int, position: int) -> bytes:
        length = max(0, min(length, self.size - position))
        with memoryview(self.data) as view:
            data = bytes(view[position : position + length])
        return data if len(data) == length else data + bytes(length - len(data))

    def apply(self, effect: FileEffect) -> None:
        if isinstance(effect, Resize):
            self.changes += effect.size < self.size
            del self.data[effect.size :]
            self.size = effect.size
        elif effect.data:
            self.changes += effect.position < self.size
            gap = effect.position - len(self.data)
            if gap > 0:
                self.data += bytes(gap)
            self.data[effect.position : effect.end] = effect.data
            self.size = max(self.size, effect.end)

    def flip(self, position: int, mask: int) -> None:
        if position < len(self.data):
            self.changes += 1
            self.data[position] ^= mask


class FileInode:
    __slots__ = ("durable", "handles", "locked", "modified_ms", "number", "pending", "seen")

    def __init__(self, number: int) -> None:
        self.number = number
        self.durable = Content()
        self.seen = Content()
        self.pending: dict[int, FileEffect] = {}
        self.modified_ms = 0
        self.handles = 0
        self.locked = False

    def copy(self) -> FileInode:
        copy = FileInode(self.number)
        copy.durable = self.durable.copy()
        copy.seen = self.seen.copy()
        copy.pending = self.pending.copy()
        copy.modified_ms = self.modified_ms
        return copy

    def take_pending(self, covers: int) -> list[FileEffect]:
        taken = [effect for effect in self.pending.values() if effect.effect_id <= covers]
        for effect in taken:
            del self.pending[effect.effect_id]
        return taken


class DirectoryInode:
    __slots__ = ("durable", "modified_ms", "number", "pending", "seen")

    def __init__(self, number: int) -> None:
        self.number = number
        self.durable: dict[str, int] = {}
        self.seen: dict[str, int] = {}
        # A rename across directories is pending in both.
        self.pending: dict[int, NameEffect] = {}
        self.modified_ms = 0

    def copy(self) -> DirectoryInode:
        copy = DirectoryInode(self.number)
        copy.durable = self.durable.copy()
        copy.seen = self.seen.copy()
        copy.pending = self.pending.copy()
        copy.modified_ms = self.modified_ms
        return copy


def disk_error(code: int, path: str, other: str | None = None) -> OSError:
    return OSError(code, os.strerror(code), path, None, other)


def _names(path: str) -> list[str]:
    if not path.startswith("/"):
        raise ValueError(f"not an absolute path: {path!r}")
    return [name for name in normpath(path).split("/") if name]


def _as_directory(inode: FileInode | DirectoryInode, path: str) -> DirectoryInode:
    if isinstance(inode, FileInode):
        raise disk_error(errno.ENOTDIR, path)
    return inode


def _directories_of(effect: NameEffect) -> tuple[int, ...]:
    if isinstance(effect, Rename) and effect.new_directory != effect.directory:
        return effect.directory, effect.new_directory
    return (effect.directory,)


def _builds_on_others(effect: NameEffect) -> bool:
    """May this effect depend on effects outside of its own directory?"""
    return len(_directories_of(effect)) > 1 or (
        effect.is_directory and not isinstance(effect, Create)
    )


class Image:
    __slots__ = ("inodes", "next_effect_id", "pending")

    def __init__(self) -> None:
        self.inodes: dict[int, FileInode | DirectoryInode] = {ROOT: DirectoryInode(ROOT)}
        self.next_effect_id = ROOT + 1
        # All unsynced effects, in the order of issue.
        self.pending: dict[int, UnsyncedEffect] = {}

    def copy(self) -> Image:
        copy = Image()
        copy.inodes = {number: inode.copy() for number, inode in self.inodes.items()}
        copy.next_effect_id = self.next_effect_id
        copy.pending = self.pending.copy()
        return copy

    def directory(self, number: int) -> DirectoryInode:
        inode = self.inodes[number]
        if not isinstance(inode, DirectoryInode):
            raise InternalInvariant(f"inode-not-directory number={number}")
        return inode

    # Names, as they are seen; errors are those of Linux.

    def find(self, path: str) -> FileInode | DirectoryInode:
        return self._walk(_names(path), path)

    def find_directory(self, path: str) -> DirectoryInode:
        return _as_directory(self.find(path), path)

    def parent(self, path: str) -> tuple[DirectoryInode, str]:
        """The directory in which `path` is or would be, and its name there."""
        names = _names(path)
        if not names:
            raise disk_error(errno.EBUSY, path)
        return _as_directory(self._walk(names[:-1], path), path), names[-1]

    def child(self, directory: DirectoryInode, name: str, path: str) -> FileInode | DirectoryInode:
        number = directory.seen.get(name)
        if number is None:
            raise disk_error(errno.ENOENT, path)
        return self.inodes[number]

    def _walk(self, names: Sequence[str], path: str) -> FileInode | DirectoryInode:
        inode = self.inodes[ROOT]
        for name in names:
            inode = self.child(_as_directory(inode, path), name, path)
        return inode

    def is_within(self, directory: DirectoryInode, ancestor: DirectoryInode) -> bool:
        """Is `directory` the same as `ancestor`, or below it?"""
        return self._reaches(ancestor.number, directory.number, durably=False)

    def _reaches(self, start: int, goal: int, *, durably: bool) -> bool:
        waiting = [start]
        while waiting:
            inode = self.inodes[waiting.pop()]
            if inode.number == goal:
                return True
            if isinstance(inode, DirectoryInode):
                waiting += (inode.durable if durably else inode.seen).values()
        return False

    def missing_directories(self, path: str) -> list[str]:
        """The paths to be created, outermost first, for a directory to be at `path`."""
        names = _names(path)
        inode = self.inodes[ROOT]
        for depth, name in enumerate(names):
            number = _as_directory(inode, path).seen.get(name)
            if number is None:
                return ["/" + "/".join(names[:end]) for end in range(depth + 1, len(names) + 1)]
            inode = self.inodes[number]
        if isinstance(inode, FileInode):
            raise disk_error(errno.EEXIST, path)
        return []

    def files(self) -> Iterator[tuple[str, FileInode]]:
        """Every file that has a name, with its path, in the order of paths."""
        waiting = [("", ROOT)]
        while waiting:
            path, number = waiting.pop()
            inode = self.inodes[number]
            if isinstance(inode, FileInode):
                yield path, inode
            else:
                entries = sorted(inode.seen.items(), reverse=True)
                waiting += [(f"{path}/{name}", child) for name, child in entries]

    def used_bytes(self) -> int:
        """What files with a name or an open handle take."""
        used = {inode.number: len(inode.seen.data) for _, inode in self.files()}
        for inode in self.inodes.values():
            if isinstance(inode, FileInode) and inode.handles:
                used[inode.number] = len(inode.seen.data)
        return sum(used.values())

    def apply(self, effect: Effect) -> None:
        self.next_effect_id = effect.effect_id + 1
        match effect:
            case Write() | Resize():
                inode = self.inodes.get(effect.inode)
                # In a replay nobody holds a file open, so that one without a name may be gone.
                if isinstance(inode, FileInode):
                    inode.seen.apply(effect)
                    inode.pending[effect.effect_id] = self.pending[effect.effect_id] = effect
            case Create() | Remove() | Rename():
                self._apply_to_names(effect)
            case Sync():
                self._sync(effect)
            case FailedSync():
                self._fail_sync(effect)
            case Rot():
                self._rot(effect)
            case PowerLoss():
                self._lose_power(effect.survivors)

    def _apply_to_names(self, effect: NameEffect) -> None:
        entries = self.directory(effect.directory).seen
        if isinstance(effect, Create):
            kind = DirectoryInode if effect.is_directory else FileInode
            self.inodes[effect.inode] = kind(effect.inode)
            entries[effect.name] = effect.inode
        else:
            del entries[effect.name]
            if isinstance(effect, Rename):
                self.directory(effect.new_directory).seen[effect.new_name] = effect.inode
        self.pending[effect.effect_id] = effect
        for number in _directories_of(effect):
            self.directory(number).pending[effect.effect_id] = effect

    def _sync(self, sync: Sync) -> None:
        inode = self.inodes.get(sync.inode)
        if isinstance(inode, FileInode):
            for effect in inode.take_pending(sync.covers):
                inode.durable.apply(effect)
                del self.pending[effect.effect_id]
        elif inode is not None:
            effects = self._names_to_sync(inode, sync.covers)
            for name_effect in effects:
                self._persist_names(name_effect)
                self._forget(name_effect)
            if not all(isinstance(effect, Create) for effect in effects):
                self._sweep()

    def _names_to_sync(self, directory: DirectoryInode, covers: int) -> list[NameEffect]:
        own = [effect for effect in directory.pending.values() if effect.effect_id <= covers]
        builders = [effect.effect_id for effect in own if _builds_on_others(effect)]
        if not builders:
            return own
        return [
            effect
            for effect in self.pending.values()
            if isinstance(effect, NameEffect)
            and (
                effect.effect_id <= builders[-1]
                or (effect.effect_id <= covers and directory.number in _directories_of(effect))
            )
        ]

    def _fail_sync(self, failure: FailedSync) -> None:
        inode = self.inodes.get(failure.inode)
        if isinstance(inode, FileInode):
            for effect in inode.take_pending(failure.covers):
                del self.pending[effect.effect_id]
            if failure.reverted:
                inode.seen = inode.durable.copy()
                for effect in inode.pending.values():
                    inode.seen.apply(effect)
        elif inode is not None:
            for name_effect in list(inode.pending.values()):
                if name_effect.effect_id <= failure.covers:
                    self._forget(name_effect)

    def _forget(self, effect: NameEffect) -> None:
        del self.pending[effect.effect_id]
        for number in _directories_of(effect):
            del self.directory(number).pending[effect.effect_id]

    def _persist_names(self, effect: NameEffect) -> None:
        """Bring the effect onto the medium if all that it builds on is there."""
        entries = self.directory(effect.directory).durable
        match effect:
            case Create():
                entries.setdefault(effect.name, effect.inode)
            case Remove():
                if entries.get(effect.name) == effect.inode and self._is_bare(effect.inode):
                    del entries[effect.name]
            case Rename():
                new_entries = self.directory(effect.new_directory).durable
                if (
                    entries.get(effect.name) == effect.inode
                    and new_entries.get(effect.new_name) == effect.replaced
                    and (effect.replaced is None or self._is_bare(effect.replaced))
                    and not self._reaches(effect.inode, effect.new_directory, durably=True)
                ):
                    del entries[effect.name]
                    new_entries[effect.new_name] = effect.inode

    def _is_bare(self, number: int) -> bool:
        """Would nothing else be lost with this inode?"""
        inode = self.inodes[number]
        return isinstance(inode, FileInode) or not inode.durable

    def _rot(self, rot: Rot) -> None:
        inode = self.inodes.get(rot.inode)
        if not isinstance(inode, FileInode):
            return
        inode.seen.flip(rot.position, rot.mask)
        inode.durable.flip(rot.position, rot.mask)
        for effect in list(inode.pending.values()):
            if isinstance(effect, Write) and effect.position <= rot.position < effect.end:
                data = bytearray(effect.data)
                data[rot.position - effect.position] ^= rot.mask
                rotten = replace(effect, data=bytes(data))
                inode.pending[effect.effect_id] = self.pending[effect.effect_id] = rotten

    def _lose_power(self, survivors: Sequence[UnsyncedEffect]) -> None:
        for effect in survivors:
            if isinstance(effect, NameEffect):
                self._persist_names(effect)
            else:
                inode = self.inodes.get(effect.inode)
                if isinstance(inode, FileInode):
                    inode.durable.apply(effect)
        self.pending.clear()
        for inode in self.inodes.values():
            inode.pending.clear()
            if isinstance(inode, FileInode):
                inode.seen = inode.durable.copy()
                inode.handles = 0
                inode.locked = False
            else:
                inode.seen = inode.durable.copy()
        self._sweep()

    def _sweep(self) -> None:
        """Drop inodes that no name, no pending effect and no handle can ever bring back."""
        kept: dict[int, None] = {}
        waiting = [ROOT]
        waiting += [
            inode.number
            for inode in self.inodes.values()
            if isinstance(inode, FileInode) and inode.handles
        ]
        while waiting:
            number = waiting.pop()
            if number in kept:
                continue
            kept[number] = None
            inode = self.inodes[number]
            if isinstance(inode, DirectoryInode):
                waiting += inode.durable.values()
                waiting += inode.seen.values()
                for effect in inode.pending.values():
                    waiting.append(effect.inode)
                    if isinstance(effect, Rename):
                        waiting += [effect.directory, effect.new_directory]
                        waiting += [] if effect.replaced is None else [effect.replaced]
        for number in [number for number in self.inodes if number not in kept]:
            for effect_id in self.inodes.pop(number).pending:
                self.pending.pop(effect_id, None)
