"""What the source decides about offsets: limits, pieces of work, and what is lost."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from kraftpy_spark.offsets import (
    OffsetRange,
    from_json,
    losses,
    ranges_between,
    split,
    to_json,
    within_limit,
)

from kraftpy.client.calls import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
SIZES = st.lists(st.integers(0, 1_000) | st.integers(0, 2**40), min_size=1, max_size=8)


def ranges_of(sizes: list[int]) -> list[OffsetRange]:
    return [OffsetRange("a", number, 7, 7 + size) for number, size in enumerate(sizes) if size]


def test_offsets_are_written_as_sparks_own() -> None:
    assert to_json({B0: 3, A1: 2, A0: 1}) == {"a": {"0": 1, "1": 2}, "b": {"0": 3}}
    assert from_json({"a": {"0": 1, "1": 2}, "b": {"0": 3}}) == {A0: 1, A1: 2, B0: 3}


def test_only_ranges_with_records_are_planned() -> None:
    starts = {A0: 5, A1: 5, B0: 9}
    assert ranges_between(starts, {A1: 7, A0: 5, B0: 4}) == [OffsetRange("a", 1, 5, 7)]


@given(SIZES, st.integers(1, 5_000))
def test_a_limit_is_kept_and_nobody_starves(sizes: list[int], limit: int) -> None:
    starts = {TopicPartition("a", number): 7 for number in range(len(sizes))}
    ends = {TopicPartition("a", number): 7 + size for number, size in enumerate(sizes)}
    limited = within_limit(starts, ends, limit)
    counts = {where: limited[where] - starts[where] for where in starts}
    assert all(0 <= counts[where] <= ends[where] - starts[where] for where in starts)
    # One more for each partition whose share is less than one.
    assert sum(counts.values()) <= limit + len(sizes)
    assert all(counts[where] > 0 for where in starts if ends[where] > starts[where])
    if sum(sizes) <= limit:
        assert limited == ends


def test_shares_are_as_sizes() -> None:
    assert within_limit({A0: 0, A1: 100}, {A0: 300, A1: 200}, 40) == {A0: 30, A1: 110}


@given(SIZES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 2**39))
def test_pieces_are_the_whole(
    sizes: list[int], min_partitions: int | None, max_records: int | None
) -> None:
    wholes = ranges_of(sizes)
    if max_records is not None and sum(sizes) / max_records > 2_000:
        max_records = None
    parts = split(wholes, min_partitions=min_partitions, max_records=max_records)
    for whole in wholes:
        pieces = [part for part in parts if part.partition == whole.partition]
        assert pieces[0].start == whole.start
        assert pieces[-1].end == whole.end
        assert all(one.end == two.start for one, two in pairwise(pieces))
        assert all(piece.size > 0 for piece in pieces)
        if max_records is not None:
            assert all(piece.size <= max_records for piece in pieces)
    if min_partitions is not None:
        assert len(parts) >= min(min_partitions, sum(sizes))


def test_nothing_is_cut_into_nothing() -> None:
    assert split([], min_partitions=3, max_records=5) == []


def test_large_ranges_are_cut_first() -> None:
    parts = split(ranges_of([100, 900]), min_partitions=5, max_records=None)
    assert [(part.partition, part.size) for part in parts] == [
        (0, 100),
        *((1, size) for size in (225, 225, 225, 225)),
    ]


def test_what_is_lost_is_named() -> None:
    gone, late, cut = losses({A0: 5, A1: 5}, {A1: 3, B0: 9}, {B0: 2})
    assert "a-0 is gone" in gone
    assert "b-0 is new and begins at offset 2" in late
    assert "a-1 ends at offset 3, before the 5" in cut
    assert losses({A0: 5}, {A0: 5, B0: 9}, {B0: 0}) == []
