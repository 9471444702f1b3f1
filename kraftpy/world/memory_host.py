"""Simulated machines, the processes on them, and how their tasks wait.

A process that was killed or vanished is a ghost: its tasks may still run their clean-up, but none
of their calls has any effect, and nothing wakes them but their cancellation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

__all__ = ["Host", "Parking", "Process", "Tenant"]

_FIRST_EPHEMERAL_PORT = 32_768


class Host:
    """A machine: a name, an address, and at most one process that runs on it."""

    __slots__ = ("ip", "name", "next_port", "powered", "process")

    def __init__(self, name: str, ip: str) -> None:
        self.name = name
        self.ip = ip
        self.powered = True
        self.process: Process | None = None
        self.next_port = _FIRST_EPHEMERAL_PORT

    def ephemeral_port(self) -> int:
        self.next_port += 1
        return self.next_port - 1


class Tenant(Protocol):
    """What a process holds and its kernel knows of."""

    def process_ended(self) -> None: ...


class Process:
    """One run of a host's software, from its start to its end.

    `alive` ends with the process, killed or vanished; `vanished` says that its kernel went with it.
    """

    __slots__ = ("_held", "_tenants", "alive", "host", "paused", "vanished")

    def __init__(self, host: Host) -> None:
        self.host = host
        self.alive = True
        self.vanished = False
        self.paused = False
        self._held: list[Callable[[], None]] = []
        self._tenants: dict[Tenant, None] = {}

    def add(self, tenant: Tenant) -> None:
        self._tenants[tenant] = None

    def forget(self, tenant: Tenant) -> None:
        self._tenants.pop(tenant, None)

    def tenants(self) -> list[Tenant]:
        """Oldest first."""
        return list(self._tenants)

    def hold(self, action: Callable[[], None]) -> None:
        """Do `action` when the process is resumed, or ends."""
        self._held.append(action)

    def resume(self) -> None:
        self.paused = False
        held, self._held = self._held, []
        for action in held:
            action()

    async def wait_running(self) -> None:
        """Return when the process runs: never, for a ghost."""
        while self.paused:
            resumed = trio.Event()
            self.hold(resumed.set)
            await resumed.wait()
        if not self.alive:
            await trio.sleep_forever()

    def end(self, *, with_machine: bool) -> None:
        """Make a ghost of it, and tell what it held, oldest first."""
        self.alive = False
        self.vanished = with_machine
        self.resume()
        for tenant in self.tenants():
            tenant.process_ended()


class Parking:
    """A place for one task that waits until something about a stream or listener changes."""

    __slots__ = ("_task",)

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None

    async def wait(self) -> None:
        if self._task is not None:
            raise trio.BusyResourceError("another task waits for this already")
        self._task = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def wake(self) -> None:
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None
