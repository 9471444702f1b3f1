"""The persistent map beside a plain dict."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kraftpy.metadata.sorted_map import CHUNK_SIZE, Change, Draft, SortedMap


def entries(count: int) -> dict[int, str]:
    return {key * 2: f"value-{key}" for key in range(count)}


def check_shape(sorted_map: SortedMap[int, str]) -> None:
    """No chunk is empty or too large, and they are in order."""
    chunks = sorted_map._chunks
    assert all(0 < len(chunk) <= CHUNK_SIZE for chunk in chunks)
    assert sorted_map._first_keys == tuple(next(iter(chunk)) for chunk in chunks)
    assert list(sorted_map) == sorted(sorted_map)
    # Small neighbours are joined, so that many removals leave few chunks.
    assert len(chunks) <= 2 + len(sorted_map) * 8 // CHUNK_SIZE


@given(seed=st.integers(0, 2**32))
def test_it_does_what_a_dict_does(seed: int) -> None:
    """KRF-101: every version stays what it was, so that to go back is to take the older one."""
    random = Random(seed)
    model: dict[int, str] = {}
    sorted_map: SortedMap[int, str] = SortedMap()
    for _ in range(random.randrange(1, 12)):
        changes: dict[int, str | None] = {}
        for _ in range(random.choice((1, 3, CHUNK_SIZE * 3))):
            value = None if random.random() < 0.4 else str(random.random())
            changes[random.randrange(CHUNK_SIZE * 4)] = value
        before, kept = sorted_map, dict(model)
        sorted_map = sorted_map.updated(changes)
        for key, value in changes.items():
            model.pop(key, None)
            if value is not None:
                model[key] = value
        assert dict(sorted_map.items()) == model
        assert dict(before.items()) == kept
        assert len(sorted_map) == len(model)
        assert list(sorted_map.values()) == [model[key] for key in sorted(model)]
        check_shape(sorted_map)
        expected = [
            Change(key, kept.get(key), model.get(key))
            for key in sorted(kept.keys() | model.keys())
            if kept.get(key) is not model.get(key)
        ]
        assert list(before.differences(sorted_map)) == expected
    probe = random.randrange(-1, CHUNK_SIZE * 4 + 1)
    assert sorted_map.get(probe) == model.get(probe)
    assert (probe in sorted_map) == (probe in model)
    assert list(sorted_map.items_from(probe)) == sorted(
        (key, value) for key, value in model.items() if key >= probe
    )


def test_chunks_stay_few_when_almost_everything_is_removed() -> None:
    everything: SortedMap[int, str] = SortedMap[int, str]().updated(entries(5_000))
    keys = list(everything)
    Random(5).shuffle(keys)
    shrinking = everything
    for key in keys[:-10]:
        shrinking = shrinking.updated({key: None})
    assert sorted(keys[-10:]) == list(shrinking)
    check_shape(shrinking)
    assert len(everything) == 5_000


def test_maps_with_another_past_are_equal_if_their_entries_are() -> None:
    at_once: SortedMap[int, str] = SortedMap[int, str]().updated(entries(1_000))
    one_by_one: SortedMap[int, str] = SortedMap()
    for key, value in entries(1_000).items():
        one_by_one = one_by_one.updated({key: value})
    assert len(at_once._chunks) != len(one_by_one._chunks)
    assert at_once == one_by_one
    assert at_once != one_by_one.updated({500: "other"})
    assert at_once != one_by_one.updated({500: None})
    assert at_once != one_by_one.updated({500: None, 501: "value-250"})
    assert at_once != dict(at_once.items())


def test_a_change_copies_one_chunk() -> None:
    before: SortedMap[int, str] = SortedMap[int, str]().updated(entries(100_000))
    after = before.updated({100_000: "other"})
    pairs = zip(before._chunks, after._chunks, strict=True)
    assert sum(old is not new for old, new in pairs) == 1
    assert before.updated({}) is before


def test_a_value_set_anew_is_a_difference_even_if_equal() -> None:
    first, second = "".join(["a", "b"]), "".join(["a", "b"])
    before: SortedMap[int, str] = SortedMap[int, str]().updated({1: first})
    after = before.updated({1: second})
    assert list(before.differences(after)) == [Change(1, "ab", "ab")]
    assert list(before.differences(before.updated({2: "x"}).updated({2: None}))) == []


def test_a_draft_sees_its_own_changes_and_goes_on_after_sealing() -> None:
    base: SortedMap[int, str] = SortedMap[int, str]().updated({1: "a", 2: "b"})
    draft = Draft(base)
    draft.put(3, "c")
    draft.remove(1)
    assert (draft.get(1), draft.get(2), draft.get(3)) == (None, "b", "c")
    assert dict(draft.sealed().items()) == {2: "b", 3: "c"}
    draft.put(1, "z")
    assert dict(draft.sealed().items()) == {1: "z", 2: "b", 3: "c"}
    assert dict(base.items()) == {1: "a", 2: "b"}
    assert Draft(base).sealed() is base
