"""Where replicas go: invariants over random clusters, and the shapes of small ones."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.metadata.controller.placement import PlacementError, ReplicaPlacer, usable_brokers
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.image import EMPTY_IMAGE, Provenance
from kraftpy.metadata.records import RegisterBrokerRecord
from kraftpy.protocol.ids import Uuid


def broker(
    broker_id: int, *, rack: str | None = None, fenced: bool = False
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id, Uuid(bytes(16)), 1, (), rack=rack, fenced=fenced)


@st.composite
def clusters(draw: st.DrawFn) -> list[RegisterBrokerRecord]:
    racks = draw(st.sampled_from([(None,), ("a", "b"), ("a", "b", "c"), (None, "a", "b", "c")]))
    described = draw(
        st.lists(st.tuples(st.sampled_from(racks), st.booleans()), min_size=1, max_size=12)
    )
    brokers = [
        broker(number, rack=rack, fenced=fenced) for number, (rack, fenced) in enumerate(described)
    ]
    if all(each.fenced for each in brokers):
        brokers[0] = broker(0, rack=brokers[0].rack)
    return brokers


@given(clusters(), st.integers(1, 40), st.integers(0, 2**32), st.data())
def test_every_placement_keeps_the_rules(
    brokers: list[RegisterBrokerRecord], partitions: int, seed: int, data: st.DataObject
) -> None:
    """KRF-124: racks are used evenly, no broker twice, never a fenced leader."""
    replication_factor = data.draw(st.integers(1, len(brokers)))
    placed = list(ReplicaPlacer(brokers, Random(seed)).place(partitions, replication_factor))
    by_id = {each.broker_id: each for each in brokers}
    rack_sizes = Counter(each.rack for each in brokers)
    unfenced = [each.broker_id for each in brokers if not each.fenced]

    assert len(placed) == partitions
    for replicas in placed:
        assert len(replicas) == replication_factor == len(set(replicas))
        assert not by_id[replicas[0]].fenced
        used = Counter(by_id[replica].rack for replica in replicas)
        # No replica could move to a rack that has fewer and still has a free broker.
        for rack, size in rack_sizes.items():
            if used[rack] < size:
                assert max(used.values()) <= used[rack] + 1
        # Within a rack, no fenced broker beside an unfenced one that has nothing.
        for rack in rack_sizes:
            in_rack = [each for each in brokers if each.rack == rack]
            if any(each.fenced and each.broker_id in replicas for each in in_rack):
                assert all(each.fenced or each.broker_id in replicas for each in in_rack)

    leaders = Counter(replicas[0] for replicas in placed)
    counts = [leaders[each] for each in unfenced]
    assert max(counts) - min(counts) <= 1


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32), st.data())
def test_replicas_are_even_over_racks_of_one_size(
    racks: int, size: int, seed: int, data: st.DataObject
) -> None:
    """After as many partitions as there are brokers, everybody has as many replicas."""
    brokers = [broker(rack * 10 + n, rack=f"r{rack}") for rack in range(racks) for n in range(size)]
    replication_factor = data.draw(st.integers(1, len(brokers)))
    placed = list(ReplicaPlacer(brokers, Random(seed)).place(len(brokers), replication_factor))
    replicas = Counter(replica for each in placed for replica in each)
    assert set(replicas.values()) == {replication_factor}


def test_partitions_in_a_row_are_led_from_different_racks() -> None:
    brokers = [broker(number, rack=f"r{number % 3}") for number in range(9)]
    placed = list(ReplicaPlacer(brokers, Random(2)).place(9, 1))
    racks = [replicas[0] % 3 for replicas in placed]
    for start in (0, 3, 6):
        assert sorted(racks[start : start + 3]) == [0, 1, 2]


def test_one_rack_gives_rotations() -> None:
    brokers = [broker(number) for number in range(4)]
    placed = list(ReplicaPlacer(brokers, Random(1)).place(4, 3))
    assert sorted(placed) == [(0, 1, 2), (1, 2, 3), (2, 3, 0), (3, 0, 1)]


def test_the_start_is_left_to_chance_and_to_nothing_else() -> None:
    brokers = [broker(number, rack=f"r{number % 3}") for number in range(9)]
    starts = {next(ReplicaPlacer(brokers, Random(seed)).place(1, 1)) for seed in range(200)}
    assert len(starts) == len(brokers)
    placed = list(ReplicaPlacer(brokers, Random(7)).place(30, 3))
    assert placed == list(ReplicaPlacer(list(reversed(brokers)), Random(7)).place(30, 3))


def test_neighbours_change_after_each_round() -> None:
    brokers = [broker(number) for number in range(6)]
    placed = list(ReplicaPlacer(brokers, Random(3)).place(60, 2))
    neighbours = Counter(replicas[1] for replicas in placed if replicas[0] == 0)
    assert len(neighbours) > 1


@pytest.mark.parametrize(
    ("brokers", "replication_factor", "reason"),
    [
        ([], 1, "fenced"),
        ([broker(1, fenced=True)], 1, "fenced"),
        ([broker(1)], 2, "only 1 brokers"),
        ([broker(1)], 0, "positive"),
    ],
)
def test_what_cannot_be_placed(
    brokers: list[RegisterBrokerRecord], replication_factor: int, reason: str
) -> None:
    with pytest.raises(PlacementError, match=reason):
        ReplicaPlacer(brokers, Random(0)).place(1, replication_factor)


def test_brokers_shutting_down_or_wholly_cordoned_get_nothing_new() -> None:
    """KRF-124."""
    first, second = Uuid(bytes(15) + b"\xa0"), Uuid(bytes(15) + b"\xa1")

    def registered(number: int, **more: object) -> RegisterBrokerRecord:
        fields = {"fenced": False, "log_dirs": (first, second), **more}
        return RegisterBrokerRecord(number, Uuid(bytes(16)), number, (), **fields)  # type: ignore[arg-type]

    delta = MetadataDelta(EMPTY_IMAGE)
    for record in (
        registered(1),
        registered(2, in_controlled_shutdown=True),
        registered(3, cordoned_log_dirs=(first, second)),
        registered(4, cordoned_log_dirs=(second,)),
        registered(5, fenced=True),
        registered(6, log_dirs=(), cordoned_log_dirs=()),
    ):
        delta.replay(record)
    image = delta.apply(Provenance(0, 1, 0))
    assert [each.broker_id for each in usable_brokers(image)] == [1, 4, 5, 6]
