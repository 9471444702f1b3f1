"""What generators draw from: keys with their values, what nobody has read yet, when to crash."""

from __future__ import annotations

from collections.abc import Sequence

from kraftpy.verify.history import Event
from kraftpy.world import Random

__all__ = ["Crashes", "KeyPool", "Unseen", "polled_of", "sent_of"]

_POPULARITY = 0.75
_RECENT = 8


class KeyPool:
    """The live keys. One that has all its values makes room for a new one, in its place.

    Keys are drawn with exponential popularity: the first of the list most often. The values of a
    key are 0, 1, 2, ...; each is handed out once.
    """

    def __init__(self, random: Random, *, key_count: int, max_writes_per_key: int) -> None:
        if key_count < 1 or max_writes_per_key < 1:
            raise ValueError("there is at least one key, with at least one value")
        self._random = random
        self._max_writes = max_writes_per_key
        self.live = list(range(key_count))
        self._next_key = key_count
        self._written: dict[int, int] = {}
        self._recent: list[int] = []

    @property
    def created(self) -> int:
        """How many keys there have been: they are 0 to this."""
        return self._next_key

    def draw(self) -> int:
        count = len(self.live)
        # Inverse of the geometric distribution, cut off at the number of keys.
        whole = 1 - _POPULARITY**count
        share = self._random.random() * whole
        index = 0
        weight = 1 - _POPULARITY
        while share >= weight and index < count - 1:
            share -= weight
            weight *= _POPULARITY
            index += 1
        key = self.live[index]
        self._recent = [key, *(each for each in self._recent if each != key)][:_RECENT]
        return key

    def next_value(self, key: int) -> int:
        """A value for a key that was drawn; the last one retires the key."""
        value = self._written.get(key, 0)
        self._written[key] = value + 1
        if value + 1 >= self._max_writes and key in self.live:
            self.live[self.live.index(key)] = self._next_key
            self._next_key += 1
        return value

    def some(self) -> list[int]:
        """Some keys, mostly of those drawn last."""
        pool = self._recent or self.live
        count = self._random.randint(1, len(pool))
        return sorted(self._random.sample(pool, count))


def sent_of(event: Event) -> list[tuple[int, int, int | None]]:
    """(key, value, offset) of what a completed operation sent."""
    return [
        (each[1], each[2][1], each[2][0])
        for each in event.value or ()
        if each[0] == "send" and isinstance(each[2], Sequence)
    ]


def polled_of(event: Event) -> list[tuple[int, int, int]]:
    """(key, value, offset) of what it polled."""
    return [
        (key, record[1], record[0])
        for each in event.value or ()
        if each[0] == "poll" and len(each) > 1
        for key, records in each[1].items()
        for record in records
    ]


_MICRO = ("send", "poll", "txn")


class Unseen:
    """Values that are acknowledged and that nobody has polled, and how far each key is known."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[int, None]] = {}
        self._polled: dict[int, dict[int, None]] = {}
        self.highest: dict[int, int] = {}
        """The highest offset of each key that was acknowledged or polled."""

    def observe(self, event: Event) -> None:
        if event.type != "ok" or event.f not in _MICRO:
            return
        for key, value, offset in sent_of(event):
            if value not in self._polled.get(key, ()):
                self._waiting.setdefault(key, {})[value] = None
            if offset is not None:
                self.highest[key] = max(offset, self.highest.get(key, -1))
        for key, value, offset in polled_of(event):
            self._polled.setdefault(key, {})[value] = None
            waiting = self._waiting.get(key)
            if waiting:
                waiting.pop(value, None)
            if offset > self.highest.get(key, -1):
                self.highest[key] = offset

    @property
    def keys(self) -> list[int]:
        return sorted(key for key, values in self._waiting.items() if values)

    @property
    def count(self) -> int:
        return sum(len(values) for values in self._waiting.values())


class Crashes:
    """Each slot's client crashes from time to time, at intervals with exponential distribution."""

    def __init__(self, random: Random, mean_ms: float) -> None:
        self._random = random
        self._mean_ms = mean_ms
        self._due_ms: dict[int, float] = {}

    def is_due(self, slot: int, now_ms: int) -> bool:
        """Whether it crashes now; if so, the next time is drawn."""
        due_ms = self._due_ms.get(slot)
        if due_ms is None or now_ms >= due_ms:
            self._due_ms[slot] = now_ms + self._random.expovariate(1 / self._mean_ms)
        return due_ms is not None and now_ms >= due_ms
