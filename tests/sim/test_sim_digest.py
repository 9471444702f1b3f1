"""The digest and the search for the event at which two runs part."""

from __future__ import annotations

import pytest

from kraftpy.sim.digest import CHECKPOINT_EVENTS, EventDigest, RunTrace, first_difference


def run_of(count: int, different: int | None = None, window: range = range(0)) -> RunTrace:
    digest = EventDigest(window)
    for number in range(count):
        digest.record(number / 10, "deliver", "a>b", b"other" if number == different else b"same")
    return digest.trace()


def test_equal_runs_have_equal_digests() -> None:
    assert run_of(2_500) == run_of(2_500)
    assert first_difference(run_of(2_500), run_of(2_500)) is None


@pytest.mark.parametrize(
    "fields", [(1.5, "k", "p", b"d"), (1.0, "x", "p", b"d"), (1.0, "k", "x", b"d")]
)
def test_every_field_counts(fields: tuple[float, str, str, bytes]) -> None:
    one, other = EventDigest(), EventDigest()
    one.record(1.0, "k", "p", b"d")
    other.record(*fields)
    assert one.trace().digest != other.trace().digest


def test_the_boundary_between_events_counts() -> None:
    one, other = EventDigest(), EventDigest()
    one.record(1.0, "k", "p", b"1.0\tk\tp\t0\n")
    other.record(1.0, "k", "p", b"")
    other.record(1.0, "k", "p", b"")
    assert one.trace().digest != other.trace().digest


@pytest.mark.parametrize("different", [0, 999, 1_000, 4_321, 9_999])
def test_bisection_finds_the_first_different_event(different: int) -> None:
    """JEP-140: first the thousand, then with that window the event itself."""
    window = first_difference(run_of(10_000), run_of(10_000, different))
    assert window is not None
    assert different in window
    assert len(window) == CHECKPOINT_EVENTS
    left, right = run_of(10_000, window=window), run_of(10_000, different, window)
    assert first_difference(left, right) == range(different, different + 1)
    assert "same" in left.window_events[different - window.start]


def test_a_run_that_is_longer_differs_at_its_first_extra_event() -> None:
    window = range(2_000, 3_000)
    left, right = run_of(2_500, window=window), run_of(2_501, window=window)
    assert first_difference(left, right) == range(2_500, 2_501)
