"""Processes of the operating system, on trio's support for them."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence

import trio

from kraftpy.world.processes import Process

__all__ = ["RealProcesses"]


class RealProcess:
    __slots__ = ("_lifeline", "_process")

    def __init__(self, process: trio.Process, lifeline: int) -> None:
        self._process = process
        self._lifeline = lifeline

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> int:
        code = await self._process.wait()
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)
        return code

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)


class RealProcesses:
    """Stateless; any number of them are the same."""

    __slots__ = ()

    @property
    def environment(self) -> Mapping[str, str]:
        return dict(os.environ)

    async def spawn(
        self, command: Sequence[str], *, environment: Mapping[str, str], output_path: str
    ) -> Process:
        """The pipe's ends are closed at `exec`, so no other child holds this one's lifeline."""
        output = os.open(output_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            read_end, lifeline = os.pipe()
            try:
                process = await trio.lowlevel.open_process(
                    list(command),
                    stdin=read_end,
                    stdout=output,
                    stderr=output,
                    env=dict(environment),
                    # A session of its own: Ctrl-C in a terminal is sent to all of its session's
                    # foreground, and it is for the parent to say when a child stops.
                    start_new_session=True,
                )
            except BaseException:
                os.close(lifeline)
                raise
            finally:
                os.close(read_end)
        finally:
            os.close(output)
        return RealProcess(process, lifeline)
