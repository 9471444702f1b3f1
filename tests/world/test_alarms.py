"""Waiting for moments: alarms on a loop whose clock rings them, and on any other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf

import pytest
import trio
import trio.testing

from kraftpy.sim.clock import VirtualClock
from kraftpy.world.alarms import Alarm
from kraftpy.world.memory_link import Timetable

CLOCKS: list[Callable[[], trio.abc.Clock]] = [
    VirtualClock,
    lambda: trio.testing.MockClock(autojump_threshold=0),
]
on_both_clocks = pytest.mark.parametrize("make_clock", CLOCKS, ids=["virtual", "other"])


def run(make_clock: Callable[[], trio.abc.Clock], main: Callable[[], Awaitable[object]]) -> None:
    trio.run(main, clock=make_clock())


@on_both_clocks
def test_each_is_woken_at_its_moment(make_clock: Callable[[], trio.abc.Clock]) -> None:
    woken: list[tuple[str, float]] = []

    async def wait(name: str, seconds: float) -> None:
        await Alarm().wait_until(trio.current_time() + seconds)
        woken.append((name, trio.current_time() - start))

    async def main() -> None:
        nonlocal start
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, "late", 7.0)
            nursery.start_soon(wait, "soon", 0.5)
            # Among what waits for trio's own deadlines.
            await trio.sleep(3)
            woken.append(("trio", trio.current_time() - start))

    start = 0.0
    run(make_clock, main)
    assert [(name, pytest.approx(at)) for name, at in woken] == [
        ("soon", 0.5),
        ("trio", 3.0),
        ("late", 7.0),
    ]


@on_both_clocks
def test_a_moment_that_is_past_is_a_checkpoint(make_clock: Callable[[], trio.abc.Clock]) -> None:
    async def main() -> None:
        before = trio.current_time()
        with trio.testing.assert_checkpoints():
            await Alarm().wait_until(before - 1)
        assert trio.current_time() == pytest.approx(before)

    run(make_clock, main)


@on_both_clocks
@pytest.mark.parametrize("until", [60.0, inf])
def test_who_waits_may_be_rung_earlier_or_by_a_moment(
    make_clock: Callable[[], trio.abc.Clock], until: float
) -> None:
    async def main() -> None:
        start = trio.current_time()
        alarm = Alarm()
        times: list[float] = []

        async def wait() -> None:
            for _ in range(3):
                await alarm.wait_until(start + until)
                times.append(trio.current_time() - start)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1)
            alarm.ring()
            await trio.sleep(1)
            alarm.ring_by(start + 5)
            # That is later, and changes nothing.
            alarm.ring_by(start + 9)
            await trio.sleep(4)
            # The moment is past: at once.
            alarm.ring_by(start + 3)
        # Nobody waits any more.
        alarm.ring()
        alarm.ring_by(start)
        assert times == [pytest.approx(1), pytest.approx(5), pytest.approx(6)]

    run(make_clock, main)


@on_both_clocks
def test_who_is_cancelled_is_not_woken_again(make_clock: Callable[[], trio.abc.Clock]) -> None:
    async def main() -> None:
        start = trio.current_time()
        alarm = Alarm()
        with trio.move_on_after(2) as scope:
            await alarm.wait_until(start + 10)
        assert scope.cancelled_caught
        assert trio.current_time() - start == pytest.approx(2)
        alarm.ring()
        await alarm.wait_until(start + 20)
        assert trio.current_time() - start == pytest.approx(20)

    run(make_clock, main)


def test_alarms_that_were_rung_early_are_forgotten() -> None:
    """However many requests are answered in time, what is kept of their time-outs is bounded."""
    clock = VirtualClock()

    async def main() -> None:
        alarm = Alarm()

        async def wait() -> None:
            while True:
                await alarm.wait_until(trio.current_time() + 1_000_000)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            for _ in range(10_000):
                await trio.lowlevel.checkpoint()
                alarm.ring()
            assert clock.alarms.size < 3_000
            nursery.cancel_scope.cancel()

    trio.run(main, clock=clock)


@on_both_clocks
def test_what_a_task_would_do_is_done_at_its_moments(
    make_clock: Callable[[], trio.abc.Clock],
) -> None:
    """In whichever way: by the task, or by the clock in its place."""
    served: list[float] = []

    async def main() -> None:
        start = trio.current_time()
        moments = [1.0, 2.0, 2.5, 4.0]

        def serve() -> float:
            now = trio.current_time() - start
            while moments and moments[0] <= now + 1e-9:
                served.append(moments.pop(0))
            return start + moments[0] if moments else inf

        alarm = Alarm(serve)

        async def work() -> None:
            while True:
                await alarm.wait_until(serve())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            # Some moments are shared, with an alarm's and with a deadline of trio.
            await Alarm().wait_until(start + 2.0)
            await trio.sleep(2.0)
            moments.append(4.5)
            alarm.ring_by(start + 4.5)
            await trio.sleep(1.0)
            nursery.cancel_scope.cancel()
        assert served == [1.0, 2.0, 2.5, 4.0, 4.5]
        assert trio.current_time() - start == pytest.approx(5.0)

    run(make_clock, main)


def test_the_clock_serves_only_who_would_wake_alone() -> None:
    clock = VirtualClock()
    in_place: list[float] = []

    async def main() -> None:
        def serve() -> float:
            in_place.append(clock.now)
            return clock.now + 1.0

        alarm = Alarm(serve)
        woken: list[float] = []

        async def work() -> None:
            while True:
                await alarm.wait_until(clock.now + 1.0)
                woken.append(clock.now)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            await Alarm().wait_until(2.0)
            await trio.sleep_until(3.0)
            await trio.sleep_until(4.5)
            assert in_place == [1.0, 4.0]
            assert woken == [2.0, 3.0]
            nursery.cancel_scope.cancel()

    trio.run(main, clock=clock)


def test_what_fails_in_the_clocks_turn_has_failed_in_the_task() -> None:
    def fail() -> None:
        raise ValueError("in an action")

    async def main() -> None:
        timetable = Timetable()
        timetable.at(1.0, fail)
        with pytest.raises(ValueError, match="in an action"):
            await timetable.run()
        assert trio.current_time() == 1.0
        assert not timetable.running

    trio.run(main, clock=VirtualClock())
