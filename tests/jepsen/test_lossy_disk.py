"""The file system that loses its power (JEP-125): what was synced is kept, and nothing else is
sure. Files are used as any program uses them, through the kernel.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import trio

from jepsen_tests.cluster.errors import NotHereError
from jepsen_tests.cluster.lossy_disk import LossyDisk, open_lossy_disk
from kraftpy.faults.language import POWER_POLICIES

pytestmark = pytest.mark.timeout(120)


@asynccontextmanager
async def lossy(directory: Path) -> AsyncIterator[LossyDisk]:
    missing = None
    try:
        async with open_lossy_disk(directory) as disk:
            yield disk
    except NotHereError as error:
        missing = str(error)
    if missing is not None:
        pytest.skip(f"missing: FUSE ({missing})")


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write(path: Path, data: bytes, *, syncs: bool = False) -> None:
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as descriptor:
        assert os.write(descriptor, data) == len(data)
        if syncs:
            os.fsync(descriptor)


def sync_names(directory: Path) -> None:
    with opened(directory, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


async def test_unsynced_data_and_names_are_lost_on_command(tmp_path: Path) -> None:
    """JEP-125: and what was synced is kept, before and after a second loss."""
    place = tmp_path / "disk"
    async with lossy(place) as disk:
        (place / "topic-0").mkdir()
        sync_names(place)
        write(place / "topic-0/a.log", b"synced", syncs=True)
        sync_names(place / "topic-0")
        write(place / "topic-0/a.log", b" and not")
        # Synced by itself, and its name is not.
        write(place / "topic-0/b.log", b"nameless", syncs=True)
        assert contents(place) == {"topic-0/a.log": b"synced and not", "topic-0/b.log": b"nameless"}
        await disk.lose("drop-all", 1)
        assert contents(place) == {"topic-0/a.log": b"synced"}
        (place / "topic-0/a.log").rename(place / "topic-0/c.log")
        await disk.lose("drop-all", 1)
        assert contents(place) == {"topic-0/a.log": b"synced"}
        (place / "topic-0/a.log").rename(place / "topic-0/c.log")
        sync_names(place / "topic-0")
        (place / "topic-0/c.log").unlink()
        await disk.lose("drop-all", 1)
        assert contents(place) == {"topic-0/c.log": b"synced"}
    assert contents(place) == {}


async def test_a_write_is_torn_where_the_seed_says(tmp_path: Path) -> None:
    """JEP-125"""
    place = tmp_path / "disk"
    lengths = set()
    async with lossy(place) as disk:
        for seed in range(8):
            name = place / f"{seed}"
            write(name, b"before", syncs=True)
            sync_names(place)
            write(name, bytes(range(100)))
            await disk.lose("torn-last", seed)
            found = name.read_bytes()
            assert found == b"before" + bytes(range(len(found) - 6))
            lengths.add(len(found))
    assert len(lengths) > 2


@pytest.mark.parametrize("policy", POWER_POLICIES)
async def test_no_policy_takes_what_was_synced(tmp_path: Path, policy: str) -> None:
    """JEP-125: seven ways to lose the rest."""
    place = tmp_path / "disk"
    async with lossy(place) as disk:
        for seed in range(3):
            write(place / f"kept-{seed}", b"k" * 10_000, syncs=True)
            sync_names(place)
            for number in range(4):
                write(place / f"new-{seed}-{number}", b"n" * 9_000)
            await disk.lose(policy, seed)
            for earlier in range(seed + 1):
                assert (place / f"kept-{earlier}").read_bytes() == b"k" * 10_000
        new = [name for name in contents(place) if name.startswith("new")]
        if policy in ("drop-all", "keep-all"):
            assert len(new) == (12 if policy == "keep-all" else 0)


async def test_it_is_a_file_system_for_everybody(tmp_path: Path) -> None:
    """JEP-125: what a node does with files works there, or nothing else would be tested."""
    place = tmp_path / "disk"
    async with lossy(place):
        big = os.urandom(700_001)
        write(place / "big", big)
        assert (place / "big").read_bytes() == big
        with opened(place / "big", os.O_RDWR) as descriptor:
            assert os.pread(descriptor, 10, 300_000) == big[300_000:300_010]
            os.pwrite(descriptor, b"xyz", 300_000)
            os.ftruncate(descriptor, 400_000)
            os.fdatasync(descriptor)
            assert os.fstat(descriptor).st_size == 400_000
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with opened(place / "big", os.O_RDWR) as other, pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours, theirs = socket.socketpair()
            with ours, theirs:
                assert os.sendfile(ours.fileno(), descriptor, 299_999, 5) == 5
                assert theirs.recv(10) == big[299_999:300_000] + b"xyz" + big[300_003:300_004]
            # A file that has no name any more is there for those who have it open.
            (place / "big").unlink()
            assert os.pread(descriptor, 3, 300_000) == b"xyz"
        for number in range(300):
            write(place / f"file-with-a-rather-long-name-{number:05}", b"x")
        assert len(os.listdir(place)) == 300
        with pytest.raises(FileNotFoundError):
            (place / "nothing").read_bytes()
        (place / "d").mkdir()
        write(place / "d" / "inside", b"x")
        with pytest.raises(OSError, match="not empty"):
            (place / "d").rmdir()
        assert os.statvfs(place).f_bavail > 0
        assert (place / "d").stat().st_mtime > 1_700_000_000


def is_mounted(place: Path) -> bool:
    """As the system tells it: a place that nobody serves any more can't be looked at."""
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return str(place) in [line.split()[1] for line in mounts]


HARNESS = """
import sys
from pathlib import Path
import trio
from jepsen_tests.cluster.lossy_disk import open_lossy_disk

async def main():
    async with open_lossy_disk(Path(sys.argv[1])):
        print("up", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


async def test_nothing_stays_mounted_when_the_harness_is_killed(tmp_path: Path) -> None:
    """JEP-123"""
    place = tmp_path / "disk"
    async with lossy(place):
        pass
    root = str(Path(__file__).parents[2])
    harness = await trio.lowlevel.open_process(
        [sys.executable, "-c", HARNESS, str(place)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root},
    )
    try:
        assert harness.stdout is not None
        printed = b""
        async for part in harness.stdout:
            printed += part
            if b"\n" in printed:
                break
        assert printed == b"up\n"
        assert is_mounted(place)
    finally:
        harness.kill()
        await harness.wait()
    with trio.fail_after(60):
        while is_mounted(place):  # noqa: ASYNC110 (of another process)
            await trio.sleep(0.02)
    assert list(place.iterdir()) == []


async def test_a_disk_that_is_not_there_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JEP-119: skipped, not passed."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "sitecustomize.py").write_text(
        "import os\n"
        "real = os.open\n"
        "def refuse(path, *rest, **more):\n"
        "    if path == '/dev/fuse':\n"
        "        raise PermissionError(13, 'Permission denied')\n"
        "    return real(path, *rest, **more)\n"
        "os.open = refuse\n"
    )
    with pytest.raises(NotHereError, match="/dev/fuse: Permission denied"):
        async with open_lossy_disk(tmp_path / "disk"):
            pass
