"""The purgatory: registration, events, re-entry, purge, cancelling, shutting down."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pytest
import trio
import trio.testing
from waiting import Place, Waiting

from kraftpy.observe.metrics import Gauge, MetricName, MetricRegistry
from kraftpy.purgatory.purgatory import DEFAULT_PURGE_INTERVAL, Purgatory, reaper_name
from kraftpy.purgatory.timer import Timer
from kraftpy.world import InternalInvariant
from kraftpy.world.memory_clock import MemoryClock


class Flag:
    """A condition that somebody sets."""

    def __init__(self) -> None:
        self.is_set = False

    def __call__(self) -> bool:
        return self.is_set

    def set(self) -> None:
        self.is_set = True


def test_no_keys() -> None:
    """PUR-32"""
    place = Place()
    with pytest.raises(InternalInvariant, match=r"purgatory\.no-keys"):
        place.purgatory.try_complete_else_watch(Waiting(condition=lambda: True), [])


def test_an_operation_comes_once() -> None:
    place = Place()
    operation = Waiting()
    place.purgatory.try_complete_else_watch(operation, ["key"])
    with pytest.raises(InternalInvariant, match=r"purgatory\.watched-before"):
        place.purgatory.try_complete_else_watch(operation, ["key"])


def test_what_is_true_already_does_not_wait() -> None:
    """PUR-33"""
    place = Place()
    operation = Waiting(condition=lambda: True)
    assert place.purgatory.try_complete_else_watch(operation, ["key"])
    assert operation.diary == ["operation completed"]
    view = place.purgatory.inspect()
    assert (view.watch_count, view.key_count, view.timer.size) == (0, 0, 0)


def test_what_is_not_true_waits() -> None:
    """PUR-34, PUR-38: under all keys, once in the timer."""
    place = Place()
    assert not place.purgatory.try_complete_else_watch(Waiting(), ["a", "b", "c"])
    assert not place.purgatory.try_complete_else_watch(Waiting(), ["b"])
    view = place.purgatory.inspect()
    assert (view.watch_count, view.key_count, view.timer.size) == (4, 3, 2)
    assert place.purgatory.purgatory_size == 4
    assert place.purgatory.delayed_count == 2
    assert place.problems() == []


def test_who_has_looked_is_spared_the_first_look_only() -> None:
    """PUR-33, PUR-34: what has come true since is seen by the look behind the registration."""
    place = Place()
    looks: list[int] = []

    def condition() -> bool:
        looks.append(place.purgatory.purgatory_size)
        return len(looks) == 2

    waits = Waiting(condition=condition)
    assert not place.purgatory.try_complete_else_watch(waits, ["key"], has_looked=True)
    assert looks == [1]
    assert place.purgatory.try_complete_else_watch(
        Waiting(condition=condition), ["key"], has_looked=True
    )
    assert looks == [1, 2]
    assert place.purgatory.delayed_count == 1


@pytest.mark.parametrize("key", ["a", "b", "c"])
def test_any_of_its_keys_completes_it(key: str) -> None:
    """PUR-34, PUR-28, PUR-40"""
    place = Place()
    flag = Flag()
    operation = Waiting(condition=flag)
    place.purgatory.try_complete_else_watch(operation, ["a", "b", "c"])
    assert place.purgatory.check_and_complete(key) == 0
    flag.set()
    assert place.purgatory.check_and_complete(key) == 1
    assert operation.diary == ["operation completed"]
    assert place.purgatory.delayed_count == 0
    assert [place.purgatory.check_and_complete(other) for other in "abc"] == [0, 0, 0]
    assert place.purgatory.purgatory_size == 0


def test_it_expires_in_time() -> None:
    """PUR-1, PUR-29"""
    place = Place()
    operation = Waiting(delay_ms=30_000)
    place.purgatory.try_complete_else_watch(operation, ["a", "b"])
    place.pass_time(29_999)
    assert operation.diary == []
    place.pass_time(1)
    assert operation.diary == ["operation completed", "operation expired"]


def test_expired_before_it_was_added() -> None:
    """PUR-23: a delay of 0 or less is over at the reaper's next turn."""
    place = Place()
    operations = [Waiting(delay_ms=delay_ms) for delay_ms in (0, -7)]
    for operation in operations:
        assert not place.purgatory.try_complete_else_watch(operation, ["a"])
        assert not operation.is_completed
    place.pass_time(0)
    assert all(operation.is_completed for operation in operations)


class Meddling(Sequence[str]):
    """Keys; before the third one is handed over, something happens."""

    def __init__(self, keys: list[str], action: object) -> None:
        self.keys = keys
        self.action = action

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: object) -> str:
        return self.keys[index]  # type: ignore[index]

    def __iter__(self) -> Iterator[str]:
        for number, key in enumerate(self.keys):
            if number == 2:
                self.action()  # type: ignore[operator]
            yield key


def test_completed_while_it_is_registered() -> None:
    """PUR-35, PUR-37: no further keys, no timer, and not completed by this call."""
    place = Place()
    operation = Waiting()
    keys = Meddling(["a", "b", "c", "d"], operation.force_complete)
    assert not place.purgatory.try_complete_else_watch(operation, keys)
    view = place.purgatory.inspect()
    assert (view.watch_count, view.key_count, view.timer.size) == (2, 2, 0)
    assert place.purgatory.check_and_complete("a") == 0
    assert place.purgatory.check_and_complete("b") == 0
    assert place.problems() == []
    assert operation.diary == ["operation completed"]


def test_cancelled_while_it_is_registered() -> None:
    """The purge finds also what was registered after that."""
    place = Place(purge_interval=0)
    operation = Waiting()

    def cancel_both() -> None:
        assert place.purgatory.cancel_for_key("a") == [operation]
        assert place.purgatory.cancel_for_key("b") == [operation]

    keys = Meddling(["a", "b", "c", "d"], cancel_both)
    assert not place.purgatory.try_complete_else_watch(operation, keys)
    assert place.purgatory.inspect().key_count == 2
    operation.force_complete()
    place.pass_time(0)
    assert place.purgatory.inspect().key_count == 0


def test_an_event_between_the_first_look_and_the_registration() -> None:
    """PUR-36: nobody watched yet, so only the second look can see it."""
    place = Place()
    looks: list[bool] = []
    flag = Flag()

    def look() -> bool:
        looks.append(flag.is_set)
        if len(looks) == 1:
            flag.set()
            assert place.purgatory.check_and_complete("a") == 0
            return False
        return flag.is_set

    operation = Waiting(condition=look)
    assert place.purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert looks == [False, True]
    assert place.purgatory.delayed_count == 0


def test_an_event_during_the_last_look() -> None:
    """PUR-31: the operation is registered, so the event's own look sees it."""
    place = Place()
    flag = Flag()
    looks: list[bool] = []

    def look() -> bool:
        looks.append(flag.is_set)
        seen = flag.is_set
        if len(looks) == 2:
            flag.set()
            assert place.purgatory.check_and_complete("a") == 1
        return seen

    operation = Waiting(condition=look)
    assert not place.purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.diary == ["operation completed"]
    assert place.purgatory.delayed_count == 0, "PUR-37"


def test_an_event_during_a_look_of_an_event() -> None:
    """PUR-31: the condition turns true after it was read, and the knock comes meanwhile."""
    place = Place()
    flag = Flag()
    looks = 0

    def look() -> bool:
        nonlocal looks
        looks += 1
        seen = flag.is_set
        if looks == 3:
            flag.set()
            place.purgatory.check_and_complete("a")
        return seen

    operation = Waiting(condition=look)
    place.purgatory.try_complete_else_watch(operation, ["a"])
    assert place.purgatory.check_and_complete("a") == 1
    assert looks == 4


def test_a_look_that_fails_leaves_nothing_behind() -> None:
    """Whoever asked gets the error and answers; without a timer the operation must not stay."""
    for failing_look in (1, 2):
        place = Place()
        looks = 0

        def look(failing_look: int = failing_look) -> bool:
            nonlocal looks
            looks += 1
            return looks == failing_look and 1 // 0 > 0

        operation = Waiting(condition=look)
        with pytest.raises(ZeroDivisionError):
            place.purgatory.try_complete_else_watch(operation, ["a", "b"])
        assert place.purgatory.check_and_complete("a") == 0
        assert place.purgatory.check_and_complete("b") == 0
        assert place.purgatory.purgatory_size == 0
        assert operation.diary == []


def test_an_unknown_key() -> None:
    """PUR-39"""
    place = Place()
    assert place.purgatory.check_and_complete("unknown") == 0
    assert place.purgatory.cancel_for_key("unknown") == []


def test_keys_are_of_any_kind() -> None:
    place = Place()
    keys = ["group", ("topic", 3), 7, frozenset({1})]
    place.purgatory.try_complete_else_watch(operation := Waiting(), keys)
    operation.condition = lambda: True
    assert place.purgatory.check_and_complete(("topic", 3)) == 1


def test_completed_ones_are_dropped_and_not_counted() -> None:
    """PUR-40"""
    place = Place()
    flag = Flag()
    first, second, third = (Waiting(condition=flag) for _ in range(3))
    stays = Waiting()
    for operation in (first, second, third, stays):
        place.purgatory.try_complete_else_watch(operation, ["a"])
    second.force_complete()
    flag.set()
    assert place.purgatory.purgatory_size == 4
    assert place.purgatory.check_and_complete("a") == 2
    assert place.purgatory.purgatory_size == 1
    assert place.problems() == []


def test_looked_at_in_order_of_registration() -> None:
    place = Place()
    diary: list[str] = []
    flag = Flag()
    for number in range(5):
        operation = Waiting(f"{number}", flag, diary=diary)
        place.purgatory.try_complete_else_watch(operation, ["a"])
    flag.set()
    place.purgatory.check_and_complete("a")
    assert diary == [f"{number} completed" for number in range(5)]


def test_an_empty_list_is_let_go() -> None:
    """PUR-41: and an operation that comes while it empties is not lost with it."""
    place = Place()
    flag = Flag()
    late = Waiting("late")

    def come() -> None:
        place.purgatory.try_complete_else_watch(late, ["a"])

    place.purgatory.try_complete_else_watch(Waiting(condition=flag, on_end=come), ["a"])
    flag.set()
    assert place.purgatory.check_and_complete("a") == 1
    assert place.purgatory.inspect().key_count == 1
    late.condition = lambda: True
    assert place.purgatory.check_and_complete("a") == 1
    assert place.purgatory.inspect().key_count == 0


def test_after_the_list_was_taken_away_under_the_walk() -> None:
    """PUR-41, PUR-42: cancelled, and a newcomer under the same key."""
    place = Place()
    flag = Flag()
    late = Waiting("late")
    second = Waiting("second", condition=flag)

    def meddle() -> None:
        assert place.purgatory.cancel_for_key("a") == [second]
        place.purgatory.try_complete_else_watch(late, ["a"])

    place.purgatory.try_complete_else_watch(Waiting(condition=flag, on_end=meddle), ["a"])
    place.purgatory.try_complete_else_watch(second, ["a"])
    flag.set()
    assert place.purgatory.check_and_complete("a") == 1
    assert not second.is_completed
    late.condition = lambda: True
    assert place.purgatory.check_and_complete("a") == 1
    assert place.problems() == []


def test_completing_one_completes_another() -> None:
    """PUR-42: the inner call returns at once, the outer one does its work and counts it."""
    place = Place()
    first_flag, second_flag = Flag(), Flag()
    inner: list[int] = []

    def tell() -> None:
        second_flag.set()
        inner.append(place.purgatory.check_and_complete("b"))

    second = Waiting("second", condition=second_flag)
    place.purgatory.try_complete_else_watch(second, ["b"])
    first = Waiting("first", condition=first_flag, on_end=tell)
    place.purgatory.try_complete_else_watch(first, ["a"])
    first_flag.set()
    assert place.purgatory.check_and_complete("a") == 2
    assert inner == [0]
    assert second.is_completed


def test_completing_one_makes_an_earlier_one_of_the_same_key_true() -> None:
    """PUR-31, PUR-42: it was looked at already in this walk, and is looked at again."""
    place = Place()
    early_flag, late_flag = Flag(), Flag()

    def tell() -> None:
        early_flag.set()
        place.purgatory.check_and_complete("a")

    early = Waiting("early", condition=early_flag)
    place.purgatory.try_complete_else_watch(early, ["a"])
    place.purgatory.try_complete_else_watch(Waiting(condition=late_flag, on_end=tell), ["a"])
    late_flag.set()
    assert place.purgatory.check_and_complete("a") == 2
    assert early.is_completed


def test_two_purgatories_that_complete_each_other() -> None:
    """PUR-42: produce completes fetch completes produce."""
    produce, fetch = Place(), Place()
    flags = [Flag() for _ in range(1_000)]
    for number, flag in enumerate(flags):
        here, there = (produce, fetch) if number % 2 == 0 else (fetch, produce)

        def tell(number: int = number, there: Place = there) -> None:
            if number + 1 < len(flags):
                flags[number + 1].set()
                there.purgatory.check_and_complete(number + 1)

        operation = Waiting(condition=flag, on_end=tell)
        here.purgatory.try_complete_else_watch(operation, [number])
    flags[0].set()
    produce.purgatory.check_and_complete(0)
    assert produce.purgatory.delayed_count == fetch.purgatory.delayed_count == 0


def test_a_long_chain_of_completions_needs_no_stack() -> None:
    """PUR-42: 100,000 operations, each of which completes the next one."""
    count = 100_000
    place = Place()
    reached = [-1]

    def reach(number: int) -> None:
        reached[0] = number
        place.purgatory.check_and_complete(number)

    for number in range(count):
        operation = Waiting(
            condition=lambda number=number: reached[0] >= number,
            on_end=lambda number=number: reach(number + 1),
        )
        place.purgatory.try_complete_else_watch(operation, [number])
    reached[0] = 0
    assert place.purgatory.check_and_complete(0) == count
    assert place.purgatory.delayed_count == 0


def test_many_watchers_of_one_key() -> None:
    """PUR-42: 100,000 of them, and each one's end knocks again."""
    count = 100_000
    place = Place()
    flag = Flag()
    for _ in range(count):
        operation = Waiting(condition=flag, on_end=lambda: place.purgatory.check_and_complete("a"))
        place.purgatory.try_complete_else_watch(operation, ["a"])
    flag.set()
    assert place.purgatory.check_and_complete("a") == count
    assert place.purgatory.purgatory_size == 0


def test_many_knocks_are_one() -> None:
    """PUR-42: what waits on is looked at once more, not once for each that knocked."""
    place = Place()
    flag = Flag()
    looks: list[bool] = []

    def look() -> bool:
        looks.append(flag.is_set)
        return False

    place.purgatory.try_complete_else_watch(Waiting(condition=look), ["a"])
    for _ in range(100):
        operation = Waiting(condition=flag, on_end=lambda: place.purgatory.check_and_complete("a"))
        place.purgatory.try_complete_else_watch(operation, ["a"])
    flag.set()
    assert place.purgatory.check_and_complete("a") == 100
    assert looks.count(True) == 2


def test_one_that_fails_does_not_hold_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """Section 7.3: one whose look fails waits on, one whose answer fails has had its chance."""
    place = Place()
    flag = Flag()
    bad_look = Waiting("bad look", condition=lambda: flag.is_set and 1 // 0 > 0)
    bad_answer = Waiting("bad answer", condition=flag, on_end=lambda: 1 // 0)
    good = Waiting("good", condition=flag)
    for operation in (bad_look, bad_answer, good):
        place.purgatory.try_complete_else_watch(operation, ["a"])
    flag.set()
    with caplog.at_level(logging.ERROR):
        assert place.purgatory.check_and_complete("a") == 2
    assert good.diary == ["good completed"]
    assert not bad_look.is_completed
    assert len(caplog.records) == 2
    place.pass_time(30_000)
    assert bad_look.diary == ["bad look completed", "bad look expired"]
    assert place.problems() == []


def test_a_broken_invariant_rises_and_leaves_a_purgatory_that_works() -> None:
    place = Place()
    flag = Flag()

    def break_something() -> None:
        raise InternalInvariant("broken")

    place.purgatory.try_complete_else_watch(Waiting(condition=flag, on_end=break_something), ["a"])
    good = Waiting(condition=flag)
    place.purgatory.try_complete_else_watch(good, ["a"])
    flag.set()
    with pytest.raises(InternalInvariant):
        place.purgatory.check_and_complete("a")
    assert place.purgatory.check_and_complete("a") == 1
    assert good.is_completed


def test_purge_when_more_than_the_interval_have_ended() -> None:
    """PUR-43: under keys that never see an event, by event and by time; one beyond."""
    place = Place(purge_interval=10)
    flag = Flag()
    for number in range(10):
        operation = Waiting(condition=flag, delay_ms=1_000)
        place.purgatory.try_complete_else_watch(operation, ["busy", f"quiet {number}"])
    flag.set()
    assert place.purgatory.check_and_complete("busy") == 10
    place.pass_time(0)
    assert place.purgatory.purgatory_size == 10
    assert place.problems() == []
    waits_on = Waiting()
    place.purgatory.try_complete_else_watch(waits_on, ["quiet 0", "other"])
    place.purgatory.try_complete_else_watch(Waiting(delay_ms=5), ["quiet 0", "other"])
    place.pass_time(5)
    view = place.purgatory.inspect()
    assert (view.watch_count, view.key_count, view.ended_count) == (2, 2, 0)
    assert place.problems() == []
    waits_on.condition = lambda: True
    assert place.purgatory.check_and_complete("quiet 0") == 1


def test_the_purge_costs_what_it_removes() -> None:
    """Decision 1: it visits neither what waits nor lists that hold nothing of it."""
    place = Place(purge_interval=10)
    for number in range(1_000):
        place.purgatory.try_complete_else_watch(Waiting(), ["crowd", number])
    ended = [Waiting() for _ in range(11)]
    for operation in ended:
        place.purgatory.try_complete_else_watch(operation, ["crowd", "quiet"])
        operation.force_complete()
    pieces = sum(1 for _ in place.timer._pieces())
    assert 22 <= pieces <= 30
    assert place.purgatory.purgatory_size == 2_000


def test_while_a_purge_is_under_way() -> None:
    """PUR-43: operations end, events come and new ones register between its pieces."""
    place = Place(purge_interval=2)
    purgatory = place.purgatory
    operations = [Waiting() for _ in range(6)]
    for number, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, ["a", "b", "c", number])
    for operation in operations[:3]:
        operation.force_complete()
    pieces = place.timer._pieces()
    next(pieces)
    purgatory.check_and_complete("b")
    operations[3].force_complete()
    next(pieces)
    purgatory.cancel_for_key(0)
    late = Waiting()
    purgatory.try_complete_else_watch(late, ["a"])
    for _ in pieces:
        pass
    view = purgatory.inspect()
    assert view.ended_count == 0
    assert view.watch_count == 2 * 4 + 1
    assert view.problems(0) == []
    # And the next one starts when it is needed again.
    for operation in [*operations[4:], late]:
        operation.force_complete()
    place.pass_time(0)
    assert purgatory.purgatory_size == 0


def test_no_purge_for_what_the_walk_drops() -> None:
    """PUR-43: an operation with one key never waits for the purge."""
    place = Place(purge_interval=1)
    flag = Flag()
    for _ in range(100):
        place.purgatory.try_complete_else_watch(Waiting(condition=flag), ["a"])
    flag.set()
    assert place.purgatory.check_and_complete("a") == 100
    assert not place.timer.advance()
    assert place.purgatory.purgatory_size == 0


@pytest.mark.parametrize("interval", [0, 1, DEFAULT_PURGE_INTERVAL])
def test_the_purge_interval_is_honoured(interval: int) -> None:
    """PUR-44: each type has its own; 1000 unless told otherwise."""
    place = Place(purge_interval=interval)
    if interval == 1000:
        place.purgatory = Purgatory("Test", place.timer, place.registry)
    for _ in range(interval):
        place.purgatory.try_complete_else_watch(operation := Waiting(), ["a"])
        operation.force_complete()
    place.pass_time(0)
    assert place.purgatory.purgatory_size == interval
    place.purgatory.try_complete_else_watch(operation := Waiting(), ["a"])
    operation.force_complete()
    place.pass_time(0)
    assert place.purgatory.purgatory_size == 0


def test_cancelling_a_key() -> None:
    """PUR-45: not completed, not timed, not watched there; elsewhere an event can end it."""
    place = Place()
    flag = Flag()
    first, second = Waiting("first", flag), Waiting("second", flag)
    place.purgatory.try_complete_else_watch(first, ["a", "b"])
    place.purgatory.try_complete_else_watch(done := Waiting(), ["a"])
    place.purgatory.try_complete_else_watch(second, ["a"])
    done.force_complete()
    assert place.purgatory.cancel_for_key("a") == [first, second]
    assert place.purgatory.delayed_count == 0
    place.pass_time(60_000)
    flag.set()
    assert place.purgatory.check_and_complete("a") == 0
    assert first.diary == second.diary == []
    assert place.purgatory.check_and_complete("b") == 1
    assert second.force_complete()
    assert place.problems() == []
    assert place.purgatory.purgatory_size == 0


def test_without_the_timer() -> None:
    """PUR-47: operations wait for events alone."""
    place = Place(uses_timer=False)
    flag = Flag()
    operation = Waiting(condition=flag, delay_ms=5)
    place.purgatory.try_complete_else_watch(operation, ["a"])
    assert place.purgatory.delayed_count == 0
    place.pass_time(10)
    assert not operation.is_completed
    flag.set()
    assert place.purgatory.check_and_complete("a") == 1


def gauges(registry: MetricRegistry) -> dict[str, float]:
    return {name.jmx: metric.read() for name, metric in registry if isinstance(metric, Gauge)}


def test_metrics() -> None:
    """PUR-48: Kafka's names and meanings, one pair for each purgatory, gone on shutdown."""
    place = Place()
    other = Purgatory[Waiting]("Fetch", Timer("other", place.clock), place.registry)
    done = Waiting()
    place.purgatory.try_complete_else_watch(Waiting(), ["a", "b"])
    place.purgatory.try_complete_else_watch(done, ["a", "b", "c"])
    other.try_complete_else_watch(Waiting(), ["a"])
    done.force_complete()
    bean = "kafka.server:type=DelayedOperationPurgatory,name="
    assert gauges(place.registry) == {
        f"{bean}PurgatorySize,delayedOperation=Test": 5,
        f"{bean}NumDelayedOperations,delayedOperation=Test": 1,
        f"{bean}PurgatorySize,delayedOperation=Fetch": 1,
        f"{bean}NumDelayedOperations,delayedOperation=Fetch": 1,
    }
    place.purgatory.shutdown()
    assert len(gauges(place.registry)) == 2
    tags = (("delayedOperation", "Fetch"),)
    name = MetricName("kafka.server", "DelayedOperationPurgatory", "PurgatorySize", tags)
    assert place.registry.get(name) is not None


def test_shutting_down() -> None:
    """PUR-48: what waits is handed to its owner, each once; who comes later expires at once."""
    place = Place()
    waiting = [Waiting(f"{number}") for number in range(3)]
    for operation in waiting:
        place.purgatory.try_complete_else_watch(operation, ["a", "b", operation.name])
    waiting[1].force_complete()
    assert place.purgatory.shutdown() == [waiting[0], waiting[2]]
    assert place.purgatory.shutdown() == []
    assert place.purgatory.delayed_count == place.purgatory.purgatory_size == 0
    assert waiting[0].diary == []
    late = Waiting("late")
    assert not place.purgatory.try_complete_else_watch(late, ["a"])
    assert late.diary == ["late completed", "late expired"]
    ready = Waiting("ready", lambda: True)
    assert place.purgatory.try_complete_else_watch(ready, ["a"])
    assert place.purgatory.purgatory_size == 0


def test_what_a_check_completed_can_be_read_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Section 8.4"""
    place = Place()
    place.purgatory.try_complete_else_watch(Waiting(), ["a"])
    with caplog.at_level(logging.DEBUG, "kraftpy.purgatory.purgatory"):
        place.purgatory.check_and_complete("a")
    assert caplog.messages == ["purgatory=Test key=a completed=0"]


def test_the_view_finds_what_is_wrong() -> None:
    """Invariant 24"""
    place = Place(purge_interval=0)
    operation = Waiting()
    place.purgatory.try_complete_else_watch(operation, ["a"])
    assert place.problems() == []
    place.purgatory._watch_count = 2
    assert place.problems() == ["PurgatorySize 2, but 1 places"]
    place.purgatory._watch_count = 1
    operation.is_completed = True
    assert len(place.problems()) == 2
    assert "1 ended operations watch, at most 0" in place.problems()[0]
    assert "a completed operation is in the timer" in place.problems()[1]
    operation.is_completed = False
    place.purgatory._lists["b"] = type(place.purgatory._lists["a"])("b")
    assert place.problems() == ["1 empty watch lists"]


async def test_one_backlog_does_not_delay_another(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """PUR-46: a purgatory, a timer and a reaper for each type; and the purge wakes its own."""
    clock = MemoryClock()
    registry = MetricRegistry()
    produce, fetch = (
        Purgatory[Waiting](name, Timer(reaper_name(3, name), clock), registry, purge_interval=1)
        for name in ("Produce", "Fetch")
    )
    assert produce.timer.name == "ExpirationReaper-3-Produce"
    times: list[int] = []
    async with trio.open_nursery() as nursery:
        for purgatory in (produce, fetch):
            nursery.start_soon(purgatory.timer.run, name=purgatory.timer.name)
        for _ in range(1_000):
            produce.try_complete_else_watch(Waiting(delay_ms=60_000), ["a"])
        fetch.try_complete_else_watch(
            Waiting(delay_ms=500, on_end=lambda: times.append(clock.monotonic_ms())), ["a", "b"]
        )
        await trio.sleep(1)
        assert times == [500]
        before = produce.timer.wake_count
        ended = [Waiting() for _ in range(2)]
        for operation in ended:
            fetch.try_complete_else_watch(operation, ["a", "b"])
        await trio.testing.wait_all_tasks_blocked()
        for operation in ended:
            operation.force_complete()
        assert fetch.purgatory_size == 6
        await trio.testing.wait_all_tasks_blocked()
        assert fetch.purgatory_size == 0
        assert produce.timer.wake_count == before
        nursery.cancel_scope.cancel()
