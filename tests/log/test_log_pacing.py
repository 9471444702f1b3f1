"""Long work in slices: how long they are, alone and shared."""

from __future__ import annotations

import pytest
import trio

from kraftpy.log.pacing import Pace
from kraftpy.world.memory_clock import MemoryClock

UNIT_SECONDS = 0.0005


class WorkClock(MemoryClock):
    """Time passes by work only."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize("worker_count", [1, 2, 8])
async def test_those_who_share_a_pace_share_its_slices(worker_count: int) -> None:
    """However many they are, a turn of the loop has 2 ms of work, and a bit for each to notice."""
    clock = WorkClock()
    pace = Pace(clock)
    done = [0] * worker_count
    turns: list[float] = []

    async def work(number: int) -> None:
        while True:
            clock.now += UNIT_SECONDS
            done[number] += 1
            await pace.rest(0)

    async def watch() -> None:
        for _ in range(400):
            before = clock.now
            await trio.lowlevel.checkpoint()
            turns.append(clock.now - before)

    async with trio.open_nursery() as nursery:
        for number in range(worker_count):
            nursery.start_soon(work, number)
        await watch()
        nursery.cancel_scope.cancel()
    # The watch is anywhere in the order of a turn, so that it sees the parts of two. The first ones
    # are special: there every worker does a bit.
    assert max(turns[5:]) <= 2 * (0.002 + UNIT_SECONDS) + 0.0001
    assert sum(turns) / len(turns) == pytest.approx(0.002, rel=0.3)
    # And nobody is left out.
    assert min(done) > sum(done) / worker_count / 3


async def test_a_slice_ends_by_amount_too() -> None:
    pace = Pace(WorkClock())
    pace.count(4 * 1024 * 1024 - 1)
    assert not pace.is_over
    pace.count(1)
    assert pace.is_over
    await pace.rest(0)
    assert not pace.is_over
