"""Where the log's tests put their files, and a disk that tells what was asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kraftpy.log.handles import HandlePool
from kraftpy.world import Buffer, Disk, DiskSpace, File, FileLock, FileStat


@dataclass
class Place:
    """An empty directory on one of the disks."""

    disk: Disk
    directory: str
    pool: HandlePool

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def put(self, name: str, content: bytes) -> str:
        file = self.disk.open(self.path(name), write=True, create=True)
        file.truncate(0)
        file.pwrite([content], 0)
        file.close()
        return self.path(name)

    def get(self, name: str) -> bytes:
        file = self.disk.open(self.path(name))
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()


@dataclass
class Tally:
    opens: list[str] = field(default_factory=list)
    # (position, length)
    reads: list[tuple[int, int]] = field(default_factory=list)


class TalliedFile:
    """A File that notes what is read from it."""

    def __init__(self, file: File, tally: Tally) -> None:
        self._file = file
        self._tally = tally

    @property
    def path(self) -> str:
        return self._file.path

    def size(self) -> int:
        return self._file.size()

    def pread(self, length: int, position: int) -> bytes:
        self._tally.reads.append((position, length))
        return self._file.pread(length, position)

    def pread_into(self, buffer: memoryview, position: int) -> int:
        self._tally.reads.append((position, len(buffer)))
        return self._file.pread_into(buffer, position)

    def pwrite(self, parts: Sequence[Buffer], position: int) -> int:
        return self._file.pwrite(parts, position)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    async def read(self, length: int, position: int) -> bytes:
        self._tally.reads.append((position, length))
        return await self._file.read(length, position)

    def resident(self, position: int, length: int) -> bool:
        return self._file.resident(position, length)

    async def warm(self, position: int, length: int) -> None:
        await self._file.warm(position, length)

    async def sync(self) -> None:
        await self._file.sync()

    async def sync_data(self) -> None:
        await self._file.sync_data()

    def close(self) -> None:
        self._file.close()


class TalliedDisk:
    """A Disk that notes what is opened on it and read from it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.tally = Tally()

    def open(
        self, path: str, *, write: bool = False, create: bool = False, exclusive: bool = False
    ) -> File:
        self.tally.opens.append(path)
        file = self._disk.open(path, write=write, create=create, exclusive=exclusive)
        return TalliedFile(file, self.tally)

    def lock(self, path: str) -> FileLock:
        return self._disk.lock(path)

    async def rename(self, old: str, new: str) -> None:
        await self._disk.rename(old, new)

    async def unlink(self, path: str) -> None:
        await self._disk.unlink(path)

    async def make_directory(self, path: str) -> None:
        await self._disk.make_directory(path)

    async def remove_directory(self, path: str) -> None:
        await self._disk.remove_directory(path)

    async def remove_tree(self, path: str) -> None:
        await self._disk.remove_tree(path)

    async def list_directory(self, path: str) -> list[str]:
        return await self._disk.list_directory(path)

    async def stat(self, path: str) -> FileStat:
        return await self._disk.stat(path)

    async def sync_directory(self, path: str) -> None:
        await self._disk.sync_directory(path)

    async def space(self, path: str) -> DiskSpace:
        return await self._disk.space(path)
