"""A member's way to its target, row by row (CGP-19 to CGP-22, CGP-25, CGP-26)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from kraftpy.coordinator.assignors.assignor import Partitions
from kraftpy.coordinator.groups.consumer_member import CurrentAssignment, Held, MemberState
from kraftpy.coordinator.groups.reconciler import Reconciliation
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid

T, U = Uuid(b"t" * 16), Uuid(b"u" * 16)
STABLE = MemberState.STABLE
UNREVOKED = MemberState.UNREVOKED_PARTITIONS
UNRELEASED = MemberState.UNRELEASED_PARTITIONS


def parts(**topics: Iterable[int]) -> Partitions:
    return {{"t": T, "u": U}[name]: frozenset(numbers) for name, numbers in topics.items()}


def held(epoch: int = 1, **topics: Iterable[int]) -> Held:
    return {
        {"t": T, "u": U}[name]: dict.fromkeys(numbers, epoch) for name, numbers in topics.items()
    }


def step(
    current: CurrentAssignment,
    target: Partitions,
    *,
    target_epoch: int = 5,
    owned: Partitions | None = None,
    subscribed: Iterable[Uuid] = (T, U),
    changed: bool = False,
    held_by_others: Partitions | None = None,
) -> CurrentAssignment:
    taken: Mapping[Uuid, Any] = held_by_others or {}
    return Reconciliation(
        target_epoch=target_epoch,
        target=target,
        owned=owned,
        subscribed=frozenset(subscribed),
        has_subscription_changed=changed,
        is_free=lambda topic_id, partition: partition not in taken.get(topic_id, ()),
    ).next(current)


def at(
    epoch: int,
    state: MemberState = STABLE,
    assigned: Held | None = None,
    pending: Held | None = None,
) -> CurrentAssignment:
    return CurrentAssignment(epoch, epoch, state, assigned or {}, pending or {})


class TestStable:
    def test_at_the_targets_epoch_nothing_happens(self) -> None:
        """CGP-19: STABLE, epoch = T, subscription as it was."""
        current = at(5, assigned=held(t=[0]))
        assert step(current, parts(t=[1])) is current

    def test_nothing_to_do_but_to_move_on(self) -> None:
        """CGP-19: STABLE, epoch behind T."""
        assert step(at(3, assigned=held(t=[0])), parts(t=[0])) == CurrentAssignment(
            5, 3, STABLE, held(t=[0])
        )

    def test_what_is_free_is_taken_at_once(self) -> None:
        """Since the target's epoch; what the member had, it has since when it had it."""
        assert step(at(3, assigned=held(t=[0])), parts(t=[0, 1], u=[2])) == CurrentAssignment(
            5, 3, STABLE, {T: {0: 1, 1: 5}, U: {2: 5}}
        )

    @pytest.mark.parametrize("owned", [None, parts(t=[0, 1]), parts(t=[1])])
    def test_what_is_too_much_must_be_given_up_first(self, owned: Partitions | None) -> None:
        """CGP-20, CGP-21: at the old epoch, and nothing new before."""
        assert step(
            at(3, assigned=held(t=[0, 1])), parts(t=[0], u=[0]), owned=owned
        ) == CurrentAssignment(3, 3, UNREVOKED, held(t=[0]), held(t=[1]))

    def test_what_the_member_no_longer_owns_need_not_be_given_up(self) -> None:
        assert step(
            at(3, assigned=held(t=[0, 1])), parts(t=[0]), owned=parts(t=[0])
        ) == CurrentAssignment(5, 3, STABLE, held(t=[0]))

    def test_what_others_hold_is_waited_for(self) -> None:
        """CGP-22."""
        assert step(at(3), parts(t=[0, 1]), held_by_others=parts(t=[1])) == CurrentAssignment(
            5, 3, UNRELEASED, {T: {0: 5}}
        )
        assert step(
            at(3, assigned=held(t=[0])), parts(t=[0, 1]), held_by_others=parts(t=[1])
        ) == CurrentAssignment(5, 3, UNRELEASED, held(t=[0]))


class TestUnrevoked:
    @pytest.mark.parametrize("owned", [None, parts(t=[1]), parts(t=[0, 1, 2])])
    def test_the_member_has_not_given_up_everything(self, owned: Partitions | None) -> None:
        """CGP-19 to CGP-21."""
        current = at(3, UNREVOKED, held(t=[0]), held(t=[1, 2]))
        assert step(current, parts(t=[0]), owned=owned) is current

    def test_it_has(self) -> None:
        """CGP-20: only now does its epoch move, and it gets what is new."""
        current = at(3, UNREVOKED, held(t=[0]), held(t=[1]))
        assert step(current, parts(t=[0], u=[0]), owned=parts(t=[0])) == CurrentAssignment(
            5, 3, STABLE, {T: {0: 1}, U: {0: 5}}
        )

    def test_it_has_but_the_target_has_moved(self) -> None:
        """CGP-19: one epoch further, not to the target."""
        current = at(3, UNREVOKED, held(t=[0]), held(t=[1]))
        assert step(current, parts(u=[0]), owned=parts(t=[0])) == CurrentAssignment(
            4, 3, UNREVOKED, {}, held(t=[0])
        )

    def test_its_epoch_never_passes_the_target(self) -> None:
        current = at(5, UNREVOKED, held(t=[0]), held(t=[1]))
        assert step(current, parts(), owned=parts(t=[0])).member_epoch == 5

    def test_it_gets_back_what_it_was_to_give_up(self) -> None:
        """It does not wait for itself."""
        current = at(3, UNREVOKED, held(t=[0]), held(t=[1]))
        assert step(current, parts(t=[0, 1]), owned=parts(t=[0])) == CurrentAssignment(
            5, 3, STABLE, {T: {0: 1, 1: 5}}
        )


class TestUnreleased:
    def test_others_have_released(self) -> None:
        """CGP-22."""
        current = at(5, UNRELEASED, held(t=[0]))
        assert step(current, parts(t=[0, 1])) == CurrentAssignment(5, 5, STABLE, {T: {0: 1, 1: 5}})

    def test_some_of_them(self) -> None:
        current = at(5, UNRELEASED)
        assert step(current, parts(t=[0, 1]), held_by_others=parts(t=[1])) == CurrentAssignment(
            5, 5, UNRELEASED, {T: {0: 5}}
        )

    def test_none_of_them(self) -> None:
        current = at(5, UNRELEASED, held(t=[0]))
        assert step(current, parts(t=[0, 1]), held_by_others=parts(t=[1])) == current

    def test_the_target_has_moved(self) -> None:
        """CGP-19: the member has to give up before it goes on to the next target."""
        current = at(4, UNRELEASED, held(t=[0]))
        assert step(current, parts(t=[1]), held_by_others=parts(t=[1])) == CurrentAssignment(
            4, 4, UNREVOKED, {}, held(t=[0])
        )


class TestUnknown:
    @pytest.mark.parametrize("owned", [None, parts(t=[0])])
    def test_who_may_have_something_is_fenced(self, owned: Partitions | None) -> None:
        """CGP-26."""
        with pytest.raises(CoordinatorError) as error:
            step(at(3, MemberState.UNKNOWN), parts(t=[0]), owned=owned)
        assert error.value.code is ErrorCode.FENCED_MEMBER_EPOCH

    def test_who_has_nothing_goes_on(self) -> None:
        """CGP-26."""
        assert step(at(3, MemberState.UNKNOWN, held(t=[7])), parts(t=[0]), owned={}) == (
            CurrentAssignment(5, 3, STABLE, {T: {0: 5}})
        )


class TestUnsubscribed:
    """CGP-25: what the member no longer wants goes at once, before there is a new target."""

    def test_in_the_targets_epoch(self) -> None:
        current = at(5, assigned=held(t=[0], u=[0]))
        target = parts(t=[0], u=[0])
        owned = parts(t=[0], u=[0])
        assert step(
            current, target, owned=owned, subscribed=[T], changed=True
        ) == CurrentAssignment(5, 5, UNREVOKED, held(t=[0]), held(u=[0]))
        assert step(
            current, target, owned=parts(t=[0]), subscribed=[T], changed=True
        ) == CurrentAssignment(5, 5, STABLE, held(t=[0]))

    def test_on_the_way_to_it(self) -> None:
        current = at(3, assigned=held(t=[0], u=[0]))
        assert step(current, parts(t=[0], u=[0]), subscribed=[T], changed=True) == (
            CurrentAssignment(3, 3, UNREVOKED, held(t=[0]), held(u=[0]))
        )

    def test_while_giving_up_something_else(self) -> None:
        current = at(3, UNREVOKED, held(t=[0], u=[0]), held(u=[1]))
        owned = parts(t=[0], u=[0, 1])
        assert step(
            current, parts(t=[0], u=[0]), owned=owned, subscribed=[T], changed=True
        ) == CurrentAssignment(3, 3, UNREVOKED, held(t=[0]), held(u=[0, 1]))

    def test_is_not_given_to_it_by_an_old_target(self) -> None:
        assert step(at(3), parts(t=[0], u=[0]), subscribed=[T]) == (
            CurrentAssignment(5, 3, STABLE, {T: {0: 5}})
        )

    def test_keeps_what_it_still_wants(self) -> None:
        current = at(5, assigned=held(t=[0]))
        assert step(current, parts(t=[0]), subscribed=[T, U], changed=True) is current
