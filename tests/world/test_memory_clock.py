"""What a simulation does to a node's clock: drift, jumps of the wall time, pauses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from kraftpy.sim.runner import run_simulation
from kraftpy.sim.simulation import Simulation
from kraftpy.world import Bell, InternalInvariant
from kraftpy.world.memory_clock import MemoryClock


def simulate(main: Callable[[], Awaitable[None]]) -> None:
    async def run(sim: Simulation) -> None:
        await main()

    run_simulation(run, seed=1)


def test_drift_bends_sleeps_and_deadlines() -> None:
    async def main() -> None:
        fast, slow = MemoryClock(rate=2.0), MemoryClock(rate=0.5)
        await fast.sleep(10)
        assert trio.current_time() == pytest.approx(5)
        with slow.move_on_after(10):
            await trio.sleep_forever()
        assert trio.current_time() == pytest.approx(25)
        assert fast.monotonic() == pytest.approx(50)
        assert slow.monotonic() == pytest.approx(12.5)

    simulate(main)


def test_a_change_of_rate_does_not_jump_and_the_early_sleeper_sleeps_on() -> None:
    async def main() -> None:
        clock = MemoryClock(offset_seconds=100)

        async def slow_down() -> None:
            await trio.sleep(5)
            before = clock.monotonic()
            clock.set_rate(0.5)
            assert clock.monotonic() == before

        async with trio.open_nursery() as nursery:
            nursery.start_soon(slow_down)
            await clock.sleep(10)
        assert clock.monotonic() >= 110
        assert trio.current_time() == pytest.approx(15)

    simulate(main)


@pytest.mark.parametrize("rate", [0.1, 1 / 3, 0.9, 1.0, 1.1, 7.7])
def test_rounding_never_wakes_early_nor_spins(rate: float) -> None:
    async def main() -> None:
        clock = MemoryClock(rate=rate, offset_seconds=1e6 / 3)
        for step in range(1, 300):
            deadline = clock.monotonic() + step / 7
            await clock.sleep_until(deadline)
            assert deadline <= clock.monotonic() < deadline + 1e-6

    simulate(main)


def test_a_deadline_that_rounding_puts_a_hair_too_early() -> None:
    async def main() -> None:
        deadline, rate = 10.94357926309294, 1.1
        assert deadline / rate * rate < deadline
        clock = MemoryClock(rate=rate)
        await clock.sleep_until(deadline)
        assert clock.monotonic() >= deadline

    simulate(main)


@pytest.mark.parametrize("rate", [1.0, 0.9, 1.1, 1.0 / 3])
def test_at_a_millisecond_that_was_slept_until_both_readings_say_so(rate: float) -> None:
    """8.094 * 1000 is less than 8094: a task that slept until then, and was told that it is not
    time yet, slept again for ever, and time stood still (broker.marker_sender had one).
    """

    async def main() -> None:
        clock = MemoryClock(rate=rate)
        for milliseconds in (*range(1, 3_000), *range(8_090, 8_100), 10**9 + 1, 10**9 + 7):
            await clock.sleep_until(milliseconds / 1000)
            assert clock.monotonic_ms() == milliseconds

    simulate(main)


def test_the_wall_jumps_and_monotonic_time_does_not() -> None:
    async def main() -> None:
        clock = MemoryClock(offset_seconds=7, wall_offset_ms=1_000)
        wall, monotonic = clock.wall_ms(), clock.monotonic_ms()
        clock.jump_wall(-3_600_000)
        assert clock.wall_ms() == wall - 3_600_000
        assert clock.monotonic_ms() == monotonic
        assert wall == MemoryClock().wall_ms() + 1_000

    simulate(main)


def test_a_paused_clock_ticks_on_but_wakes_nobody() -> None:
    async def main() -> None:
        clock = MemoryClock()
        woken: list[tuple[str, float]] = []

        async def sleep(name: str, seconds: float) -> None:
            await clock.sleep(seconds)
            woken.append((name, trio.current_time()))

        async def limited(name: str, seconds: float) -> None:
            with clock.move_on_after(seconds):
                await trio.sleep_forever()
            woken.append((name, trio.current_time()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleep, "short", 2)
            nursery.start_soon(sleep, "long", 20)
            nursery.start_soon(limited, "limited", 3)
            nursery.start_soon(limited, "limited long", 30)
            await trio.sleep(1)
            clock.pause()
            clock.pause()
            nursery.start_soon(limited, "limited while paused", 1)
            await trio.sleep(9)
            assert woken == []
            assert clock.monotonic() == 10
            clock.resume()
            clock.resume()
        overdue = {"short": 10, "limited": 10, "limited while paused": 10}
        assert dict(woken) == {**overdue, "long": 20, "limited long": 30}

    simulate(main)


def test_a_paused_clock_rings_no_bell_but_others_may() -> None:
    async def main() -> None:
        clock = MemoryClock()
        woken: dict[str, float] = {}

        async def wait(name: str, bell: Bell) -> None:
            await bell.wait_until(3)
            woken[name] = trio.current_time()

        async with trio.open_nursery() as nursery:
            by_time, by_hand = clock.bell(), clock.bell()
            nursery.start_soon(wait, "by time", by_time)
            nursery.start_soon(wait, "by hand", by_hand)
            await trio.sleep(1)
            clock.pause()
            await trio.sleep(5)
            by_hand.ring()
            await trio.sleep(4)
            assert woken == {"by hand": 6}
            clock.resume()
        assert woken == {"by hand": 6, "by time": 10}

    simulate(main)


def test_a_bell_that_was_late_once_waits_for_its_next_moment() -> None:
    async def main() -> None:
        clock = MemoryClock()
        bell = clock.bell()
        woken = []

        async def wait() -> None:
            for moment in (1, 10):
                await bell.wait_until(moment)
                bell.clear()
                woken.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(0.5)
            clock.pause()
            await trio.sleep(1.5)
            bell.ring()
            await trio.sleep(1)
            clock.resume()
        assert woken == [2, 10]

    simulate(main)


def test_a_bell_of_a_clock_that_was_slowed_is_not_early() -> None:
    async def main() -> None:
        clock = MemoryClock()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(clock.bell().wait_until, 10)
            await trio.sleep(1)
            clock.set_rate(0.5)
        assert (clock.monotonic(), trio.current_time()) == (10, 19)

    simulate(main)


def test_a_deadline_that_its_holder_moved_during_a_pause_stays_moved() -> None:
    async def main() -> None:
        clock = MemoryClock()
        with clock.move_on_after(1) as scope:
            clock.pause()
            scope.deadline = 50
            clock.resume()
            await trio.sleep_forever()
        assert trio.current_time() == 50

    simulate(main)


def test_a_rate_must_be_positive() -> None:
    with pytest.raises(InternalInvariant, match="clock-rate"):
        MemoryClock(rate=0)
