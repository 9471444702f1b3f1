"""Where fetches wait for data: under their partitions, or under their session.

A fetch without a session watches each of its partitions, as any delayed operation does. For a
session of thousands of partitions, of which few have news, that would be the most expensive part of
a fetch: so a session watches its partitions for as long as it lives (`Interest`), and its fetches
wait under one key, the session itself.

An event of a partition first stirs the interests in it, then wakes the fetches of their sessions,
then those without one. An interest so hears of every event, also while no fetch waits; that is how
a session knows which partitions it has to look at when the next one comes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any

from kraftpy.observe.metrics import MetricRegistry
from kraftpy.purgatory.purgatory import DEFAULT_PURGE_INTERVAL, Purgatory
from kraftpy.purgatory.timer import Timer

__all__ = ["FetchPurgatory", "Interest"]


class Interest(ABC):
    """Somebody who wants to know of each event of a partition."""

    __slots__ = ()

    @abstractmethod
    def stir(self) -> Hashable | None:
        """Something has happened; the key to check, if anybody may wait under it."""


class FetchPurgatory(Purgatory[Any]):
    __slots__ = ("_interests",)

    def __init__(
        self,
        name: str,
        timer: Timer,
        registry: MetricRegistry,
        *,
        purge_interval: int = DEFAULT_PURGE_INTERVAL,
    ) -> None:
        super().__init__(name, timer, registry, purge_interval=purge_interval)
        self._interests: dict[Hashable, dict[Interest, None]] = {}

    def add_interest(self, key: Hashable, interest: Interest) -> None:
        self._interests.setdefault(key, {})[interest] = None

    def remove_interest(self, key: Hashable, interest: Interest) -> None:
        interests = self._interests.get(key)
        if interests is not None:
            interests.pop(interest, None)
            if not interests:
                del self._interests[key]

    @property
    def interest_count(self) -> int:
        return sum(map(len, self._interests.values()))

    def stir(self, key: Hashable) -> None:
        """Something has happened that is to be told, but that nobody waits for."""
        for interest in tuple(self._interests.get(key, ())):
            interest.stir()

    def check_and_complete(self, key: Hashable) -> int:
        count = 0
        for interest in tuple(self._interests.get(key, ())):
            waiting = interest.stir()
            if waiting is not None:
                count += super().check_and_complete(waiting)
        return count + super().check_and_complete(key)
