"""Filters that reach the source: what is planned for them, and what is left to Spark."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from kraftpy_spark.filters import push
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from kraftpy.client.calls import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
MOMENT = datetime(2026, 11, 16, tzinfo=UTC)
MOMENT_MS = int(MOMENT.timestamp()) * 1_000


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        (EqualTo(("topic",), "a"), [A0, A1]),
        (In(("topic",), ("b", "c")), [B0]),
        (EqualNullSafe(("partition",), 0), [A0, B0]),
        (GreaterThan(("partition",), 0), [A1]),
        (LessThanOrEqual(("partition",), 0), [A0, B0]),
        (IsNotNull(("topic",)), [A0, A1, B0]),
    ],
)
def test_partitions_are_left_out(wish: Filter, expected: list[TopicPartition]) -> None:
    pushed, left = push([wish])
    assert [where for where in (A0, A1, B0) if pushed.has(where)] == expected
    assert left == []


@pytest.mark.parametrize(
    ("wishes", "start", "end"),
    [
        ([GreaterThan(("offset",), 5)], 6, 100),
        ([GreaterThanOrEqual(("offset",), 5), LessThan(("offset",), 9)], 5, 9),
        ([LessThanOrEqual(("offset",), 9), LessThan(("offset",), 8)], 2, 8),
        ([EqualTo(("offset",), 7)], 7, 8),
        ([GreaterThan(("offset",), 1), GreaterThanOrEqual(("offset",), 0)], 2, 100),
        ([LessThan(("offset",), 1_000)], 2, 100),
    ],
)
def test_offsets_are_narrowed(wishes: list[Filter], start: int, end: int) -> None:
    pushed, left = push(wishes)
    assert pushed.starts({A0: 2}) == {A0: start}
    assert pushed.ends({A0: 100}) == {A0: end}
    assert left == []


def test_some_offsets_are_spanned_and_picked_by_spark() -> None:
    wish = In(("offset",), (9, None, 4))
    pushed, left = push([wish])
    assert (pushed.starts({A0: 0}), pushed.ends({A0: 100})) == ({A0: 4}, {A0: 10})
    assert left == [wish]


def test_a_time_moves_the_start_and_stays_with_spark() -> None:
    wishes: list[Filter] = [
        GreaterThanOrEqual(("timestamp",), MOMENT),
        LessThan(("timestamp",), MOMENT),
    ]
    pushed, left = push(wishes)
    assert pushed.not_before_ms == MOMENT_MS
    assert left == wishes
    assert push([LessThan(("timestamp",), MOMENT)])[0].not_before_ms is None
    naive = GreaterThan(("timestamp",), datetime(2026, 11, 16))  # noqa: DTZ001
    assert push([naive])[0].not_before_ms is None


@pytest.mark.parametrize(
    "wish",
    [
        Not(EqualTo(("topic",), "a")),
        EqualTo(("value",), b"x"),
        EqualTo(("topic", "inner"), "a"),
        EqualTo(("topic",), None),
        IsNull(("key",)),
        IsNotNull(("key",)),
        StringStartsWith(("topic",), "a"),
    ],
)
def test_the_rest_is_left_to_spark(wish: Filter) -> None:
    pushed, left = push([wish])
    assert left == [wish]
    assert all(pushed.has(where) for where in (A0, A1, B0))
