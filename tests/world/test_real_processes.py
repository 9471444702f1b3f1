"""Children of this process: how they end, and what they can't do to each other."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from kraftpy.world.processes import Process
from kraftpy.world.real_processes import RealProcesses

TIMEOUT_SECONDS = 60
# Prints a line when it runs, and ends when its standard input does.
WATCHES_INPUT = (
    "import sys; print('runs', flush=True); sys.stdin.read(); print('alone', flush=True)"
)


async def spawn(directory: Path, program: str, **environment: str) -> Process:
    processes = RealProcesses()
    return await processes.spawn(
        [sys.executable, "-c", program],
        environment={**processes.environment, **environment},
        output_path=str(directory / "output"),
    )


async def eventually(condition: Callable[[], bool]) -> None:
    with trio.fail_after(TIMEOUT_SECONDS):
        while not condition():  # noqa: ASYNC110 (another process sets no event)
            await trio.sleep(0.01)


async def wait_until_it_prints(directory: Path, words: str) -> None:
    await eventually(lambda: words in (directory / "output").read_text())


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_output_is_added_and_the_exit_code_told(tmp_path: Path) -> None:
    for number in (3, 0):
        program = f"import os, sys; print(os.environ['WORD'], file=sys.stderr); sys.exit({number})"
        process = await spawn(tmp_path, program, WORD=f"w{number}")
        assert await process.wait() == number
        assert process.exit_code == number
    assert (tmp_path / "output").read_text() == "w3\nw0\n"


async def test_a_missing_command_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await RealProcesses().spawn(
            ["/no/such/command"], environment={}, output_path=str(tmp_path / "output")
        )


async def test_signals(tmp_path: Path) -> None:
    for how, code in (("terminate", -signal.SIGTERM), ("kill", -signal.SIGKILL)):
        process = await spawn(tmp_path, WATCHES_INPUT)
        getattr(process, how)()
        assert await process.wait() == code
        # Too late is no error.
        getattr(process, how)()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="not part of a clone: /proc")
async def test_pause_and_resume(tmp_path: Path) -> None:
    process = await spawn(tmp_path, WATCHES_INPUT)
    await wait_until_it_prints(tmp_path, "runs")
    process.pause()
    await eventually(lambda: state_of(process.pid) == "T")
    process.resume()
    await eventually(lambda: state_of(process.pid) != "T")
    process.kill()
    await process.wait()


async def test_a_child_learns_that_its_parent_was_killed(tmp_path: Path) -> None:
    """Also when a sibling, started later, lives on: it must not hold the other's pipe."""
    parent = f"""
import sys, trio
from kraftpy.world.real_processes import RealProcesses

async def main():
    processes = RealProcesses()
    for name, program in (("output", {WATCHES_INPUT!r}), ("other", "import time; time.sleep(5)")):
        await processes.spawn([sys.executable, "-c", program],
                              environment=processes.environment,
                              output_path={str(tmp_path)!r} + "/" + name)
    await trio.sleep_forever()

trio.run(main)
"""
    (tmp_path / "output").touch()
    process = await RealProcesses().spawn(
        [sys.executable, "-c", parent],
        environment=RealProcesses().environment,
        output_path=str(tmp_path / "parent"),
    )
    await wait_until_it_prints(tmp_path, "runs")
    process.kill()
    await process.wait()
    await wait_until_it_prints(tmp_path, "alone")


async def test_a_child_is_in_no_session_of_ours(tmp_path: Path) -> None:
    process = await spawn(tmp_path, "import os; print(os.getsid(0) == os.getpid())")
    await process.wait()
    assert (tmp_path / "output").read_text() == "True\n"
