"""The assignors of classic groups: the tables of the specification, and what must always hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.client.assignors import (
    Assignor,
    AssignorChoice,
    CountingAssignor,
    GroupTopics,
    MemberAssignment,
    MemberSubscription,
    make_assignors,
)
from kraftpy.client.assignors.range import RangeAssignor
from kraftpy.client.assignors.sticky import balance
from kraftpy.client.calls import TopicPartition

NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")


def named(name: str) -> CountingAssignor:
    assignor = make_assignors((name,))[name]
    assert isinstance(assignor, CountingAssignor)
    return assignor


def wheres(text: str) -> list[TopicPartition]:
    """`t0p1 t1p0`"""
    return [TopicPartition(word[:2], int(word[3:])) for word in text.split()]


def members(**topics: str) -> list[MemberSubscription]:
    return [MemberSubscription(name, frozenset(words.split())) for name, words in topics.items()]


def assigned(name: str, counts: dict[str, int], **topics: str) -> dict[str, list[TopicPartition]]:
    found = named(name).assign(counts, members(**topics))
    return {member_id: sorted(partitions) for member_id, partitions in found.items()}


@pytest.mark.parametrize(
    ("size", "first", "second"),
    [(4, "t0p0 t0p1 t1p0 t1p1", "t0p2 t0p3 t1p2 t1p3"), (3, "t0p0 t0p1 t1p0 t1p1", "t0p2 t1p2")],
)
def test_range(size: int, first: str, second: str) -> None:
    """GRP-76."""
    found = assigned("range", {"t0": size, "t1": size}, c0="t0 t1", c1="t0 t1")
    assert found == {"c0": wheres(first), "c1": wheres(second)}


def test_round_robin() -> None:
    """GRP-77."""
    found = assigned("roundrobin", {"t0": 3, "t1": 3}, c0="t0 t1", c1="t0 t1")
    assert found == {"c0": wheres("t0p0 t0p2 t1p1"), "c1": wheres("t0p1 t1p0 t1p2")}
    sizes = {"t0": 1, "t1": 2, "t2": 3}
    found = assigned("roundrobin", sizes, c0="t0", c1="t0 t1", c2="t0 t1 t2")
    assert found == {
        "c0": wheres("t0p0"),
        "c1": wheres("t1p0"),
        "c2": wheres("t1p1 t2p0 t2p1 t2p2"),
    }
    found = assigned("roundrobin", sizes, c1="t0 t1", c2="t0 t1 t2")
    assert found == {"c1": wheres("t0p0 t1p1"), "c2": wheres("t1p0 t2p0 t2p1 t2p2")}


def sticky_round(
    assignors: dict[str, CountingAssignor], counts: dict[str, int], generation: int, **topics: str
) -> dict[str, list[TopicPartition]]:
    """One rebalance of eager members, each of which tells what it had."""
    subscriptions = [
        MemberSubscription(name, frozenset(words.split()), assignors[name].user_data())
        for name, words in topics.items()
    ]
    found = assignors[next(iter(topics))].assign(counts, subscriptions)
    for name, partitions in found.items():
        assignors[name].assigned(partitions, generation)
    return {name: sorted(partitions) for name, partitions in found.items()}


def test_sticky_with_equal_subscriptions() -> None:
    """GRP-78."""
    assignors = {name: named("sticky") for name in ("c0", "c1", "c2")}
    counts = {f"t{number}": 2 for number in range(4)}
    every = "t0 t1 t2 t3"
    found = sticky_round(assignors, counts, 1, c0=every, c1=every, c2=every)
    assert found == {
        "c0": wheres("t0p0 t1p1 t3p0"),
        "c1": wheres("t0p1 t2p0 t3p1"),
        "c2": wheres("t1p0 t2p1"),
    }
    found = sticky_round(assignors, counts, 2, c0=every, c2=every)
    assert found == {
        "c0": sorted(wheres("t0p0 t1p1 t3p0 t2p0")),
        "c2": sorted(wheres("t1p0 t2p1 t0p1 t3p1")),
    }


def test_sticky_with_different_subscriptions() -> None:
    """GRP-78."""
    assignors = {name: named("sticky") for name in ("c0", "c1", "c2")}
    counts = {"t0": 1, "t1": 2, "t2": 3}
    found = sticky_round(assignors, counts, 1, c0="t0", c1="t0 t1", c2="t0 t1 t2")
    assert found == {
        "c0": wheres("t0p0"),
        "c1": wheres("t1p0 t1p1"),
        "c2": wheres("t2p0 t2p1 t2p2"),
    }
    found = sticky_round(assignors, counts, 2, c1="t0 t1", c2="t0 t1 t2")
    assert found == {"c1": wheres("t0p0 t1p0 t1p1"), "c2": wheres("t2p0 t2p1 t2p2")}


def test_of_two_claims_the_later_generation_counts() -> None:
    both = (TopicPartition("t0", 0), TopicPartition("t0", 1))
    slept = MemberSubscription("c0", frozenset(["t0"]), None, both, generation=3)
    present = MemberSubscription("c1", frozenset(["t0"]), None, both[:1], generation=4)
    found = named("cooperative-sticky").assign({"t0": 2}, [slept, present])
    # c1 keeps p0 by right; c0, which claims it too, gives it up first.
    assert found == {"c0": [both[1]], "c1": []}
    more = (both[1], TopicPartition("t0", 2))
    present = MemberSubscription("c1", frozenset(["t0"]), None, more, generation=4)
    assert balance({"t0": 3}, [slept, present]) == {"c0": [both[0]], "c1": list(more)}


def test_what_changes_hands_cooperatively_is_nobodys_for_a_round() -> None:
    owned = tuple(TopicPartition("t0", number) for number in range(4))
    old = MemberSubscription("c0", frozenset(["t0"]), None, owned, generation=1)
    new = MemberSubscription("c1", frozenset(["t0"]))
    first = named("cooperative-sticky").assign({"t0": 4}, [old, new])
    assert (len(first["c0"]), first["c1"]) == (2, [])
    old = MemberSubscription("c0", frozenset(["t0"]), None, tuple(first["c0"]), generation=2)
    second = named("cooperative-sticky").assign({"t0": 4}, [old, new])
    assert second["c0"] == first["c0"]
    assert sorted(second["c1"]) == sorted(set(owned) - set(first["c0"]))


TOPICS = ["t0", "t1", "t2"]
GROUPS = st.dictionaries(
    st.sampled_from([f"c{number}" for number in range(6)]),
    st.lists(st.sampled_from(TOPICS), unique=True),
    min_size=1,
)


@pytest.mark.parametrize("name", NAMES)
@given(counts=st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7)), topics=GROUPS)
def test_every_partition_has_one_owner_who_subscribes(
    name: str, counts: dict[str, int], topics: dict[str, list[str]]
) -> None:
    found = assigned(name, counts, **{key: " ".join(value) for key, value in topics.items()})
    assert list(found)
    assert set(found) == set(topics)
    given_out = [where for partitions in found.values() for where in partitions]
    wanted = {topic for value in topics.values() for topic in value}
    assert sorted(given_out) == sorted(
        TopicPartition(topic, number)
        for topic, size in counts.items()
        if topic in wanted
        for number in range(size)
    )
    for member_id, partitions in found.items():
        assert all(where.topic in topics[member_id] for where in partitions)


@given(counts=st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7)), topics=GROUPS)
def test_sticky_is_even_and_stays(counts: dict[str, int], topics: dict[str, list[str]]) -> None:
    words = {key: " ".join(value) for key, value in topics.items()}
    assignors = {name: named("sticky") for name in topics}
    first = sticky_round(assignors, counts, 1, **words)
    assert sticky_round(assignors, counts, 2, **words) == first
    for partitions in first.values():
        for where in partitions:
            for other, others in first.items():
                if where.topic in topics[other]:
                    assert len(partitions) <= len(others) + 1


def test_user_data_that_cannot_be_read_is_no_harm() -> None:
    odd = MemberSubscription("c0", frozenset(["t0"]), b"\xff\xff\xff")
    assert named("sticky").assign({"t0": 1}, [odd]) == {"c0": [TopicPartition("t0", 0)]}


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="'fair' is no assignor"):
        make_assignors(("range", "fair"))


# Assignors of one's own.


class Broadcast(CountingAssignor):
    """Everybody reads everything, and has to keep its offsets for itself."""

    name = "broadcast"

    def assign(
        self, partition_counts: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        return {
            member.member_id: [
                TopicPartition(topic, number)
                for topic in sorted(member.topics)
                for number in range(partition_counts.get(topic, 0))
            ]
            for member in members
        }


class Dice(CountingAssignor):
    name = "random"

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def assign(
        self, partition_counts: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        found: dict[str, list[TopicPartition]] = {each.member_id: [] for each in members}
        for topic, count in partition_counts.items():
            readers = [each.member_id for each in members if topic in each.topics]
            for number in range(count):
                found[self._random.choice(readers)].append(TopicPartition(topic, number))
        return found


class Nearest(Assignor):
    """Partitions go to members in the rack of their leader, which these say in their own data."""

    name = "nearest"

    def __init__(self, rack: str) -> None:
        self._rack = rack

    def user_data(self) -> bytes | None:
        return self._rack.encode()

    def assign_group(
        self, topics: GroupTopics, members: Sequence[MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        found: dict[str, list[TopicPartition]] = {each.member_id: [] for each in members}
        for topic, count in topics.partition_counts.items():
            for where in (TopicPartition(topic, number) for number in range(count)):
                rack = topics.leader_racks.get(where, "").encode()
                readers = [each for each in members if topic in each.topics]
                near = [each for each in readers if each.user_data == rack] or readers
                taker = min(near, key=lambda each: (len(found[each.member_id]), each.member_id))
                found[taker.member_id].append(where)
        return {member_id: MemberAssignment(wheres) for member_id, wheres in found.items()}


def own(choice: AssignorChoice) -> Assignor:
    [assignor] = make_assignors((choice,)).values()
    return assignor


def test_assignors_of_ones_own() -> None:
    """GRP-79: a class, and what makes one with arguments."""
    group = members(c0="t0", c1="t0 t1", c2="t1")
    sizes = {"t0": 2, "t1": 1}
    found = own(Broadcast).assign_group(GroupTopics(sizes), group)
    assert {name: list(each.partitions) for name, each in found.items()} == {
        "c0": wheres("t0p0 t0p1"),
        "c1": wheres("t0p0 t0p1 t1p0"),
        "c2": wheres("t1p0"),
    }
    dealt = own(partial(Dice, 7)).assign_group(GroupTopics({"t0": 30, "t1": 30}), group)
    every = sorted(where for each in dealt.values() for where in each.partitions)
    assert every == [
        TopicPartition(topic, number) for topic in ("t0", "t1") for number in range(30)
    ]
    assert {where.topic for where in dealt["c0"].partitions} == {"t0"}
    assert {where.topic for where in dealt["c2"].partitions} == {"t1"}


def test_a_rack_in_the_members_own_data() -> None:
    """GRP-80."""
    first, second = own(partial(Nearest, "rack1")), own(partial(Nearest, "rack2"))
    group = [
        MemberSubscription("c0", frozenset(["t0"]), first.user_data()),
        MemberSubscription("c1", frozenset(["t0"]), second.user_data()),
    ]
    racks = dict(
        zip(wheres("t0p0 t0p1 t0p2 t0p3"), ["rack2", "rack1", "rack2", "rack3"], strict=True)
    )
    found = first.assign_group(GroupTopics({"t0": 4}, racks), group)
    assert {name: list(each.partitions) for name, each in found.items()} == {
        "c0": wheres("t0p1 t0p3"),
        "c1": wheres("t0p0 t0p2"),
    }


class Impostor(Broadcast):
    name = "range"


@pytest.mark.parametrize(
    "choices",
    [(Broadcast, Broadcast), ("range", Impostor), (Impostor,), ("range", "range")],
    ids=["twice", "beside", "instead", "named twice"],
)
def test_a_name_that_is_taken_is_refused(choices: tuple[AssignorChoice, ...]) -> None:
    """GRP-79: all members must mean the same by it."""
    with pytest.raises(ValueError, match="more than one assignor"):
        make_assignors(choices)
    assert list(make_assignors((RangeAssignor, Broadcast, "sticky"))) == [
        "range",
        "broadcast",
        "sticky",
    ]
