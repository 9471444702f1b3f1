"""What producers count and what an audit makes of counts: without Spark."""

from __future__ import annotations

import pytest
from kraftpy_spark.clicks import ClickPlan, clicks
from kraftpy_spark.jobs.audit_judge import BucketCounts, Doubled, Gap, TierCount, judge
from kraftpy_spark.jobs.audit_records import (
    BOUNDS_MS,
    AuditCounter,
    AuditRecord,
    Latencies,
    bucket_start,
    headers_of,
)
from kraftpy_spark.jobs.audit_text import audit_text

MINUTE_MS = 60_000


@pytest.mark.parametrize(
    ("time_ms", "start"), [(0, 0), (59_999, 0), (60_000, 60_000), (119_999, 60_000)]
)
def test_a_boundary_belongs_to_the_later_bucket(time_ms: int, start: int) -> None:
    """PAT-63."""
    assert bucket_start(time_ms, MINUTE_MS) == start


def test_numbers_are_each_partitions_own() -> None:
    """PAT-67: from 0, without holes, for each producer and partition; PAT-3 for their bytes."""
    counter = AuditCounter("p", MINUTE_MS)
    stamps = [counter.stamp("t", partition, 5) for partition in (0, 1, 0, 0)]
    assert [stamp.seq for stamp in stamps] == [0, 0, 1, 2]
    assert headers_of(stamps[-1]) == (
        ("audit.pid", b"p"),
        ("audit.seq", bytes([0, 0, 0, 0, 0, 0, 0, 2])),
        ("audit.ts", bytes([0, 0, 0, 0, 0, 0, 0, 5])),
    )


def test_what_is_told_adds_up_and_survives_its_writing() -> None:
    """PAT-69: an acknowledgement that comes late is told of in the bucket of its record."""
    counter = AuditCounter("p", MINUTE_MS)
    early, late = counter.stamp("t", 0, 59_999), counter.stamp("t", 0, 60_000)
    counter.acknowledged("t", 0, late, 10, 60_007)
    first = counter.flush()
    counter.acknowledged("t", 0, early, 10, 70_000)
    given_up = counter.stamp("t", 0, 60_001)
    counter.failed("t", 0, given_up)
    second = counter.flush()
    told = [(each.bucket_ms, each.count, each.min_seq, each.max_seq) for each in first + second]
    nobody = 2**63 - 1
    assert told == [(60_000, 1, 1, 1), (0, 1, 0, 0), (60_000, 0, nobody, -1)]
    assert [each.failed for each in second] == [(), (2,)]
    assert counter.flush() == []
    for each in first + second:
        assert AuditRecord.from_json(each.to_json()) == each


def test_histograms_add_up_and_percentiles_are_their_upper_ends() -> None:
    """PAT-66."""
    one, other = Latencies(), Latencies()
    for latency_ms in range(1, 51):
        one.add(latency_ms)
    other.add(BOUNDS_MS[-1] + 1, count=50)
    one.merge(other)
    assert sum(one.bins) == 100
    assert one.percentile(0.01) == 1
    assert one.percentile(0.5) == 50
    assert one.percentile(0.51) == BOUNDS_MS[-1] + 1
    assert Latencies().percentile(0.5) is None


def bucket(start: int, **counts: int) -> BucketCounts:
    return BucketCounts("t", 0, start, {tier: TierCount(count) for tier, count in counts.items()})


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        ({"producer": 5, "topic": 5, "lake": 5}, "equal"),
        ({"producer": 5, "topic": 4, "lake": 4}, "loss"),
        ({"producer": 5, "topic": 5, "lake": 4}, "loss"),
        ({"producer": 5, "topic": 6, "lake": 6}, "doubles"),
        ({"topic": 5, "lake": 6}, "doubles"),
        # One lost and one double are not nothing.
        ({"producer": 5, "topic": 6, "lake": 5}, "loss"),
        ({"lake": 5}, "equal"),
    ],
)
def test_tiers_are_compared_in_their_order(counts: dict[str, int], verdict: str) -> None:
    """PAT-64, PAT-65."""
    assert bucket(0, **counts).judge(10 * MINUTE_MS, MINUTE_MS, MINUTE_MS) == verdict


def test_a_bucket_is_judged_after_its_grace() -> None:
    """PAT-69: not a millisecond before."""
    short = bucket(0, topic=5, lake=4)
    assert short.judge(3 * MINUTE_MS - 1, MINUTE_MS, 2 * MINUTE_MS) == "open"
    assert short.judge(3 * MINUTE_MS, MINUTE_MS, 2 * MINUTE_MS) == "loss"


def test_an_audit_in_words() -> None:
    gap = Gap("lake", "t", 0, "offset", "", 3, 5)
    double = Doubled("topic", "t", 1, "seq", "p", 7, 2)
    limits = {"now_ms": 10 * MINUTE_MS, "interval_ms": MINUTE_MS, "grace_ms": 0}
    found = judge([bucket(0, topic=5, lake=4)], [gap], [double], **limits)
    assert not found.is_clean
    text = audit_text(found)
    assert "missing at lake: t-0 offset 3 to 5" in text
    assert "2 times at topic: t-1 seq 7 of producer p" in text
    assert text.endswith("1 gaps and 1 doubles")
    assert found.to_json()["gaps"] == [gap._asdict()]
    clean = judge([bucket(0, topic=5, lake=5)], [], [], **limits)
    assert clean.is_clean
    assert audit_text(clean).endswith("everything that was sent is there, once")
    # Counts alone are reason enough.
    assert not judge([bucket(0, topic=5, lake=4)], [], [], **limits).is_clean


def test_clicks_hang_on_their_plan_alone() -> None:
    plan = ClickPlan(seed=3, count=200, spoiled_share=0.1)
    made = list(clicks(plan))
    assert made == list(clicks(plan))
    assert made != list(clicks(ClickPlan(seed=4, count=200, spoiled_share=0.1)))
    assert 0 < sum(click.is_spoiled for click in made) < 60
    assert [click.number for click in made] == list(range(200))
