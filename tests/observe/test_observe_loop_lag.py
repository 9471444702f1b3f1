"""The lag of the loop, measured against a clock that the test moves."""

from __future__ import annotations

import trio
import trio.testing

from kraftpy.observe.loop_lag import LOOP_LAG, watch_loop
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.world.memory_clock import MemoryClock


async def test_a_stretch_on_the_loop_shows(mock_clock: trio.testing.MockClock) -> None:
    registry = MetricRegistry()
    lag = registry.histogram(LOOP_LAG)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch_loop, MemoryClock(), registry)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(0.25)
        await trio.testing.wait_all_tasks_blocked()
        assert lag.count == 1
        assert lag.maximum < 0.001
        # Somebody kept the loop for 40 ms beyond the moment that was asked for.
        mock_clock.jump(0.29)
        await trio.testing.wait_all_tasks_blocked()
        assert lag.count == 2
        assert 39 < lag.maximum < 41
        nursery.cancel_scope.cancel()
