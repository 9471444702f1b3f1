"""Delayed operations by themselves: who completes them, and how often."""

from __future__ import annotations

import sys

import pytest
from waiting import Place, Waiting

from kraftpy.purgatory.operation import DelayedOperation


def test_only_one_completes_it() -> None:
    """PUR-27"""
    operation = Waiting("a", lambda: True)
    assert operation.try_complete()
    assert not operation.force_complete()
    assert not operation.try_complete()
    operation.run()
    assert operation.diary == ["a completed"]


def test_completing_again_from_within() -> None:
    """PUR-27: whoever is called by `on_complete` finds the operation completed."""
    operation = Waiting("a")
    results: list[object] = []

    def again() -> None:
        results.append(operation.force_complete())
        results.append(operation.try_complete())
        operation.run()

    operation.condition = lambda: True
    operation.on_end = again
    assert operation.force_complete()
    assert results == [False, False]
    assert operation.diary == ["a completed"]


def test_time_over() -> None:
    """PUR-29: completed first, then expired."""
    operation = Waiting("a")
    operation.run()
    operation.run()
    assert operation.is_completed
    assert operation.diary == ["a completed", "a expired"]


def test_completed_by_an_event_it_does_not_expire() -> None:
    """PUR-29, PUR-30: neither in its run nor later; the timer has let it go."""
    place = Place()
    operation = Waiting("a", delay_ms=1_000)
    place.purgatory.try_complete_else_watch(operation, ["key"])
    operation.condition = lambda: True
    assert place.purgatory.check_and_complete("key") == 1
    assert place.purgatory.delayed_count == 0
    place.pass_time(5_000)
    operation.run()
    assert operation.diary == ["a completed"]


def test_completed_by_the_one_that_expires_before_it() -> None:
    """PUR-17, PUR-29: both are due; the first one's code completes the second."""
    place = Place()
    diary: list[str] = []
    second = Waiting("second", delay_ms=1_000, diary=diary)
    first = Waiting("first", delay_ms=1_000, diary=diary, on_end=second.force_complete)
    for operation in (first, second):
        place.purgatory.try_complete_else_watch(operation, ["key"])
    place.pass_time(1_000)
    assert diary == ["first completed", "second completed", "first expired"]
    assert place.problems() == []


def test_abandoned_it_gives_no_answer() -> None:
    """Section 14: the client has gone, and nothing keeps the operation."""
    place = Place(purge_interval=0)
    operation = Waiting("a")
    place.purgatory.try_complete_else_watch(operation, ["key", "other"])
    assert operation.abandon()
    assert not operation.abandon()
    assert not operation.force_complete()
    assert place.purgatory.delayed_count == 0
    place.pass_time(0)
    assert place.purgatory.purgatory_size == 0
    assert operation.diary == []


def test_the_least_an_operation_must_say() -> None:
    class Silent(DelayedOperation):
        __slots__ = ()

        def try_complete(self) -> bool:
            return False

        def on_complete(self) -> None:
            pass

    operation = Silent(5)
    operation.run()
    assert operation.is_completed
    with pytest.raises(TypeError):
        DelayedOperation(5)  # type: ignore[abstract]


def test_a_completed_operation_is_freed_without_the_collector() -> None:
    """Section 14: neither wheel nor lists nor cycles keep it."""
    place = Place()
    operation = Waiting("a")
    references = sys.getrefcount(operation)
    place.purgatory.try_complete_else_watch(operation, ["key"])
    assert sys.getrefcount(operation) > references
    operation.condition = lambda: True
    place.purgatory.check_and_complete("key")
    assert sys.getrefcount(operation) == references
    assert not hasattr(operation, "__dict__")
