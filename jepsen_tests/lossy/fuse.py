"""As much of the kernel's FUSE protocol as a broker's files need, on a disk of the simulator.

The kernel hands every call on a mounted directory to this process, and what answers is a
`MemoryDisk`: it knows what was synced and what was not, names included, and can lose the rest as a
real disk does when its power fails. Numbers and layouts are those of the kernel's
`include/uapi/linux/fuse.h`, version 7.31; whatever is not here is answered with ENOSYS, which the
kernel takes for "not offered".

Nothing is cached for writing: a write is here when the caller's system call returns. What the
kernel has read ahead goes with the mount, so a loss of power is between two of them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_image import DirectoryInode, FileInode
from kraftpy.world.ports import File

__all__ = ["FuseError", "Mount"]

_HEADER: Final = struct.Struct("=IIQQIIIHH")
_ANSWER: Final = struct.Struct("=IiQ")
_ATTRIBUTES: Final = struct.Struct("=6Q10I")
_ENTRY: Final = struct.Struct("=4Q2I")
_INIT: Final = struct.Struct("=4I2H2I2HI7I")
_STATISTICS: Final = struct.Struct("=5Q4I6I")
_RANGE: Final = struct.Struct("=QQI")
_SIZE_OFFSET: Final = 16
_TRANSFER_BYTES: Final = 40
_MAX_WRITE_BYTES: Final = 128 * 1024
_BUFFER_BYTES: Final = _MAX_WRITE_BYTES + 4096
_BLOCK_BYTES: Final = 512
_PAGE_BYTES: Final = 4096
_ASYNC_READ, _BIG_WRITES, _MAX_PAGES = 1, 1 << 5, 1 << 22
_HAS_SIZE: Final = 1 << 3
# For how long the kernel may believe what it was told: nobody else changes these files.
_VALID_SECONDS: Final = 1
_FORGET, _DESTROY, _INTERRUPT, _FORGET_MANY = 2, 38, 36, 42
_WITHOUT_ANSWER: Final = (_FORGET, _INTERRUPT, _FORGET_MANY)
_NO_SUID, _NO_DEVICES, _DETACH = 2, 4, 2

Handler = Callable[[int, bytes], Awaitable[bytes]]


class FuseError(Exception):
    """This machine has no FUSE for us."""


class Mount:
    """A directory that is a MemoryDisk. Node ids are the disk's inode numbers, and one more."""

    def __init__(self, directory: str, disk: MemoryDisk) -> None:
        self.directory = directory
        self.disk = disk
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = -1
        # How often it was mounted: a descriptor's number comes back.
        self._incarnation = 0
        self._files: dict[int, File] = {}
        self._next_handle = 1
        # By node id: the directory that it was found in, and its name there.
        self._places: dict[int, tuple[int, str]] = {}
        self._handlers: dict[int, Handler] = {
            1: self._lookup,
            3: self._get_attributes,
            4: self._set_attributes,
            9: self._make_directory,
            10: self._unlink,
            11: self._remove_directory,
            12: self._rename,
            14: self._open,
            15: self._read,
            16: self._write,
            17: self._statistics,
            18: self._release,
            20: self._sync,
            25: self._nothing,
            26: self._init,
            27: self._open_directory,
            28: self._read_directory,
            29: self._nothing,
            30: self._sync_directory,
            35: self._create,
            _DESTROY: self._nothing,
            45: self._rename_2,
        }

    # The mount.

    def mount(self) -> None:
        """Raises FuseError."""
        try:
            self._descriptor = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise FuseError(f"/dev/fuse: {error.strerror}") from error
        options = f"fd={self._descriptor},rootmode=40000,user_id={os.getuid()}"
        options += f",group_id={os.getgid()}"
        words = (b"lossy", self.directory.encode(), b"fuse")
        if self._libc.mount(*words, _NO_SUID | _NO_DEVICES, options.encode()):
            code = ctypes.get_errno()
            os.close(self._descriptor)
            self._descriptor = -1
            raise FuseError(f"mounting a FUSE file system: {os.strerror(code)}")

    def unmount(self) -> None:
        """Whoever has a file of it open gets errors from now on."""
        self._incarnation += 1
        if self._descriptor >= 0:
            trio.lowlevel.notify_closing(self._descriptor)
            # First: nothing that unmounting asks for waits for an answer of ours then.
            os.close(self._descriptor)
            self._descriptor = -1
            self._libc.umount2(self.directory.encode(), _DETACH)
        self._files.clear()
        self._places.clear()

    async def serve(self) -> None:
        """Until it is unmounted, or mounted anew."""
        descriptor, incarnation = self._descriptor, self._incarnation
        while self._incarnation == incarnation:
            try:
                request = os.read(descriptor, _BUFFER_BYTES)
            except BlockingIOError:
                try:
                    await trio.lowlevel.wait_readable(descriptor)
                except trio.ClosedResourceError:
                    return
                continue
            except InterruptedError:
                continue
            except OSError as error:
                # ENOENT: the request was interrupted before it was read.
                if error.errno == errno.ENOENT:
                    continue
                return
            answer = await self._answer(request)
            if answer is not None and self._incarnation == incarnation:
                _send(descriptor, answer)

    async def _answer(self, request: bytes) -> list[bytes] | None:
        _, operation, unique, node, *_ = _HEADER.unpack_from(request)
        if operation in _WITHOUT_ANSWER:
            return None
        handler = self._handlers.get(operation)
        code, body = errno.ENOSYS, b""
        if handler is not None:
            try:
                code, body = 0, await handler(node, request[_HEADER.size :])
            except OSError as error:
                code = error.errno or errno.EIO
        return [_ANSWER.pack(_ANSWER.size + len(body), -code, unique), body]

    # Where things are.

    def _inode(self, node: int) -> FileInode | DirectoryInode:
        found = self.disk.image.inodes.get(node - 1)
        if found is None:
            raise OSError(errno.ESTALE, "no such inode")
        return found

    def _path(self, node: int, name: str = "") -> str:
        names = [name] if name else []
        while node != 1:
            if node not in self._places:
                raise OSError(errno.ESTALE, "no such inode")
            node, own = self._places[node]
            names.append(own)
        return "/" + "/".join(reversed(names))

    def _attributes(self, inode: FileInode | DirectoryInode) -> bytes:
        is_directory = isinstance(inode, DirectoryInode)
        size = 0 if isinstance(inode, DirectoryInode) else inode.seen.size
        mode = stat.S_IFDIR | 0o755 if is_directory else stat.S_IFREG | 0o644
        seconds, milliseconds = divmod(inode.modified_ms, 1000)
        blocks = -(-size // _BLOCK_BYTES)
        times = (seconds,) * 3, (milliseconds * 1_000_000,) * 3
        owner = (os.getuid(), os.getgid())
        links = 2 if is_directory else 1
        number = inode.number + 1
        return _ATTRIBUTES.pack(
            *(number, size, blocks, *times[0], *times[1], mode, links, *owner, 0, _PAGE_BYTES, 0)
        )

    def _entry(self, parent: int, name: str) -> bytes:
        directory = self._inode(parent)
        path = self._path(parent, name)
        if isinstance(directory, FileInode):
            raise OSError(errno.ENOTDIR, path)
        inode = self.disk.image.child(directory, name, path)
        self._places[inode.number + 1] = (parent, name)
        head = _ENTRY.pack(inode.number + 1, 0, _VALID_SECONDS, _VALID_SECONDS, 0, 0)
        return head + self._attributes(inode)

    def _hold(self, file: File) -> bytes:
        handle = self._next_handle
        self._next_handle += 1
        self._files[handle] = file
        return struct.pack("=QII", handle, 0, 0)

    def _held(self, body: bytes) -> File:
        handle = struct.unpack_from("=Q", body)[0]
        if handle not in self._files:
            raise OSError(errno.EBADF, "no such handle")
        return self._files[handle]

    # Requests, by the names that the kernel has for them.

    async def _init(self, node: int, body: bytes) -> bytes:
        flags = struct.unpack_from("=4I", body)[3] & (_ASYNC_READ | _BIG_WRITES | _MAX_PAGES)
        pages = _MAX_WRITE_BYTES // _PAGE_BYTES
        limits = (16, 12, _MAX_WRITE_BYTES, 1_000_000, pages, 0, 0)
        return _INIT.pack(7, 31, _MAX_WRITE_BYTES, flags, *limits, *(0,) * 7)

    async def _nothing(self, node: int, body: bytes) -> bytes:
        return b""

    async def _lookup(self, node: int, body: bytes) -> bytes:
        return self._entry(node, _name(body))

    async def _get_attributes(self, node: int, body: bytes) -> bytes:
        return struct.pack("=QII", _VALID_SECONDS, 0, 0) + self._attributes(self._inode(node))

    async def _set_attributes(self, node: int, body: bytes) -> bytes:
        """Only the size of a file means anything here."""
        inode = self._inode(node)
        if struct.unpack_from("=I", body)[0] & _HAS_SIZE:
            size = struct.unpack_from("=Q", body, _SIZE_OFFSET)[0]
            if isinstance(inode, DirectoryInode):
                raise OSError(errno.EISDIR, "a directory")
            self.disk.resize_file(inode, self._path(node), size)
        return await self._get_attributes(node, b"")

    async def _create(self, node: int, body: bytes) -> bytes:
        name = _name(body[16:])
        file = self.disk.open(self._path(node, name), write=True, create=True)
        return self._entry(node, name) + self._hold(file)

    async def _open(self, node: int, body: bytes) -> bytes:
        return self._hold(self.disk.open(self._path(node), write=True))

    async def _release(self, node: int, body: bytes) -> bytes:
        file = self._files.pop(struct.unpack_from("=Q", body)[0], None)
        if file is not None:
            file.close()
        return b""

    async def _read(self, node: int, body: bytes) -> bytes:
        _, position, length = _RANGE.unpack_from(body)
        return self._held(body).pread(length, position)

    async def _write(self, node: int, body: bytes) -> bytes:
        _, position, length = _RANGE.unpack_from(body)
        data = body[_TRANSFER_BYTES : _TRANSFER_BYTES + length]
        return struct.pack("=II", self._held(body).pwrite([data], position), 0)

    async def _sync(self, node: int, body: bytes) -> bytes:
        await self._held(body).sync()
        return b""

    async def _sync_directory(self, node: int, body: bytes) -> bytes:
        await self.disk.sync_directory(self._path(node))
        return b""

    async def _make_directory(self, node: int, body: bytes) -> bytes:
        name = _name(body[8:])
        await self.disk.make_directory(self._path(node, name))
        return self._entry(node, name)

    async def _unlink(self, node: int, body: bytes) -> bytes:
        await self.disk.unlink(self._path(node, _name(body)))
        return b""

    async def _remove_directory(self, node: int, body: bytes) -> bytes:
        await self.disk.remove_directory(self._path(node, _name(body)))
        return b""

    async def _rename(self, node: int, body: bytes) -> bytes:
        return await self._move(node, struct.unpack_from("=Q", body)[0], body[8:])

    async def _rename_2(self, node: int, body: bytes) -> bytes:
        new_directory, flags = struct.unpack_from("=QI", body)
        if flags:
            raise OSError(errno.EINVAL, "renaming otherwise than plainly")
        return await self._move(node, new_directory, body[16:])

    async def _move(self, node: int, new_node: int, names: bytes) -> bytes:
        old, new = (each.decode() for each in names.split(b"\0")[:2])
        await self.disk.rename(self._path(node, old), self._path(new_node, new))
        self._entry(new_node, new)
        return b""

    async def _statistics(self, node: int, body: bytes) -> bytes:
        space = await self.disk.space("/")
        blocks, free = space.total_bytes // _PAGE_BYTES, space.usable_bytes // _PAGE_BYTES
        sizes = (_PAGE_BYTES, 255, _PAGE_BYTES, 0)
        return _STATISTICS.pack(blocks, free, free, 1 << 20, 1 << 20, *sizes, *(0,) * 6)

    async def _open_directory(self, node: int, body: bytes) -> bytes:
        return struct.pack("=QII", 0, 0, 0)

    async def _read_directory(self, node: int, body: bytes) -> bytes:
        _, start, length = _RANGE.unpack_from(body)
        directory = self._inode(node)
        if isinstance(directory, FileInode):
            raise OSError(errno.ENOTDIR, "a file")
        answer = b""
        for number, (name, child) in enumerate(sorted(directory.seen.items()), 1):
            if number <= start:
                continue
            is_directory = isinstance(self.disk.image.inodes[child], DirectoryInode)
            kind = (stat.S_IFDIR if is_directory else stat.S_IFREG) >> 12
            encoded = name.encode()
            entry = struct.pack("=QQII", child + 1, number, len(encoded), kind) + encoded
            entry += bytes(-len(entry) % 8)
            if len(answer) + len(entry) > length:
                break
            answer += entry
        return answer


def _send(descriptor: int, answer: list[bytes]) -> None:
    try:
        os.writev(descriptor, answer)
    except OSError as error:
        # The caller has given up, or the mount is gone.
        if error.errno not in (errno.ENOENT, errno.ENODEV):
            raise


def _name(body: bytes) -> str:
    return body[: body.index(b"\0")].decode()
