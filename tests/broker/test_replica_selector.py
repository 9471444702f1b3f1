"""Which replica a consumer is sent to."""

from __future__ import annotations

from kraftpy.broker.replica_selector import RackAwareSelector, ReplicaView

LEADER = ReplicaView(1, "x", 100, 0)


def chosen(rack_id: str, *followers: ReplicaView) -> int:
    return RackAwareSelector().select(rack_id, LEADER, followers).broker_id


def test_the_leader_is_preferred_in_its_own_rack() -> None:
    assert chosen("x", ReplicaView(2, "x", 100, 0)) == 1


def test_without_a_rack_or_anybody_in_it() -> None:
    near = ReplicaView(2, "y", 100, 0)
    assert chosen("", ReplicaView(2, "", 100, 0)) == 1
    assert chosen("z", near) == 1
    assert chosen("y") == 1
    assert chosen("y", near, ReplicaView(3, None, 100, 0)) == 2


def test_the_freshest_of_several() -> None:
    """The longest log, then who was caught up last, then the lowest id."""
    assert chosen("y", ReplicaView(2, "y", 90, 0), ReplicaView(3, "y", 91, 500)) == 3
    assert chosen("y", ReplicaView(2, "y", 90, 7), ReplicaView(3, "y", 90, 6)) == 3
    assert chosen("y", ReplicaView(3, "y", 90, 7), ReplicaView(2, "y", 90, 7)) == 2
