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

from kraftpy.metadata.controller.brokers import BrokerControl
from kraftpy.metadata.controller.elections import ElectionControl
from kraftpy.metadata.controller.event_queue import Event, EventKind, EventQueue
from kraftpy.metadata.controller.result import ControllerResult, Outcome, Part
from kraftpy.metadata.controller.settings import ControllerSettings
from kraftpy.metadata.records import NoOpRecord
from kraftpy.world import InternalInvariant

__all__ = [
    "FIRST_BALANCE_DELAY_MS",
    "MORE_DELAY_MS",
    "RETRY_MS",
    "PeriodicTask",
    "PeriodicTasks",
    "periodic_tasks",
]

log = logging.getLogger(__name__)

MORE_DELAY_MS: Final = 10
RETRY_MS: Final = 300_000
FIRST_BALANCE_DELAY_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """The answer of `run`, which gets the time, is whether there is more to do."""

    name: str
    kind: EventKind | None
    run: Callable[[int], Outcome[bool]]
    interval_ms: int
    first_delay_ms: int
    # When there will be something to do, if the task can tell: it need not wait any longer then.
    next_due_ms: Callable[[], int | None] = lambda: None


class PeriodicTasks:
    """The tasks of one controller, on its queue. Who clears the queue ends them."""

    __slots__ = ("_next_offset", "_on_fault", "_queue", "_tasks", "_write")

    def __init__(
        self,
        tasks: Sequence[PeriodicTask],
        queue: EventQueue,
        write: Callable[[Outcome[bool]], None],
        next_offset: Callable[[], int],
        on_fault: Callable[[], None],
    ) -> None:
        """`write` appends records; `next_offset` is the one that the next of them will get."""
        self._tasks = tuple(tasks)
        self._queue = queue
        self._write = write
        self._next_offset = next_offset
        self._on_fault = on_fault

    def start(self, now_ms: int) -> None:
        """A leadership begins."""
        for task in self._tasks:
            self._schedule(task, self._due_ms(task, now_ms, task.first_delay_ms))

    def _due_ms(self, task: PeriodicTask, now_ms: int, delay_ms: int) -> int:
        known_ms = task.next_due_ms()
        latest_ms = now_ms + delay_ms
        return latest_ms if known_ms is None else max(now_ms, min(known_ms, latest_ms))

    def _schedule(self, task: PeriodicTask, due_ms: int) -> None:
        self._queue.defer(task.name, Event(task.name, task.kind, partial(self._run, task)), due_ms)

    def _run(self, task: PeriodicTask, now_ms: int) -> None:
        self._attempt(task, partial(task.run, now_ms), now_ms)

    def _go_on(
        self, task: PeriodicTask, proceed: Callable[[int], Outcome[bool]], now_ms: int
    ) -> None:
        self._attempt(task, lambda: proceed(self._next_offset()), now_ms)

    def _attempt(self, task: PeriodicTask, work: Callable[[], Outcome[bool]], now_ms: int) -> None:
        try:
            outcome = work()
            self._write(outcome)
            if isinstance(outcome, Part):
                rest = partial(self._go_on, task, outcome.proceed)
                self._queue.go_on_with(Event(task.name, task.kind, rest), now_ms)
                return
            delay_ms = MORE_DELAY_MS if outcome.answer else task.interval_ms
            due_ms = self._due_ms(task, now_ms, delay_ms)
        except InternalInvariant:
            raise
        except Exception:
            log.exception("the controller's task %s failed; next try in 5 minutes", task.name)
            self._on_fault()
            due_ms = now_ms + RETRY_MS
        self._schedule(task, due_ms)


def periodic_tasks(
    settings: ControllerSettings, brokers: BrokerControl, elections: ElectionControl
) -> tuple[PeriodicTask, ...]:
    """Those that the settings ask for."""
    # A session that begins while none is known can't end earlier.
    session_ms = settings.broker_session_timeout_ms
    tasks = [
        PeriodicTask(
            "fenceStaleBrokers",
            EventKind.BROKER_CHANGE,
            brokers.fence_stale,
            session_ms,
            session_ms,
            brokers.next_expiry_ms,
        ),
        PeriodicTask(
            "electUncleanLeaders",
            EventKind.UNCLEAN_LEADER_ELECTION_ENABLE,
            lambda now_ms: elections.elect_unclean(),
            settings.unclean_leader_election_interval_ms,
            settings.unclean_leader_election_interval_ms,
        ),
    ]
    if settings.metadata_max_idle_interval_ms > 0:
        idle_ms = settings.metadata_max_idle_interval_ms
        tasks.append(PeriodicTask("writeNoOpRecord", None, _no_op, idle_ms, idle_ms))
    if settings.auto_leader_rebalance_enable:
        tasks.append(
            PeriodicTask(
                "electPreferredLeaders",
                EventKind.AUTO_PREFERRED_REPLICA_LEADER_ELECTION,
                lambda now_ms: elections.balance_leaders(),
                settings.leader_imbalance_check_interval_ms,
                FIRST_BALANCE_DELAY_MS,
            )
        )
    return tuple(tasks)


def _no_op(now_ms: int) -> ControllerResult[bool]:
    """A sign of life in the log: who reads it knows that nothing newer has been missed."""
    return ControllerResult((NoOpRecord(),), False)
