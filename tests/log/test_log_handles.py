"""Open files within a limit."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import trio
from log_place import Place, TalliedDisk

from kraftpy.log.handles import HandlePool, PooledFile
from kraftpy.world import FileSlice
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_effects import Write
from kraftpy.world.memory_disk_faults import SlowDisk
from kraftpy.world.real_disk import RealDisk
from kraftpy.world.real_network import RealNetwork


def new_file(pool: HandlePool, place: Place, name: str) -> PooledFile:
    return pool.file(place.path(name), write=True, create=True)


async def test_a_file_is_opened_when_it_is_used(place: Place) -> None:
    disk = TalliedDisk(place.disk)
    pool = HandlePool(disk, limit=2)
    file = new_file(pool, place, "a")
    assert (pool.open_count, disk.tally.opens) == (0, [])
    file.pwrite([b"abc"], 0)
    assert (pool.open_count, disk.tally.opens) == (1, [place.path("a")])
    file.close()
    assert pool.open_count == 0


async def test_one_more_than_the_limit_closes_the_least_recently_used(place: Place) -> None:
    disk = TalliedDisk(place.disk)
    pool = HandlePool(disk, limit=3)
    a, b, c, d = (new_file(pool, place, name) for name in "abcd")
    for file in (a, b, c):
        file.pwrite([file.path.encode()], 0)
    a.size()
    assert pool.open_count == 3
    d.pwrite([b"d"], 0)
    assert pool.open_count == 3
    opens = len(disk.tally.opens)
    # a was used after b, so b was closed; all still hold what was written.
    for file in (a, c, d):
        file.size()
    assert len(disk.tally.opens) == opens
    assert b.pread(1000, 0) == b.path.encode()
    assert len(disk.tally.opens) == opens + 1


async def test_a_thousand_files_fit_into_ten_handles(place: Place) -> None:
    pool = HandlePool(place.disk, limit=10)
    files = [new_file(pool, place, f"f{number}") for number in range(1000)]
    for number, file in enumerate(files):
        file.pwrite([b"%d" % number], 0)
        assert pool.open_count <= 10
    for number, file in enumerate(files):
        assert file.pread(10, 0) == b"%d" % number
        assert pool.open_count <= 10


def test_a_pool_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="0 handles"):
        HandlePool(MemoryDisk(), limit=0)


async def test_a_renamed_file_is_reopened_by_its_new_name(place: Place) -> None:
    pool = HandlePool(place.disk, limit=1)
    file, other = new_file(pool, place, "old"), new_file(pool, place, "other")
    file.pwrite([b"content"], 0)
    await place.disk.rename(place.path("old"), place.path("new"))
    file.moved(place.path("new"))
    other.size()
    assert file.path == place.path("new")
    assert file.pread(7, 0) == b"content"


async def test_a_file_that_vanished_is_not_created_again(place: Place) -> None:
    """`create` is for the first opening: an empty file would pass for lost data."""
    pool = HandlePool(place.disk, limit=1)
    file, other = new_file(pool, place, "a"), new_file(pool, place, "b")
    file.pwrite([b"content"], 0)
    other.size()
    await place.disk.unlink(place.path("a"))
    with pytest.raises(FileNotFoundError):
        file.pread(7, 0)


async def test_a_closed_file_stays_closed(place: Place) -> None:
    file = new_file(place.pool, place, "a")
    file.pwrite([b"content"], 0)
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        file.pread(7, 0)
    assert caught.value.errno == errno.EBADF
    assert place.pool.open_count == 0


async def test_a_read_only_file_can_not_be_written(place: Place) -> None:
    place.put("a", b"content")
    file = place.pool.file(place.path("a"))
    assert file.pread(7, 0) == b"content"
    with pytest.raises(OSError):  # noqa: PT011 (which errno is the system's business)
        file.pwrite([b"x"], 0)


async def slow_place() -> tuple[MemoryDisk, HandlePool]:
    """A disk whose awaited calls take a second, with room for one handle."""
    disk = MemoryDisk(clock=MemoryClock())
    await disk.make_directory("/data")
    disk.inject(SlowDisk(least_seconds=1.0))
    return disk, HandlePool(disk, limit=1)


@pytest.mark.parametrize("call", ["sync", "sync_data", "read", "warm"])
async def test_a_file_is_not_closed_under_an_awaited_call(
    autojump_clock: trio.testing.MockClock, call: str
) -> None:
    disk, pool = await slow_place()
    file = pool.file("/data/a", write=True, create=True)
    other = pool.file("/data/b", write=True, create=True)
    file.pwrite([b"content"], 0)
    arguments = (7, 0) if call == "read" else (0, 7) if call == "warm" else ()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(getattr(file, call), *arguments)
        await trio.testing.wait_all_tasks_blocked()
        assert file.in_use
        other.size()
        # One more than the limit, for as long as the call takes.
        assert pool.open_count == 2
    assert not file.in_use
    assert pool.open_count == 1
    if call.startswith("sync"):
        assert not any(isinstance(effect, Write) for effect in disk.effects())


async def test_a_close_under_a_sync_waits_for_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    _, pool = await slow_place()
    file = pool.file("/data/a", write=True, create=True)
    file.pwrite([b"content"], 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.sync)
        await trio.testing.wait_all_tasks_blocked()
        file.close()
        assert pool.open_count == 1
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.size()
    assert pool.open_count == 0


async def test_a_slice_is_sent_after_its_handle_was_closed(tmp_path: Path) -> None:
    """LOG-120, the handle's part: sendfile through a file that the pool had closed."""
    pool = HandlePool(RealDisk(), limit=1)
    file = pool.file(str(tmp_path / "a"), write=True, create=True)
    other = pool.file(str(tmp_path / "b"), write=True, create=True)
    file.pwrite([b"0123456789"], 0)
    part = FileSlice(file, 2, 5)
    other.size()
    assert pool.open_count == 1
    network = RealNetwork()
    listener = await network.listen("127.0.0.1", 0)
    sender = await network.connect(*listener.address)
    receiver = await listener.accept()
    assert sender.send_slice(part, 1) == 4
    await receiver.wait_readable()
    buffer = bytearray(10)
    assert receiver.receive_into(memoryview(buffer)) == 4
    assert buffer[:4] == b"3456"
    for stream in (sender, receiver, listener):
        stream.close()


async def test_files_without_descriptor_say_so() -> None:
    disk = MemoryDisk()
    await disk.make_directory("/data")
    file = HandlePool(disk, limit=1).file("/data/a", write=True, create=True)
    assert getattr(file, "fileno", None) is None
