"""A persistent sorted map: changing it gives a new one that shares almost everything with the old.

An image of 100,000 topics changes by one partition at a time, many times a second, and older
images stay in use: by readers, and by the controller until a write is committed. So a changed copy
has to be cheap in time and memory.

The entries lie in chunks, plain dicts in key order of at most CHUNK_SIZE entries; one tuple holds
the chunks and another their first keys. A lookup bisects the first keys and asks one dict. A change
copies the touched chunks and the two tuples, hence a few hundred references for one key of 100,000.
Maps with a common past share chunk objects, so that comparing them looks at each shared chunk once
and into none.

Being sorted makes the order of iteration a function of the content alone: two nodes that came to
the same image on different ways, one by the log and one by a snapshot, do everything in one order.

A value is never None: in a set of changes None stands for removal.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import compress
from operator import is_, is_not, itemgetter
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

__all__ = ["Change", "Draft", "SortedMap"]

CHUNK_SIZE: Final = 256

_key_of = itemgetter(0)


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=_Ordered)
V = TypeVar("V")


class Change(NamedTuple, Generic[K, V]):
    """What a key had before and has after; None where there is nothing."""

    key: K
    before: V | None
    after: V | None


# A Change of a triple, as Change._make gives one, without a call of Python's for each.
_change_of: Final = partial(tuple.__new__, Change)


class SortedMap(Generic[K, V]):
    """Immutable; `updated` gives the next one."""

    __slots__ = ("_chunks", "_first_keys", "_length")

    def __init__(
        self,
        chunks: tuple[dict[K, V], ...] = (),
        first_keys: tuple[K, ...] = (),
        length: int = 0,
    ) -> None:
        """For SortedMap's own use, but for the empty map."""
        self._chunks = chunks
        self._first_keys = first_keys
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, key: K) -> V:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: K) -> bool:
        return self.get(key) is not None

    def get(self, key: K) -> V | None:
        chunks = self._chunks
        if len(chunks) == 1:
            # The rule in a small cluster, and for most parts of the image of a large one.
            return chunks[0].get(key)
        index = bisect_right(self._first_keys, key) - 1
        return chunks[index].get(key) if index >= 0 else None

    def __iter__(self) -> Iterator[K]:
        for chunk in self._chunks:
            yield from chunk

    def values(self) -> Iterator[V]:
        for chunk in self._chunks:
            yield from chunk.values()

    def items(self) -> Iterator[tuple[K, V]]:
        for chunk in self._chunks:
            yield from chunk.items()

    def items_from(self, key: K) -> Iterator[tuple[K, V]]:
        """The entries from `key` on, whether it is there or not."""
        index = max(0, bisect_right(self._first_keys, key) - 1)
        for chunk in self._chunks[index:]:
            for item in chunk.items():
                if not item[0] < key:
                    yield item

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, SortedMap):
            return NotImplemented
        if self._length != other._length:
            return False
        return all(change.before == change.after for change in self.differences(other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SortedMap({dict(self.items())})"

    def updated(self, changes: Mapping[K, V | None]) -> SortedMap[K, V]:
        """A map with these changes; None removes a key, which need not be there."""
        if not changes:
            return self
        keys = sorted(changes)
        if len(self._chunks) == 1:
            chunk = _changed_chunk(self._chunks[0], changes, keys)
            if 0 < len(chunk) <= CHUNK_SIZE:
                return SortedMap((chunk,), (next(iter(chunk)),), len(chunk))
        chunks: list[dict[K, V]] = []
        first_keys: list[K] = []
        length = self._length
        done = 0
        position = 0
        while position < len(keys):
            index = max(0, bisect_right(self._first_keys, keys[position]) - 1)
            end = len(keys)
            if index + 1 < len(self._chunks):
                end = bisect_left(keys, self._first_keys[index + 1], position)
            chunks += self._chunks[done:index]
            first_keys += self._first_keys[done:index]
            old = self._chunks[index] if self._chunks else {}
            chunk = _changed_chunk(old, changes, keys[position:end])
            length += len(chunk) - len(old)
            _append_chunk(chunks, first_keys, chunk)
            done = index + 1
            position = end
        chunks += self._chunks[done:]
        first_keys += self._first_keys[done:]
        return SortedMap(tuple(chunks), tuple(first_keys), length)

    def differences(self, later: SortedMap[K, V]) -> Iterator[Change[K, V]]:
        """Every key, in order, whose value in `later` isn't the same object as here.

        Values may be equal nevertheless: somebody has set them anew.
        """
        if self is later:
            return
        ours, theirs = self._chunks, later._chunks
        if self._first_keys == later._first_keys:
            # Chunks of the same number hold keys of the same range.
            pairs = zip(ours, theirs, strict=True)
            for before, after in compress(pairs, map(is_not, ours, theirs)):
                yield from _differences(before, after)
            return
        # What is shared at both ends, nearly everything as a rule, is passed over at C speed.
        head = [*map(is_, ours, theirs), False].index(False)
        tail = [*map(is_, reversed(ours), reversed(theirs)), False].index(False)
        our_index = their_index = head
        before, after = {}, {}
        our_end, their_end = len(ours) - tail, len(theirs) - tail
        while our_index < our_end or their_index < their_end:
            is_ours_left, is_theirs_left = our_index < our_end, their_index < their_end
            if is_ours_left and is_theirs_left and ours[our_index] is theirs[their_index]:
                # All smaller keys have been collected on both sides: a shared chunk has the same
                # place in the order of both maps.
                if before or after:
                    yield from _differences(before, after)
                    before, after = {}, {}
                our_index += 1
                their_index += 1
            elif is_ours_left and (
                not is_theirs_left or self._first_keys[our_index] < later._first_keys[their_index]
            ):
                before |= ours[our_index]
                our_index += 1
            else:
                after |= theirs[their_index]
                their_index += 1
        if before or after:
            yield from _differences(before, after)


def _differences(before: dict[K, V], after: dict[K, V]) -> Iterable[Change[K, V]]:
    if [*before] == [*after]:
        # The rule: other values of the same keys, in the same order. What is shared costs nothing.
        olds, news = before.values(), after.values()
        triples = zip(before, olds, news, strict=True)
        return map(_change_of, compress(triples, map(is_not, olds, news)))
    found = []
    for key in sorted({**before, **after}):
        old, new = before.get(key), after.get(key)
        if old is not new:
            found.append(Change(key, old, new))
    return found


def _changed_chunk(old: dict[K, V], changes: Mapping[K, V | None], keys: list[K]) -> dict[K, V]:
    chunk = dict(old)
    is_sorted = True
    last = next(reversed(chunk), None)
    for key in keys:
        value = changes[key]
        if value is None:
            chunk.pop(key, None)
        elif key in chunk:
            chunk[key] = value
        else:
            chunk[key] = value
            is_sorted = is_sorted and (last is None or last < key)
            last = key
    return chunk if is_sorted else dict(sorted(chunk.items(), key=_key_of))


def _append_chunk(chunks: list[dict[K, V]], first_keys: list[K], chunk: dict[K, V]) -> None:
    """Append `chunk`: together with the last one if both are small, in pieces if it is large."""
    if chunks and len(chunks[-1]) + len(chunk) <= CHUNK_SIZE // 2:
        chunk = {**chunks.pop(), **chunk}
        first_keys.pop()
    pieces = [chunk] if chunk else []
    if len(chunk) > CHUNK_SIZE:
        items = list(chunk.items())
        count = -(-len(items) // (CHUNK_SIZE * 3 // 4))
        size = -(-len(items) // count)
        pieces = [dict(items[start : start + size]) for start in range(0, len(items), size)]
    chunks += pieces
    first_keys += [next(iter(piece)) for piece in pieces]


class Draft(Generic[K, V]):
    """A map under change: a SortedMap, and what differs from it so far."""

    __slots__ = ("base", "changes")

    def __init__(self, base: SortedMap[K, V]) -> None:
        self.base = base
        self.changes: dict[K, V | None] = {}

    def get(self, key: K) -> V | None:
        if key in self.changes:
            return self.changes[key]
        return self.base.get(key)

    def __getitem__(self, key: K) -> V:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def put(self, key: K, value: V) -> None:
        self.changes[key] = value

    def remove(self, key: K) -> None:
        self.changes[key] = None

    def sealed(self) -> SortedMap[K, V]:
        """Everything so far; the draft goes on from there."""
        if self.changes:
            self.base = self.base.updated(self.changes)
            self.changes = {}
        return self.base
