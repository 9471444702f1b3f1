"""The Disk port in memory: the simulator's disk, which can lose power and fail in every known way.

A call becomes one or more effects (memory_disk_effects), each applied to the image
(memory_disk_image) and told to the observers. Because a disk's state follows from its effects
alone, a recording of them gives the disk at any moment of the past, and a power loss is no more
than the list of unsynced effects that reached the medium: `crash_keeping(survivors)`. The seven
policies of memory_disk_crash choose such lists; `crash(policy, random)` applies one. Faults of the
running disk are in memory_disk_faults.

The disk outlives the node that uses it. When a node dies, the simulation calls `power_off`, lets
the node's tasks unwind, and then `crash`, after which the same object is the image for the node's
next incarnation. From `power_off` on every handle, lock and call of the old incarnation is dead:
it changes nothing and raises PowerLost. `crash` alone does all of it at once.

An awaited call can be cancelled until it has begun. From then on it runs to its end, which is when
its effect happens, just like the threads of the real disk; only the loss of power ends it early.
A sync covers what was issued before the call, not what was issued while it was under way.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from kraftpy.world.memory_disk_effects import Create, Effect, NameEffect, Remove, Rename
from kraftpy.world.memory_disk_image import Content, DirectoryInode, FileInode, disk_error
from kraftpy.world.memory_disk_medium import Medium, PowerLost
from kraftpy.world.ports import Buffer, DiskSpace, File, FileLock, FileStat

__all__ = ["MemoryDisk", "MemoryFile", "PowerLost", "Recording"]

_UNLIMITED_BYTES = 1 << 40


class MemoryFile:
    __slots__ = ("_closed", "_incarnation", "_inode", "_medium", "_path", "_writable")

    def __init__(self, medium: Medium, inode: FileInode, path: str, *, writable: bool) -> None:
        self._medium = medium
        self._incarnation = medium.incarnation
        self._inode = inode
        self._path = path
        self._writable = writable
        self._closed = False
        inode.handles += 1

    def _open_inode(self) -> FileInode:
        if self._incarnation != self._medium.incarnation:
            raise PowerLost(errno.EIO, "power lost", self._path)
        if self._closed:
            raise disk_error(errno.EBADF, self._path)
        return self._inode

    @property
    def path(self) -> str:
        return self._path

    @property
    def content(self) -> Content:
        """For those who look from outside, and want to know whether it is still the same."""
        return self._open_inode().seen

    def size(self) -> int:
        return self._open_inode().seen.size

    def pread(self, length: int, position: int) -> bytes:
        return self._medium.read_file(self._open_inode(), self._path, length, position)

    def pread_into(self, buffer: memoryview, position: int) -> int:
        data = self.pread(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def pwrite(self, parts: Sequence[Buffer], position: int) -> int:
        inode = self._open_inode()
        if not self._writable:
            raise disk_error(errno.EBADF, self._path)
        data = b"".join(parts)
        if data:
            self._medium.write_file(inode, self._path, data, position)
        return len(data)

    def truncate(self, size: int) -> None:
        inode = self._open_inode()
        if size < 0 or not self._writable:
            raise disk_error(errno.EINVAL, self._path)
        self._medium.resize_file(inode, self._path, size)

    async def read(self, length: int, position: int) -> bytes:
        inode = self._open_inode()
        await self._medium.reach_medium(self._path)
        return self._medium.read_file(inode, self._path, length, position)

    def resident(self, position: int, length: int) -> bool:
        self._open_inode()
        return length <= 0 or not self._medium.is_cold(self._path)

    async def warm(self, position: int, length: int) -> None:
        await self.read(length, position)

    async def sync(self) -> None:
        await self._medium.sync_inode(self._open_inode(), self._path)

    async def sync_data(self) -> None:
        await self._medium.sync_inode(self._open_inode(), self._path)

    @property
    def is_open(self) -> bool:
        return not self._closed and self._incarnation == self._medium.incarnation

    def close(self) -> None:
        if self.is_open:
            self._inode.handles -= 1
        self._closed = True


class MemoryFileLock:
    __slots__ = ("_file", "_inode")

    def __init__(self, file: MemoryFile, inode: FileInode) -> None:
        self._file = file
        self._inode = inode
        inode.locked = True

    def release(self) -> None:
        # After a power loss the lock may be the next incarnation's.
        if self._file.is_open:
            self._inode.locked = False
            self._file.close()


class MemoryDisk(Medium):
    __slots__ = ()

    def open(
        self, path: str, *, write: bool = False, create: bool = False, exclusive: bool = False
    ) -> File:
        return self._open(path, write=write, create=create, exclusive=exclusive)

    def _open(self, path: str, *, write: bool, create: bool, exclusive: bool) -> MemoryFile:
        self.check_power(path)
        image = self.image
        directory, name = image.parent(path)
        if create and name not in directory.seen:
            self._create(path, is_directory=False)
        elif create and exclusive:
            raise disk_error(errno.EEXIST, path)
        inode = image.child(directory, name, path)
        if isinstance(inode, DirectoryInode):
            raise disk_error(errno.EISDIR, path)
        return MemoryFile(self, inode, path, writable=write)

    def lock(self, path: str) -> FileLock:
        file = self._open(path, write=True, create=True, exclusive=False)
        inode = file._open_inode()
        if inode.locked:
            file.close()
            raise disk_error(errno.EWOULDBLOCK, path)
        return MemoryFileLock(file, inode)

    async def rename(self, old: str, new: str) -> None:
        await self.reach_medium(old)
        image = self.image
        directory, name = image.parent(old)
        new_directory, new_name = image.parent(new)
        inode = image.child(directory, name, old)
        is_directory = isinstance(inode, DirectoryInode)
        if isinstance(inode, DirectoryInode) and image.is_within(new_directory, inode):
            raise disk_error(errno.EINVAL, old, new)
        replaced = new_directory.seen.get(new_name)
        if replaced == inode.number:
            return
        if replaced is not None:
            target = image.inodes[replaced]
            if isinstance(target, DirectoryInode):
                if image.is_within(directory, target) or (is_directory and target.seen):
                    raise disk_error(errno.ENOTEMPTY, old, new)
                if not is_directory:
                    raise disk_error(errno.EISDIR, old, new)
            elif is_directory:
                raise disk_error(errno.ENOTDIR, old, new)
        self._perform_on_names(
            Rename(
                effect_id=image.next_effect_id,
                directory=directory.number,
                name=name,
                path=old,
                new_directory=new_directory.number,
                new_name=new_name,
                new_path=new,
                inode=inode.number,
                replaced=replaced,
                is_directory=is_directory,
            )
        )

    async def unlink(self, path: str) -> None:
        await self.reach_medium(path)
        directory, name = self.image.parent(path)
        inode = self.image.child(directory, name, path)
        if isinstance(inode, DirectoryInode):
            raise disk_error(errno.EISDIR, path)
        self._remove(directory, name, path, inode)

    async def make_directory(self, path: str) -> None:
        await self.reach_medium(path)
        for missing in self.image.missing_directories(path):
            self._create(missing, is_directory=True)

    async def remove_directory(self, path: str) -> None:
        await self.reach_medium(path)
        directory, name = self.image.parent(path)
        inode = self.image.child(directory, name, path)
        if isinstance(inode, FileInode):
            raise disk_error(errno.ENOTDIR, path)
        if inode.seen:
            raise disk_error(errno.ENOTEMPTY, path)
        self._remove(directory, name, path, inode)

    async def remove_tree(self, path: str) -> None:
        for name in await self.list_directory(path):
            await self.unlink(f"{path}/{name}")
        await self.remove_directory(path)

    async def list_directory(self, path: str) -> list[str]:
        await self.reach_medium(path)
        return sorted(self.image.find_directory(path).seen)

    async def stat(self, path: str) -> FileStat:
        await self.reach_medium(path)
        inode = self.image.find(path)
        if isinstance(inode, DirectoryInode):
            return FileStat(size=0, is_directory=True, modified_ms=inode.modified_ms)
        return FileStat(inode.seen.size, is_directory=False, modified_ms=inode.modified_ms)

    async def sync_directory(self, path: str) -> None:
        self.check_power(path)
        await self.sync_inode(self.image.find_directory(path), path)

    async def space(self, path: str) -> DiskSpace:
        await self.reach_medium(path)
        self.image.find(path)
        total = _UNLIMITED_BYTES if self.capacity_bytes is None else self.capacity_bytes
        return DiskSpace(total, max(0, total - self.image.used_bytes()))

    def copy(self) -> MemoryDisk:
        """A disk of its own in the same state, without clock, faults and observers."""
        return MemoryDisk(name=self.name, image=self.image.copy())

    def _perform_on_names(self, effect: NameEffect) -> None:
        self.perform(effect)
        now_ms = self.wall_ms()
        self.image.directory(effect.directory).modified_ms = now_ms
        if isinstance(effect, Rename):
            self.image.directory(effect.new_directory).modified_ms = now_ms

    def _create(self, path: str, *, is_directory: bool) -> None:
        directory, name = self.image.parent(path)
        effect = Create(
            self.image.next_effect_id, directory.number, name, path, is_directory=is_directory
        )
        self._perform_on_names(effect)
        self.image.inodes[effect.inode].modified_ms = directory.modified_ms

    def _remove(
        self, directory: DirectoryInode, name: str, path: str, inode: FileInode | DirectoryInode
    ) -> None:
        self._perform_on_names(
            Remove(
                effect_id=self.image.next_effect_id,
                directory=directory.number,
                name=name,
                path=path,
                inode=inode.number,
                is_directory=isinstance(inode, DirectoryInode),
            )
        )


class Recording:
    """What happened to a disk since this was made, to be crashed at any point ever after.

    `disk_after(count)` is the disk as it was after the first `count` of `effects`; its own
    `effects()` are those that were unsynced then.
    """

    __slots__ = ("_image", "effects")

    def __init__(self, disk: MemoryDisk) -> None:
        self._image = disk.image.copy()
        self.effects: list[Effect] = []
        disk.observe(self.effects.append)

    def disk_after(self, count: int) -> MemoryDisk:
        image = self._image.copy()
        for effect in self.effects[:count]:
            image.apply(effect)
        return MemoryDisk(image=image)
