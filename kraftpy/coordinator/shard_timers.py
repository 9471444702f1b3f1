"""The timers and the background work of one shard, by name."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

from kraftpy.coordinator.outcome import Outcome
from kraftpy.purgatory.timer import Timer, TimerTask

__all__ = ["ShardBackground", "ShardTimer", "ShardTimers"]

_Result = TypeVar("_Result")


class ShardTimer(TimerTask):
    """Rings once; what it then does, it does as an event of its shard."""

    __slots__ = ("_rings", "key", "operation")

    def __init__(
        self,
        key: str,
        operation: Callable[[], Outcome[None]],
        rings: Callable[[ShardTimer], None],
    ) -> None:
        super().__init__()
        self.key = key
        self.operation = operation
        self._rings = rings

    def run(self) -> None:
        self._rings(self)


class ShardTimers:
    """See ports.Timers. `rings` is called for a timer whose time is over."""

    __slots__ = ("_by_key", "_rings", "_timer")

    def __init__(self, timer: Timer, rings: Callable[[ShardTimer], None]) -> None:
        self._timer = timer
        self._rings = rings
        self._by_key: dict[str, ShardTimer] = {}

    def schedule(self, key: str, delay_ms: int, operation: Callable[[], Outcome[None]]) -> None:
        task = self._by_key.get(key)
        if task is not None and task.is_pending:
            task.operation = operation
        else:
            # One that has rung, but whose event has not run yet, must find that it is outdated.
            task = self._by_key[key] = ShardTimer(key, operation, self._rings)
        self._timer.add(task, delay_ms)

    def cancel(self, key: str) -> None:
        task = self._by_key.pop(key, None)
        if task is not None:
            self._timer.cancel(task)

    def is_scheduled(self, key: str) -> bool:
        return key in self._by_key

    def take(self, task: ShardTimer) -> bool:
        """Its event runs now. False if its name was cancelled or started anew since it rang."""
        if self._by_key.get(task.key) is not task:
            return False
        del self._by_key[task.key]
        return True

    def cancel_all(self) -> None:
        for key in list(self._by_key):
            self.cancel(key)


class ShardBackground:
    """See ports.Background. The reaper of `timer` does the work, a piece at a time."""

    __slots__ = ("_running", "_submit", "_timer")

    def __init__(self, timer: Timer, submit: Callable[[Callable[[], Outcome[None]]], None]) -> None:
        self._timer = timer
        self._submit = submit
        self._running: dict[str, object] = {}

    def start(
        self,
        key: str,
        work: Generator[None, None, _Result],
        completed: Callable[[_Result | Exception], Outcome[None]],
    ) -> None:
        if key not in self._running:
            self._running[key] = work
            self._timer.defer(self._pieces(key, work, completed))

    def is_running(self, key: str) -> bool:
        return key in self._running

    def cancel(self, key: str) -> None:
        self._running.pop(key, None)

    def cancel_all(self) -> None:
        self._running.clear()

    def _pieces(
        self,
        key: str,
        work: Generator[None, None, _Result],
        completed: Callable[[_Result | Exception], Outcome[None]],
    ) -> Iterator[None]:
        result: _Result | Exception
        while True:
            if self._running.get(key) is not work:
                work.close()
                return
            try:
                next(work)
            except StopIteration as end:
                result = end.value
                break
            except Exception as error:
                result = error
                break
            yield
        del self._running[key]
        self._submit(lambda: completed(result))
