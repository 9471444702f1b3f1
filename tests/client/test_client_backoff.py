"""The waits between attempts to reconnect."""

from __future__ import annotations

from random import Random

import pytest

from kraftpy.client.backoff import Backoff


def test_doubles_up_to_the_limit_within_a_fifth_of_jitter() -> None:
    backoff = Backoff(initial_ms=50, max_ms=1_000, random=Random(7))
    waits = [backoff.failed() for _ in range(8)]
    for wait_ms, middle_ms in zip(waits, [50, 100, 200, 400, 800, 1000, 1000, 1000], strict=True):
        assert middle_ms * 0.8 <= wait_ms <= min(middle_ms * 1.2, 1_000)
    assert len(set(waits)) > 5


def test_starts_over_after_success() -> None:
    backoff = Backoff(initial_ms=50, max_ms=1_000, random=Random(7))
    for _ in range(6):
        backoff.failed()
    backoff.succeeded()
    assert backoff.failed() <= 60


def test_years_of_failures() -> None:
    backoff = Backoff(initial_ms=50, max_ms=1_000, random=Random(7))
    for _ in range(10_000):
        assert backoff.failed() <= 1_000


@pytest.mark.parametrize(("initial_ms", "max_ms"), [(0, 0), (100, 100), (200, 100)])
def test_limits_at_odds(initial_ms: int, max_ms: int) -> None:
    """A maximum below the start means the start, as in Kafka."""
    backoff = Backoff(initial_ms=initial_ms, max_ms=max_ms, random=Random(7))
    for _ in range(50):
        assert initial_ms * 0.8 <= backoff.failed() <= initial_ms
