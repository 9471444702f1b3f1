"""The contract of the Disk port, over the real disk and its memory twin; and the two compared call
by call on random histories.
"""

from __future__ import annotations

import errno
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpy.faults.disk import FaultyDisk
from kraftpy.faults.state import NodeFaults
from kraftpy.world import Disk, File
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.real_clock import RealClock
from kraftpy.world.real_disk import RealDisk


@dataclass(frozen=True, slots=True)
class Place:
    disk: Disk
    root: str

    def open(self, name: str, **flags: bool) -> File:
        return self.disk.open(f"{self.root}/{name}", **flags)

    def create(self, name: str, content: bytes = b"") -> File:
        file = self.open(name, write=True, create=True)
        file.pwrite([content], 0)
        return file


@pytest.fixture(params=["real", "memory", "real, with faults that don't happen"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "real":
        return Place(RealDisk(), str(tmp_path))
    if request.param != "memory":
        return Place(
            FaultyDisk(RealDisk(), NodeFaults(die=pytest.fail), RealClock()), str(tmp_path)
        )
    disk = MemoryDisk()
    trio.run(disk.make_directory, "/data")
    return Place(disk, "/data")


def fails_with(code: int) -> pytest.RaisesExc[OSError]:
    return pytest.raises(OSError, match=rf"^\[Errno {code}\]")


# Files.


def test_what_was_written_is_read(place: Place) -> None:
    """Neither needs a running loop for what never waits."""
    file = place.create("f", b"0123456789")
    assert file.path == f"{place.root}/f"
    assert file.size() == 10
    assert file.pread(4, 3) == b"3456"
    buffer = bytearray(4)
    assert file.pread_into(memoryview(buffer), 3) == 4
    assert buffer == b"3456"
    file.close()


def test_reads_are_short_only_at_the_end(place: Place) -> None:
    file = place.create("f", b"0123456789")
    assert file.pread(100, 8) == b"89"
    assert file.pread(100, 10) == b""
    assert file.pread(100, 1000) == b""
    assert file.pread(0, 0) == b""
    buffer = bytearray(b"----")
    assert file.pread_into(memoryview(buffer), 8) == 2
    assert buffer == b"89--"
    assert file.pread_into(memoryview(buffer), 10) == 0
    assert file.pread_into(memoryview(bytearray()), 0) == 0
    file.close()


def test_parts_are_written_one_behind_the_other(place: Place) -> None:
    file = place.create("f", b"........")
    parts = [b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3], b""]
    assert file.pwrite(parts, 1) == 6
    assert file.pread(100, 0) == b".abcdef."
    assert file.pwrite([], 0) == 0
    assert file.pwrite([b""], 100) == 0
    assert file.size() == 8
    file.close()


@pytest.mark.parametrize("beyond", [-1, 0, 1, 2000])
def test_any_number_of_parts(place: Place, beyond: int) -> None:
    """The system takes IOV_MAX parts in a call; a file takes as many as there are."""
    count = os.sysconf("SC_IOV_MAX") + beyond
    parts = [b"%07d" % index for index in range(count)]
    file = place.create("f")
    assert file.pwrite(parts, 3) == 7 * count
    assert file.pread(10 * count, 0) == bytes(3) + b"".join(parts)
    file.close()


def test_holes_and_grown_space_are_zeros(place: Place) -> None:
    file = place.create("f", b"ab")
    file.pwrite([b"z"], 5)
    assert file.pread(10, 0) == b"ab\0\0\0z"
    file.truncate(8)
    assert file.pread(10, 0) == b"ab\0\0\0z\0\0"
    file.truncate(1)
    assert file.size() == 1
    file.truncate(3)
    assert file.pread(10, 0) == b"a\0\0"
    file.close()


def test_space_is_preallocated_and_trimmed(place: Place) -> None:
    """As index files are."""
    file = place.create("index")
    file.truncate(10_485_760)
    file.pwrite([b"entry"], 0)
    assert file.size() == 10_485_760
    assert file.pread(7, 0) == b"entry\0\0"
    assert file.pread(7, 10_485_755) == bytes(5)
    file.truncate(5)
    assert file.pread(100, 0) == b"entry"
    file.close()


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda file: file.pwrite([b"x"], 0), errno.EBADF),
        (lambda file: file.truncate(0), errno.EINVAL),
    ],
)
def test_a_file_opened_for_reading_is_not_written(place: Place, call: Any, code: int) -> None:
    place.create("f", b"abc").close()
    file = place.open("f")
    with fails_with(code):
        call(file)
    assert file.pread(10, 0) == b"abc"
    file.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda file: file.pread(-1, 0),
        lambda file: file.pread(1, -1),
        lambda file: file.pread_into(memoryview(bytearray(1)), -1),
        lambda file: file.pwrite([b"x"], -1),
        lambda file: file.truncate(-1),
    ],
)
def test_negative_numbers_are_invalid(place: Place, call: Any) -> None:
    file = place.create("f", b"abc")
    with fails_with(errno.EINVAL):
        call(file)
    file.close()


async def test_a_closed_file_is_a_bad_descriptor(place: Place) -> None:
    file = place.create("f", b"abc")
    file.close()
    file.close()
    for call in (
        file.size,
        lambda: file.pread(1, 0),
        lambda: file.pread_into(memoryview(bytearray(1)), 0),
        lambda: file.pwrite([b"x"], 0),
        lambda: file.truncate(0),
        lambda: file.resident(0, 1),
    ):
        with fails_with(errno.EBADF):
            call()
    for wait in (
        file.sync,
        file.sync_data,
        lambda: file.read(1, 0),
        lambda: file.warm(0, 1),
    ):
        with fails_with(errno.EBADF):
            await wait()


async def test_awaited_reads_and_syncs(place: Place) -> None:
    file = place.create("f", b"0123456789")
    await file.sync()
    await file.sync_data()
    await file.warm(0, 1_000_000)
    assert file.resident(0, 10)
    assert file.resident(5, 0)
    assert file.resident(0, 0)
    assert await file.read(4, 3) == b"3456"
    assert await file.read(100, 8) == b"89"
    assert await file.read(100, 100) == b""
    assert await file.read(0, 0) == b""
    file.close()


async def test_every_awaited_call_is_a_checkpoint(place: Place) -> None:
    file = place.create("f", b"0123456789")
    root = place.root
    calls = [
        file.sync,
        file.sync_data,
        lambda: file.read(1, 0),
        lambda: file.warm(0, 1),
        lambda: place.disk.stat(root),
        lambda: place.disk.space(root),
        lambda: place.disk.list_directory(root),
        lambda: place.disk.sync_directory(root),
        lambda: place.disk.make_directory(f"{root}/d"),
        lambda: place.disk.remove_directory(f"{root}/d"),
        lambda: place.disk.make_directory(f"{root}/d"),
        lambda: place.disk.remove_tree(f"{root}/d"),
        lambda: place.disk.rename(f"{root}/f", f"{root}/g"),
        lambda: place.disk.unlink(f"{root}/g"),
    ]
    for call in calls:
        with trio.testing.assert_checkpoints():
            await call()
    file.close()


async def test_a_cancelled_call_does_nothing(place: Place) -> None:
    place.create("f").close()
    with trio.CancelScope() as scope:
        scope.cancel()
        await place.disk.unlink(f"{place.root}/f")
    assert scope.cancelled_caught
    assert await place.disk.list_directory(place.root) == ["f"]


# Opening and locking.


def test_opening(place: Place) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        place.open("f", write=True)
    assert caught.value.filename == f"{place.root}/f"
    place.open("f", write=True, create=True, exclusive=True).close()
    with pytest.raises(FileExistsError):
        place.open("f", write=True, create=True, exclusive=True)
    file = place.open("f", write=True, create=True)
    file.pwrite([b"abc"], 0)
    # Neither create nor exclusive has anything to do with content.
    assert place.open("f", write=True, create=True).size() == 3
    assert place.open("f", exclusive=True).size() == 3
    with pytest.raises(NotADirectoryError):
        place.open("f/g", write=True, create=True)
    with pytest.raises(FileNotFoundError):
        place.open("absent/g", write=True, create=True)
    for flags in ({}, {"write": True}, {"write": True, "create": True}):
        with pytest.raises(IsADirectoryError):
            place.disk.open(place.root, **flags)


def test_handles_of_one_file_share_its_content(place: Place) -> None:
    writer = place.create("f", b"abc")
    reader = place.open("f")
    writer.pwrite([b"XYZ"], 1)
    assert reader.pread(10, 0) == b"aXYZ"
    writer.close()
    assert reader.size() == 4
    reader.close()


async def test_a_lock_has_one_holder(place: Place) -> None:
    path = f"{place.root}/.lock"
    lock = place.disk.lock(path)
    assert await place.disk.list_directory(place.root) == [".lock"]
    with pytest.raises(BlockingIOError):
        place.disk.lock(path)
    lock.release()
    second = place.disk.lock(path)
    # A lock that was released once has nothing more to release.
    lock.release()
    with pytest.raises(BlockingIOError):
        place.disk.lock(path)
    second.release()
    with pytest.raises(FileNotFoundError):
        place.disk.lock(f"{place.root}/absent/.lock")
    with pytest.raises(IsADirectoryError):
        place.disk.lock(place.root)


# Names.


async def test_rename_replaces_and_handles_follow_the_file(place: Place) -> None:
    old = place.create("f", b"old")
    new = place.create("f.tmp", b"new")
    await place.disk.rename(f"{place.root}/f.tmp", f"{place.root}/f")
    assert await place.disk.list_directory(place.root) == ["f"]
    assert place.open("f").pread(10, 0) == b"new"
    assert old.pread(10, 0) == b"old"
    new.pwrite([b"er"], 3)
    assert place.open("f").pread(10, 0) == b"newer"
    # A handle keeps the path that it was opened by.
    assert new.path == f"{place.root}/f.tmp"


async def test_rename_of_directories(place: Place) -> None:
    root, disk = place.root, place.disk
    await disk.make_directory(f"{root}/topic-0")
    log = place.create("topic-0/log", b"abc")
    await disk.rename(f"{root}/topic-0", f"{root}/topic-0.uuid-delete")
    assert await disk.list_directory(root) == ["topic-0.uuid-delete"]
    assert place.open("topic-0.uuid-delete/log").size() == 3
    log.pwrite([b"d"], 3)
    assert place.open("topic-0.uuid-delete/log").size() == 4
    await disk.make_directory(f"{root}/other/inner")
    for old, new, code in (
        ("absent", "x", errno.ENOENT),
        ("topic-0.uuid-delete", "absent/x", errno.ENOENT),
        ("topic-0.uuid-delete", "other", errno.ENOTEMPTY),
        ("topic-0.uuid-delete", "topic-0.uuid-delete/x", errno.EINVAL),
        ("topic-0.uuid-delete/log", "other", errno.EISDIR),
        ("topic-0.uuid-delete/log", "topic-0.uuid-delete", errno.ENOTEMPTY),
        ("other", "topic-0.uuid-delete/log", errno.ENOTDIR),
    ):
        with fails_with(code):
            await disk.rename(f"{root}/{old}", f"{root}/{new}")
    await disk.rename(f"{root}/topic-0.uuid-delete", f"{root}/other/inner")
    assert await disk.list_directory(f"{root}/other/inner") == ["log"]


async def test_a_file_outlives_its_name_while_it_is_open(place: Place) -> None:
    file = place.create("f", b"abc")
    await place.disk.unlink(f"{place.root}/f")
    assert await place.disk.list_directory(place.root) == []
    assert file.pread(10, 0) == b"abc"
    file.pwrite([b"d"], 3)
    assert file.size() == 4
    await file.sync()
    await place.disk.sync_directory(place.root)
    file.pwrite([b"e"], 4)
    assert await file.read(10, 0) == b"abcde"
    assert place.create("f").size() == 0
    file.close()


async def test_directories_are_made_listed_and_removed(place: Place) -> None:
    root, disk = place.root, place.disk
    await disk.make_directory(f"{root}/a/b/c")
    await disk.make_directory(f"{root}/a/b/c")
    for name in ("z", "B", "a/f", "0"):
        place.create(name).close()
    assert await disk.list_directory(root) == ["0", "B", "a", "z"]
    for call, path, code in (
        (disk.make_directory, "z", errno.EEXIST),
        (disk.make_directory, "z/x", errno.ENOTDIR),
        (disk.make_directory, "z/x/y", errno.ENOTDIR),
        (disk.remove_directory, "a/b", errno.ENOTEMPTY),
        (disk.remove_directory, "z", errno.ENOTDIR),
        (disk.remove_directory, "absent", errno.ENOENT),
        (disk.list_directory, "absent", errno.ENOENT),
        (disk.list_directory, "z", errno.ENOTDIR),
        (disk.sync_directory, "absent", errno.ENOENT),
        (disk.sync_directory, "z", errno.ENOTDIR),
        (disk.unlink, "absent", errno.ENOENT),
        (disk.unlink, "a", errno.EISDIR),
        (disk.unlink, "z/x", errno.ENOTDIR),
        (disk.stat, "absent", errno.ENOENT),
        (disk.stat, "z/x", errno.ENOTDIR),
        (disk.space, "absent", errno.ENOENT),
    ):
        with fails_with(code):
            await call(f"{root}/{path}")
    await disk.remove_directory(f"{root}/a/b/c")
    await disk.remove_directory(f"{root}/a/b")
    assert await disk.list_directory(f"{root}/a") == ["f"]
    await disk.sync_directory(root)


async def test_a_directory_is_removed_with_its_files(place: Place) -> None:
    root, disk = place.root, place.disk
    await disk.make_directory(f"{root}/a/b")
    for name in ("a/b/x", "a/b/y", "a/z", "c"):
        place.create(name, b"abc").close()
    for path, code in (
        ("a", errno.EISDIR),
        ("c", errno.ENOTDIR),
        ("absent", errno.ENOENT),
    ):
        with fails_with(code):
            await disk.remove_tree(f"{root}/{path}")
    assert await disk.list_directory(f"{root}/a/b") == ["x", "y"]
    await disk.remove_tree(f"{root}/a/b")
    assert "b" not in await disk.list_directory(f"{root}/a")
    assert await disk.list_directory(root) == ["a", "c"]


async def test_stat_and_space(place: Place) -> None:
    place.create("f", b"abc").close()
    found = await place.disk.stat(f"{place.root}/f")
    assert (found.size, found.is_directory) == (3, False)
    assert (await place.disk.stat(place.root)).is_directory
    space = await place.disk.space(place.root)
    assert 0 < space.usable_bytes <= space.total_bytes


# The two compared.

_NAMES = ["a", "b", "a/a", "a/b", "b/a", "a/a/a"]
_name = st.sampled_from(_NAMES)
_handle = st.integers(0, 3)
_position = st.integers(0, 20)
_operations = st.lists(
    st.one_of(
        st.tuples(st.just("open"), _name, st.booleans(), st.booleans(), st.booleans()),
        st.tuples(st.just("pwrite"), _handle, st.lists(st.binary(max_size=4)), _position),
        st.tuples(st.just("truncate"), _handle, _position),
        st.tuples(st.just("pread"), _handle, _position, _position),
        st.tuples(st.just("close"), _handle),
        st.tuples(st.just("sync"), _handle),
        st.tuples(st.just("rename"), _name, _name),
        st.tuples(st.sampled_from(["unlink", "make", "make", "remove", "sync_names"]), _name),
    ),
    min_size=5,
    max_size=40,
)


class Driver:
    """One disk under a random history: each call's result, or its error, as a value."""

    def __init__(self, disk: Disk, root: str) -> None:
        self.disk = disk
        self.root = root
        self.handles: list[File] = []

    async def call(self, operation: tuple[Any, ...]) -> object:
        try:
            return await self._call(*operation)
        except OSError as error:
            return type(error), error.errno

    async def _call(self, kind: str, *arguments: Any) -> object:
        disk, root = self.disk, self.root
        match kind, *arguments:
            case "open", name, write, create, exclusive:
                file = disk.open(f"{root}/{name}", write=write, create=create, exclusive=exclusive)
                self.handles.append(file)
                return file.size()
            case "rename", old, new:
                return await disk.rename(f"{root}/{old}", f"{root}/{new}")
            case "unlink", name:
                return await disk.unlink(f"{root}/{name}")
            case "make", name:
                return await disk.make_directory(f"{root}/{name}")
            case "remove", name:
                return await disk.remove_directory(f"{root}/{name}")
            case "sync_names", name:
                return await disk.sync_directory(f"{root}/{name}")
        if not self.handles:
            return None
        file = self.handles[arguments[0] % len(self.handles)]
        match kind, *arguments[1:]:
            case "pwrite", parts, position:
                return file.pwrite(parts, position)
            case "truncate", size:
                return file.truncate(size)
            case "pread", length, position:
                return file.pread(length, position), await file.read(length, position)
            case ("sync",):
                return await file.sync()
            case ("close",):
                return file.close()
        raise AssertionError(kind)

    async def everything(self) -> list[object]:
        """All names, sizes and contents."""
        found: list[object] = []
        waiting = [self.root]
        while waiting:
            path = waiting.pop()
            stat = await self.disk.stat(path)
            if stat.is_directory:
                names = await self.disk.list_directory(path)
                found.append((path.removeprefix(self.root), names))
                waiting += [f"{path}/{name}" for name in names]
            else:
                file = self.disk.open(path)
                found.append((path.removeprefix(self.root), stat.size, file.pread(100, 0)))
                file.close()
        return found


@settings(max_examples=300)
@given(_operations)
def test_both_disks_do_the_same(operations: list[tuple[Any, ...]]) -> None:
    async def compare(real: Driver, memory: Driver) -> None:
        await memory.disk.make_directory(memory.root)
        for operation in operations:
            assert await memory.call(operation) == await real.call(operation), operation
        assert await memory.everything() == await real.everything()
        for file in real.handles:
            file.close()

    with tempfile.TemporaryDirectory() as root:
        trio.run(compare, Driver(RealDisk(), root), Driver(MemoryDisk(), "/data"))
