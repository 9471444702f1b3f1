"""A disk that is full, fails or tears a write, over the memory disk."""

from __future__ import annotations

import errno

import pytest
import trio

from kraftpy.faults.disk import FaultyDisk
from kraftpy.faults.language import DiskError, DiskFull, TornWrite
from kraftpy.faults.state import NodeFaults
from kraftpy.world import File
from kraftpy.world.memory_disk import MemoryDisk

PATH = "/file"


class Kit:
    def __init__(self) -> None:
        self.deaths = 0
        self.memory = MemoryDisk()
        self.faults = NodeFaults(self.die)
        self.disk = FaultyDisk(self.memory, self.faults)

    def die(self) -> None:
        self.deaths += 1

    def file(self, content: bytes = b"12345678") -> File:
        file = self.disk.open(PATH, write=True, create=True)
        file.pwrite([content], 0)
        return file

    def content(self) -> bytes:
        return self.memory.open(PATH).pread(100, 0)


def fails_with(code: int) -> pytest.RaisesExc[OSError]:
    return pytest.raises(OSError, match=rf"^\[Errno {code}\]")


def test_a_full_disk_takes_no_more_but_lets_what_is_there_be_changed() -> None:
    """N14"""
    kit = Kit()
    file = kit.file()
    kit.faults.apply(DiskFull(1))
    assert file.pwrite([b"ab", b"cd"], 4) == 4
    with fails_with(errno.ENOSPC):
        file.pwrite([b"ab", b"cde"], 4)
    with fails_with(errno.ENOSPC):
        kit.disk.open("/other", write=True, create=True)
    with fails_with(errno.ENOENT):
        kit.memory.open("/other")
    with fails_with(errno.EEXIST):
        kit.disk.open(PATH, write=True, create=True, exclusive=True)
    assert kit.disk.open(PATH, write=True, create=True).pread(8, 0) == b"1234abcd"
    file.truncate(2)
    kit.faults.heal()
    file.pwrite([b"long enough"], 2)
    assert kit.content() == b"12long enough"


async def test_a_full_disk_has_no_space() -> None:
    kit = Kit()
    assert (await kit.disk.space("/")).usable_bytes > 0
    kit.faults.apply(DiskFull(1))
    assert (await kit.disk.space("/")).usable_bytes == 0
    with fails_with(errno.ENOSPC):
        await kit.disk.make_directory("/directory")


async def test_a_failing_disk_fails_in_what_was_asked_for_and_nothing_else() -> None:
    """N13: read, write and sync each for itself."""
    for failing in ("read", "write", "sync"):
        kit = Kit()
        file = kit.file()
        kit.faults.apply(DiskError(1, failing))

        async def write(file: File = file) -> None:
            file.pwrite([b"x"], 0)
            await trio.lowlevel.checkpoint()

        for operation, attempt in (
            ("read", lambda file=file: file.read(1, 0)),
            ("write", write),
            ("sync", file.sync),
            ("sync", file.sync_data),
        ):
            if operation == failing:
                with fails_with(errno.EIO):
                    await attempt()
            else:
                await attempt()


def test_a_torn_write_leaves_half_and_ends_the_node() -> None:
    """N9"""
    kit = Kit()
    file = kit.file(b"")
    kit.faults.apply(TornWrite(1))
    with fails_with(errno.EIO):
        file.pwrite([b"abc", b"defgh"], 0)
    assert (kit.deaths, kit.content()) == (1, b"abcd")
    file.pwrite([b"12345678"], 0)
    assert (kit.deaths, kit.content()) == (1, b"12345678")


async def test_nothing_that_a_dead_node_tries_has_an_effect() -> None:
    kit = Kit()
    file = kit.file()
    kit.faults.fail_everything()
    with fails_with(errno.EIO):
        file.pwrite([b"late"], 0)
    with fails_with(errno.EIO):
        await kit.disk.rename(PATH, "/other")
    assert kit.content() == b"12345678"


def test_files_of_a_dead_node_are_closed() -> None:
    kit = Kit()
    file, other = kit.file(), kit.disk.open(PATH)
    other.close()
    kit.disk.close_all()
    with fails_with(errno.EBADF):
        file.pread(1, 0)
