"""Connection quotas: the admission of spec/net.md section 7, without any I/O."""

from __future__ import annotations

from math import inf

import pytest

from kraftpy.net.limits import NetworkLimits
from kraftpy.net.quotas import ConnectionQuotas, TooManyConnections
from kraftpy.world import InternalInvariant


def quotas(protected: tuple[str, ...] = (), **limits: object) -> ConnectionQuotas:
    return ConnectionQuotas(NetworkLimits(**limits), ("A", "B"), protected, now=0.0)  # type: ignore[arg-type]


def test_limit_plus_one_from_an_address_is_refused_and_not_counted() -> None:
    """NET-19"""
    counts = quotas(max_connections_per_ip=2)
    counts.add("A", "1.1.1.1")
    counts.add("B", "1.1.1.1")
    with pytest.raises(TooManyConnections, match=r"1\.1\.1\.1 has 2 connections of at most 2"):
        counts.add("A", "1.1.1.1")
    assert (counts.total, counts.count_of_listener("A"), counts.count_of_address("1.1.1.1")) == (
        2,
        1,
        2,
    )
    counts.add("A", "2.2.2.2")


def test_an_override_wins_for_its_address() -> None:
    """NET-20: in both directions, 0 included."""
    counts = quotas(
        max_connections_per_ip=1, max_connections_per_ip_overrides={"1.1.1.1": 2, "3.3.3.3": 0}
    )
    counts.add("A", "1.1.1.1")
    counts.add("A", "1.1.1.1")
    for address in ("1.1.1.1", "3.3.3.3"):
        with pytest.raises(TooManyConnections):
            counts.add("A", address)
    counts.add("A", "2.2.2.2")
    with pytest.raises(TooManyConnections):
        counts.add("A", "2.2.2.2")


def test_removing_frees_the_place_once() -> None:
    """NET-21: a second removal is our own bug."""
    counts = quotas(max_connections_per_ip=1)
    counts.add("A", "1.1.1.1")
    counts.remove("A", "1.1.1.1")
    assert (counts.total, counts.count_of_listener("A"), counts.count_of_address("1.1.1.1")) == (
        0,
        0,
        0,
    )
    with pytest.raises(InternalInvariant):
        counts.remove("A", "1.1.1.1")
    counts.add("A", "1.1.1.1")


def test_a_full_node_has_room_on_protected_listeners_only() -> None:
    """NET-22, NET-23"""
    counts = quotas(protected=("B",), max_connections=2)
    counts.add("A", "1.1.1.1")
    assert counts.has_room("A")
    counts.add("A", "1.1.1.1")
    assert not counts.has_room("A")
    assert counts.has_room("B")
    assert counts.excess_count == 0
    counts.add("B", "1.1.1.1")
    assert counts.excess_count == 1


def test_a_listener_has_its_own_limit() -> None:
    """NET-24: protected or not."""
    counts = quotas(protected=("B",), listener_max_connections={"B": 1})
    counts.add("B", "1.1.1.1")
    assert not counts.has_room("B")
    assert counts.has_room("A")


def test_limits_change() -> None:
    """NET-25"""
    counts = quotas(max_connections=1, max_connections_per_ip=1)
    counts.add("A", "1.1.1.1")
    counts.change_limits(NetworkLimits(max_connections=2, max_connections_per_ip=2), now=1.0)
    assert counts.has_room("A")
    counts.add("A", "1.1.1.1")
    counts.change_limits(NetworkLimits(max_connections=1), now=2.0)
    assert counts.excess_count == 1
    assert not counts.has_room("A")


def test_connections_come_at_a_rate() -> None:
    """max.connection.creation.rate: a burst of one second's worth, then one by one."""
    counts = quotas(max_connection_creation_rate=10)
    for _ in range(10):
        assert counts.seconds_to_wait("A", 5.0) == 0
        counts.add("A", "1.1.1.1")
    assert counts.seconds_to_wait("A", 5.0) == pytest.approx(0.1)
    assert counts.seconds_to_wait("B", 5.0) == pytest.approx(0.1)
    assert counts.seconds_to_wait("A", 5.04) == pytest.approx(0.06)
    assert counts.seconds_to_wait("A", 5.1) == 0
    counts.add("A", "1.1.1.1")
    assert counts.seconds_to_wait("A", 5.1) == pytest.approx(0.1)


def test_a_listeners_rate_is_its_own_and_protected_ones_skip_the_nodes() -> None:
    counts = quotas(
        protected=("B",),
        max_connection_creation_rate=1,
        listener_max_connection_creation_rate={"B": 2},
    )
    counts.add("B", "1.1.1.1")
    assert counts.seconds_to_wait("B", 0.0) == 0
    assert counts.seconds_to_wait("A", 0.0) == pytest.approx(1.0)
    counts.add("B", "1.1.1.1")
    assert counts.seconds_to_wait("B", 0.0) == pytest.approx(0.5)


def test_a_rate_of_zero_admits_nobody_until_it_changes() -> None:
    counts = quotas(max_connection_creation_rate=0)
    assert counts.seconds_to_wait("A", 1000.0) == inf
    counts.change_limits(NetworkLimits(max_connection_creation_rate=4), now=1000.0)
    assert counts.seconds_to_wait("A", 1000.0) == 0
