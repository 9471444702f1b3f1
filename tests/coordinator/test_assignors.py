"""The assignors of consumer groups, tried with random groups (CGP-28 to CGP-31)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from time import thread_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpy.coordinator.assignors import uniform_heterogeneous
from kraftpy.coordinator.assignors.assignor import (
    Assignor,
    AssignorError,
    Partitions,
    Subscriber,
    has_one_subscription,
)
from kraftpy.coordinator.assignors.range import assign_ranges
from kraftpy.coordinator.assignors.uniform import assign_uniformly
from kraftpy.protocol.ids import Uuid

BOTH = pytest.mark.parametrize("assign", [assign_ranges, assign_uniformly])


def topic(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


A, B, C = topic(1), topic(2), topic(3)


def member(
    name: str, *topics: Uuid, instance: str | None = None, held: Partitions | None = None
) -> Subscriber:
    return Subscriber(name, tuple(sorted(topics)), instance, held or {})


def parts(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


def sizes(assigned: Mapping[str, Partitions]) -> dict[str, int]:
    return {name: sum(map(len, partitions.values())) for name, partitions in assigned.items()}


def continued(
    members: Sequence[Subscriber], assigned: Mapping[str, Partitions]
) -> list[Subscriber]:
    """The same members, holding what they were assigned."""
    return [
        Subscriber(m.member_id, m.topic_ids, m.instance_id, assigned.get(m.member_id, {}))
        for m in members
    ]


def moves(members: Sequence[Subscriber], assigned: Mapping[str, Partitions]) -> int:
    """Partitions that were taken from a member."""
    return sum(
        len(partitions - assigned[m.member_id].get(topic_id, frozenset()))
        for m in members
        for topic_id, partitions in m.held.items()
    )


def check_is_whole(
    members: Sequence[Subscriber], counts: Mapping[Uuid, int], assigned: Mapping[str, Partitions]
) -> None:
    """Every partition that somebody subscribes to has one owner, who subscribes to it."""
    assert assigned.keys() == {m.member_id for m in members}
    owners = Counter(
        (topic_id, partition)
        for partitions in assigned.values()
        for topic_id, numbers in partitions.items()
        for partition in numbers
    )
    wanted = {topic_id for m in members for topic_id in m.topic_ids}
    assert owners == Counter(
        (topic_id, partition) for topic_id in wanted for partition in range(counts[topic_id])
    )
    for m in members:
        assert assigned[m.member_id].keys() <= set(m.topic_ids)
        assert all(assigned[m.member_id].values())


@st.composite
def topics(draw: st.DrawFn) -> dict[Uuid, int]:
    counts = draw(st.lists(st.integers(0, 12), min_size=1, max_size=6))
    return {topic(number): count for number, count in enumerate(counts, 1)}


@st.composite
def groups(draw: st.DrawFn, *, is_homogeneous: bool) -> tuple[list[Subscriber], dict[Uuid, int]]:
    """Members with any subscriptions, who hold any partitions, also ones that are gone."""
    counts = draw(topics())
    names = [f"m{number}" for number in range(draw(st.integers(1, 8)))]
    ids = sorted(counts)
    shared = tuple(sorted(draw(st.sets(st.sampled_from(ids)))))
    holders = st.sampled_from([None, *names])
    held: dict[str, dict[Uuid, set[int]]] = {name: {} for name in names}
    for topic_id, count in counts.items():
        for partition in range(count + 2):
            if (holder := draw(holders)) is not None:
                held[holder].setdefault(topic_id, set()).add(partition)
    members = [
        Subscriber(
            name,
            shared if is_homogeneous else tuple(sorted(draw(st.sets(st.sampled_from(ids))))),
            draw(st.sampled_from([None, f"instance-{name}"])),
            {topic_id: frozenset(numbers) for topic_id, numbers in held[name].items()},
        )
        for name in names
    ]
    return members, counts


class TestRange:
    def test_stretches_first_members_one_more(self) -> None:
        """CGP-28."""
        members = [member("a", A), member("b", A), member("c", A)]
        assert assign_ranges(members, {A: 8}) == {
            "a": {A: parts(0, 1, 2)},
            "b": {A: parts(3, 4, 5)},
            "c": {A: parts(6, 7)},
        }

    def test_topics_of_one_size_are_cut_alike(self) -> None:
        """CGP-28: co-partitioned."""
        members = [member(name, A, B) for name in "abc"]
        for partitions in assign_ranges(members, {A: 7, B: 7}).values():
            assert partitions[A] == partitions[B]

    def test_only_subscribers_count(self) -> None:
        members = [member("a", A), member("b", A, B), member("c", B)]
        assert assign_ranges(members, {A: 2, B: 3}) == {
            "a": {A: parts(0)},
            "b": {A: parts(1), B: parts(0, 1)},
            "c": {B: parts(2)},
        }

    def test_more_members_than_partitions(self) -> None:
        assert assign_ranges([member("a", A), member("b", A)], {A: 1}) == {
            "a": {A: parts(0)},
            "b": {},
        }

    def test_static_members_keep_their_places_under_new_ids(self) -> None:
        """CGP-29: and they come before dynamic ones."""
        before = assign_ranges(
            [member("z", A, instance="i1"), member("y", A, instance="i2"), member("a", A)], {A: 6}
        )
        after = assign_ranges(
            [member("b", A, instance="i1"), member("c", A, instance="i2"), member("a", A)], {A: 6}
        )
        assert before == {"z": {A: parts(0, 1)}, "y": {A: parts(2, 3)}, "a": {A: parts(4, 5)}}
        assert after == {"b": {A: parts(0, 1)}, "c": {A: parts(2, 3)}, "a": {A: parts(4, 5)}}


class TestUniform:
    def test_new_group_spreads_each_topic(self) -> None:
        members = [member("a", A, B), member("b", A, B)]
        assert assign_uniformly(members, {A: 4, B: 4}) == {
            "a": {A: parts(0, 2), B: parts(0, 2)},
            "b": {A: parts(1, 3), B: parts(1, 3)},
        }

    def test_a_member_that_gives_up_half_gives_up_half_of_each_topic(self) -> None:
        everything = {A: frozenset(range(4)), B: frozenset(range(4))}
        members = [member("a", A, B, held=everything), member("b", A, B)]
        assert assign_uniformly(members, {A: 4, B: 4}) == {
            "a": {A: parts(0, 1), B: parts(0, 1)},
            "b": {A: parts(2, 3), B: parts(2, 3)},
        }

    @given(groups(is_homogeneous=True))
    def test_spread_and_least_moves(self, group: tuple[list[Subscriber], dict[Uuid, int]]) -> None:
        """CGP-30: loads differ by one at most, and no more is taken away than that needs."""
        members, counts = group
        assigned = assign_uniformly(members, counts)
        check_is_whole(members, counts, assigned)
        loads = sizes(assigned).values()
        assert max(loads) - min(loads) <= 1

        valid = [
            {
                (topic_id, partition)
                for topic_id, numbers in m.held.items()
                if topic_id in m.topic_ids
                for partition in numbers
                if partition < counts[topic_id]
            }
            for m in members
        ]
        quota, extra = divmod(sum(counts[t] for t in members[0].topic_ids), len(members))
        over = [len(held) - quota for held in valid if len(held) > quota]
        gone = sum(sum(map(len, m.held.values())) for m in members) - sum(map(len, valid))
        assert moves(members, assigned) == gone + sum(over) - min(extra, len(over))

    @given(groups(is_homogeneous=True), st.randoms(use_true_random=False))
    def test_order_of_members_is_of_no_matter(
        self, group: tuple[list[Subscriber], dict[Uuid, int]], random: Random
    ) -> None:
        members, counts = group
        shuffled = random.sample(members, len(members))
        assert assign_uniformly(shuffled, counts) == assign_uniformly(members, counts)


class TestHeterogeneous:
    def test_chains_are_found(self) -> None:
        """a can't give to c, but to b, who can give to c."""
        members = [
            member("a", A, held={A: parts(0, 1, 2)}),
            member("b", A, B, held={A: parts(3), B: parts(0)}),
            member("c", B, held={B: parts(1)}),
        ]
        assigned = assign_uniformly(members, {A: 4, B: 2})
        assert sizes(assigned) == {"a": 2, "b": 2, "c": 2}
        assert assigned["c"] == {B: parts(0, 1)}

    @settings(max_examples=200)
    @given(groups(is_homogeneous=False))
    def test_nothing_could_move_to_make_it_more_even(
        self, group: tuple[list[Subscriber], dict[Uuid, int]]
    ) -> None:
        """CGP-31."""
        members, counts = group
        assigned = assign_uniformly(members, counts)
        check_is_whole(members, counts, assigned)
        loads = sizes(assigned)
        for start in members:
            reached = [start.member_id]
            for name in reached:
                reached += [
                    m.member_id
                    for m in members
                    if m.member_id not in reached and assigned[name].keys() & set(m.topic_ids)
                ]
            assert min(loads[name] for name in reached) >= loads[start.member_id] - 1

    @given(groups(is_homogeneous=False))
    def test_an_even_assignment_stays(
        self, group: tuple[list[Subscriber], dict[Uuid, int]]
    ) -> None:
        """CGP-31: sticky."""
        members, counts = group
        assigned = assign_uniformly(members, counts)
        assert assign_uniformly(continued(members, assigned), counts) == assigned

    def test_a_partition_that_moves_goes_back_to_who_had_it(self) -> None:
        members = [
            member("a", A, B, held={A: parts(0, 1, 2, 3)}),
            member("b", A, held={A: parts(3)}),
        ]
        assigned = assign_uniformly(members, {A: 4, B: 0})
        assert assigned == {"a": {A: parts(0, 1)}, "b": {A: parts(2, 3)}}

    def test_bounds_hold_and_leave_a_whole_assignment(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """CGP-31: without a step to spare all partitions are assigned all the same."""
        monkeypatch.setattr(uniform_heterogeneous, "MAX_PASSES", 0)
        monkeypatch.setattr(uniform_heterogeneous, "MAX_CHAIN_STEPS", 0)
        members = [member("a", A, held={A: parts(0, 1, 2, 3)}), member("b", A, B)]
        counts = {A: 4, B: 1}
        assigned = assign_uniformly(members, counts)
        check_is_whole(members, counts, assigned)
        assert sizes(assigned) == {"a": 4, "b": 1}


class TestBoth:
    @BOTH
    @given(group=groups(is_homogeneous=False))
    def test_every_partition_has_one_subscribed_owner(
        self, assign: Assignor, group: tuple[list[Subscriber], dict[Uuid, int]]
    ) -> None:
        members, counts = group
        check_is_whole(members, counts, assign(members, counts))

    @BOTH
    def test_nobody(self, assign: Assignor) -> None:
        assert assign([], {A: 3}) == {}

    @BOTH
    def test_a_topic_that_is_missing(self, assign: Assignor) -> None:
        with pytest.raises(AssignorError):
            assign([member("a", A, C)], {A: 3})

    def test_one_subscription_or_several(self) -> None:
        assert has_one_subscription([])
        assert has_one_subscription([member("a", A, B), member("b", B, A)])
        assert not has_one_subscription([member("a", A), member("b", A, B)])


def large_group(
    member_count: int, partition_count: int, subscribe: Callable[[int], Sequence[Uuid]]
) -> tuple[list[Subscriber], dict[Uuid, int]]:
    counts = {topic(number): partition_count // 10 for number in range(10)}
    return [member(f"m{n:04}", *subscribe(n)) for n in range(member_count)], counts


@pytest.mark.parametrize("is_homogeneous", [True, False])
@BOTH
def test_a_hundred_members_take_milliseconds(assign: Assignor, is_homogeneous: bool) -> None:
    """100 members, 1,000 partitions. The bound is many times what a quiet machine needs."""
    ids = [topic(number) for number in range(10)]
    members, counts = large_group(
        100, 1000, lambda n: ids if is_homogeneous else [ids[n % 10], ids[n % 7], ids[n % 3]]
    )
    best = float("inf")
    for _ in range(5):
        # Of the processor: what others of this machine do meanwhile is no part of it.
        start = thread_time()
        members = continued(members, assign(members[1:], counts))
        best = min(best, thread_time() - start)
    assert best < 0.05
