"""What a producer keeps of what it sends, so that an audit can find what is lost or double.

Every record gets three headers: `audit.pid`, whose it is; `audit.seq`, its number among those that
this producer sends to this partition, from 0; `audit.ts`, when it was handed over. What was
acknowledged is counted by the bucket of that time and told to the audit topic now and then, in
records that add up: a bucket that is told of twice has the sum of both. So late acknowledgements
correct past buckets by themselves.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "BOUNDS_MS",
    "AuditCounter",
    "AuditRecord",
    "Latencies",
    "Stamp",
    "bucket_start",
    "headers_of",
]

BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
"""Upper ends of a histogram's bins; the last bin has no end."""


def bucket_start(time_ms: int, interval_ms: int) -> int:
    """Of the bucket [start, start + interval) that this time is in."""
    return time_ms - time_ms % interval_ms


@dataclass(slots=True)
class Latencies:
    """A histogram: two of them add up exactly, percentiles would not."""

    bins: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))
    max_ms: int = 0

    def add(self, latency_ms: int, count: int = 1) -> None:
        at = next((at for at, end in enumerate(BOUNDS_MS) if latency_ms <= end), len(BOUNDS_MS))
        self.bins[at] += count
        self.max_ms = max(self.max_ms, latency_ms)

    def merge(self, other: Latencies) -> None:
        self.bins = [one + more for one, more in zip(self.bins, other.bins, strict=True)]
        self.max_ms = max(self.max_ms, other.max_ms)

    def percentile(self, share: float) -> int | None:
        """No more than this many milliseconds, for this share of all; None if there are none."""
        total = sum(self.bins)
        if not total:
            return None
        reached = 0
        for at, count in enumerate(self.bins):
            reached += count
            if reached >= share * total:
                return self.max_ms if at == len(BOUNDS_MS) else min(BOUNDS_MS[at], self.max_ms)
        return self.max_ms


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a record's headers say."""

    pid: str
    seq: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """What a producer did in one bucket, since it told of it last."""

    pid: str
    topic: str
    partition: int
    bucket_ms: int
    interval_ms: int
    count: int
    size_bytes: int
    min_seq: int
    max_seq: int
    failed: tuple[int, ...]
    """Numbers of records that were given up, and that nobody has to look for."""
    latencies: Latencies

    def to_json(self) -> str:
        names = ("pid", "topic", "partition", "bucket_ms", "interval_ms", "count", "size_bytes")
        value: dict[str, Any] = {
            name: getattr(self, name) for name in (*names, "min_seq", "max_seq")
        }
        value |= {"tier": "producer", "latencies": self.latencies.bins, "failed": self.failed}
        return json.dumps(value | {"max_latency_ms": self.latencies.max_ms})

    @classmethod
    def from_json(cls, text: str | bytes) -> AuditRecord:
        value = json.loads(text)
        latencies = Latencies(value.pop("latencies"), value.pop("max_latency_ms"))
        failed = tuple(value.pop("failed"))
        value.pop("tier")
        return cls(**value, failed=failed, latencies=latencies)


@dataclass(slots=True)
class _Tally:
    count: int = 0
    size_bytes: int = 0
    min_seq: int = 2**63 - 1
    max_seq: int = -1
    failed: list[int] = field(default_factory=list)
    latencies: Latencies = field(default_factory=Latencies)


class AuditCounter:
    def __init__(self, pid: str, interval_ms: int) -> None:
        self._pid = pid
        self._interval_ms = interval_ms
        self._next: dict[tuple[str, int], int] = {}
        self._tallies: dict[tuple[str, int, int], _Tally] = {}

    def stamp(self, topic: str, partition: int, now_ms: int) -> Stamp:
        """For the next record of this partition."""
        seq = self._next.get((topic, partition), 0)
        self._next[topic, partition] = seq + 1
        return Stamp(self._pid, seq, now_ms)

    def acknowledged(
        self, topic: str, partition: int, stamp: Stamp, size_bytes: int, now_ms: int
    ) -> None:
        """The record is in the log."""
        tally = self._tally(topic, partition, stamp)
        tally.count += 1
        tally.size_bytes += size_bytes
        tally.min_seq = min(tally.min_seq, stamp.seq)
        tally.max_seq = max(tally.max_seq, stamp.seq)
        tally.latencies.add(max(0, now_ms - stamp.time_ms))

    def failed(self, topic: str, partition: int, stamp: Stamp) -> None:
        """The record was given up; perhaps it is in the log nevertheless."""
        self._tally(topic, partition, stamp).failed.append(stamp.seq)

    def _tally(self, topic: str, partition: int, stamp: Stamp) -> _Tally:
        bucket = bucket_start(stamp.time_ms, self._interval_ms)
        return self._tallies.setdefault((topic, partition, bucket), _Tally())

    def flush(self) -> list[AuditRecord]:
        """What has been settled since the last time."""
        tallies, self._tallies = self._tallies, {}
        return [
            AuditRecord(
                pid=self._pid,
                topic=topic,
                partition=partition,
                bucket_ms=bucket,
                interval_ms=self._interval_ms,
                count=tally.count,
                size_bytes=tally.size_bytes,
                min_seq=tally.min_seq,
                max_seq=tally.max_seq,
                failed=tuple(tally.failed),
                latencies=tally.latencies,
            )
            for (topic, partition, bucket), tally in sorted(tallies.items())
        ]


def headers_of(stamp: Stamp) -> Sequence[tuple[str, bytes]]:
    return (
        ("audit.pid", stamp.pid.encode()),
        ("audit.seq", stamp.seq.to_bytes(8, "big", signed=True)),
        ("audit.ts", stamp.time_ms.to_bytes(8, "big", signed=True)),
    )
