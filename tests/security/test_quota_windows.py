"""Rates over windows, computed by hand: eleven samples of a second, unless said otherwise."""

from __future__ import annotations

import pytest

from kraftpy.security.windows import ClientRate, QuotaWindow, ReplicationRate, TokenBucket, rounded

WINDOW = QuotaWindow()


@pytest.mark.parametrize(
    ("amount", "delay_ms"),
    # Over ten seconds, which a new client's window has at least: 10,000 are 1,000 a second.
    [(10_000, 0), (10_001, 1), (10_010, 10), (15_000, 5_000), (30_000, 20_000)],
)
def test_a_new_client_may_use_a_window_at_once(amount: int, delay_ms: int) -> None:
    rate = ClientRate(WINDOW)
    rate.record(amount, 7_000)
    assert rate.delay_ms(1_000, 7_000) == delay_ms


def test_after_its_delay_a_client_is_at_its_limit() -> None:
    """15,000 at once; 5 s later they are 15,000 in 15 s, as the window is older by then."""
    rate = ClientRate(WINDOW)
    rate.record(15_000, 0)
    assert rate.delay_ms(1_000, 0) == 5_000
    # Five whole samples have passed, five more are added: still ten seconds, and the rate as it is.
    assert rate.rate(5_000) == 1_500
    assert rate.delay_ms(1_000, 5_000) == 5_000
    # From ten whole samples on, the window grows; at eleven seconds nothing is left of it.
    assert rate.rate(10_500) == pytest.approx(15_000 / 10.5)
    assert rate.rate(11_000) == 0


def test_a_steady_client_is_measured_over_its_window() -> None:
    """1,000 at the start of each second: eleven of the 13 are younger than the window."""
    rate = ClientRate(WINDOW)
    for second in range(13):
        rate.record(1_000, second * 1_000)
    assert rate.total(12_000) == 11_000
    assert rate.age_ms(12_000) == 10_000
    assert rate.rate(12_000) == 1_100


def test_a_sample_that_reaches_into_the_window_counts() -> None:
    """One more is kept than the window has: it began before, and had something within."""
    rate = ClientRate(QuotaWindow(2, 1_000))
    rate.record(5, 0)
    rate.record(7, 999)
    rate.record(11, 1_000)
    rate.record(13, 2_000)
    assert rate.total(2_998) == 36
    assert rate.age_ms(2_998) == 2_998
    assert rate.total(2_999) == 24
    assert rate.age_ms(2_999) == 1_999


def test_a_ring_of_samples_goes_round() -> None:
    rate = ClientRate(QuotaWindow(2, 1_000))
    for second in range(100):
        rate.record(second, second * 1_000)
    # Those of 98 and 99; the one of 97 is 2,000 ms old.
    assert rate.total(99_000) == 197


def test_what_is_taken_back_is_gone() -> None:
    rate = ClientRate(WINDOW)
    rate.record(10_000, 0)
    rate.record(1, 10)
    rate.record(-1, 10)
    assert rate.delay_ms(1_000, 10) == 0


def test_replicas_are_measured_over_one_sample_at_least() -> None:
    rate = ReplicationRate(WINDOW)
    assert rate.rate(3_000) == 0
    rate.record(500, 3_000)
    assert rate.rate(3_001) == 500
    assert rate.rate(4_000) == 500
    assert rate.rate(5_000) == 250


def test_a_window_of_one_sample() -> None:
    rate = ClientRate(QuotaWindow(1, 1_000))
    rate.record(1, 0)
    # No sample has to be whole, so that a moment counts as a millisecond.
    assert rate.rate(0) == 1_000
    assert rate.rate(500) == 2


def test_a_bucket_is_full_at_first_and_holds_a_window() -> None:
    bucket = TokenBucket(QuotaWindow(3, 2_000), 5.0, 0)
    assert bucket.tokens(0) == 30
    bucket.take(31, 0)
    assert bucket.tokens(0) == -1
    assert bucket.delay_ms(0) == 200
    assert bucket.tokens(200) == 0
    assert bucket.delay_ms(200) == 0
    assert bucket.tokens(6_201) == 30


def test_a_bucket_whose_rate_changes() -> None:
    bucket = TokenBucket(QuotaWindow(10, 1_000), 5.0, 0)
    bucket.take(10, 0)
    bucket.rate = 2.0
    assert bucket.tokens(0) == 20
    bucket.rate = 5.0
    assert bucket.tokens(0) == 20
    assert bucket.tokens(1_000) == 25


@pytest.mark.parametrize(
    ("delay_ms", "whole"), [(0.4, 0), (0.5, 1), (1.49, 1), (2.5, 3), (1e30, 2**31 - 1)]
)
def test_rounding(delay_ms: float, whole: int) -> None:
    assert rounded(delay_ms) == whole
