"""The shim: faults of clocks and disks beneath a node, where nothing of it can look past them.

`shim.c` is compiled for each run, which takes a moment, and loaded into every node. Each has a page
of orders, shared as a file: what is written there holds at once, also for a process that starts
later, until it is healed.
"""

from __future__ import annotations

import errno
import shutil
import struct
from pathlib import Path

from jepsen_tests.cluster.commands import ask
from jepsen_tests.cluster.errors import HarnessError
from kraftpy.faults.language import ClockJump, ClockStrobe, DiskError, NodeFault, SlowDisk

__all__ = ["Shim", "build_shim", "find_compiler"]

_ORDERS = struct.Struct("=6q")
_JUMP, _STROBE, _PERIOD, _DELAY, _SYNC_ERROR, _WRITE_ERROR = range(6)
_NS_IN_MS = 1_000_000


def find_compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


async def build_shim(directory: Path, nodes: list[int]) -> Shim:
    """Raises HarnessError without a compiler."""
    compiler = find_compiler()
    if compiler is None:
        raise HarnessError("there is no C compiler (cc)")
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / "shim.so"
    source = Path(__file__).with_name("shim.c")
    flags = ["-O2", "-Wall", "-Werror", "-shared", "-fPIC"]
    await ask([compiler, *flags, "-o", str(library), str(source), "-ldl"])
    return Shim(library, {node: directory / f"orders-{node}" for node in nodes})


class Shim:
    """Made by `build_shim`."""

    def __init__(self, library: Path, pages: dict[int, Path]) -> None:
        self._library = library
        self._pages = pages
        self._orders = {node: [0] * 6 for node in pages}
        self.heal()

    def prefix(self, node: int) -> tuple[str, ...]:
        """What runs a command with the shim."""
        return ("env", f"LD_PRELOAD={self._library}", f"KRAFTPY_SHIM={self._pages[node]}")

    def takes(self, fault: NodeFault) -> bool:
        """Whether it happens here; the others happen inside of the node."""
        match fault:
            case ClockJump() | ClockStrobe():
                return True
            case SlowDisk(_, _, operation):
                return operation == "sync"
            case DiskError(_, operation):
                return operation in ("sync", "write")
        return False

    def apply(self, fault: NodeFault) -> None:
        match fault:
            case ClockJump(node, milliseconds):
                self._orders[node][_JUMP] += milliseconds * _NS_IN_MS
            case ClockStrobe(node, milliseconds, period_ms):
                self._orders[node][_STROBE] = milliseconds * _NS_IN_MS
                self._orders[node][_PERIOD] = period_ms * _NS_IN_MS
            case SlowDisk(node, milliseconds):
                self._orders[node][_DELAY] = milliseconds * _NS_IN_MS
            case DiskError(node, operation):
                where = _SYNC_ERROR if operation == "sync" else _WRITE_ERROR
                self._orders[node][where] = errno.EIO
            case _:
                raise HarnessError(f"the shim has no {fault.name}")
        self._write(node)

    def heal(self) -> None:
        for node in self._pages:
            self._orders[node] = [0] * 6
            self._write(node)

    def _write(self, node: int) -> None:
        """In place: processes have the file in their memory."""
        page = self._pages[node]
        mode = "r+b" if page.exists() else "wb"
        with page.open(mode, buffering=0) as file:
            file.write(_ORDERS.pack(*self._orders[node]))
