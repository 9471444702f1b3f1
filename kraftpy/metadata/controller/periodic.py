"""What an active controller does of its own accord, again and again.

Each task is a deferred event under its own name, so that it takes its turn like everything else and
ends with the leadership. It returns records, and whether there is more to do: then it comes again
after 10 ms, with everybody who waits served in between. A task that fails costs nobody the
leadership: it is logged, and tried again after five minutes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from kraftpy.metadata.controller.event_queue import Event, EventKind, EventQueue
from kraftpy.metadata.controller.result import ControllerResult
from kraftpy.world import InternalInvariant

__all__ = ["FIRST_BALANCE_DELAY_MS", "MORE_DELAY_MS", "RETRY_MS", "PeriodicTask", "PeriodicTasks"]

log = logging.getLogger(__name__)

MORE_DELAY_MS: Final = 10
RETRY_MS: Final = 300_000
FIRST_BALANCE_DELAY_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """The answer of `run`, which gets the time, is whether there is more to do."""

    name: str
    kind: EventKind | None
    run: Callable[[int], ControllerResult[bool]]
    interval_ms: int
    first_delay_ms: int


class PeriodicTasks:
    """The tasks of one controller, on its queue."""

    __slots__ = ("_on_fault", "_queue", "_tasks", "_write")

    def __init__(
        self,
        tasks: Sequence[PeriodicTask],
        queue: EventQueue,
        write: Callable[[ControllerResult[bool], int], None],
        on_fault: Callable[[], None],
    ) -> None:
        self._tasks = tuple(tasks)
        self._queue = queue
        self._write = write
        self._on_fault = on_fault

    def start(self, now_ms: int) -> None:
        for task in self._tasks:
            self._schedule(task, now_ms + task.first_delay_ms)

    def stop(self) -> None:
        """Idempotent."""
        for task in self._tasks:
            self._queue.cancel(task.name)

    def _schedule(self, task: PeriodicTask, due_ms: int) -> None:
        self._queue.defer(task.name, Event(task.name, task.kind, partial(self._run, task)), due_ms)

    def _run(self, task: PeriodicTask, now_ms: int) -> None:
        try:
            result = task.run(now_ms)
            self._write(result, now_ms)
            delay_ms = MORE_DELAY_MS if result.answer else task.interval_ms
        except InternalInvariant:
            raise
        except Exception:
            log.exception("the controller's task %s failed; next try in 5 minutes", task.name)
            self._on_fault()
            delay_ms = RETRY_MS
        self._schedule(task, now_ms + delay_ms)
