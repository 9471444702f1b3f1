"""Looks at a cluster all the time and notes what changes: the lines of a report's timeline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from jepsen_tests.cluster.inspection import Inspection, PartitionState
from kraftpy.world import Clock

__all__ = ["CONTROLLER", "Sample", "Watcher"]

Sample: TypeAlias = list[Any]
"""Time in nanoseconds, "topic-partition" or CONTROLLER, leader, epoch, in-sync replicas."""

CONTROLLER = "controller"


class Watcher:
    """`run` it beside a run; `samples` go into the run's facts, under "timeline"."""

    def __init__(
        self,
        inspect: Callable[[], Awaitable[Inspection | None]],
        time_ns: Callable[[], int],
        clock: Clock,
        *,
        interval_seconds: float = 0.5,
    ) -> None:
        self._inspect = inspect
        self._time_ns = time_ns
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._last: dict[str, tuple[Any, ...]] = {}
        self.samples: list[Sample] = []

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            found = await self._inspect()
            if found is not None:
                self.note(found)
            await self._clock.sleep(self._interval_seconds)

    def note(self, found: Inspection) -> None:
        controller = PartitionState(found.controller, found.controller_epoch, (), found.voters)
        self._note(CONTROLLER, controller)
        for where, state in found.partitions.items():
            self._note(str(where), state)

    def _note(self, name: str, state: PartitionState) -> None:
        seen = (state.leader, state.epoch, state.isr)
        if self._last.get(name) != seen:
            self._last[name] = seen
            self.samples.append([self._time_ns(), name, state.leader, state.epoch, [*state.isr]])
