"""The timer and its reaper: when it wakes, what it runs, what it survives."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator

import pytest
import trio
import trio.testing
from waiting import HandClock, Note

from kraftpy.purgatory.timer import SLICE_SECONDS, Timer
from kraftpy.sim.runner import run_simulation
from kraftpy.sim.simulation import Simulation
from kraftpy.world import InternalInvariant
from kraftpy.world.memory_clock import MemoryClock

YEAR_SECONDS = 365 * 86_400


def by_hand() -> tuple[Timer, HandClock, list[str]]:
    clock = HandClock()
    return Timer("timer", clock), clock, []


def test_time_by_hand() -> None:
    """PUR-1, PUR-21, PUR-47: delays count from the moment of adding; no reaper is needed."""
    timer, clock, diary = by_hand()
    clock.now_ms = 100
    timer.add(Note("a", diary), 50)
    clock.now_ms = 139
    assert not timer.advance()
    clock.now_ms = 140
    assert timer.advance(), "its bucket was due, and it came down a level"
    clock.now_ms = 149
    assert not timer.advance()
    assert diary == []
    assert timer.size == 1
    clock.now_ms = 150
    assert timer.advance()
    assert diary == ["a"]
    assert timer.size == 0
    assert not timer.advance()


@pytest.mark.parametrize("delay_ms", [0, -1, -(10**9)])
def test_no_delay(delay_ms: int) -> None:
    """PUR-23: it runs in the next advance, never inside `add`."""
    timer, clock, diary = by_hand()
    clock.now_ms = 10**12
    timer.add(Note("a", diary), delay_ms)
    assert diary == []
    assert timer.advance()
    assert diary == ["a"]


def test_tasks_run_outside_the_wheel() -> None:
    """PUR-26: each may add, cancel and look, and finds the counts right."""
    timer, clock, diary = by_hand()
    victim = Note("victim", diary)
    later = Note("later", diary)
    sizes = []

    def meddle() -> None:
        sizes.append(timer.size)
        assert timer.cancel(victim)
        timer.add(later, 5)
        timer.add(Note("at once", diary), 0)
        sizes.append(timer.size)
        assert timer.inspect().problems(clock.now_ms) == []

    timer.add(Note("meddler", diary, meddle), 100)
    timer.add(victim, 100)
    clock.now_ms = 100
    timer.advance()
    assert diary == ["meddler", "at once"]
    assert sizes == [1, 2]
    clock.now_ms = 105
    timer.advance()
    assert diary[-1] == "later"


def test_a_task_may_add_itself_again() -> None:
    """PUR-18: a session that is renewed from within."""
    timer, clock, diary = by_hand()
    task = Note("beat", diary, lambda: timer.add(task, 100))
    timer.add(task, 100)
    for _ in range(5):
        clock.now_ms += 100
        timer.advance()
    assert diary == ["beat"] * 5
    assert timer.size == 1


def test_a_task_that_fails_is_logged_and_the_next_one_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    timer, clock, diary = by_hand()
    timer.add(Note("bad", diary, lambda: 1 // 0), 5)
    timer.add(Note("good", diary), 5)
    clock.now_ms = 5
    with caplog.at_level(logging.ERROR):
        timer.advance()
    assert diary == ["bad", "good"]
    (record,) = caplog.records
    assert "timer=timer" in record.message
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


def test_a_broken_invariant_stops() -> None:
    """It is nobody's to swallow. What was due stays due."""
    timer, clock, diary = by_hand()

    def break_something() -> None:
        raise InternalInvariant("broken")

    timer.add(Note("bad", diary, break_something), 5)
    timer.add(Note("good", diary), 5)
    clock.now_ms = 5
    with pytest.raises(InternalInvariant):
        timer.advance()
    assert timer.size == 1


def test_chores_come_after_what_is_due() -> None:
    timer, _, diary = by_hand()

    def chore(name: str) -> Iterator[None]:
        for number in range(3):
            diary.append(f"{name} {number}")
            if number == 0:
                timer.add(Note(f"task of {name}", diary), 0)
            yield

    timer.defer(chore("a"))
    timer.defer(chore("b"))
    timer.add(Note("task", diary), 0)
    assert timer.advance()
    assert diary == [
        *("task", "a 0", "task of a", "a 1", "a 2"),
        *("b 0", "task of b", "b 1", "b 2"),
    ]


async def test_nothing_to_do_wakes_nobody(autojump_clock: trio.testing.MockClock) -> None:
    """PUR-24 without the idle period: a year of virtual time, not one wake-up."""
    timer = Timer("timer", MemoryClock())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timer.run)
        await trio.sleep(YEAR_SECONDS)
        assert timer.wake_count == 0
        nursery.cancel_scope.cancel()


async def test_a_wake_up_for_each_bucket(autojump_clock: trio.testing.MockClock) -> None:
    """PUR-24: deadlines on the starts of buckets, 200 and 840, cost one wake-up each.

    840 lies on level 3, in the bucket from 800, and so comes down once.
    """
    timer = Timer("timer", MemoryClock())
    diary: list[str] = []
    async with trio.open_nursery() as nursery:
        for delay_ms in (200, 840, 800, 200):
            timer.add(Note(f"{delay_ms}", diary), delay_ms)
        nursery.start_soon(timer.run)
        await trio.sleep(YEAR_SECONDS)
        assert diary == ["200", "200", "800", "840"]
        assert timer.wake_count == 3
        nursery.cancel_scope.cancel()


async def test_a_cancelled_alarm_rings_once_at_most(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """An operation that ended early leaves one alarm behind, then nobody is woken."""
    timer = Timer("timer", MemoryClock())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timer.run)
        for _ in range(100):
            task = Note("never", [])
            timer.add(task, 30_000)
            await trio.sleep(0.01)
            timer.cancel(task)
            await trio.sleep(0.01)
        assert timer.wake_count == 0
        await trio.sleep(YEAR_SECONDS)
        assert timer.wake_count == 1
        nursery.cancel_scope.cancel()


async def test_an_earlier_timer_wakes_the_reaper(autojump_clock: trio.testing.MockClock) -> None:
    """PUR-25: also the first one, and one that is due at once; a later one wakes nobody."""
    clock = MemoryClock()
    timer = Timer("timer", clock)
    times: list[int] = []

    def add(delay_ms: int) -> None:
        timer.add(Note("", [], lambda: times.append(clock.monotonic_ms())), delay_ms)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(timer.run)
        await trio.testing.wait_all_tasks_blocked()
        add(10_000)
        await trio.sleep(1)
        assert timer.wake_count == 1
        add(20_000)
        await trio.sleep(1)
        assert timer.wake_count == 1
        add(3_000)
        await trio.sleep(1)
        assert timer.wake_count == 2
        add(0)
        await trio.testing.wait_all_tasks_blocked()
        assert times == [3_000]
        await trio.sleep(60)
        assert times == [3_000, 5_000, 10_000, 21_000]
        nursery.cancel_scope.cancel()


async def test_a_timer_added_by_a_task_is_not_missed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """PUR-25: while the reaper works, nobody wakes it, and nobody need to."""
    clock = MemoryClock()
    timer = Timer("timer", clock)
    times: list[int] = []

    def again() -> None:
        times.append(clock.monotonic_ms())
        if len(times) < 4:
            timer.add(task, 7)

    task = Note("", [], again)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timer.run)
        await trio.testing.wait_all_tasks_blocked()
        timer.add(task, 7)
        await trio.sleep(1)
        assert times == [7, 14, 21, 28]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("start_seconds", [0.0, 0.0003, 1_234.5678, 3e7 + 0.1])
async def test_every_millisecond_is_met(
    autojump_clock: trio.testing.MockClock, start_seconds: float
) -> None:
    """PUR-1: floats are not exact (1.001 s are 1000.99 ms); no timer is early or a tick late."""
    clock = MemoryClock(offset_seconds=start_seconds)
    timer = Timer("timer", clock)
    late: dict[int, int] = {}
    async with trio.open_nursery() as nursery:
        start_ms = clock.monotonic_ms()
        for delay_ms in range(1, 1_500):
            note = Note(
                "",
                [],
                lambda due=start_ms + delay_ms: late.update({due: clock.monotonic_ms() - due}),
            )
            timer.add(note, delay_ms)
        nursery.start_soon(timer.run)
        await trio.sleep(2)
        assert len(late) == 1_499
        assert set(late.values()) == {0}
        # One for each deadline, and for the buckets of level 2 and 3 that start with none.
        assert timer.wake_count <= 1_600
        nursery.cancel_scope.cancel()


async def test_a_clock_that_is_slowed_or_paused(autojump_clock: trio.testing.MockClock) -> None:
    """The deadline is the node's time: never early by its own clock, at once when it resumes."""
    clock = MemoryClock()
    timer = Timer("timer", clock)
    times: list[float] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timer.run)
        timer.add(Note("", [], lambda: times.append(trio.current_time())), 10_000)
        await trio.sleep(1)
        clock.set_rate(0.5)
        await trio.sleep(60)
        assert times == [pytest.approx(19, abs=0.01)]
        timer.add(Note("", [], lambda: times.append(trio.current_time())), 1_000)
        await trio.testing.wait_all_tasks_blocked()
        clock.pause()
        await trio.sleep(100)
        assert len(times) == 1
        clock.resume()
        await trio.sleep(0.01)
        assert times[1] == pytest.approx(161, abs=0.01)
        nursery.cancel_scope.cancel()


class CostlyClock(HandClock):
    """A clock that each look at moves on: work takes time."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += SLICE_SECONDS / 10
        return self.seconds


async def test_others_run_between_slices() -> None:
    """Decision 1: however much is due, the loop is not kept for longer than a slice."""
    clock = CostlyClock()
    timer = Timer("timer", clock)
    diary: list[str] = []
    for number in range(1_000):
        timer.add(Note(f"{number}", diary), 5)
    clock.now_ms = 5
    turns: list[int] = []

    async def somebody_else() -> None:
        while len(diary) < 1_000:
            turns.append(len(diary))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(timer.run)
        await trio.lowlevel.checkpoint()
        await somebody_else()
        nursery.cancel_scope.cancel()
    assert len(turns) > 90
    assert max(later - sooner for sooner, later in itertools.pairwise(turns)) <= 25


async def test_cancelling_the_reaper_loses_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    timer = Timer("timer", MemoryClock())
    diary: list[str] = []
    timer.add(Note("a", diary), 1_000)
    with trio.move_on_after(0.5):
        await timer.run()
    assert timer.size == 1
    with trio.move_on_after(1):
        await timer.run()
    assert diary == ["a"]


def test_a_seed_gives_one_run() -> None:
    """The reaper in a simulation: the same seed, the same events at the same times."""

    async def main(sim: Simulation) -> int:
        world = sim.world("node-1")
        timer = Timer("timer", world.clock)
        random = sim.rng.stream("workload")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timer.run)
            tasks = []
            for number in range(300):
                name = f"task {number}"
                task = Note(name, [], lambda name=name: sim.record("expired", name))
                tasks.append(task)
                timer.add(task, math.floor(random.expovariate(1 / 2_000)))
                if number % 3 == 0:
                    timer.cancel(random.choice(tasks))
                await trio.sleep(random.random() / 10)
                problems = timer.inspect().problems(world.clock.monotonic_ms())
                assert problems == []
            await trio.sleep(100)
            nursery.cancel_scope.cancel()
        return timer.wake_count

    first, second, other = (run_simulation(main, seed=seed) for seed in (7, 7, 8))
    assert first.trace.event_count > 200
    assert first.trace.digest == second.trace.digest
    assert first.value == second.value
    assert first.trace.digest != other.trace.digest
