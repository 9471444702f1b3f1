"""The wheel and the purgatory beside models too simple to be wrong.

The wheel's model is a list of deadlines, sorted when it is asked. The purgatory's looks at all its
operations until none of them changes any more, whatever the event was.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from waiting import Place, Waiting

from kraftpy.purgatory.wheel import TimerEntry, TimingWheel

SEAMS = (1, 20, 400, 8_000, 160_000, 3_200_000, 20**9)

delays = st.one_of(
    st.integers(-5, 50),
    st.integers(0, 1_000),
    st.integers(0, 100_000),
    st.builds(lambda seam, turns, near: seam * turns + near, st.sampled_from(SEAMS),
              st.integers(1, 20), st.integers(-1, 1)),
)  # fmt: skip
steps = st.one_of(st.just(0), st.integers(1, 5), st.integers(1, 500), delays.map(abs))


class WheelMachine(RuleBasedStateMachine):
    @initialize(start_ms=st.one_of(st.integers(0, 1_000), st.integers(0, 10**12)))
    def start(self, start_ms: int) -> None:
        self.now_ms = start_ms
        self.wheel: TimingWheel[TimerEntry] = TimingWheel(start_ms)
        self.entries: list[TimerEntry] = []
        # Deadlines by the number of their entry.
        self.pending: dict[int, int] = {}
        # What was due when it was added comes in the order of adding.
        self.was_due: dict[int, bool] = {}

    @rule(delay_ms=delays)
    def add(self, delay_ms: int) -> None:
        self.entries.append(TimerEntry())
        self.set(len(self.entries) - 1, delay_ms)

    @precondition(lambda self: self.entries)
    @rule(data=st.data(), delay_ms=delays)
    def add_again(self, data: st.DataObject, delay_ms: int) -> None:
        self.set(data.draw(st.integers(0, len(self.entries) - 1)), delay_ms)

    def set(self, number: int, delay_ms: int) -> None:
        self.wheel.add(self.entries[number], self.now_ms + delay_ms, self.now_ms)
        self.pending[number] = self.now_ms + delay_ms
        self.was_due[number] = delay_ms <= 0

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.entries) - 1))
        was_pending = self.pending.pop(number, None) is not None
        assert self.wheel.cancel(self.entries[number]) == was_pending

    @rule(step_ms=steps)
    def time_passes_unnoticed(self, step_ms: int) -> None:
        self.now_ms += step_ms

    @rule(step_ms=steps)
    def advance(self, step_ms: int) -> None:
        self.now_ms += step_ms
        self.expect_due([*self.wheel.advance(self.now_ms)])

    @precondition(lambda self: self.wheel.next_deadline_ms() is not None)
    @rule()
    def advance_to_the_next_deadline(self) -> None:
        deadline_ms = self.wheel.next_deadline_ms()
        assert deadline_ms is not None
        self.now_ms = max(self.now_ms, deadline_ms)
        self.expect_due([*self.wheel.advance(self.now_ms)])

    @rule(step_ms=steps, max_moves=st.integers(1, 3), data=st.data())
    def advance_in_pieces(self, step_ms: int, max_moves: int, data: st.DataObject) -> None:
        """With timers cancelled, and others added, between the pieces and while they are taken."""
        self.now_ms += step_ms
        taken: list[TimerEntry] = []
        while (next_ms := self.wheel.next_deadline_ms()) is not None and next_ms <= self.now_ms:
            for entry in self.wheel.advance(self.now_ms, max_moves=max_moves):
                taken.append(entry)
                if data.draw(st.booleans()):
                    break
            if data.draw(st.booleans()):
                number = data.draw(st.integers(0, len(self.entries) - 1))
                if self.wheel.cancel(self.entries[number]):
                    del self.pending[number]
            if data.draw(st.booleans()):
                self.entries.append(TimerEntry())
                self.set(len(self.entries) - 1, data.draw(st.integers(1, 10_000)))
        self.expect_due(taken)

    def expect_due(self, taken: list[TimerEntry]) -> None:
        due = {number: ms for number, ms in self.pending.items() if ms <= self.now_ms}
        numbers = [self.entries.index(entry) for entry in taken]
        assert sorted(numbers) == sorted(due)
        in_order = [due[number] for number in numbers if not self.was_due[number]]
        assert in_order == sorted(in_order)
        for number in due:
            del self.pending[number]
        next_ms = self.wheel.next_deadline_ms()
        assert next_ms is None or next_ms > self.now_ms

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "wheel"):
            return
        assert self.wheel.size == len(self.pending)
        view = self.wheel.inspect()
        found = {self.entries.index(place.entry): place for place in view.placements}
        assert {n: place.entry.deadline_ms for n, place in found.items()} == self.pending
        assert all(entry.is_pending == (n in self.pending) for n, entry in enumerate(self.entries))
        next_ms = self.wheel.next_deadline_ms()
        if self.pending:
            assert next_ms is not None
            assert next_ms <= max(self.now_ms, min(self.pending.values()))
        else:
            assert next_ms is None
        for level in view.levels:
            assert level.current_ms % level.tick_ms == 0
        for place in found.values():
            if place.level:
                level = view.levels[place.level - 1]
                # PUR-9
                assert (
                    place.expiration_ms == place.entry.deadline_ms // level.tick_ms * level.tick_ms
                )
                assert place.slot == place.entry.deadline_ms // level.tick_ms % 20
                assert place.expiration_ms in view.queued_ms


@dataclass
class Expected:
    """An operation of the model: complete when the sum of its keys' values reaches `target`."""

    keys: tuple[int, ...]
    target: int
    deadline_ms: int
    raises: int | None
    outcome: str = ""


KEY_COUNT = 5
key_lists = st.lists(st.integers(0, KEY_COUNT - 1), min_size=1, max_size=KEY_COUNT).map(tuple)


class PurgatoryMachine(RuleBasedStateMachine):
    @initialize(purge_interval=st.integers(0, 4))
    def start(self, purge_interval: int) -> None:
        self.place = Place(purge_interval=purge_interval)
        self.values = [0] * KEY_COUNT
        self.operations: list[Waiting] = []
        self.expected: list[Expected] = []
        self.model_values = [0] * KEY_COUNT

    @rule(
        keys=key_lists,
        more=st.integers(0, 4),
        delay_ms=st.one_of(st.integers(-1, 30), st.integers(0, 1_000)),
        raises=st.none() | st.integers(0, KEY_COUNT - 1),
    )
    def add(self, keys: tuple[int, ...], more: int, delay_ms: int, raises: int | None) -> None:
        """An operation whose completion may itself be an event for another key."""
        target = sum(self.values[key] for key in keys) + more
        operation = Waiting(
            condition=lambda: sum(self.values[key] for key in keys) >= target,
            delay_ms=delay_ms,
            on_end=lambda: None if raises is None else self.happen(raises),
        )
        deadline_ms = self.place.clock.now_ms + delay_ms
        self.operations.append(operation)
        self.expected.append(Expected(keys, target, deadline_ms, raises))
        result = self.place.purgatory.try_complete_else_watch(operation, keys)
        assert result == (more == 0)
        self.settle()

    def happen(self, key: int) -> int:
        self.values[key] += 1
        return self.place.purgatory.check_and_complete(key)

    @rule(key=st.integers(0, KEY_COUNT - 1))
    def event(self, key: int) -> None:
        self.model_values[key] += 1
        before = sum(one.outcome != "" for one in self.expected)
        self.settle()
        after = sum(one.outcome != "" for one in self.expected)
        assert self.happen(key) == after - before

    @rule(data=st.data())
    def force(self, data: st.DataObject) -> None:
        waiting = [n for n, one in enumerate(self.expected) if not one.outcome]
        if waiting:
            number = data.draw(st.sampled_from(waiting))
            if data.draw(st.booleans()):
                self.expected[number].outcome = "abandoned"
                assert self.operations[number].abandon()
            else:
                self.end(self.expected[number], "completed")
                self.settle()
                assert self.operations[number].force_complete()

    @rule(step_ms=st.one_of(st.integers(0, 30), st.integers(0, 2_000)))
    def pass_time(self, step_ms: int) -> None:
        now_ms = self.place.clock.now_ms + step_ms
        while True:
            due = [one for one in self.expected if not one.outcome and one.deadline_ms <= now_ms]
            if not due:
                break
            # The first due goes first; whatever it completes does not expire.
            self.end(min(due, key=lambda one: one.deadline_ms), "expired")
            self.settle()
        self.place.pass_time(step_ms)

    def settle(self) -> None:
        changed = True
        while changed:
            changed = False
            for one in self.expected:
                reached = sum(self.model_values[key] for key in one.keys) >= one.target
                if not one.outcome and reached:
                    self.end(one, "completed")
                    changed = True

    def end(self, one: Expected, outcome: str) -> None:
        one.outcome = outcome
        if one.raises is not None:
            self.model_values[one.raises] += 1

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "place"):
            return
        assert self.values == self.model_values
        diaries = {
            "": [],
            "abandoned": [],
            "completed": ["operation completed"],
            "expired": ["operation completed", "operation expired"],
        }
        for operation, one in zip(self.operations, self.expected, strict=True):
            assert operation.is_completed == (one.outcome != "")
            # Expired and completed at one time differ by who came first among equal deadlines.
            if one.outcome != "expired":
                assert operation.diary == diaries[one.outcome]
            else:
                assert operation.diary[:1] == ["operation completed"]
        purgatory = self.place.purgatory
        assert purgatory.delayed_count == sum(one.outcome == "" for one in self.expected)
        view = purgatory.inspect()
        waiting = sum(len(one.keys) for one in self.expected if not one.outcome)
        assert view.watch_count >= waiting
        # Operations with no delay wait for the next turn of the reaper.
        assert [p for p in self.place.problems() if "overdue" not in p] == []


TestWheel = WheelMachine.TestCase
TestWheel.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestPurgatory = PurgatoryMachine.TestCase
TestPurgatory.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
