"""What is drawn from a seed is drawn again, makes sense, and has the shapes it should have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from random import Random

import pytest

from kraftpy.faults.drawing import (
    DRAWN,
    SHAPES,
    draw_clock_jump_ms,
    draw_fault,
    draw_partition,
    halves,
    isolate,
    majorities_ring,
    minority_third,
)
from kraftpy.faults.language import OneWay, Partition, format_fault, parse_fault

SEEDS = range(50)


def seen_by(nodes: range, cuts: Sequence[Partition | OneWay]) -> dict[int, frozenset[int]]:
    """Whom each node still hears, itself included."""
    lost: set[tuple[int, int]] = set()
    for each in cuts:
        if isinstance(each, OneWay):
            lost.update(product(each.senders, each.receivers))
        else:
            lost.update((*product(each.a, each.b), *product(each.b, each.a)))
    return {b: frozenset(a for a in nodes if (a, b) not in lost) for b in nodes}


def test_the_same_seed_gives_the_same_faults() -> None:
    def drawn(seed: int) -> list[str]:
        random = Random(seed)
        return [format_fault(draw_fault(random, [1, 2, 3])) for _ in range(20)]

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_every_name_is_drawn_and_is_a_fault() -> None:
    random = Random(1)
    faults = [draw_fault(random, [1, 2, 3, 4, 5]) for _ in range(500)]
    assert Counter(fault.name for fault in faults).keys() == set(DRAWN)
    assert all(parse_fault(format_fault(fault)) == fault for fault in faults)


def test_a_lone_node_has_no_links_to_cut() -> None:
    random = Random(1)
    names = {draw_fault(random, [1]).name for _ in range(200)}
    assert names == set(DRAWN) - {"partition", "one-way", "delay"}
    with pytest.raises(ValueError, match="no fault to draw"):
        draw_fault(random, [1], ["partition"])


def test_names_that_can_not_be_drawn_are_refused() -> None:
    with pytest.raises(ValueError, match="'resume' can't be drawn"):
        draw_fault(Random(1), [1, 2], ["resume"])


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7])
def test_isolate_and_halves_split_all_nodes(count: int) -> None:
    """N1"""
    nodes = range(1, count + 1)
    for seed in SEEDS:
        alone, rest = isolate(Random(seed), nodes)
        assert len(alone) == 1
        assert sorted(alone + rest) == list(nodes)
        small, large = halves(Random(seed), nodes)
        assert len(small) == count // 2
        assert sorted(small + large) == list(nodes)


@pytest.mark.parametrize("count", [3, 4, 5, 6])
def test_a_bridge_sees_all_and_the_halves_see_it_alone(count: int) -> None:
    """N1"""
    nodes = range(1, count + 1)
    for seed in SEEDS:
        seen = seen_by(nodes, draw_partition(Random(seed), nodes, "bridge"))
        bridges = [node for node in nodes if len(seen[node]) == count]
        assert len(bridges) == 1
        sides = {seen[node] - {bridges[0]} for node in nodes if node not in bridges}
        assert sum(map(len, sides)) == count - 1


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7, 9])
def test_in_a_ring_every_node_sees_a_majority_of_its_own(count: int) -> None:
    """N1, JEP-89"""
    nodes = range(1, count + 1)
    for seed in SEEDS:
        seen = seen_by(nodes, majorities_ring(Random(seed), nodes))
        assert all(count > len(each) > count // 2 for each in seen.values())
        assert len(set(seen.values())) == count


@pytest.mark.parametrize("count", [4, 5, 6, 7, 10])
def test_a_minority_is_less_than_a_third(count: int) -> None:
    """N1, JEP-89"""
    sizes = set()
    for seed in SEEDS:
        few, rest = minority_third(Random(seed), range(1, count + 1))
        assert 0 < len(few) < count / 3
        assert sorted(few + rest) == list(range(1, count + 1))
        sizes.add(len(few))
    assert sizes == set(range(1, -(-count // 3)))


def test_clocks_jump_both_ways_by_little_and_by_much() -> None:
    """N5, JEP-94"""
    drawn = [draw_clock_jump_ms(Random(seed)) for seed in range(1000)]
    assert all(11 <= abs(each) <= 300_000 for each in drawn)
    assert min(map(abs, drawn)) < 20
    assert max(drawn) > 100_000
    assert min(drawn) < -100_000


def test_shapes_need_enough_nodes_and_a_known_name() -> None:
    with pytest.raises(ValueError, match="needs 3 nodes, and there are 2"):
        draw_partition(Random(1), [1, 2], "majorities-ring")
    with pytest.raises(ValueError, match="'star' is no shape"):
        draw_partition(Random(1), [1, 2, 3], "star")
    assert all(draw_partition(Random(1), [1, 2, 3, 4], shape) for shape in SHAPES)
