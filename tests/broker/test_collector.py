"""The collector of garbage rests while a coordinator loads, and looks at all when one goes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from kraftpy.broker.collector import collector_at_rest, look_at_everything


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What coordinators of earlier tests had loaded is passed over no longer."""
    was_enabled = gc.isenabled()
    gc.unfreeze()
    yield
    gc.unfreeze()
    if was_enabled:
        gc.enable()
    else:
        gc.disable()


def test_what_was_loaded_is_passed_over_until_a_coordinator_goes() -> None:
    gc.enable()
    with collector_at_rest():
        assert not gc.isenabled()
        loaded = [[number] for number in range(1_000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= len(loaded)
    look_at_everything()
    assert gc.get_freeze_count() == 0


class Knot:
    """A cycle, which only the collector can untie."""

    def __init__(self) -> None:
        self.itself = self


def test_what_is_dead_before_is_not_passed_over() -> None:
    """A shard that was closed, before another one is loaded."""
    gc.enable()
    gc.collect()
    knot = weakref.ref(Knot())
    look_at_everything()
    with collector_at_rest(collects_first=True):
        assert knot() is None


def test_what_dies_meanwhile_is_not_passed_over() -> None:
    gc.enable()
    with collector_at_rest(is_dirty=lambda: True):
        knot = weakref.ref(Knot())
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert knot() is None


def test_it_goes_on_after_a_failure() -> None:
    gc.enable()
    with pytest.raises(ValueError, match="damaged"), collector_at_rest():
        raise ValueError("damaged")
    assert gc.isenabled()


def test_what_somebody_else_has_switched_off_stays_so() -> None:
    gc.disable()
    with collector_at_rest():
        assert not gc.isenabled()
    assert not gc.isenabled()
    assert gc.get_freeze_count() == 0
