"""What is the real disk's alone: threads, the page cache, other processes."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio

from kraftpy.world import real_disk
from kraftpy.world.real_disk import RealDisk, RealFile


def make_file(path: Path, content: bytes = b"0123456789") -> RealFile:
    path.write_bytes(content)
    file = RealDisk().open(str(path), write=True)
    assert isinstance(file, RealFile)
    return file


class HeldCall:
    """Stands in for a system call, in its thread, until the test lets it go on."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.may_end = threading.Event()
        self.was_open_at_end: bool | None = None

    def __call__(self, descriptor: int) -> None:
        self.started.set()
        assert self.may_end.wait(60)
        try:
            os.fstat(descriptor)
            self.was_open_at_end = True
        except OSError:
            self.was_open_at_end = False

    async def wait_started(self) -> None:
        assert await trio.to_thread.run_sync(self.started.wait, 60)


async def test_a_sync_under_way_is_awaited_though_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldCall()
    monkeypatch.setattr(real_disk, "_sync_to_medium", held)
    file = make_file(tmp_path / "f")
    ended = trio.Event()

    async def sync_and_close() -> None:
        try:
            await file.sync()
        finally:
            file.close()
            ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sync_and_close)
        await held.wait_started()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked()
            assert not ended.is_set()
            held.may_end.set()
            await ended.wait()
    assert held.was_open_at_end


async def test_a_descriptor_is_not_given_back_under_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another task closes the file while two syncs run; the number stays taken until both end."""
    held = [HeldCall(), HeldCall()]
    calls = iter(held)

    def hold_next(descriptor: int) -> None:
        next(calls)(descriptor)

    monkeypatch.setattr(real_disk, "_sync_to_medium", hold_next)
    file = make_file(tmp_path / "f")
    descriptor = file.fileno()
    async with trio.open_nursery() as nursery:
        for call in held:
            nursery.start_soon(file.sync)
            await call.wait_started()
        file.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.pread(1, 0)
        held[0].may_end.set()
        await trio.testing.wait_all_tasks_blocked()
        os.fstat(descriptor)
        held[1].may_end.set()
    assert [call.was_open_at_end for call in held] == [True, True]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_partial_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may take any part of what it is given, also in the middle of a part."""
    one, several = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwrite", lambda fd, part, at: one(fd, part[:3], at))
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: several(fd, [b"".join(parts)[:3]], at))
    file = make_file(tmp_path / "f", b"")
    assert file.pwrite([b"ab", b"", b"cdefg", b"h", bytearray(b"ij")], 1) == 10
    assert file.pread(100, 0) == b"\0abcdefghij"
    assert file.pwrite([memoryview(b"0123456789")], 1) == 10
    assert file.pread(100, 0) == b"\x000123456789"
    file.close()


def test_a_short_read_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pread, preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda fd, length, at: pread(fd, min(3, length), at))
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, at: preadv(fd, [buffers[0][:3]], at))
    file = make_file(tmp_path / "f")
    assert file.pread(8, 1) == b"12345678"
    assert file.pread(100, 1) == b"123456789"
    buffer = bytearray(20)
    assert file.pread_into(memoryview(buffer), 1) == 9
    assert buffer[:9] == b"123456789"
    file.close()


@pytest.mark.parametrize("parts", [[b"0123456789"], [b"01", b"23456789"]])
def test_a_full_disk_is_told_after_a_partial_write(
    parts: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.pwritev
    room = 5

    def fill(descriptor: int, parts: list[bytes], position: int) -> int:
        nonlocal room
        if room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = whole(descriptor, [b"".join(parts)[:room]], position)
        room -= written
        return written

    monkeypatch.setattr(os, "pwritev", fill)
    monkeypatch.setattr(os, "pwrite", lambda fd, part, at: fill(fd, [part], at))
    file = make_file(tmp_path / "f", b"")
    with pytest.raises(OSError, match="No space left"):
        file.pwrite(parts, 0)
    assert file.pread(100, 0) == b"01234"
    file.close()


class PageCache:
    """os.preadv under a page cache of which the test says how far it goes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, cached_bytes: int, error: int) -> None:
        self._preadv = os.preadv
        self.cached_bytes = cached_bytes
        self.error = error
        self.calls = 0
        monkeypatch.setattr(os, "preadv", self)

    def __call__(
        self, descriptor: int, buffers: tuple[bytearray], position: int, flags: int = 0
    ) -> int:
        self.calls += 1
        if not flags:
            return self._preadv(descriptor, buffers, position)
        if position >= self.cached_bytes:
            raise OSError(self.error, os.strerror(self.error))
        view = memoryview(buffers[0])[: self.cached_bytes - position]
        return self._preadv(descriptor, [view], position)


def forbid_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_thread(*_: object, **__: object) -> None:
        raise AssertionError("went to a thread")

    monkeypatch.setattr(trio.to_thread, "run_sync", no_thread)


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="missing: RWF_NOWAIT, which Linux has")
class TestPageCache:
    async def test_cached_bytes_need_no_thread(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache = PageCache(monkeypatch, cached_bytes=10, error=errno.EAGAIN)
        forbid_threads(monkeypatch)
        file = make_file(tmp_path / "f")
        assert await file.read(5, 3) == b"34567"
        # Short, but only as the file is.
        assert await file.read(50, 3) == b"3456789"
        assert cache.calls == 2
        file.close()

    @pytest.mark.parametrize("cached_bytes", [0, 4])
    async def test_cold_bytes_are_read_in_a_thread(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached_bytes: int
    ) -> None:
        PageCache(monkeypatch, cached_bytes=cached_bytes, error=errno.EAGAIN)
        file = make_file(tmp_path / "f")
        assert await file.read(5, 3) == b"34567"
        forbid_threads(monkeypatch)
        with pytest.raises(AssertionError, match="thread"):
            await file.read(5, 3)
        file.close()

    async def test_a_file_system_that_does_not_tell(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache = PageCache(monkeypatch, cached_bytes=0, error=errno.EOPNOTSUPP)
        file = make_file(tmp_path / "f")
        assert await file.read(5, 3) == b"34567"
        assert file.resident(0, 10)
        assert await file.read(5, 3) == b"34567"
        assert cache.calls == 1
        file.close()

    async def test_other_errors_are_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        PageCache(monkeypatch, cached_bytes=0, error=errno.EIO)
        file = make_file(tmp_path / "f")
        with pytest.raises(OSError, match="Input/output error"):
            await file.read(5, 3)
        with pytest.raises(OSError, match="Input/output error"):
            file.resident(0, 5)
        file.close()

    def test_residence_is_probed_along_the_range(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        step = 128 * 1024
        file = make_file(tmp_path / "f", bytes(3 * step))
        cache = PageCache(monkeypatch, cached_bytes=2 * step, error=errno.EAGAIN)
        assert file.resident(0, 2 * step)
        assert file.resident(2 * step - 1, 1)
        assert not file.resident(0, 2 * step + 1)
        assert not file.resident(2 * step, 1)
        assert not file.resident(step, 2 * step)
        assert file.resident(2 * step + 1, 0)
        cache.calls = 0
        assert file.resident(0, 2 * step)
        assert cache.calls == 3
        file.close()


async def test_without_nowait_all_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS, which also has no posix_fadvise."""
    monkeypatch.setattr(real_disk, "_NOWAIT", None)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    file = make_file(tmp_path / "f")
    assert file.resident(0, 10)
    await file.warm(0, 10)
    assert await file.read(5, 3) == b"34567"
    file.close()


def test_a_lock_excludes_another_process_until_its_holder_dies(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    script = (
        "import sys; from kraftpy.world.real_disk import RealDisk;"
        f"lock = RealDisk().lock({path!r}); print('locked', flush=True); sys.stdin.read()"
    )
    disk = RealDisk()
    holder = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(BlockingIOError):
            disk.lock(path)
        holder.kill()
        holder.wait()
        disk.lock(path).release()


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    def count() -> int:
        return len(os.listdir("/dev/fd"))

    disk = RealDisk()
    make_file(tmp_path / "f").close()
    # What earlier tests have left must not go meanwhile.
    gc.collect()
    before = count()
    lock = disk.lock(str(tmp_path / ".lock"))
    for call in (
        lambda: disk.lock(str(tmp_path / ".lock")),
        lambda: disk.open(str(tmp_path)),
    ):
        with pytest.raises(OSError, match="Errno"):
            call()
    trio.run(disk.sync_directory, str(tmp_path))
    lock.release()
    assert count() == before


async def test_times_are_the_systems(tmp_path: Path) -> None:
    file = make_file(tmp_path / "f")
    os.utime(tmp_path / "f", ns=(0, 1_700_000_000_123_999_999))
    found = await RealDisk().stat(file.path)
    assert found.modified_ms == 1_700_000_000_123
    file.close()
