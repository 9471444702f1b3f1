"""A real `kraftpy up`, as a shell runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.ports import unused_ports

TIMEOUT_SECONDS = 280


class Up:
    """One run of the command; its temporary files go to a directory of the test's own."""

    def __init__(self, tmp_path: Path, *options: str, at_usual_ports: bool = False) -> None:
        self.temporary = tmp_path / "temporary"
        self.temporary.mkdir(exist_ok=True)
        self.ready_file = tmp_path / "ready.json"
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "kraftpy.cli.main", "up"),
                *("--ready-file", str(self.ready_file)),
                *(() if at_usual_ports or "--port" in options else ("--port", str(unused_ports()))),
                *options,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(self.temporary)},
            # A job of its own, as a shell makes it.
            process_group=0,
        )
        self.said: list[str] = []
        self.printed = ""
        # A blocked read has no timeout of its own.
        self._watchdog = threading.Timer(TIMEOUT_SECONDS, self.process.kill)
        self._watchdog.start()

    def wait_for(self, words: str) -> str:
        """The line of standard error that has these words."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if words in line:
                return line
        raise AssertionError(f"it never said {words!r}:\n{''.join(self.said)}")

    def wait_ready(self) -> list[str]:
        """The lines of standard output."""
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline() for _ in range(5)]
        assert lines[0].startswith("bootstrap.servers="), self.rest()
        return lines

    def pids(self) -> list[int]:
        return [int(pid) for pid in re.findall(r"starts \(process (\d+)\)", "".join(self.said))]

    def signal(self, number: int) -> None:
        """To the whole job, as a terminal does."""
        os.killpg(self.process.pid, number)

    def rest(self) -> str:
        """Wait for the end; all that was said."""
        printed, said = self.process.communicate(timeout=TIMEOUT_SECONDS)
        self.printed += printed
        self.said.append(said)
        return "".join(self.said)

    def close(self) -> None:
        self._watchdog.cancel()
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@contextmanager
def running_up(tmp_path: Path, *options: str, at_usual_ports: bool = False) -> Iterator[Up]:
    up = Up(tmp_path, *options, at_usual_ports=at_usual_ports)
    try:
        yield up
    finally:
        up.close()


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]
