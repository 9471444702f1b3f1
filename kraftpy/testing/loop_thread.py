"""A trio loop in a thread of its own, for tests that have another loop or none."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from typing import Generic, TypeVar

import trio

__all__ = ["LoopThread"]

T = TypeVar("T")
R = TypeVar("R")


class LoopThread(Generic[T]):
    """Holds what `open_` opens, until `close`; `call` has coroutines run beside it."""

    def __init__(self, open_: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        """Returns when it is open, and raises what it raises."""
        self._open = open_
        self._opened: Future[tuple[T, trio.lowlevel.TrioToken, trio.Nursery]] = Future()
        self._closing = trio.Event()
        # A daemon: a test run that is killed must not wait for it.
        self._thread = threading.Thread(target=self._run, name="kraftpy-cluster", daemon=True)
        self._failure: BaseException | None = None
        self._thread.start()
        self.value, self._token, self._nursery = self._opened.result()

    def call(self, function: Callable[..., Awaitable[R]], *arguments: object) -> R:
        """Run it in the loop, wait for its end, and return or raise what it does."""
        done: Future[R] = Future()

        async def work() -> None:
            try:
                done.set_result(await function(*arguments))
            except trio.Cancelled:
                done.cancel()
                raise
            except Exception as error:
                done.set_exception(_plain(error))

        try:
            self._token.run_sync_soon(self._nursery.start_soon, work)
        except trio.RunFinishedError:
            raise RuntimeError("the cluster has ended") from self._failure
        return done.result()

    def close(self) -> None:
        """Idempotent. Raises what ended the loop, if something did."""
        if self._thread.is_alive():
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._closing.set)
            self._thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            if self._opened.done():
                self._failure = _plain(error)
            else:
                self._opened.set_exception(_plain(error))

    async def _main(self) -> None:
        async with self._open() as value, trio.open_nursery() as nursery:
            self._opened.set_result((value, trio.lowlevel.current_trio_token(), nursery))
            await self._closing.wait()
            nursery.cancel_scope.cancel()


def _plain(error: BaseException) -> BaseException:
    """Nurseries wrap what rises through them in groups, which says nothing to those who test."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
