"""Keys go where every Java client puts them."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.client.partitioner import StickyChoice, murmur2, partition_of_key


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_known_hashes(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=40))
def test_hashes_as_aiokafka_does(key: bytes) -> None:
    assert murmur2(key) == aiokafka_murmur2(key) & 0xFFFFFFFF
    assert partition_of_key(key, 7) == (aiokafka_murmur2(key) & 0x7FFFFFFF) % 7


def test_records_without_a_key_stick_together_for_a_batch() -> None:
    choice = StickyChoice(Random(1))
    chosen = [choice.choose([0, 1, 2], 100, 1_000) for _ in range(3_000)]
    runs = [chosen[at : at + 10] for at in range(0, 3_000, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(before[0] != after[0] for before, after in pairwise(runs))
    assert {run[0] for run in runs} == {0, 1, 2}


def test_a_partition_that_went_away_is_left() -> None:
    choice = StickyChoice(Random(1))
    first = choice.choose([0, 1], 1, 1_000)
    assert choice.choose([1 - first], 1, 1_000) == 1 - first
