"""How late the loop is: the first sign that something keeps it (design, decision 1).

A task asks to be woken at a moment and notes how much later it was. Every stretch on the loop that
is longer than it should be shows up here, whoever caused it.
"""

from __future__ import annotations

from typing import NoReturn

from kraftpy.observe.metrics import MetricName, MetricRegistry
from kraftpy.world import Clock

__all__ = ["LOOP_LAG", "watch_loop"]

LOOP_LAG = MetricName("kraftpy.server", "Loop", "LagMs")

_INTERVAL_SECONDS = 0.25


async def watch_loop(clock: Clock, registry: MetricRegistry) -> NoReturn:
    """Record the lag until cancelled."""
    lag = registry.histogram(LOOP_LAG)
    while True:
        due = clock.monotonic() + _INTERVAL_SECONDS
        await clock.sleep_until(due)
        lag.update(max(0.0, (clock.monotonic() - due) * 1000))
