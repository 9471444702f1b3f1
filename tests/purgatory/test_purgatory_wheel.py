"""The timing wheel: where timers lie, when they move, what they cost."""

from __future__ import annotations

import sys

import pytest
from waiting import where

from kraftpy.purgatory.chain import Chain
from kraftpy.purgatory.wheel import WHEEL_SIZE, TimerEntry, TimingWheel
from kraftpy.world import InternalInvariant

FOREVER_MS = 1 << 62


def fresh() -> TimingWheel[TimerEntry]:
    return TimingWheel(0)


def added(wheel: TimingWheel[TimerEntry], deadline_ms: int, now_ms: int = 0) -> TimerEntry:
    entry = TimerEntry()
    wheel.add(entry, deadline_ms, now_ms)
    return entry


def expired(wheel: TimingWheel[TimerEntry], now_ms: int) -> list[int]:
    return [entry.deadline_ms for entry in wheel.advance(now_ms)]


@pytest.mark.parametrize(
    ("deadline_ms", "now_ms", "place"),
    [
        pytest.param(2, 0, (1, 2, 2), id="2 ms at 0"),
        pytest.param(10, 2, (1, 10, 10), id="8 ms at 2"),
        pytest.param(21, 2, (1, 1, 21), id="19 ms at 2 re-uses slot 1"),
        pytest.param(18, 0, (1, 18, 18), id="18"),
        pytest.param(19, 0, (1, 19, 19), id="the last of level 1"),
        pytest.param(20, 0, (2, 1, 20), id="one beyond level 1"),
        pytest.param(21, 0, (2, 1, 20), id="21 while level 1 covers 0 to 19"),
        pytest.param(123, 0, (2, 6, 120), id="123"),
        pytest.param(237, 0, (2, 11, 220), id="237"),
        pytest.param(350, 0, (2, 17, 340), id="350"),
        pytest.param(399, 0, (2, 19, 380), id="the last of level 2"),
        pytest.param(400, 0, (3, 1, 400), id="one beyond level 2"),
        pytest.param(446, 0, (3, 1, 400), id="446"),
        pytest.param(450, 0, (3, 1, 400), id="450"),
        pytest.param(455, 0, (3, 1, 400), id="455"),
        pytest.param(473, 0, (3, 1, 400), id="473"),
        pytest.param(30_000, 0, (4, 3, 24_000), id="the usual 30 s"),
    ],
)
def test_worked_examples(deadline_ms: int, now_ms: int, place: tuple[int, int, int]) -> None:
    """PUR-9, PUR-10, PUR-11, PUR-13, section 5.5: slot and start of the bucket."""
    wheel = fresh()
    entry = added(wheel, deadline_ms, now_ms)
    assert where(wheel, entry) == place
    assert entry.is_pending


def test_levels_are_made_when_a_deadline_does_not_fit() -> None:
    """PUR-2, PUR-3, PUR-4"""
    wheel = fresh()
    assert [(level.tick_ms, level.interval_ms) for level in wheel.inspect().levels] == [(1, 20)]
    added(wheel, 19)
    assert len(wheel.inspect().levels) == 1
    added(wheel, 30_000)
    levels = wheel.inspect().levels
    assert [level.tick_ms for level in levels] == [1, 20, 400, 8_000]
    assert [level.interval_ms for level in levels] == [20, 400, 8_000, 160_000]
    added(wheel, 159_999)
    assert len(wheel.inspect().levels) == 4
    added(wheel, 160_000)
    added(wheel, 160_000)
    assert len(wheel.inspect().levels) == 5
    assert wheel.inspect().levels[:4] == levels


def test_a_clock_is_a_multiple_of_its_tick() -> None:
    """PUR-5, PUR-6: also that of a level which is made later."""
    wheel = fresh()
    added(wheel, 350)
    list(wheel.advance(123))
    assert [level.current_ms for level in wheel.inspect().levels] == [123, 120]
    added(wheel, 123 + 8_000, now_ms=123)
    assert [level.current_ms for level in wheel.inspect().levels] == [123, 120, 0, 0]
    late = TimingWheel[TimerEntry](12_345)
    added(late, 12_345 + 1_000, now_ms=12_345)
    assert [level.current_ms for level in late.inspect().levels] == [12_345, 12_340, 12_000]


def test_within_a_slot_only_finer_clocks_move() -> None:
    """PUR-20"""
    wheel = fresh()
    added(wheel, 30_000)
    for now_ms, clocks in (
        (19, [19, 0, 0, 0]),
        (20, [20, 20, 0, 0]),
        (399, [399, 380, 0, 0]),
        (7_999, [7_999, 7_980, 7_600, 0]),
        (8_000, [8_000, 8_000, 8_000, 8_000]),
        (8_000, [8_000, 8_000, 8_000, 8_000]),
        (7_000, [8_000, 8_000, 8_000, 8_000]),
    ):
        assert expired(wheel, now_ms) == []
        assert [level.current_ms for level in wheel.inspect().levels] == clocks


def test_a_timer_comes_down_level_by_level() -> None:
    """PUR-12: 450 ms lie on level 3, from 400 on level 2, from 440 on level 1."""
    wheel = fresh()
    entry = added(wheel, 450)
    moves = []
    while (deadline_ms := wheel.next_deadline_ms()) is not None:
        assert expired(wheel, deadline_ms - 1) == []
        runs = expired(wheel, deadline_ms)
        moves.append((deadline_ms, where(wheel, entry) if not runs else "runs"))
    assert moves == [(400, (2, 2, 440)), (440, (1, 10, 450)), (450, "runs")]
    assert not entry.is_pending
    assert expired(wheel, FOREVER_MS) == []


def test_two_timers_on_the_seam_of_two_levels() -> None:
    """Section 5.5: 20 and 21 stay on level 2 until 20, then one is due and one is on slot 1."""
    wheel = fresh()
    added(wheel, 20)
    second = added(wheel, 21)
    assert expired(wheel, 19) == []
    assert where(wheel, second)[0] == 2
    assert expired(wheel, 20) == [20]
    assert where(wheel, second) == (1, 1, 21)
    assert expired(wheel, 21) == [21]


@pytest.mark.parametrize("deadline_ms", [-5, 0, 99, 100])
def test_what_is_due_is_due_at_once(deadline_ms: int) -> None:
    """PUR-8, PUR-23"""
    wheel = TimingWheel[TimerEntry](100)
    entry = added(wheel, deadline_ms, now_ms=100)
    assert where(wheel, entry)[0] == 0
    assert wheel.next_deadline_ms() == deadline_ms
    assert wheel.size == 1
    assert expired(wheel, 100) == [deadline_ms]
    assert wheel.size == 0


def test_one_tick_beyond_due_is_not_due() -> None:
    """PUR-8, one beyond"""
    wheel = TimingWheel[TimerEntry](100)
    added(wheel, 101, now_ms=100)
    assert expired(wheel, 100) == []
    assert expired(wheel, 101) == [101]


def test_a_bucket_is_queued_once_a_turn() -> None:
    """PUR-14"""
    wheel = fresh()
    entries = [added(wheel, deadline_ms) for deadline_ms in (450, 455, 473, 799)]
    assert wheel.inspect().queued_ms == (400,)
    for entry in entries:
        wheel.cancel(entry)
    added(wheel, 500)
    assert wheel.inspect().queued_ms == (400,)
    assert expired(wheel, 500) == [500]
    assert wheel.inspect().queued_ms == ()
    again = added(wheel, 8_500, now_ms=900)
    assert where(wheel, again) == (3, 1, 8_400)
    assert wheel.inspect().queued_ms == (8_400,)


def test_an_emptied_bucket_serves_its_next_turn() -> None:
    """PUR-13, PUR-14: cancelled in one turn, used in the next one."""
    wheel = fresh()
    wheel.cancel(added(wheel, 5))
    entry = added(wheel, 25, now_ms=6)
    assert where(wheel, entry) == (1, 5, 25)
    assert expired(wheel, 24) == []
    assert expired(wheel, 25) == [25]


def test_equal_deadlines_keep_their_order() -> None:
    """PUR-15, on one level; and a timer set long ahead goes before one set late."""
    wheel = fresh()
    early = [added(wheel, 30_000) for _ in range(3)]
    list(wheel.advance(29_995))
    late = [added(wheel, 30_000, now_ms=29_995) for _ in range(3)]
    assert list(wheel.advance(30_000)) == early + late


def test_on_the_start_of_a_coarse_bucket_the_older_go_first() -> None:
    """PUR-15, PUR-22: level 2's bucket and level 1's start together."""
    wheel = fresh()
    early = added(wheel, 40)
    list(wheel.advance(25))
    late = added(wheel, 40, now_ms=25)
    assert where(wheel, early)[0] == 2
    assert where(wheel, late)[0] == 1
    assert list(wheel.advance(50)) == [early, late]


def test_all_that_is_due_in_one_go_and_in_order() -> None:
    """PUR-22: a jump over every level."""
    wheel = fresh()
    deadlines = [5, 3, 19, 20, 21, 450, 399, 8_000, 7_999, 160_000, 29_999, 30_000]
    for deadline_ms in deadlines:
        added(wheel, deadline_ms)
    later = added(wheel, 200_001)
    assert expired(wheel, 200_000) == sorted(deadlines)
    assert wheel.size == 1
    assert expired(wheel, 200_000) == []
    assert list(wheel.advance(200_001)) == [later]


def test_after_long_idling_a_timer_lies_where_it_belongs() -> None:
    """PUR-23: also when the idle wheel was woken by nothing for a year."""
    year_ms = 365 * 86_400_000
    wheel = fresh()
    wheel.cancel(added(wheel, 30_000))
    entry = added(wheel, year_ms + 15, now_ms=year_ms)
    assert where(wheel, entry)[0] == 1
    assert wheel.next_deadline_ms() == year_ms + 15
    assert expired(wheel, year_ms + 14) == []
    assert expired(wheel, year_ms + 15) == [year_ms + 15]


def test_a_timer_behind_an_overdue_one() -> None:
    """PUR-23: the driver is late, so the clock still stands before the overdue bucket."""
    wheel = fresh()
    added(wheel, 10)
    added(wheel, 5_005, now_ms=5_000)
    added(wheel, 5_000, now_ms=5_000)
    assert wheel.next_deadline_ms() == 10
    assert expired(wheel, 5_000) == [10, 5_000]
    assert expired(wheel, 5_004) == []
    assert expired(wheel, 5_005) == [5_005]


@pytest.mark.parametrize("exponent", range(1, 15))
@pytest.mark.parametrize("distance", [-1, 0, 1])
def test_far_in_the_future(exponent: int, distance: int) -> None:
    """PUR-3: on both sides of each seam, as far as 64 bits reach."""
    deadline_ms = WHEEL_SIZE**exponent + distance
    wheel = TimingWheel[TimerEntry](7)
    added(wheel, 7 + deadline_ms, now_ms=7)
    steps = 0
    while (next_ms := wheel.next_deadline_ms()) != 7 + deadline_ms:
        assert next_ms is not None
        assert next_ms < 7 + deadline_ms
        assert expired(wheel, next_ms) == []
        steps += 1
    assert steps <= exponent
    assert expired(wheel, 7 + deadline_ms - 1) == []
    assert expired(wheel, 7 + deadline_ms) == [7 + deadline_ms]


def test_cancelling() -> None:
    """PUR-7, PUR-17: a cancelled timer is in no bucket, and cancelling again does nothing."""
    wheel = fresh()
    entries = [added(wheel, deadline_ms) for deadline_ms in (0, 5, 5, 5, 450)]
    for entry in entries:
        assert wheel.cancel(entry)
        assert not entry.is_pending
        assert not wheel.cancel(entry)
    assert wheel.size == 0
    assert wheel.next_deadline_ms() is None
    assert expired(wheel, FOREVER_MS) == []


def test_cancelling_from_the_middle() -> None:
    """PUR-15"""
    wheel = fresh()
    first, second, third, fourth = [added(wheel, 5) for _ in range(4)]
    wheel.cancel(second)
    wheel.cancel(fourth)
    fifth = added(wheel, 5)
    assert list(wheel.advance(5)) == [first, third, fifth]


def test_what_is_due_can_still_be_cancelled() -> None:
    """PUR-17: by the code of a timer that is due before it."""
    wheel = fresh()
    entries = [added(wheel, 5) for _ in range(3)]
    run = []
    for entry in wheel.advance(5):
        run.append(entry)
        assert wheel.cancel(entries[1]) == (entry is entries[0])
    assert run == [entries[0], entries[2]]
    assert wheel.size == 0


def test_what_is_not_taken_stays_due() -> None:
    wheel = fresh()
    entries = [added(wheel, 5) for _ in range(3)]
    assert next(wheel.advance(5)) is entries[0]
    assert wheel.size == 2
    assert wheel.next_deadline_ms() == 5
    assert list(wheel.advance(5)) == entries[1:]


def test_adding_again_while_it_runs() -> None:
    """PUR-18: from within its own expiry; due again, it comes in the same advance."""
    wheel = fresh()
    entry = added(wheel, 5)
    run_at = []
    for now_ms in (5, 6, 9, 10):
        for taken in wheel.advance(now_ms):
            assert taken is entry
            run_at.append(now_ms)
            if len(run_at) < 3:
                wheel.add(entry, 5 * len(run_at), now_ms)
    assert run_at == [5, 5, 10]


def test_adding_again_moves_it() -> None:
    """PUR-16, PUR-18: it is never in two buckets."""
    wheel = fresh()
    entry = added(wheel, 5)
    for deadline_ms in (450, 3, 30_000, -1, 7):
        wheel.add(entry, deadline_ms, 0)
        assert wheel.size == len(wheel.inspect().placements) == 1
    assert expired(wheel, 6) == []
    assert expired(wheel, 7) == [7]
    assert expired(wheel, FOREVER_MS) == []


@pytest.mark.parametrize("deadline_ms", [8_001, 8_000, 15_999, 7_999, 16_000])
def test_adding_again_within_its_bucket_keeps_its_place(deadline_ms: int) -> None:
    """PUR-18: what is prolonged again and again moves once a bucket, and rings at its last time."""
    wheel = fresh()
    entry = added(wheel, 12_000)
    other = added(wheel, 12_000)
    wheel.add(entry, deadline_ms, 3)
    is_within = 8_000 <= deadline_ms < 16_000
    in_its_bucket = [each.entry for each in wheel.inspect().placements if each.slot == 1]
    assert in_its_bucket == ([entry, other] if is_within else [other])
    assert wheel.size == 2
    both = sorted([deadline_ms, 12_000])
    assert [at for now_ms in range(20_000) for at in expired(wheel, now_ms) if at == now_ms] == both


def test_a_flush_empties_its_bucket() -> None:
    """PUR-19: each timer moves once, and the bucket can be queued again."""
    wheel = fresh()
    for deadline_ms in range(400, 800):
        added(wheel, deadline_ms)
    assert expired(wheel, 400) == [400]
    view = wheel.inspect()
    assert {place.level for place in view.placements} == {1, 2}
    assert len(view.placements) == 399
    assert view.queued_ms == (*range(401, 420), *range(420, 800, 20))
    assert view.problems(400) == []


def test_moves_can_be_limited() -> None:
    """No stretch on the loop is long, however many timers come down together."""
    wheel = fresh()
    for deadline_ms in range(8_000, 9_000):
        added(wheel, deadline_ms)
    rounds = 0
    taken: list[int] = []
    while (next_ms := wheel.next_deadline_ms()) is not None and next_ms <= 8_500:
        before = wheel.size
        taken += [entry.deadline_ms for entry in wheel.advance(8_500, max_moves=100)]
        assert before - wheel.size <= 100
        # A timer that comes in between lands on its own day all the same.
        wheel.cancel(added(wheel, 8_400, now_ms=8_500))
        rounds += 1
    assert taken == list(range(8_000, 8_501))
    assert rounds > 10
    assert wheel.size == 499
    assert wheel.inspect().problems(8_500) == []


def test_an_entry_belongs_to_one_wheel() -> None:
    one, other = fresh(), fresh()
    entry = added(one, 5)
    with pytest.raises(InternalInvariant, match=r"wheel\.entry-of-another"):
        other.cancel(entry)
    with pytest.raises(InternalInvariant, match=r"wheel\.entry-of-another"):
        other.add(entry, 7, 0)
    assert one.size == 1
    assert other.size == 0


def test_the_view_finds_what_is_wrong() -> None:
    """Invariant 24"""
    wheel = fresh()
    entry = added(wheel, 450)
    assert wheel.inspect().problems(451) == []
    assert wheel.inspect().problems(452) == ["a timer is 2 ms overdue"]
    wheel._size = 2
    assert wheel.inspect().problems(0) == ["size 2, but 1 timers"]
    wheel._size = 1
    wheel._queue.clear()
    assert wheel.inspect().problems(0) == ["bucket 400 is not queued"]
    assert entry.is_pending


def test_a_chain_guards_its_members() -> None:
    chain, other = Chain[TimerEntry](), Chain[TimerEntry]()
    entry = TimerEntry()
    chain.append(entry)
    with pytest.raises(InternalInvariant, match=r"chain\.already-in-one"):
        other.append(entry)
    with pytest.raises(InternalInvariant, match=r"chain\.not-in-this-one"):
        other.remove(entry)
    assert list(chain) == [entry]


def test_a_timer_is_small_and_is_freed_at_once() -> None:
    """No dictionary for each timer, and no cycle that waits for the collector."""
    wheel = fresh()
    entry, neighbour = added(wheel, 5), added(wheel, 5)
    assert sys.getsizeof(entry) <= 64
    assert not hasattr(entry, "__dict__")
    references = sys.getrefcount(TimerEntry())
    wheel.cancel(entry)
    assert sys.getrefcount(entry) == references + 1
    assert neighbour.previous is None
