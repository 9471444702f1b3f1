"""What the counts of an audit mean: loss, doubles, or nothing yet. Without Spark.

A record passes three tiers: its producer, the topic, the lake (where dead letters count as arrived:
they are kept, elsewhere). Each tier has a count for each partition and bucket of time. A tier with
less than the one before has lost records, one with more has doubles; but a bucket is judged only
when it and the grace after it are over, because until then records may be on their way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

__all__ = ["TIERS", "Audit", "BucketCounts", "Doubled", "Gap", "TierCount", "Verdict", "judge"]

TIERS = ("producer", "topic", "lake")
Verdict: TypeAlias = Literal["equal", "loss", "doubles", "open"]


class TierCount(NamedTuple):
    """Percentiles are of the time from the producer's hand to this tier."""

    records: int
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None


@dataclass(frozen=True, slots=True)
class BucketCounts:
    topic: str
    partition: int
    bucket_ms: int
    tiers: Mapping[str, TierCount]

    def judge(self, now_ms: int, interval_ms: int, grace_ms: int) -> Verdict:
        if self.bucket_ms + interval_ms + grace_ms > now_ms:
            return "open"
        counts = [self.tiers[tier].records for tier in TIERS if tier in self.tiers]
        steps = list(pairwise(counts))
        if any(later < earlier for earlier, later in steps):
            return "loss"
        return "doubles" if any(later > earlier for earlier, later in steps) else "equal"


class Gap(NamedTuple):
    """Numbers that are missing, from the first to the last."""

    tier: str
    topic: str
    partition: int
    kind: Literal["offset", "seq"]
    pid: str
    first: int
    last: int

    def line(self) -> str:
        many = f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"
        whose = f" of producer {self.pid}" if self.pid else ""
        return f"missing at {self.tier}: {self.topic}-{self.partition} {self.kind} {many}{whose}"


class Doubled(NamedTuple):
    """A number that is there more than once."""

    tier: str
    topic: str
    partition: int
    kind: Literal["offset", "seq"]
    pid: str
    number: int
    times: int

    def line(self) -> str:
        whose = f" of producer {self.pid}" if self.pid else ""
        where = f"{self.topic}-{self.partition} {self.kind} {self.number}{whose}"
        return f"{self.times} times at {self.tier}: {where}"


@dataclass(frozen=True, slots=True)
class Audit:
    interval_ms: int
    grace_ms: int
    now_ms: int
    buckets: Sequence[BucketCounts]
    gaps: Sequence[Gap] = ()
    doubled: Sequence[Doubled] = ()
    verdicts: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        bad = self.verdicts.get("loss", 0) + self.verdicts.get("doubles", 0)
        return not (self.gaps or self.doubled or bad)

    def to_json(self) -> dict[str, Any]:
        return {
            "clean": self.is_clean,
            "interval_ms": self.interval_ms,
            "grace_ms": self.grace_ms,
            "now_ms": self.now_ms,
            "buckets": [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "bucket_ms": each.bucket_ms,
                    "verdict": each.judge(self.now_ms, self.interval_ms, self.grace_ms),
                    "tiers": {tier: count._asdict() for tier, count in each.tiers.items()},
                }
                for each in self.buckets
            ],
            "gaps": [each._asdict() for each in self.gaps],
            "doubled": [each._asdict() for each in self.doubled],
        }


def judge(
    buckets: Sequence[BucketCounts],
    gaps: Sequence[Gap],
    doubled: Sequence[Doubled],
    *,
    now_ms: int,
    interval_ms: int,
    grace_ms: int,
) -> Audit:
    verdicts: dict[str, int] = {}
    for each in buckets:
        verdict = each.judge(now_ms, interval_ms, grace_ms)
        verdicts[verdict] = verdicts.get(verdict, 0) + 1
    return Audit(interval_ms, grace_ms, now_ms, buckets, gaps, doubled, verdicts)
