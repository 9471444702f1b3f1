"""The Disk port on the operating system's files.

What works on the page cache is done in place: pread, pwrite, truncate, open. What may wait for the
medium goes to a thread: syncs, cold reads, directory work. The threads are limited by a limiter of
this disk's own, so that a stalled disk holds up nobody else's.

A thread can't be interrupted. A call whose thread has started is therefore awaited to its end,
whether cancelled or not, and a file that is closed meanwhile gives its descriptor back only when
the last thread is done with it: a descriptor number used again by another file must never meet a
thread of the old one.

A closed file has descriptor -1. Each call that then reaches the system fails with EBADF by itself,
which saves the hot path a check. Negative positions it must check: Linux takes -1 in preadv and
pwritev for the file's cursor, and would write somewhere.

Linux tells by RWF_NOWAIT whether bytes are in the page cache. Where that is missing (macOS, some
file systems) every awaited read goes to a thread and `resident` answers True: `sendfile` then waits
for the medium itself, as Kafka's does. macOS has preadv and pwritev from version 11 on.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

import trio

from kraftpy.world.ports import Buffer, DiskSpace, File, FileLock, FileStat

__all__ = ["RealDisk", "RealFile"]

_THREADS = 16
_MAX_PARTS = os.sysconf("SC_IOV_MAX")
_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
# Linux reads ahead in steps of this size by default, so that residence is even within a step.
_PROBE_STEP_BYTES = 128 * 1024
_WARM_CHUNK_BYTES = 256 * 1024

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


def _pread_all(descriptor: int, length: int, position: int) -> bytes:
    data = os.pread(descriptor, length, position)
    if len(data) == length:
        return data
    # A short read is the end of the file or one of the system's limits; only asking again tells.
    chunks = [data]
    missing = length - len(data)
    while data and missing:
        data = os.pread(descriptor, missing, position + length - missing)
        chunks.append(data)
        missing -= len(data)
    return b"".join(chunks)


def _skip(parts: Sequence[Buffer], length: int) -> list[Buffer]:
    """`parts` without their first `length` bytes."""
    for index, part in enumerate(parts):
        if length < len(part):
            return [memoryview(part)[length:], *parts[index + 1 :]]
        length -= len(part)
    return []


def _sync_to_medium(descriptor: int) -> None:
    # On macOS fsync leaves the data in the drive's cache.
    full_sync = getattr(fcntl, "F_FULLFSYNC", None)
    if full_sync is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, full_sync)


_sync_data_to_medium: Callable[[int], None] = getattr(os, "fdatasync", _sync_to_medium)


def _warm(descriptor: int, position: int, length: int) -> None:
    if sys.platform != "darwin":
        os.posix_fadvise(descriptor, position, length, os.POSIX_FADV_WILLNEED)
    end = position + length
    while position < end:
        data = os.pread(descriptor, min(_WARM_CHUNK_BYTES, end - position), position)
        if not data:
            return
        position += len(data)


class RealFile:
    __slots__ = ("_descriptor", "_limiter", "_nowait", "_path", "_threads")

    def __init__(self, path: str, descriptor: int, limiter: trio.CapacityLimiter) -> None:
        self._path = path
        self._descriptor = descriptor
        self._limiter = limiter
        self._nowait = _NOWAIT
        self._threads = 0

    @property
    def path(self) -> str:
        return self._path

    def fileno(self) -> int:
        """For sendfile."""
        if self._descriptor < 0:
            raise _error(errno.EBADF, self._path)
        return self._descriptor

    def size(self) -> int:
        return os.fstat(self.fileno()).st_size

    def pread(self, length: int, position: int) -> bytes:
        return _pread_all(self._descriptor, length, position)

    def pread_into(self, buffer: memoryview, position: int) -> int:
        if position < 0:
            raise _error(errno.EINVAL, self._path)
        descriptor = self._descriptor
        filled = os.preadv(descriptor, (buffer,), position)
        while filled < len(buffer):
            count = os.preadv(descriptor, (buffer[filled:],), position + filled)
            if count == 0:
                break
            filled += count
        return filled

    def pwrite(self, parts: Sequence[Buffer], position: int) -> int:
        if position < 0:
            raise _error(errno.EINVAL, self._path)
        if len(parts) == 1:
            # Nearly always, and quicker than a list.
            total = len(parts[0])
            written = os.pwrite(self._descriptor, parts[0], position)
        else:
            total = sum(map(len, parts))
            written = os.pwritev(self._descriptor, parts[:_MAX_PARTS], position)
        while written < total:
            rest = _skip(parts, written)
            written += os.pwritev(self._descriptor, rest[:_MAX_PARTS], position + written)
        return total

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    async def read(self, length: int, position: int) -> bytes:
        data = self._read_cached(length, position)
        if data is None:
            return await self._in_thread(_pread_all, length, position)
        await trio.lowlevel.checkpoint()
        return data

    def _read_cached(self, length: int, position: int) -> bytes | None:
        """The bytes if all of them are in the page cache, else None."""
        if position < 0 or length < 0:
            raise _error(errno.EINVAL, self._path)
        buffer = bytearray(length)
        count = self._read_nowait(buffer, position)
        if count is None:
            return None
        if count == length:
            return bytes(buffer)
        # The kernel stops at the first page it lacks, as it does at the end of the file.
        if position + count < self.size():
            return None
        return bytes(memoryview(buffer)[:count])

    def _read_nowait(self, buffer: bytearray, position: int) -> int | None:
        """Fill `buffer` as far as the page cache goes; None when it has not even the start, or when
        the system does not tell.
        """
        if self._nowait is None:
            return None
        try:
            return os.preadv(self.fileno(), (buffer,), position, self._nowait)
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                self._nowait = None
            elif error.errno != errno.EAGAIN:
                raise
            return None

    def resident(self, position: int, length: int) -> bool:
        """Probes a byte of each step that the kernel would read ahead, and the last byte."""
        if length <= 0:
            return True
        probe = bytearray(1)
        last = position + length - 1
        for at in (*range(position, last, _PROBE_STEP_BYTES), last):
            if self._read_nowait(probe, at) is None:
                return self._nowait is None
        return True

    async def warm(self, position: int, length: int) -> None:
        await self._in_thread(_warm, position, length)

    async def sync(self) -> None:
        await self._in_thread(_sync_to_medium)

    async def sync_data(self) -> None:
        await self._in_thread(_sync_data_to_medium)

    async def _in_thread(
        self,
        call: Callable[Concatenate[int, _Arguments], _Result],
        *arguments: _Arguments.args,
        **_none: _Arguments.kwargs,
    ) -> _Result:
        descriptor = self.fileno()
        self._threads += 1
        try:
            return await trio.to_thread.run_sync(
                call, descriptor, *arguments, limiter=self._limiter
            )
        finally:
            self._threads -= 1
            if self._descriptor < 0 and self._threads == 0:
                os.close(descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0 and self._threads == 0:
            os.close(descriptor)


class RealFileLock:
    """Holds an flock: dropped by the system with the last copy of its descriptor."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _stat(path: str) -> FileStat:
    found = os.stat(path)
    return FileStat(
        size=found.st_size,
        is_directory=stat.S_ISDIR(found.st_mode),
        modified_ms=found.st_mtime_ns // 1_000_000,
    )


def _remove_tree(path: str) -> None:
    for name in sorted(os.listdir(path)):
        os.unlink(f"{path}/{name}")
    os.rmdir(path)


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _sync_to_medium(descriptor)
    finally:
        os.close(descriptor)


def _space(path: str) -> DiskSpace:
    found = os.statvfs(path)
    return DiskSpace(
        total_bytes=found.f_blocks * found.f_frsize,
        usable_bytes=found.f_bavail * found.f_frsize,
    )


class RealDisk:
    __slots__ = ("_limiter",)

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(_THREADS)

    def open(
        self, path: str, *, write: bool = False, create: bool = False, exclusive: bool = False
    ) -> File:
        flags = os.O_RDWR if write else os.O_RDONLY
        if create:
            flags |= os.O_CREAT | (os.O_EXCL if exclusive else 0)
        descriptor = os.open(path, flags, 0o666)
        # The system opens a directory for reading, and complains only when it is read.
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise _error(errno.EISDIR, path)
        return RealFile(path, descriptor, self._limiter)

    def lock(self, path: str) -> FileLock:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return RealFileLock(descriptor)

    async def rename(self, old: str, new: str) -> None:
        await trio.to_thread.run_sync(os.rename, old, new, limiter=self._limiter)

    async def unlink(self, path: str) -> None:
        await trio.to_thread.run_sync(os.unlink, path, limiter=self._limiter)

    async def make_directory(self, path: str) -> None:
        await trio.to_thread.run_sync(os.makedirs, path, 0o777, True, limiter=self._limiter)

    async def remove_directory(self, path: str) -> None:
        await trio.to_thread.run_sync(os.rmdir, path, limiter=self._limiter)

    async def remove_tree(self, path: str) -> None:
        await trio.to_thread.run_sync(_remove_tree, path, limiter=self._limiter)

    async def list_directory(self, path: str) -> list[str]:
        return sorted(await trio.to_thread.run_sync(os.listdir, path, limiter=self._limiter))

    async def stat(self, path: str) -> FileStat:
        return await trio.to_thread.run_sync(_stat, path, limiter=self._limiter)

    async def sync_directory(self, path: str) -> None:
        await trio.to_thread.run_sync(_sync_directory, path, limiter=self._limiter)

    async def space(self, path: str) -> DiskSpace:
        return await trio.to_thread.run_sync(_space, path, limiter=self._limiter)
