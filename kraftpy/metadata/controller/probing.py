"""Looking for brokers that may be dead (design, decision 14).

Whoever is suspected (suspicions.py) is tried at each of its listeners, as a deferred event on the
controller's queue: it ends with the leadership, and while nobody is suspected there is none.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.effects import ProbeBroker
from kraftpy.metadata.controller.event_queue import Event, EventKind, EventQueue

__all__ = ["Probing"]


class Probing:
    """`probe` has one listener tried; what comes of it is reported to the controller."""

    __slots__ = ("_context", "_probe", "_queue")

    def __init__(
        self, context: ControllerContext, queue: EventQueue, probe: Callable[[ProbeBroker], None]
    ) -> None:
        self._context = context
        self._queue = queue
        self._probe = probe

    def look_at(self, due_ms: int) -> None:
        """Look at that time, or before if that was the plan already."""
        look = Event("lookForBrokers", EventKind.BROKER_CHANGE, self._look)
        self._queue.defer(look.name, look, due_ms)

    def _look(self, now_ms: int) -> None:
        heartbeats = self._context.heartbeats
        if heartbeats is None:
            return
        for broker_id in heartbeats.to_probe(now_ms):
            endpoints = self._context.image.brokers[broker_id].end_points
            heartbeats.probed(broker_id, len(endpoints), now_ms)
            for endpoint in endpoints:
                self._probe(ProbeBroker(broker_id, endpoint.host, endpoint.port))
        next_ms = heartbeats.next_probe_ms()
        if next_ms is not None:
            self.look_at(next_ms)
