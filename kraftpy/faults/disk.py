"""The disk of a node whose writes, reads and syncs may be made to fail.

A full disk takes what fits into the space that files have already: writing within a file works,
making it longer does not.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

from kraftpy.faults.state import NodeFaults
from kraftpy.world import Buffer, Disk, DiskSpace, File, FileLock, FileStat

__all__ = ["FaultyDisk"]


class FaultyFile:
    __slots__ = ("_faults", "_file", "_open_files")

    def __init__(self, file: File, faults: NodeFaults, open_files: dict[FaultyFile, None]) -> None:
        self._file = file
        self._faults = faults
        self._open_files = open_files
        open_files[self] = None

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
        if faults.takes_torn_write():
            data = b"".join(parts)
            self._file.pwrite([data[: len(data) // 2]], position)
            faults.die()
            # Where dying takes a moment, the node must not believe that it has written.
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        return self._file.pwrite(parts, position)

    def truncate(self, size: int) -> None:
        self._faults.check_disk("write", self.path)
        self._file.truncate(size)

    async def read(self, length: int, position: int) -> bytes:
        self._faults.check_disk("read", self.path)
        return await self._file.read(length, position)

    def resident(self, position: int, length: int) -> bool:
        return self._file.resident(position, length)

    async def warm(self, position: int, length: int) -> None:
        self._faults.check_disk("read", self.path)
        await self._file.warm(position, length)

    async def sync(self) -> None:
        self._faults.check_disk("sync", self.path)
        await self._file.sync()

    async def sync_data(self) -> None:
        self._faults.check_disk("sync", self.path)
        await self._file.sync_data()

    def close(self) -> None:
        self._open_files.pop(self, None)
        self._file.close()


class FaultyDisk:
    """As the disk it is made of, as long as `faults` has nothing against it."""

    __slots__ = ("_disk", "_faults", "_open_files")

    def __init__(self, disk: Disk, faults: NodeFaults) -> None:
        self._disk = disk
        self._faults = faults
        self._open_files: dict[FaultyFile, None] = {}

    def close_all(self) -> None:
        """As the system does when a process ends."""
        for file in list(self._open_files):
            file.close()

    def open(
        self, path: str, *, write: bool = False, create: bool = False, exclusive: bool = False
    ) -> File:
        if create and self._faults.is_full:
            try:
                file = self._disk.open(path, write=write)
            except FileNotFoundError:
                self._faults.check_space(path)
                raise
            if exclusive:
                file.close()
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        else:
            file = self._disk.open(path, write=write, create=create, exclusive=exclusive)
        return FaultyFile(file, self._faults, self._open_files)

    def lock(self, path: str) -> FileLock:
        return self._disk.lock(path)

    async def rename(self, old: str, new: str) -> None:
        self._faults.check_disk("write", old)
        await self._disk.rename(old, new)

    async def unlink(self, path: str) -> None:
        self._faults.check_disk("write", path)
        await self._disk.unlink(path)

    async def make_directory(self, path: str) -> None:
        self._faults.check_disk("write", path)
        self._faults.check_space(path)
        await self._disk.make_directory(path)

    async def remove_directory(self, path: str) -> None:
        self._faults.check_disk("write", path)
        await self._disk.remove_directory(path)

    async def list_directory(self, path: str) -> list[str]:
        self._faults.check_disk("read", path)
        return await self._disk.list_directory(path)

    async def stat(self, path: str) -> FileStat:
        return await self._disk.stat(path)

    async def sync_directory(self, path: str) -> None:
        self._faults.check_disk("sync", path)
        await self._disk.sync_directory(path)

    async def space(self, path: str) -> DiskSpace:
        found = await self._disk.space(path)
        return DiskSpace(found.total_bytes, 0) if self._faults.is_full else found
