"""Open files within a limit, so that ten thousand partitions fit under an ordinary ulimit.

A log holds a PooledFile for each of its files and uses it as a File. The pool opens the real file
when it is first needed, and closes the least recently used one when more than `limit` are open; a
file that was closed that way is opened again by its path when it is needed again. So making a
PooledFile costs nothing, and a node that starts with many partitions opens none of their indexes.

What makes this safe:

- Positions are explicit, so a closed and reopened file continues where it was.
- Closing loses nothing: written bytes are the page cache's, and `sync` through a new descriptor
  covers them. Linux also tells a descriptor opened later of a failed write-back nobody has seen.
- A file in use by an awaited call (sync, read, warm) is never closed under it; if all are, the
  limit is exceeded for that time rather than anybody refused.
- `create` holds for the first opening only. A file that vanished later is an error, not an empty
  file.
- After a rename the owner says `moved`, before anything else can run.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence

from kraftpy.world import Buffer, Disk, File, assert_always

__all__ = ["HandlePool", "PooledFile"]


class HandlePool:
    """At most `limit` files of `disk` open at a time, as far as no awaited call holds more."""

    __slots__ = ("_disk", "_limit", "_open")

    def __init__(self, disk: Disk, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"a pool of {limit} handles can't work")
        self._disk = disk
        self._limit = limit
        # Least recently used first.
        self._open: OrderedDict[PooledFile, File] = OrderedDict()

    @property
    def open_count(self) -> int:
        return len(self._open)

    def file(self, path: str, *, write: bool = False, create: bool = False) -> PooledFile:
        """A file that will be opened when it is first used."""
        directory, _, name = path.rpartition("/")
        return self.file_in(directory, name, write=write, create=create)

    def file_in(
        self, directory: str, name: str, *, write: bool = False, create: bool = False
    ) -> PooledFile:
        """The same, for those who have the parts of its path; many files share them."""
        return PooledFile(self, directory, name, write=write, create=create)

    def acquire(self, pooled: PooledFile) -> File:
        """The open file behind `pooled`, now the most recently used. For PooledFile only."""
        handle = self._open.get(pooled)
        if handle is not None:
            self._open.move_to_end(pooled)
            return handle
        # Room first: at the system's own limit the opening would fail.
        self._evict(self._limit - 1)
        handle = pooled.open_on(self._disk)
        self._open[pooled] = handle
        return handle

    def release(self, pooled: PooledFile) -> None:
        """Close what is open behind `pooled`. For PooledFile only."""
        handle = self._open.pop(pooled, None)
        if handle is not None:
            handle.close()

    def close_paths(self, paths: Collection[str]) -> None:
        """Close what is open under these paths: the files are about to be unlinked.

        An open handle would keep their space on the disk.
        """
        for pooled in [pooled for pooled in self._open if pooled.path in paths]:
            pooled.close()

    def close(self) -> None:
        """Close every file: nobody will use them any more."""
        for pooled in list(self._open):
            pooled.close()

    def trim(self) -> None:
        """Return to the limit after awaited calls had exceeded it. For PooledFile only."""
        self._evict(self._limit)

    def _evict(self, remaining: int) -> None:
        excess = len(self._open) - remaining
        if excess <= 0:
            return
        idle = (pooled for pooled in self._open if not pooled.in_use)
        for pooled in [pooled for pooled, _ in zip(idle, range(excess), strict=False)]:
            self.release(pooled)


class PooledFile:
    """A File that is open only while it is wanted. Made by HandlePool.file."""

    __slots__ = ("_closed", "_create", "_directory", "_name", "_pool", "_uses", "_write")

    def __init__(
        self, pool: HandlePool, directory: str, name: str, *, write: bool, create: bool
    ) -> None:
        self._pool = pool
        self._directory = directory
        self._name = name
        self._write = write
        self._create = create
        self._closed = False
        # Awaited calls under way.
        self._uses = 0

    @property
    def path(self) -> str:
        return f"{self._directory}/{self._name}"

    @property
    def in_use(self) -> bool:
        return self._uses > 0

    def moved(self, new_path: str) -> None:
        """The file was renamed; what is open stays open."""
        self._directory, _, self._name = new_path.rpartition("/")

    def open_on(self, disk: Disk) -> File:
        """Open the real file. For HandlePool only."""
        handle = disk.open(self.path, write=self._write, create=self._create)
        self._create = False
        return handle

    def _handle(self) -> File:
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        return self._pool.acquire(self)

    @property
    def opened(self) -> File:
        """The file behind this, to be looked at at once, before any other call on the pool."""
        return self._handle()

    @property
    def fileno(self) -> Callable[[], int]:
        """The descriptor's getter, to be used at once, before any other call on the pool.

        A property, so that `getattr(file, "fileno", None)` tells files without one, as it does
        for the files themselves.
        """
        getter: Callable[[], int] = self._handle().fileno  # type: ignore[attr-defined]
        return getter

    def size(self) -> int:
        return self._handle().size()

    def pread(self, length: int, position: int) -> bytes:
        return self._handle().pread(length, position)

    def pread_into(self, buffer: memoryview, position: int) -> int:
        return self._handle().pread_into(buffer, position)

    def pwrite(self, parts: Sequence[Buffer], position: int) -> int:
        return self._handle().pwrite(parts, position)

    def truncate(self, size: int) -> None:
        self._handle().truncate(size)

    def resident(self, position: int, length: int) -> bool:
        return self._handle().resident(position, length)

    async def read(self, length: int, position: int) -> bytes:
        handle = self._begin()
        try:
            return await handle.read(length, position)
        finally:
            self._end()

    async def warm(self, position: int, length: int) -> None:
        handle = self._begin()
        try:
            await handle.warm(position, length)
        finally:
            self._end()

    async def sync(self) -> None:
        handle = self._begin()
        try:
            await handle.sync()
        finally:
            self._end()

    async def sync_data(self) -> None:
        handle = self._begin()
        try:
            await handle.sync_data()
        finally:
            self._end()

    def close(self) -> None:
        """No more use of this file; an awaited call under way still ends well."""
        self._closed = True
        if self._uses == 0:
            self._pool.release(self)

    def _begin(self) -> File:
        handle = self._handle()
        self._uses += 1
        return handle

    def _end(self) -> None:
        self._uses -= 1
        assert_always(self._uses >= 0, "pooled-file-uses", path=self.path)
        if self._uses == 0 and self._closed:
            self._pool.release(self)
        else:
            self._pool.trim()
