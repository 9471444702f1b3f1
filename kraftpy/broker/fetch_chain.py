"""Fetches that follow one another without a task between them.

While records trickle in, a follower does nothing but append what came and ask for more, and those
who wait for acknowledgements wait for that. So an answer is taken by the task that has read it, and
the next fetch leaves from there: the fetcher's own task, which would cost two more turns of the
loop each time, sleeps until something else is to be done, or the connection is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraftpy.client.connection import Connection
from kraftpy.client.core import Pending
from kraftpy.protocol.schema.k01_fetch import FetchRequest, FetchResponse
from kraftpy.world import Clock

__all__ = ["FetchChain"]


class FetchChain:
    """From a first fetch to an answer that is left to the fetcher's task. Used once."""

    __slots__ = ("_connection", "_done", "_is_given_up", "_last", "_take")

    def __init__(
        self,
        connection: Connection,
        clock: Clock,
        take: Callable[[FetchResponse], FetchRequest | None],
    ) -> None:
        """`take` is shown each answer and returns what to fetch next, None to end the chain."""
        self._connection = connection
        self._take = take
        self._done = clock.bell()
        self._last: Pending | None = None
        self._is_given_up = False

    async def run(self, request: FetchRequest) -> Any:
        """The answer that ended the chain. Raises as Connection.request does.

        If cancelled, it takes no more; what is in flight is the caller's to abandon.
        """
        connection = self._connection
        try:
            connection.submit(request, self._answered)
            while self._last is None:
                await connection.wait(self._done)
            return self._last.result()
        finally:
            self._is_given_up = True

    def _answered(self, pending: Pending) -> None:
        """Called by the task that reads the connection, or by whoever has closed it."""
        if self._is_given_up:
            return
        if pending.failure is None:
            self._connection.answered_count += 1
            request = self._take(pending.answer)
            if request is not None:
                self._fetch(request, pending)
                return
        self._end(pending)

    def _fetch(self, request: FetchRequest, answered: Pending) -> None:
        try:
            self._connection.submit(request, self._answered)
        except ConnectionError as error:
            # Lost while the answer was taken.
            answered.failure = error
            self._end(answered)

    def _end(self, last: Pending) -> None:
        self._last = last
        self._done.ring()
