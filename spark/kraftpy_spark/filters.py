"""Filters that Spark hands to a batch read: what they say about where to look.

Topic, partition and offset are known before anything is read, so that these filters are carried out
by planning less. A lower bound of the timestamp moves the start to the first record that is young
enough, and Spark filters what follows, where older ones may stand. An upper bound of the timestamp
says nothing about offsets: later records may be older.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from operator import eq, ge, gt, le, lt
from typing import Any, TypeAlias

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from kraftpy.client.calls import TopicPartition
from kraftpy_spark.offsets import Ends

__all__ = ["Pushed", "push"]

Test: TypeAlias = Callable[[Any, Any], bool]

_TESTS: dict[type[Filter], Test] = {
    EqualTo: eq,
    EqualNullSafe: eq,
    GreaterThan: gt,
    GreaterThanOrEqual: ge,
    LessThan: lt,
    LessThanOrEqual: le,
    In: lambda value, allowed: value in allowed,
}
# No record is without these.
_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")


@dataclass(slots=True)
class Pushed:
    """What is asked for; without filters, everything."""

    tests: list[tuple[str, Test, Any]] = field(default_factory=list)
    first_offset: int = 0
    end_offset: int | None = None
    not_before_ms: int | None = None

    def has(self, where: TopicPartition) -> bool:
        values = {"topic": where.topic, "partition": where.partition}
        return all(test(values[name], value) for name, test, value in self.tests)

    def starts(self, starts: Ends) -> Ends:
        return {where: max(offset, self.first_offset) for where, offset in starts.items()}

    def ends(self, ends: Ends) -> Ends:
        end_offset = self.end_offset
        if end_offset is None:
            return ends
        return {where: min(offset, end_offset) for where, offset in ends.items()}

    def _limit(self, first: int | None = None, end: int | None = None) -> None:
        if first is not None:
            self.first_offset = max(self.first_offset, first)
        if end is not None:
            self.end_offset = end if self.end_offset is None else min(self.end_offset, end)

    def take(self, wish: Filter) -> bool:
        """Note what a filter says; has Spark nothing left to do for it?"""
        [name, *within] = getattr(wish, "attribute", None) or [""]
        if within:
            return False
        if isinstance(wish, IsNotNull):
            return name in _NEVER_NULL
        kind = type(wish)
        value = getattr(wish, "value", None)
        if kind not in _TESTS or value is None:
            return False
        if name in ("topic", "partition"):
            self.tests.append((name, _TESTS[kind], value))
            return True
        if name == "offset":
            return self._take_offset(kind, value)
        if name == "timestamp":
            self._take_timestamp(kind, value)
        return False

    def _take_offset(self, kind: type[Filter], value: Any) -> bool:
        if kind is In:
            # The range around them all; Spark picks them out. Nothing equals null.
            offsets = [each for each in value if each is not None]
            if offsets:
                self._limit(min(offsets), max(offsets) + 1)
            return False
        if kind in (EqualTo, EqualNullSafe):
            self._limit(value, value + 1)
        elif kind is GreaterThan:
            self._limit(first=value + 1)
        elif kind is GreaterThanOrEqual:
            self._limit(first=value)
        elif kind is LessThan:
            self._limit(end=value)
        else:
            self._limit(end=value + 1)
        return True

    def _take_timestamp(self, kind: type[Filter], value: Any) -> None:
        is_lower = kind in (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual)
        # A moment without a zone would depend on the worker's; the filter is Spark's alone then.
        if is_lower and isinstance(value, datetime) and value.tzinfo is not None:
            at_ms = int(value.timestamp() * 1_000)
            self.not_before_ms = max(self.not_before_ms or 0, at_ms)


def push(filters: Iterable[Filter]) -> tuple[Pushed, list[Filter]]:
    """What the filters say, and those that Spark must still carry out."""
    pushed = Pushed()
    return pushed, [wish for wish in filters if not pushed.take(wish)]
