"""A wall clock that jumps and strobes, while monotonic time and sleeping stay as they are."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from kraftpy.faults.clock import FaultyClock
from kraftpy.faults.language import ClockJump, ClockStrobe
from kraftpy.faults.state import NodeFaults
from kraftpy.world.memory_clock import MemoryClock


class Kit:
    def __init__(self) -> None:
        self.truth = MemoryClock()
        self.faults = NodeFaults(pytest.fail)
        self.clock = FaultyClock(self.truth, self.faults)

    @property
    def ahead_ms(self) -> int:
        return self.clock.wall_ms() - self.truth.wall_ms()


async def test_jumps_add_up_and_heal(autojump_clock: trio.testing.MockClock) -> None:
    """N5, JEP-94, JEP-124"""
    kit = Kit()
    assert kit.ahead_ms == 0
    kit.faults.apply(ClockJump(1, 3_600_000))
    kit.faults.apply(ClockJump(1, -600_000))
    assert kit.ahead_ms == 3_000_000
    assert kit.clock.monotonic_ms() == kit.truth.monotonic_ms()
    kit.faults.heal()
    assert kit.ahead_ms == 0


async def test_a_strobe_goes_to_and_fro(autojump_clock: trio.testing.MockClock) -> None:
    """N6, JEP-95"""
    kit = Kit()
    kit.faults.apply(ClockStrobe(1, 250_000, period_ms=100))
    seen = []
    for _ in range(4):
        seen.append(kit.ahead_ms)
        await kit.clock.sleep(0.1)
    assert seen in ([250_000, 0, 250_000, 0], [0, 250_000, 0, 250_000])
    kit.faults.heal()
    assert kit.ahead_ms == 0


async def test_sleeping_notices_nothing(autojump_clock: trio.testing.MockClock) -> None:
    """JEP-124"""
    kit = Kit()
    begun = trio.current_time()
    kit.faults.apply(ClockJump(1, -10_000_000))
    await kit.clock.sleep(7)
    with kit.clock.move_on_after(3):
        await trio.sleep_forever()
    assert trio.current_time() - begun == pytest.approx(10)
