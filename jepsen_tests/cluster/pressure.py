"""Too little of what processes need: descriptors and processors."""

from __future__ import annotations

import os
import resource
import sys

from kraftpy.world.processes import Process, Processes

__all__ = ["Pressure"]

# It ends with its parent, however and however soon that ends.
_PROGRAM = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(100_000):
        pass
"""


class Pressure:
    def __init__(self, processes: Processes, log_path: str) -> None:
        self._processes = processes
        self._log_path = log_path
        self._busy: list[Process] = []
        # By process, what it was allowed before.
        self._limits: dict[int, tuple[int, int]] = {}

    @property
    def busy_pids(self) -> list[int]:
        return [each.pid for each in self._busy if each.exit_code is None]

    async def keep_busy(self, count: int) -> None:
        for _ in range(count):
            self._busy.append(
                await self._processes.spawn(
                    [sys.executable, "-S", "-c", _PROGRAM, str(os.getpid())],
                    environment=self._processes.environment,
                    output_path=self._log_path,
                )
            )

    def take_descriptors(self, pid: int) -> None:
        """It keeps what it has, and gets no more."""
        used = max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        self._limits.setdefault(pid, before)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used, before[1]))

    async def heal(self) -> None:
        for process in self._busy:
            process.kill()
            await process.wait()
        self._busy.clear()
        for pid, before in self._limits.items():
            try:
                resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            except ProcessLookupError:
                # It did not survive.
                continue
        self._limits.clear()
