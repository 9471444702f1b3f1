"""The cleaner's offset map against a dict, and within its memory."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.log.offset_map import SLOT_BYTES, OffsetMap
from kraftpy.world import InternalInvariant


def ready(memory_bytes: int, load_factor: float = 0.9) -> OffsetMap:
    offset_map = OffsetMap(memory_bytes, load_factor)
    while not offset_map.reserve():
        pass
    return offset_map


@given(st.lists(st.binary(max_size=3), max_size=300), st.integers(1, 400))
def test_it_is_a_dict_until_it_is_full(keys: list[bytes], slots: int) -> None:
    """LOG-107, LOG-111: the last offset of every key, exactly."""
    offset_map = ready(slots * SLOT_BYTES)
    model: dict[bytes, int] = {}
    for offset, key in enumerate(keys):
        if offset_map.is_full:
            break
        offset_map.put(key, offset)
        model[key] = offset
    assert len(offset_map) == len(model)
    for key in (*keys, b"absent"):
        assert offset_map.get(key) == model.get(key, -1)


def test_sizes_are_kafkas() -> None:
    """LOG-111: 24 bytes a slot; 128 MiB at 0.9 hold 5,033,164 keys, but for the rounding."""
    assert SLOT_BYTES == 24
    offset_map = OffsetMap(134_217_728)
    assert 5_033_164 - 100 <= offset_map.capacity <= 5_033_164
    assert offset_map.memory_bytes <= 134_217_728


def test_memory_is_what_was_granted_and_comes_in_steps() -> None:
    """LOG-111: bounded, and never much at once."""
    offset_map = OffsetMap(5_000_000)
    steps = 1
    while not offset_map.reserve():
        steps += 1
    assert steps == 5
    assert len(offset_map._memory) == offset_map.memory_bytes <= 5_000_000
    assert not offset_map._memory.strip(b"\0")


@pytest.mark.parametrize("keys", [0, 1, 2, 10, 1_000, 12_345])
def test_a_map_for_so_many_keys_takes_them(keys: int) -> None:
    assert OffsetMap.for_keys(keys, 10_000_000).capacity >= keys
    assert OffsetMap.for_keys(keys, 10_000_000).memory_bytes < keys * 28 + 3_000


def test_a_map_for_more_keys_than_memory_keeps_to_the_memory() -> None:
    assert OffsetMap.for_keys(10**12, 1_000).memory_bytes <= 1_000


def test_filled_to_its_capacity_and_no_further() -> None:
    """LOG-111: the load factor; one key beyond is refused, a known one is not."""
    offset_map = ready(103 * SLOT_BYTES)
    assert offset_map.capacity == int(103 * 0.9)
    for number in range(offset_map.capacity):
        assert not offset_map.is_full
        offset_map.put(b"%d" % number, number)
    assert offset_map.is_full
    offset_map.put(b"3", 1_000)
    assert offset_map.get(b"3") == 1_000
    with pytest.raises(InternalInvariant):
        offset_map.put(b"one more", 1)
    assert offset_map.get(b"one more") == -1


def test_the_smallest_map_works() -> None:
    offset_map = ready(1, load_factor=1.0)
    assert offset_map.capacity == 1
    offset_map.put(b"k", 0)
    assert (offset_map.get(b"k"), offset_map.get(b"other")) == (0, -1)


def test_offset_zero_is_not_an_empty_slot() -> None:
    offset_map = ready(1_000)
    offset_map.put(b"k", 0)
    assert offset_map.get(b"k") == 0
    offset_map.put(b"l", 2**63 - 2)
    assert offset_map.get(b"l") == 2**63 - 2


def test_looks_stay_few_when_it_is_full() -> None:
    """The cost of a lookup does not grow with the number of keys, as with steps of one slot."""

    class Counting(OffsetMap):
        looks = 0

        def _find(self, digest: bytes) -> tuple[int, int]:
            # As many as there are steps from where the search begins to where it ends.
            position, used = super()._find(digest)
            first, second = int.from_bytes(digest[:8]), int.from_bytes(digest[8:])
            slot, looks = first % self._slots, 1
            while slot * SLOT_BYTES != position:
                slot = (slot + second % (self._slots - 1) + 1) % self._slots
                looks += 1
            Counting.looks += looks
            return position, used

    random = Random(8)
    offset_map = Counting(20_011 * SLOT_BYTES)
    while not offset_map.reserve():
        pass
    keys = [random.randbytes(12) for _ in range(offset_map.capacity)]
    for offset, key in enumerate(keys):
        offset_map.put(key, offset)
    Counting.looks = 0
    for key in keys:
        offset_map.get(key)
    assert Counting.looks / len(keys) < 3
    Counting.looks = 0
    for _ in range(2_000):
        offset_map.get(random.randbytes(13))
    assert Counting.looks / 2_000 < 12
