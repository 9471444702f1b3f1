"""The port to other processes of the machine, for those who run clusters: no part of a World.

A node never starts a process; `kraftpy/launch` does, and only through here. So far the port has one
adapter, `real_processes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

__all__ = ["Process", "Processes"]


class Process(Protocol):
    """A child. Its signals reach it alone, and have no effect once it has ended."""

    @property
    def pid(self) -> int: ...

    @property
    def exit_code(self) -> int | None:
        """None while it runs; the negative number of the signal that ended it."""
        ...

    async def wait(self) -> int:
        """Its exit code, when it has ended. Any number of tasks may wait."""
        ...

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        ...

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        ...

    def pause(self) -> None:
        """Let it do nothing until `resume` (SIGSTOP)."""
        ...

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        ...


class Processes(Protocol):
    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of this process."""
        ...

    async def spawn(
        self, command: Sequence[str], *, environment: Mapping[str, str], output_path: str
    ) -> Process:
        """Start a child that gets no signal of this process's terminal.

        What it prints is added to the file `output_path`. Its standard input is a pipe on which
        nothing is ever sent, and that ends with this process, however that ends: a child that
        watches it does not outlive its parent. Raises OSError. A call that is cancelled when the
        child was started already returns it.
        """
        ...
