"""State in a timeline: what is newest, what is committed, and the way back."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpy.coordinator.timeline import Timeline, TimelineMap, TimelineValue
from kraftpy.world import InternalInvariant


def test_a_committed_read_does_not_see_what_may_be_lost() -> None:
    timeline = Timeline()
    names: TimelineMap[str, int] = TimelineMap(timeline)
    names["a"] = 1
    timeline.written(1)
    timeline.committed(1)
    names["a"] = 2
    names["b"] = 3
    timeline.written(3)
    assert names["a"] == 2
    assert names.committed_get("a") == 1
    assert names.committed_get("b") is None
    assert names.is_uncommitted("b")
    assert dict(names.committed_items()) == {"a": 1}
    timeline.committed(3)
    assert dict(names.committed_items()) == {"a": 2, "b": 3}
    assert not names.is_uncommitted("a")


def test_a_revert_takes_back_what_was_not_written_and_nothing_else() -> None:
    timeline = Timeline()
    names: TimelineMap[str, int] = TimelineMap(timeline)
    count = TimelineValue(timeline, 0)
    names["a"] = 1
    count.value = 1
    timeline.written(1)
    names["a"] = 2
    names.pop("a")
    names["b"] = 1
    count.value = 2
    count.value = 3
    timeline.revert()
    assert dict(names.items()) == {"a": 1}
    assert (count.value, count.committed) == (1, 0)
    timeline.committed(1)
    assert count.committed == 1
    assert not count.is_uncommitted


def test_a_settled_history_is_committed_at_once() -> None:
    timeline = Timeline()
    names: TimelineMap[str, int] = TimelineMap(timeline)
    count = TimelineValue(timeline, 0)
    with timeline.settled_history():
        names["a"] = names["b"] = 1
        names["a"] = 2
        names.pop("b")
        count.value = 7
    assert dict(names.committed_items()) == {"a": 2}
    assert (count.committed, count.is_uncommitted, names.is_uncommitted("b")) == (7, False, False)
    # From there on all is as ever.
    names["a"] = 3
    count.value = 8
    assert (names.committed_get("a"), count.committed) == (2, 7)
    with pytest.raises(InternalInvariant), timeline.settled_history():
        pass
    timeline.revert()
    assert (names["a"], count.value) == (2, 7)


@dataclass
class Model:
    """The same by copies of everything, one for each offset written."""

    newest: dict[int, int] = field(default_factory=dict)
    written: list[tuple[int, dict[int, int]]] = field(default_factory=lambda: [(0, {})])
    committed: int = 0

    def committed_items(self) -> dict[int, int]:
        return max((each for each in self.written if each[0] <= self.committed), key=_offset)[1]


def _offset(pair: tuple[int, dict[int, int]]) -> int:
    return pair[0]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 4), st.integers(0, 9)),
        st.tuples(st.just("pop"), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("write"), st.just(0), st.just(0)),
        st.tuples(st.just("revert"), st.just(0), st.just(0)),
        st.tuples(st.just("commit"), st.integers(0, 40), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
@settings(deadline=None)
def test_a_map_is_what_copies_at_each_offset_would_be(steps: list[tuple[str, int, int]]) -> None:
    """CRT-4, CRT-6, CRT-8."""
    timeline = Timeline()
    items: TimelineMap[int, int] = TimelineMap(timeline)
    model = Model()
    for what, key, value in steps:
        if what == "set":
            items[key] = model.newest[key] = value
        elif what == "pop":
            assert items.pop(key) == model.newest.pop(key, None)
        elif what == "write":
            timeline.written(timeline.last_written + 1)
            model.written.append((timeline.last_written, dict(model.newest)))
        elif what == "revert":
            timeline.revert()
            model.newest = dict(model.written[-1][1])
        else:
            offset = min(key, timeline.last_written)
            timeline.committed(offset)
            model.committed = max(model.committed, offset)
        assert dict(items.items()) == model.newest
        assert dict(items.committed_items()) == model.committed_items()
        for each in range(5):
            assert items.committed_get(each) == model.committed_items().get(each)
