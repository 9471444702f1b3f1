"""The blocking shell of every client: the loop that trio's driver is, turned by hand.

Nothing happens between calls: a client in here makes progress while its user waits for something,
and a little with every other call. Connecting blocks, up to
`socket_connection_setup_timeout_ms`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from kraftpy.client.backoff import Backoff
from kraftpy.client.blocking import BlockingConnection, exchange, fresh_random, now_ms
from kraftpy.client.calls import Call, ClientCore, earliest
from kraftpy.client.core import Pending
from kraftpy.client.errors import UnsupportedVersion
from kraftpy.client.settings import ClientSettings
from kraftpy.world import Address

__all__ = ["BlockingDriver"]


class BlockingDriver:
    def __init__(self, core: ClientCore, settings: ClientSettings) -> None:
        self._core = core
        self._settings = settings
        self._links: dict[tuple[Address, str], _Link] = {}

    def until(self, condition: Callable[[], bool], timeout_ms: int | None = None) -> bool:
        """Turn until `condition` holds or the time is over; does it hold?"""
        deadline_ms = None if timeout_ms is None else now_ms() + timeout_ms
        while not condition():
            if deadline_ms is not None and now_ms() >= deadline_ms:
                return False
            self.turn(deadline_ms, condition)
        return True

    def turn(self, deadline_ms: int | None, is_enough: Callable[[], bool] = lambda: False) -> None:
        """Make the core's calls, and wait for what comes first: an answer, or a deadline."""
        for call in self._core.calls(now_ms()):
            self._link(call.address, call.lane).put(call)
        for link in self._links.values():
            link.connect_if_due()
        # Only now: connecting takes its time, and failed calls give the core something to do.
        wake_at_ms = earliest(self._core.wake_at_ms(), deadline_ms)
        for link in self._links.values():
            wake_at_ms = earliest(wake_at_ms, link.due_ms())
        wait_ms = None if wake_at_ms is None else max(0, wake_at_ms - now_ms())
        if is_enough():
            wait_ms = 0
        connections = [link.connection for link in self._links.values() if link.connection]
        exchange(connections, wait_ms)

    @property
    def has_unsent(self) -> bool:
        """Are there bytes that the system has not taken yet, on some connection?"""
        connections = [link.connection for link in self._links.values() if link.connection]
        return any(connection.has_unsent for connection in connections)

    def close(self) -> None:
        for link in self._links.values():
            if link.connection is not None:
                link.connection.close()

    def _link(self, address: Address, lane: str) -> _Link:
        link = self._links.get((address, lane))
        if link is None:
            link = self._links[address, lane] = _Link(address, self._settings)
        return link


class _Link:
    def __init__(self, address: Address, settings: ClientSettings) -> None:
        self._address = address
        self._settings = settings
        self._backoff = Backoff(
            initial_ms=settings.reconnect_backoff_ms,
            max_ms=settings.reconnect_backoff_max_ms,
            random=fresh_random(),
        )
        self._not_before_ms = 0
        self._answered_count = 0
        self._waiting: deque[Call] = deque()
        self.connection: BlockingConnection | None = None

    def put(self, call: Call) -> None:
        self._waiting.append(call)
        if self.connection is not None and self.connection.is_open:
            self._submit_all(self.connection)

    def due_ms(self) -> int | None:
        """When there is something to do although nothing has come."""
        return self._not_before_ms if self._waiting else None

    def connect_if_due(self) -> None:
        if not self._waiting or now_ms() < self._not_before_ms:
            return
        if self.connection is not None:
            self.connection = None
            if self._answered_count == 0:
                self._hold_off()
                return
        self._answered_count = 0
        try:
            self.connection = BlockingConnection(self._address, self._settings)
        except OSError as failure:
            self._hold_off()
            calls, self._waiting = self._waiting, deque()
            for call in calls:
                call.failed(failure, now_ms())
        else:
            self._submit_all(self.connection)

    def _hold_off(self) -> None:
        self._not_before_ms = now_ms() + self._backoff.failed()

    def _submit_all(self, connection: BlockingConnection) -> None:
        while self._waiting:
            call = self._waiting.popleft()
            try:
                if call.expects_answer:
                    done = partial(self._done, call)
                    connection.submit(
                        call.message,
                        done,
                        max_version=call.max_version,
                        timeout_ms=call.timeout_ms,
                    )
                else:
                    connection.send_unanswered(call.message)
                    call.answered(None, now_ms())
            except (OSError, UnsupportedVersion) as failure:
                call.failed(failure, now_ms())

    def _done(self, call: Call, pending: Pending) -> None:
        if pending.failure is not None:
            call.failed(pending.failure, now_ms())
        else:
            self._answered_count += 1
            self._backoff.succeeded()
            call.answered(pending.answer, now_ms())
