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
from kraftpy.metadata.controller.result import ControllerResult
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
    run: Callable[[int], ControllerResult[bool]]
    interval_ms: int
    first_delay_ms: int


class PeriodicTasks:
    """The tasks of one controller, on its queue. Who clears the queue ends them."""

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
        """A leadership begins."""
        for task in self._tasks:
            self._schedule(task, now_ms + task.first_delay_ms)

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


def periodic_tasks(
    settings: ControllerSettings, brokers: BrokerControl, elections: ElectionControl
) -> tuple[PeriodicTask, ...]:
    """Those that the settings ask for."""
    session_part_ms = max(1, settings.broker_session_timeout_ms // 8)
    tasks = [
        PeriodicTask(
            "fenceStaleBrokers",
            EventKind.BROKER_CHANGE,
            brokers.fence_stale,
            session_part_ms,
            session_part_ms,
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
