"""Whatever happens to the harness, nothing of it stays on the machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
import trio
from jepsen_cluster_kit import until
from jepsen_network_kit import require_namespaces

from jepsen_tests.cluster.commands import ask, ip_batch
from jepsen_tests.cluster.namespaces import open_namespaces, ours, remove_leftovers
from jepsen_tests.cluster.reaper import open_reaper
from kraftpy.world.real_processes import RealProcesses

HARNESS = str(Path(__file__).with_name("harness_to_kill.py"))


def owned_by(names: list[str], pid: int) -> list[str]:
    return [name for name in names if name.startswith(f"kj{pid:x}x")]


@pytest.mark.parametrize(
    ("network", "number"), [("namespaces", signal.SIGKILL), ("proxy", signal.SIGTERM)]
)
async def test_a_harness_that_is_killed_leaves_nothing(
    network: str, number: signal.Signals, tmp_path: Path
) -> None:
    """JEP-123: no namespace, no link, no process, not even one that was paused."""
    if network == "namespaces":
        await require_namespaces()
    command = [sys.executable, HARNESS, str(tmp_path / "cluster"), network]
    harness = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    assert harness.stdout is not None
    try:
        line = b""
        async for part in harness.stdout:
            line += part
            if line.endswith(b"\n"):
                break
        pids = json.loads(line)
        assert len(pids) == 2
        if network == "namespaces":
            assert owned_by(await ours(), harness.pid)
    finally:
        harness.send_signal(number)
        await harness.wait()
        await harness.stdout.aclose()

    async def is_clean() -> bool:
        alive = {f"{pid}" for pid in pids} & set(os.listdir("/proc"))
        left = owned_by(await ours(), harness.pid) if network == "namespaces" else []
        return not alive and not left

    await until(is_clean)


async def test_leaving_the_block_leaves_nothing(tmp_path: Path) -> None:
    """JEP-123: also by an error; what others have stays."""
    await require_namespaces()
    async with open_reaper(tmp_path, RealProcesses()) as reaper:
        found: list[str] = []

        async def fail_inside() -> None:
            async with open_namespaces([1, 2], Random(), reaper) as net:
                found.extend(name for name in await ours() if name.startswith(net.name))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail_inside()
        assert len(found) == 3

        async def is_clean() -> bool:
            return not set(found) & set(await ours())

        await until(is_clean)


async def test_the_next_start_removes_what_the_dead_have_left_and_nothing_else() -> None:
    """JEP-123"""
    await require_namespaces()
    gone = await trio.lowlevel.open_process(["true"])
    await gone.wait()
    dead, alive = f"kj{gone.pid:x}x00n1", f"kj{os.getpid():x}xfen1"
    foreign = f"other{os.getpid():x}"
    try:
        await ip_batch([f"netns add {name}" for name in (dead, alive, foreign)])
        await remove_leftovers()
        shown = await ask(["ip", "netns", "list"])
        assert dead not in shown
        assert alive in shown
        assert foreign in shown
    finally:
        for name in (dead, alive, foreign):
            await ask(["ip", "netns", "delete", name], check=False)
