"""State that remembers what it was, as far back as records may still be lost.

A shard is ahead of its log's high watermark: records that are written but not yet committed are in
its state already, because the next operation must see them. Two questions follow, and answer both:

- What is committed? Reads must not show what may still be lost (`committed_get`, `committed`).
- What was it before? When an append fails, its records have never happened (`Timeline.revert`).

Each change notes the value that it replaces in a journal; `Timeline.written` closes the part of
the journal that belongs to the records of one batch, `committed` drops the parts of batches that
can't be lost any more. A key that has not changed lately costs nothing but its place in a dict.
Records that are replayed from a log and committed already need no journal (`settled_history`).

Invariants:
- last_committed <= last_written.
- The committed value of a key is the oldest one in the journal if it is there, else the present.
- After `revert(offset)` every map and cell is as it was at `written(offset)`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from contextlib import contextmanager
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from kraftpy.world import InternalInvariant

__all__ = ["Timeline", "TimelineMap", "TimelineValue"]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class _Absent:
    __slots__ = ()


_ABSENT: Final = _Absent()


class _Versioned(Protocol):
    def restore(self, key: Any, old: Any) -> None: ...

    def forget(self, key: Any, old: Any) -> None: ...


# Where, which key, and what was there before.
_Change: TypeAlias = tuple[_Versioned, Any, Any]


class Timeline:
    """The offsets up to which a shard has written and committed, and its journal."""

    __slots__ = ("_open", "_parts", "is_journaled", "last_committed", "last_written")

    def __init__(self) -> None:
        self.last_written = 0
        self.last_committed = 0
        # Whether changes can be taken back.
        self.is_journaled = True
        # Of records that are replayed but not yet appended.
        self._open: list[_Change] = []
        # (offset behind its records, changes), oldest first; only what is not committed.
        self._parts: deque[tuple[int, list[_Change]]] = deque()

    @contextmanager
    def settled_history(self) -> Iterator[None]:
        """What is changed in here is committed as soon as it is written; nobody may look before."""
        if self._open or self._parts:
            raise InternalInvariant("timeline.history-not-settled")
        self.is_journaled = False
        try:
            yield
        finally:
            self.is_journaled = True

    def note(self, place: _Versioned, key: Any, old: Any) -> None:
        self._open.append((place, key, old))

    def written(self, offset: int) -> None:
        """All changes so far belong to records below `offset`."""
        if offset < self.last_written:
            raise InternalInvariant("timeline.written-backwards")
        self.last_written = offset
        if self._open:
            self._parts.append((offset, self._open))
            self._open = []

    def committed(self, offset: int) -> None:
        """Records below `offset` can't be lost any more. One below what is known is old news."""
        if offset > self.last_written:
            raise InternalInvariant("timeline.committed-beyond-written")
        self.last_committed = max(self.last_committed, offset)
        while self._parts and self._parts[0][0] <= offset:
            for place, key, old in self._parts.popleft()[1]:
                place.forget(key, old)

    def revert(self) -> None:
        """Undo what was changed since the last `written`: its records were not appended."""
        while self._open:
            place, key, old = self._open.pop()
            place.restore(key, old)


class TimelineMap(Generic[_Key, _Value]):
    """A dict in a timeline. Its values must not be changed in place, unless they are versioned."""

    __slots__ = ("_items", "_older", "_timeline")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._items: dict[_Key, _Value] = {}
        # For keys in the journal: the values that were replaced, oldest first; seldom more than
        # one, for which a list is much smaller than a deque.
        self._older: dict[_Key, list[_Value | _Absent]] | None = None

    # As it is now.

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[_Key]:
        return iter(self._items)

    def __getitem__(self, key: _Key) -> _Value:
        return self._items[key]

    def get(self, key: _Key) -> _Value | None:
        return self._items.get(key)

    def keys(self) -> KeysView[_Key]:
        return self._items.keys()

    def values(self) -> ValuesView[_Value]:
        return self._items.values()

    def items(self) -> ItemsView[_Key, _Value]:
        return self._items.items()

    # Changes.

    def __setitem__(self, key: _Key, value: _Value) -> None:
        self._note(key)
        self._items[key] = value

    def pop(self, key: _Key) -> _Value | None:
        """Take a key out; None if it is not there."""
        if key not in self._items:
            return None
        self._note(key)
        return self._items.pop(key)

    # As it is committed.

    def committed_get(self, key: _Key) -> _Value | None:
        older = None if self._older is None else self._older.get(key)
        if not older:
            return self._items.get(key)
        value = older[0]
        return None if isinstance(value, _Absent) else value

    def committed_items(self) -> Iterator[tuple[_Key, _Value]]:
        """Must not be interleaved with changes."""
        older = self._older
        if not older:
            yield from self._items.items()
            return
        for key, value in self._items.items():
            if key not in older:
                yield key, value
        for key, values in older.items():
            if not isinstance(values[0], _Absent):
                yield key, values[0]

    def is_uncommitted(self, key: _Key) -> bool:
        """Whether the key was changed by records that are not committed."""
        return self._older is not None and key in self._older

    # For the timeline.

    def _note(self, key: _Key) -> None:
        if not self._timeline.is_journaled:
            return
        old = self._items.get(key, _ABSENT)
        if self._older is None:
            self._older = {}
        values = self._older.get(key)
        if values is None:
            self._older[key] = [old]
        else:
            values.append(old)
        self._timeline.note(self, key, old)

    def restore(self, key: Any, old: Any) -> None:
        self._drop(key, newest=True)
        if isinstance(old, _Absent):
            self._items.pop(key, None)
        else:
            self._items[key] = old

    def forget(self, key: Any, old: Any) -> None:
        self._drop(key, newest=False)

    def _drop(self, key: _Key, *, newest: bool) -> None:
        if self._older is None:
            raise InternalInvariant("timeline.no-history")
        values = self._older[key]
        if newest:
            values.pop()
        else:
            del values[0]
        if not values:
            del self._older[key]
            if not self._older:
                self._older = None


class TimelineValue(Generic[_Value]):
    """One value in a timeline."""

    __slots__ = ("_older", "_timeline", "_value")

    def __init__(self, timeline: Timeline, value: _Value) -> None:
        self._timeline = timeline
        self._value = value
        self._older: list[_Value] | None = None

    @property
    def value(self) -> _Value:
        return self._value

    @value.setter
    def value(self, value: _Value) -> None:
        if self._timeline.is_journaled:
            if self._older is None:
                self._older = []
            self._older.append(self._value)
            self._timeline.note(self, None, self._value)
        self._value = value

    @property
    def committed(self) -> _Value:
        return self._older[0] if self._older else self._value

    @property
    def is_uncommitted(self) -> bool:
        return bool(self._older)

    # For the timeline.

    def restore(self, key: Any, old: Any) -> None:
        self._value = old
        self._drop(newest=True)

    def forget(self, key: Any, old: Any) -> None:
        self._drop(newest=False)

    def _drop(self, *, newest: bool) -> None:
        if self._older is None:
            raise InternalInvariant("timeline.no-history")
        if newest:
            self._older.pop()
        else:
            del self._older[0]
        if not self._older:
            self._older = None
