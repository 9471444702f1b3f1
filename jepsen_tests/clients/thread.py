"""A thread for a library that blocks: it makes one call after the other, until it is told to end.

Whoever waits for a call may be cancelled; the call goes on, and what is to be done at the end comes
after it, in the same thread. So a library that is not safe for threads never meets two of them, and
nothing of it is ever destroyed in trio's thread.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import trio

__all__ = ["CallThread"]

T = TypeVar("T")


class CallThread:
    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Its result, or its exception. Cancelled, it leaves the call to itself."""
        token = trio.lowlevel.current_trio_token()
        done = trio.Event()
        outcome: list[T] = []
        failure: list[BaseException] = []

        def run() -> None:
            try:
                outcome.append(function(*arguments))
            except BaseException as error:  # It belongs to whoever called.
                failure.append(error)
            try:
                token.run_sync_soon(done.set)
            except trio.RunFinishedError:
                return

        self._calls.put(run)
        await done.wait()
        if failure:
            raise failure[0]
        return outcome[0]

    def finish(self, last: Callable[[], None]) -> None:
        """After all calls, `last`; then the thread ends. Nobody waits for it."""
        self._calls.put(last)
        self._calls.put(None)

    async def finish_and_wait(self, last: Callable[[], None], seconds: float) -> None:
        """The same, and wait for it; but no longer than that."""
        with trio.move_on_after(seconds):
            await self.call(last)
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
