"""The process that serves a lossy disk.

    python -m jepsen_tests.lossy.server DIRECTORY

mounts a FUSE file system over the directory, empty at first and kept in memory, says `ready`, and
reads orders: `lose POLICY SEED` has the disk lose its power, with what the policy draws from the
seed surviving (`kraftpy.world.memory_disk_crash`); then it says `done`. Whoever uses the disk must
have been killed before. It ends, and with it the mount, when its input does: nothing is left when
the harness is killed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from random import Random

import trio

from jepsen_tests.lossy.fuse import FuseError, Mount
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_crash import CrashPolicy
from kraftpy.world.real_clock import RealClock


async def _serve(directory: str) -> int:
    mount = Mount(directory, MemoryDisk(clock=RealClock()))
    try:
        mount.mount()
    except FuseError as error:
        print(error, flush=True)
        return 1
    try:
        print("ready", flush=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mount.serve)
            async for line in _lines():
                _, policy, seed = line.split()
                mount.unmount()
                mount.disk.crash(CrashPolicy(policy), Random(int(seed)))
                mount.mount()
                nursery.start_soon(mount.serve)
                print("done", flush=True)
            nursery.cancel_scope.cancel()
    finally:
        mount.unmount()
    return 0


async def _lines() -> AsyncIterator[str]:
    rest = ""
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stream:
        async for part in stream:
            *lines, rest = (rest + part.decode()).split("\n")
            for line in lines:
                yield line


if __name__ == "__main__":
    sys.exit(trio.run(_serve, sys.argv[1]))
