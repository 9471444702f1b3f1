"""A classic group by itself: votes, leaders, states."""

from __future__ import annotations

import pytest
from coordinator.classic_kit import Watched, subscription

from kraftpy.coordinator.groups.classic_group import ClassicGroup, ClassicState
from kraftpy.coordinator.groups.classic_member import ClassicMember, JoinProtocol
from kraftpy.coordinator.groups.classic_subscription import subscribed_topics
from kraftpy.world import InternalInvariant


def member(member_id: str, *names: str) -> ClassicMember:
    return ClassicMember(
        member_id,
        None,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=1000,
        session_timeout_ms=1000,
        protocols=tuple(JoinProtocol(name, b"") for name in names),
    )


def group_of(**names: list[str]) -> ClassicGroup:
    group = ClassicGroup("g", 0)
    for member_id, protocols in names.items():
        group.add(member(member_id, *protocols), "consumer")
        if group.is_empty:
            group.begin_rebalance(0)
    return group


def test_the_most_votes_win() -> None:
    """GRP-18: of the protocols that all know, each votes for its favourite."""
    group = group_of(m1=["B", "A"], m2=["A", "B", "C"], m3=["D", "B", "A"])
    assert group.select_protocol() == "B"


def test_a_draw_is_decided_by_the_earliest_member() -> None:
    """GRP-18"""
    assert group_of(m1=["B", "A"], m2=["A", "B"]).select_protocol() == "B"
    assert group_of(m1=["A", "B"], m2=["B", "A"]).select_protocol() == "A"


def test_a_thousand_protocols_are_not_compared_with_each_other() -> None:
    """GRP-18: a client may know as many as fit into a request, and must not keep a node busy."""
    common = [Watched(f"common-{number}") for number in range(1000)]
    own = [Watched(f"own-{number}") for number in range(1000)]
    group = group_of(m1=common, m2=own + common)
    Watched.comparisons = 0
    assert group.select_protocol() == "common-0"
    assert Watched.comparisons < 10_000


def test_nobody_votes() -> None:
    """GRP-18"""
    with pytest.raises(InternalInvariant):
        ClassicGroup("g", 0).select_protocol()


def test_supporters_are_counted() -> None:
    """GRP-17: over coming, changing and going."""
    group = group_of(a=["range", "roundrobin"], b=["range", "roundrobin"])
    sticky = [JoinProtocol("sticky", b"")]
    assert not group.supports("consumer", sticky)
    for each in group.members.values():
        group.update(
            each,
            (JoinProtocol("roundrobin", b""), *sticky),
            rebalance_timeout_ms=1,
            session_timeout_ms=1,
        )
    assert group.supports("consumer", sticky)
    assert not group.supports("consumer", [JoinProtocol("range", b"")])
    group.add(member("c", "roundrobin"), "consumer")
    assert not group.supports("consumer", sticky)
    group.remove("c")
    assert group.supports("consumer", sticky)


def test_the_leader_goes() -> None:
    """GRP-16"""
    group = group_of(a=["x"], b=["x"], c=["x"])
    assert group.leader_id == "a"
    group.remove("a")
    assert group.leader_id == "b"
    group.remove("c")
    assert group.leader_id == "b"
    group.remove("b")
    assert group.leader_id is None


def test_a_member_that_does_not_fit() -> None:
    group = group_of(a=["x"])
    with pytest.raises(InternalInvariant):
        group.add(member("b", "y"), "consumer")
    with pytest.raises(InternalInvariant):
        group.add(member("b", "x"), "connect")


def test_states_and_their_times() -> None:
    """GRP-19, GRP-25"""
    group = ClassicGroup("g", 1)
    group.add(member("a", "x"), "connect")
    steps = []
    for step, at_ms in (
        (group.begin_rebalance, 2),
        (group.begin_generation, 3),
        (group.assigned, 4),
        (group.begin_rebalance, 5),
        (group.begin_generation, 6),
        (group.begin_rebalance, 7),
    ):
        step(at_ms)
        steps.append((group.state.value, group.state_timestamp_ms, group.generation))
    assert steps == [
        ("PreparingRebalance", 2, 0),
        ("CompletingRebalance", 3, 1),
        ("Stable", 4, 1),
        ("PreparingRebalance", 5, 1),
        ("CompletingRebalance", 6, 2),
        ("PreparingRebalance", 7, 2),
    ]
    group.remove("a")
    group.begin_generation(8)
    assert (group.state, group.generation) == (ClassicState.EMPTY, 3)
    assert group.protocol_name is None


def test_steps_that_are_none() -> None:
    """GRP-19"""
    group = ClassicGroup("g", 1)
    with pytest.raises(InternalInvariant):
        group.begin_generation(2)
    with pytest.raises(InternalInvariant):
        group.assigned(2)
    group.begin_rebalance(2)
    with pytest.raises(InternalInvariant):
        group.begin_rebalance(3)
    assert (group.state, group.state_timestamp_ms) == (ClassicState.PREPARING, 2)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_subscriptions_of_every_version(version: int) -> None:
    found = subscribed_topics([subscription("a", "b", version=version), subscription("b")])
    assert found == frozenset({"a", "b"})


def test_a_newer_subscription_is_read_as_far_as_it_is_known() -> None:
    newer = b"\x00\x63" + subscription("a")[2:] + b"and more"
    assert subscribed_topics([newer]) == frozenset({"a"})


@pytest.mark.parametrize(
    "metadata", [b"", b"\0", b"\0\0", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\1\0"]
)
def test_what_is_no_subscription(metadata: bytes) -> None:
    assert subscribed_topics([subscription("a"), metadata]) is None
