"""The shim beneath a process: its wall clock, its syncs and its writes; nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from jepsen_tests.cluster.commands import ask
from jepsen_tests.cluster.errors import HarnessError
from jepsen_tests.cluster.shim import Shim, build_shim, find_compiler
from kraftpy.faults.language import ClockJump, ClockStrobe, DiskError, DiskFull, SlowDisk

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="missing: a C compiler")

# What a process with the shim finds out about itself.
PROBE = """
import errno, json, os, sys, time, trio
def error(action):
    try:
        action()
    except OSError as failure:
        return errno.errorcode[failure.errno]
    return None
with open(sys.argv[1], "wb") as file:
    number = file.fileno()
    begun = time.monotonic()
    found = {
        "wall": time.time(),
        "monotonic": time.monotonic(),
        "write": error(lambda: os.pwrite(number, b"x", 0)),
        "writev": error(lambda: os.pwritev(number, [b"x", b"y"], 0)),
        "sync": error(lambda: os.fsync(number)),
        "sync_data": error(lambda: os.fdatasync(number)),
    }
    found["sync_seconds"] = time.monotonic() - begun
begun = time.monotonic()
trio.run(trio.sleep, 0.05)
found["slept"] = time.monotonic() - begun
walls = [time.time() - time.monotonic() for _ in range(20_000)]
found["spread"] = max(walls) - min(walls)
print(json.dumps(found))
"""
HOUR_MS = 3_600_000


async def look(shim: Shim, node: int, tmp_path: Path) -> dict[str, Any]:
    command = [*shim.prefix(node), sys.executable, "-c", PROBE, str(tmp_path / "file")]
    found: dict[str, Any] = json.loads(await ask(command))
    return found


async def truth(tmp_path: Path) -> dict[str, Any]:
    command = [sys.executable, "-c", PROBE, str(tmp_path / "file")]
    found: dict[str, Any] = json.loads(await ask(command))
    return found


async def test_clocks_jump_alone_and_heal(tmp_path: Path) -> None:
    """N5, JEP-94, JEP-124: only the wall clock, of that node, and until it is healed."""
    shim = await build_shim(tmp_path / "shim", [1, 2])
    shim.apply(ClockJump(1, HOUR_MS))
    shim.apply(ClockJump(1, HOUR_MS))
    moved, still = await look(shim, 1, tmp_path), await look(shim, 2, tmp_path)
    real = await truth(tmp_path)
    ahead = (moved["wall"] - moved["monotonic"]) - (real["wall"] - real["monotonic"])
    assert ahead == pytest.approx(7200, abs=60)
    assert moved["monotonic"] < real["monotonic"]
    assert moved["slept"] >= 0.05
    assert still["wall"] - still["monotonic"] == pytest.approx(
        real["wall"] - real["monotonic"], abs=60
    )
    shim.heal()
    healed = await look(shim, 1, tmp_path)
    assert healed["wall"] - healed["monotonic"] == pytest.approx(
        real["wall"] - real["monotonic"], abs=60
    )


async def test_clocks_strobe(tmp_path: Path) -> None:
    """N6, JEP-95"""
    shim = await build_shim(tmp_path / "shim", [1])
    assert (await look(shim, 1, tmp_path))["spread"] < 1000
    shim.apply(ClockStrobe(1, HOUR_MS, period_ms=1))
    assert (await look(shim, 1, tmp_path))["spread"] > 3000
    shim.heal()
    assert (await look(shim, 1, tmp_path))["spread"] < 1000


async def test_a_slow_disk_is_slow(tmp_path: Path) -> None:
    """N15, JEP-104"""
    shim = await build_shim(tmp_path / "shim", [1])
    shim.apply(SlowDisk(1, 150))
    found = await look(shim, 1, tmp_path)
    assert found["sync_seconds"] >= 0.3
    assert found["sync"] is None
    shim.heal()
    assert (await look(shim, 1, tmp_path))["sync"] is None


@pytest.mark.parametrize(
    ("operation", "failing", "working"),
    [
        ("sync", ("sync", "sync_data"), ("write", "writev")),
        ("write", ("write", "writev"), ("sync", "sync_data")),
    ],
)
async def test_a_disk_fails_at_what_it_is_told_and_heals(
    operation: str, failing: tuple[str, ...], working: tuple[str, ...], tmp_path: Path
) -> None:
    """N13, JEP-102"""
    shim = await build_shim(tmp_path / "shim", [1])
    shim.apply(DiskError(1, operation))
    found = await look(shim, 1, tmp_path)
    assert [found[name] for name in failing] == ["EIO"] * len(failing)
    assert [found[name] for name in working] == [None] * len(working)
    shim.heal()
    healed = await look(shim, 1, tmp_path)
    assert [healed[name] for name in failing] == [None] * len(failing)


async def test_what_it_has_not_got_it_refuses(tmp_path: Path) -> None:
    shim = await build_shim(tmp_path / "shim", [1])
    assert not shim.takes(DiskFull(1))
    assert not shim.takes(SlowDisk(1, 5, "read"))
    with pytest.raises(HarnessError, match="no disk-full"):
        shim.apply(DiskFull(1))
