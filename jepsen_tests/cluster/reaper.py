"""What cleans up when the harness can't: a child that waits for the end of its parent.

Its input is a pipe that ends with the harness, also when that is killed. Then it lets go on what
is paused, so that nodes notice that they are alone and stop; ends those that don't; and runs the
commands that remove what was built. It acts on the processes that are written down for it, and on
those only if they were started for the same directory.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from kraftpy.world.processes import Processes

__all__ = ["Reaper", "open_reaper"]

_SCRIPT = """
cat > /dev/null
cd {directory} || exit
ours() {{ tr '\\0' ' ' < /proc/$1/cmdline 2> /dev/null | grep -qF {directory}; }}
for pid in $(cat pids 2> /dev/null); do ours $pid && kill -CONT $pid; done
for wait in 1 1 1 1; do
    left=
    for pid in $(cat pids 2> /dev/null); do ours $pid && left="$left $pid"; done
    [ -z "$left" ] && break
    sleep $wait
done
for pid in $left; do ours $pid && kill -KILL $pid; done
[ -e removal ] && sh ./removal 2> /dev/null
"""


class Reaper:
    """Made by `open_reaper`."""

    def __init__(self, directory: Path) -> None:
        self._pids = directory / "pids"
        self._removal = directory / "removal"

    def note_process(self, pid: int) -> None:
        """The directory must be in its command line."""
        with self._pids.open("a") as file:
            file.write(f"{pid}\n")

    def run_at_the_end(self, command: Sequence[str]) -> None:
        with self._removal.open("a") as file:
            file.write(f"{shlex.join(command)}\n")


@asynccontextmanager
async def open_reaper(directory: Path, processes: Processes) -> AsyncIterator[Reaper]:
    """At the end of the block there is nothing left for it to do."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("pids", "removal"):
        (directory / name).unlink(missing_ok=True)
    script = _SCRIPT.format(directory=shlex.quote(str(directory)))
    child = await processes.spawn(
        ["sh", "-c", script],
        environment=processes.environment,
        output_path=str(directory / "reaper.log"),
    )
    try:
        yield Reaper(directory)
    finally:
        with trio.CancelScope(shield=True):
            child.kill()
            await child.wait()
