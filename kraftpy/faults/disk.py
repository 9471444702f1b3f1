"""The disk of a node whose writes, reads and syncs may be made to fail, or to take long.

A full disk takes what fits into the space that files have already: writing within a file works,
making it longer does not. Of a disk whose reads are slow nothing is in the page cache.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable, Sequence

from kraftpy.faults.state import NodeFaults
from kraftpy.faults.unsynced import UnsyncedChanges
from kraftpy.world import Buffer, Clock, Disk, DiskSpace, File, FileLock, FileStat

__all__ = ["FaultyDisk"]


class FaultyFile:
    __slots__ = ("_disk", "_faults", "_file", "_unsynced")

    def __init__(self, file: File, disk: FaultyDisk) -> None:
        self._file = file
        self._disk = disk
        self._faults = disk.faults
        self._unsynced = disk.unsynced
        disk.open_files[self] = None

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def fileno(self) -> Callable[[], int]:
        """A property, so that `getattr(file, "fileno", None)` tells files without one."""
        getter: Callable[[], int] = self._file.fileno  # type: ignore[attr-defined]
        return getter

    def size(self) -> int:
        return self._file.size()

    def pread(self, length: int, position: int) -> bytes:
        self._faults.check_disk("read", self.path)
        return self._file.pread(length, position)

    def pread_into(self, buffer: memoryview, position: int) -> int:
        self._faults.check_disk("read", self.path)
        return self._file.pread_into(buffer, position)

    def pwrite(self, parts: Sequence[Buffer], position: int) -> int:
        faults = self._faults
        faults.check_disk("write", self.path)
        if faults.is_full and position + sum(map(len, parts)) > self._file.size():
            faults.check_space(self.path)
        self._unsynced.writes(self._file, position, sum(map(len, parts)))
        if faults.takes_torn_write():
            data = b"".join(parts)
            self._file.pwrite([data[: len(data) // 2]], position)
            faults.die()
            # Where dying takes a moment, the node must not believe that it has written.
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        return self._file.pwrite(parts, position)

    def truncate(self, size: int) -> None:
        self._faults.check_disk("write", self.path)
        self._unsynced.truncates(self._file, size)
        self._file.truncate(size)

    async def read(self, length: int, position: int) -> bytes:
        await self._disk.wait("read", self.path)
        return await self._file.read(length, position)

    def resident(self, position: int, length: int) -> bool:
        is_slow = self._faults.disk_delay_ms("read") > 0
        return not is_slow and self._file.resident(position, length)

    async def warm(self, position: int, length: int) -> None:
        await self._disk.wait("read", self.path)
        await self._file.warm(position, length)

    async def sync(self) -> None:
        await self._sync(self._file.sync)

    async def sync_data(self) -> None:
        await self._sync(self._file.sync_data)

    async def _sync(self, sync: Callable[[], Awaitable[None]]) -> None:
        undo = self._unsynced.begin_sync(self.path)
        try:
            await self._disk.wait("sync", self.path)
            await sync()
        except BaseException:
            if undo is not None:
                self._unsynced.sync_failed(self.path, undo)
            raise

    def close(self) -> None:
        self._disk.open_files.pop(self, None)
        self._file.close()


class FaultyDisk:
    """As the disk it is made of, as long as `faults` has nothing against it."""

    __slots__ = ("_clock", "_disk", "faults", "open_files", "unsynced")

    def __init__(self, disk: Disk, faults: NodeFaults, clock: Clock) -> None:
        self._disk = disk
        self._clock = clock
        # For its files.
        self.faults = faults
        self.unsynced = UnsyncedChanges()
        self.open_files: dict[FaultyFile, None] = {}

    def close_all(self) -> None:
        """As the system does when a process ends."""
        for file in list(self.open_files):
            file.close()

    def lose_unsynced(self) -> None:
        """As when the power fails. The node must write nothing afterwards."""
        self.unsynced.lose(self._disk)

    async def wait(self, operation: str, path: str) -> None:
        """For whatever may take long. Raises OSError if the disk can't do that now."""
        delay_ms = self.faults.disk_delay_ms(operation)
        if delay_ms:
            await self._clock.sleep(delay_ms / 1000)
        self.faults.check_disk(operation, path)

    def open(
        self, path: str, *, write: bool = False, create: bool = False, exclusive: bool = False
    ) -> File:
        if create and self.faults.is_full:
            try:
                file = self._disk.open(path, write=write)
            except FileNotFoundError:
                self.faults.check_space(path)
                raise
            if exclusive:
                file.close()
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        else:
            file = self._disk.open(path, write=write, create=create, exclusive=exclusive)
        return FaultyFile(file, self)

    def lock(self, path: str) -> FileLock:
        return self._disk.lock(path)

    async def rename(self, old: str, new: str) -> None:
        self.faults.check_disk("write", old)
        await self._disk.rename(old, new)
        self.unsynced.renamed(old, new)

    async def unlink(self, path: str) -> None:
        self.faults.check_disk("write", path)
        await self._disk.unlink(path)
        self.unsynced.removed(path)

    async def make_directory(self, path: str) -> None:
        self.faults.check_disk("write", path)
        self.faults.check_space(path)
        await self._disk.make_directory(path)

    async def remove_directory(self, path: str) -> None:
        self.faults.check_disk("write", path)
        await self._disk.remove_directory(path)

    async def remove_tree(self, path: str) -> None:
        for name in await self.list_directory(path):
            await self.unlink(f"{path}/{name}")
        await self.remove_directory(path)

    async def list_directory(self, path: str) -> list[str]:
        await self.wait("read", path)
        return await self._disk.list_directory(path)

    async def stat(self, path: str) -> FileStat:
        return await self._disk.stat(path)

    async def sync_directory(self, path: str) -> None:
        await self.wait("sync", path)
        await self._disk.sync_directory(path)

    async def space(self, path: str) -> DiskSpace:
        found = await self._disk.space(path)
        return DiskSpace(found.total_bytes, 0) if self.faults.is_full else found
