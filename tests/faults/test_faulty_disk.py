"""A disk that is full, fails or tears a write, over the memory disk."""

from __future__ import annotations

import errno
from functools import partial

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.faults import unsynced
from kraftpy.faults.disk import FaultyDisk
from kraftpy.faults.language import DiskError, DiskFull, SlowDisk, TornWrite
from kraftpy.faults.state import NodeFaults
from kraftpy.world import File
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk

PATH = "/file"


class Kit:
    def __init__(self) -> None:
        self.deaths = 0
        self.memory = MemoryDisk()
        self.faults = NodeFaults(self.die)
        self.clock = MemoryClock()
        self.disk = FaultyDisk(self.memory, self.faults, self.clock)

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


async def test_a_slow_disk_takes_its_time_and_heals(autojump_clock: trio.testing.MockClock) -> None:
    """N15, JEP-104: reads from the medium and syncs wait; what has begun is not hurried."""
    kit = Kit()
    file = kit.file()
    kit.faults.apply(SlowDisk(1, 2_000))
    kit.faults.apply(SlowDisk(1, 5_000, "read"))
    assert not file.resident(0, 1)
    for operation, seconds in ((file.sync, 2), (file.sync_data, 2), (partial(file.warm, 0, 1), 5)):
        begun = trio.current_time()
        await operation()
        assert trio.current_time() - begun == pytest.approx(seconds)
    kit.faults.heal()
    assert file.resident(0, 1)
    begun = trio.current_time()
    await file.sync()
    assert trio.current_time() == begun


async def test_a_loss_of_power_takes_what_is_not_synced_and_nothing_else() -> None:
    """N8, JEP-97: appended, overwritten and cut bytes are as they were when last synced."""
    kit = Kit()
    file = kit.file(b"12345678")
    await file.sync()
    file.pwrite([b"AB"], 2)
    file.pwrite([b"more"], 8)
    file.truncate(5)
    file.pwrite([b"zz"], 5)
    kit.disk.lose_unsynced()
    assert kit.content() == b"12345678"


async def test_what_was_synced_in_between_is_kept() -> None:
    kit = Kit()
    file = kit.file(b"1234")
    file.pwrite([b"56"], 4)
    await file.sync_data()
    file.pwrite([b"lost"], 6)
    await kit.disk.rename(PATH, "/renamed")
    kit.disk.lose_unsynced()
    assert kit.memory.open("/renamed").pread(100, 0) == b"123456"


async def test_a_sync_that_failed_has_kept_nothing() -> None:
    """N13"""
    kit = Kit()
    file = kit.file(b"1234")
    await file.sync()
    file.pwrite([b"xx"], 0)
    kit.faults.apply(DiskError(1, "sync"))
    with fails_with(errno.EIO):
        await file.sync()
    file.pwrite([b"later"], 4)
    kit.disk.lose_unsynced()
    assert kit.content() == b"1234"


async def test_a_new_file_that_was_never_synced_is_empty() -> None:
    kit = Kit()
    kit.file(b"1234")
    kit.disk.lose_unsynced()
    assert kit.content() == b""


async def test_zeros_that_are_cut_off_take_no_memory() -> None:
    """An index has 10 MiB of them, and a node two indexes for each partition: it had 2.3 GB after a
    kill, with 20 MB of data.
    """
    kit = Kit()
    file = kit.file(b"entries")
    file.truncate(10 << 20)
    file.pwrite([b"x"], 5 << 20)
    await file.sync()
    file.truncate(7)
    undo = kit.disk.unsynced.begin_sync(PATH)
    assert undo is not None
    kept = [data for _, data in undo.replaced if data is not None]
    assert sum(map(len, kept)) <= 128 * 1024
    kit.disk.unsynced.sync_failed(PATH, undo)
    file.pwrite([b"others"], 7)
    kit.disk.lose_unsynced()
    content = kit.memory.open(PATH).pread(11 << 20, 0)
    assert content.strip(b"\0") == b"entries" + bytes((5 << 20) - 7) + b"x"
    assert len(content) == 10 << 20


_changes = st.lists(
    st.one_of(
        st.tuples(st.just("cut"), st.integers(0, 24), st.just(b"")),
        st.tuples(st.just("write"), st.integers(0, 20), st.sampled_from((b"ab", b"\0\0\0", b"c"))),
    ),
    max_size=12,
)


@given(
    content=st.sampled_from((b"", b"12345678", b"\0" * 9, b"1\0\0\0\0\0\0\0\0\0\0\0002")),
    changes=_changes,
)
def test_whatever_was_done_since_the_sync_is_undone(
    content: bytes, changes: list[tuple[str, int, bytes]]
) -> None:
    """N8: with pieces of a few bytes, so that some are left out and their neighbours are not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unsynced, "_PIECE_BYTES", 4)
        kit = Kit()
        file = kit.file(content)
        assert kit.disk.unsynced.begin_sync(PATH) is not None
        for kind, position, data in changes:
            if kind == "cut":
                file.truncate(position)
            else:
                file.pwrite([data], position)
        kit.disk.lose_unsynced()
        assert kit.content() == content
