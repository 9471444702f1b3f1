"""The trio shell of every client: makes the calls of a core, and wakes it in time.

A Link is one node's connection with the calls that wait for it, so that calls to a node leave in
the order in which the core made them, also across the moment in which the connection is made. A
connection that can't be made fails all of them; the core decides what to do about that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf

import trio

from kraftpy.client.calls import Call, ClientCore, earliest
from kraftpy.client.connection import Connection, Peer
from kraftpy.client.core import Pending
from kraftpy.client.errors import UnsupportedVersion
from kraftpy.client.settings import ClientSettings
from kraftpy.world import Address, World

__all__ = ["Driver"]


class Driver:
    """Runs one core in one nursery, until the nursery is cancelled."""

    def __init__(
        self, world: World, nursery: trio.Nursery, core: ClientCore, settings: ClientSettings
    ) -> None:
        self._world = world
        self._nursery = nursery
        self._core = core
        self._settings = settings
        self._links: dict[tuple[Address, str], _Link] = {}
        # For the task that makes the calls, and for those who wait for what comes of them.
        self._bell = world.clock.bell()
        self._changed = trio.Event()

    @property
    def now_ms(self) -> int:
        return self._world.clock.monotonic_ms()

    def wake(self) -> None:
        """Something has happened that the core, or whoever waits for it, may want to act on."""
        self._changed.set()
        self._bell.ring()

    async def run(self) -> None:
        clock = self._world.clock
        while True:
            # Made first: what happens from here on wakes the wait below.
            self._bell.clear()
            self._changed = changed = trio.Event()
            for call in self._core.calls(clock.monotonic_ms()):
                self._link(call.address, call.lane).put(call)
            wake_at_ms = self._core.wake_at_ms()
            for link in self._links.values():
                wake_at_ms = earliest(wake_at_ms, link.next_deadline_ms())
            deadline = inf
            if wake_at_ms is not None:
                deadline = clock.monotonic() + (wake_at_ms - clock.monotonic_ms()) / 1000
            await self._bell.wait_until(deadline)
            # When the time came instead, the core may settle what somebody waits for in `until`.
            changed.set()
            if clock.monotonic() >= deadline:
                for link in self._links.values():
                    link.expire()

    async def until(self, condition: Callable[[], bool], timeout_ms: int | None = None) -> bool:
        """Wait until `condition` holds, looking whenever something has happened; does it?"""
        seconds = inf if timeout_ms is None else timeout_ms / 1000
        with self._world.clock.move_on_after(seconds):
            while not condition():
                await self._changed.wait()
                # The core acts on the change before we look at the result.
                await trio.lowlevel.checkpoint()
        return condition()

    async def wait_sent(self) -> None:
        """Wait until the system has all bytes: nobody else tells of requests without answers."""
        for link in list(self._links.values()):
            await link.wait_sent()

    def close(self) -> None:
        for link in self._links.values():
            link.close()

    def _link(self, address: Address, lane: str) -> _Link:
        link = self._links.get((address, lane))
        if link is None:
            peer = Peer(self._world, self._nursery, address, self._settings)
            link = self._links[address, lane] = _Link(peer, self._nursery, self)
        return link


class _Link:
    def __init__(self, peer: Peer, nursery: trio.Nursery, driver: Driver) -> None:
        self._peer = peer
        self._nursery = nursery
        self._driver = driver
        self._connection: Connection | None = None
        self._waiting: deque[Call] = deque()

    def put(self, call: Call) -> None:
        self._waiting.append(call)
        if self._connection is not None and self._connection.is_open:
            self._submit_all(self._connection)
        elif len(self._waiting) == 1:
            host, port = self._peer.address
            self._nursery.start_soon(self._connect, name=f"client-connect[{host}:{port}]")

    def next_deadline_ms(self) -> int | None:
        return None if self._connection is None else self._connection.core.next_deadline_ms()

    def expire(self) -> None:
        if self._connection is not None:
            self._connection.expire()

    async def wait_sent(self) -> None:
        if self._connection is not None:
            await self._connection.wait_sent()

    def close(self) -> None:
        self._peer.close()

    async def _connect(self) -> None:
        try:
            self._connection = await self._peer.connected()
        except OSError as failure:
            self._fail_all(failure)
        else:
            self._submit_all(self._connection)

    def _submit_all(self, connection: Connection) -> None:
        while self._waiting:
            call = self._waiting.popleft()
            try:
                if call.expects_answer:
                    done = partial(self._done, call, connection)
                    connection.submit(
                        call.message,
                        done,
                        max_version=call.max_version,
                        timeout_ms=call.timeout_ms,
                    )
                else:
                    connection.send_unanswered(call.message)
                    call.answered(None, self._driver.now_ms)
                    self._driver.wake()
            except (OSError, UnsupportedVersion) as failure:
                call.failed(failure, self._driver.now_ms)
                self._driver.wake()

    def _done(self, call: Call, connection: Connection, pending: Pending) -> None:
        if pending.failure is not None:
            call.failed(pending.failure, self._driver.now_ms)
        else:
            connection.answered_count += 1
            self._peer.succeeded()
            call.answered(pending.answer, self._driver.now_ms)
        self._driver.wake()

    def _fail_all(self, failure: Exception) -> None:
        calls, self._waiting = self._waiting, deque()
        for call in calls:
            call.failed(failure, self._driver.now_ms)
        self._driver.wake()
