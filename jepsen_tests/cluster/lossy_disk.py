"""A directory whose files can lose what was not synced, served by a process (`jepsen_tests.lossy`).

What a sync has covered is kept: bytes by one of the file, names by one of its directory.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from jepsen_tests.cluster.errors import HarnessError, NotHereError
from kraftpy.world.memory_disk_crash import CrashPolicy

__all__ = ["LossyDisk", "open_lossy_disk", "open_lossy_disks"]

_PATIENCE_SECONDS: Final = 60.0
_UNMOUNT_SECONDS: Final = 60.0


class LossyDisk:
    """Made by `open_lossy_disk`."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._rest = b""

    async def lose(self, policy: str, seed: int) -> None:
        """Its power, and with it what the policy does not let survive. Nobody may use it now."""
        await self._tell(f"lose {CrashPolicy(policy).value} {seed}\n")
        await self.expect(b"done")

    async def _tell(self, order: str) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send_all(order.encode())

    async def expect(self, word: bytes) -> None:
        """Raises HarnessError, with what it said instead."""
        assert self._process.stdout is not None
        with trio.move_on_after(_PATIENCE_SECONDS):
            while b"\n" not in self._rest:
                got = await self._process.stdout.receive_some()
                if not got:
                    break
                self._rest += got
        line, _, self._rest = self._rest.partition(b"\n")
        if line != word:
            raise HarnessError(f"a lossy disk says: {line.decode(errors='replace') or 'nothing'}")


@asynccontextmanager
async def open_lossy_disk(directory: Path) -> AsyncIterator[LossyDisk]:
    """Raises NotHereError where there is no FUSE."""
    directory.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-P", "-m", "jepsen_tests.lossy.server", str(directory)]
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    process = await trio.lowlevel.open_process(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
    )
    disk = LossyDisk(process)
    try:
        try:
            await disk.expect(b"ready")
        except HarnessError as error:
            raise NotHereError(str(error)) from error
        yield disk
    finally:
        with trio.CancelScope(shield=True):
            assert process.stdin is not None
            await process.stdin.aclose()
            with trio.move_on_after(_UNMOUNT_SECONDS):
                await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()


@asynccontextmanager
async def open_lossy_disks(directories: Sequence[Path]) -> AsyncIterator[list[LossyDisk]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(open_lossy_disk(each)) for each in directories]
