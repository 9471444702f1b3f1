"""An audit as a person reads it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from kraftpy_spark.jobs.audit_judge import TIERS, Audit, BucketCounts

__all__ = ["audit_text"]


def audit_text(audit: Audit) -> str:
    tiers = [tier for tier in TIERS if any(tier in each.tiers for each in audit.buckets)]
    head = ["bucket", "partition", *tiers, "p50/p95/p99/max ms to the lake", "verdict"]
    rows = [_row(audit, each, tiers) for each in audit.buckets]
    lines = [*_table([head, *rows])]
    lines += [each.line() for each in audit.gaps]
    lines += [each.line() for each in audit.doubled]
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(audit.verdicts.items()))
    lines.append(f"{len(audit.buckets)} buckets: {counts or 'nothing to compare'}")
    lines.append(
        "everything that was sent is there, once"
        if audit.is_clean
        else f"{len(audit.gaps)} gaps and {len(audit.doubled)} doubles"
    )
    return "\n".join(lines)


def _row(audit: Audit, each: BucketCounts, tiers: list[str]) -> list[str]:
    start = datetime.fromtimestamp(each.bucket_ms / 1000, UTC)
    counts = [f"{each.tiers[tier].records:,}" if tier in each.tiers else "-" for tier in tiers]
    lake = each.tiers.get("lake")
    numbers = () if lake is None else (lake.p50_ms, lake.p95_ms, lake.p99_ms, lake.max_ms)
    shares = "/".join("-" if number is None else f"{number:.0f}" for number in numbers)
    verdict = each.judge(audit.now_ms, audit.interval_ms, audit.grace_ms)
    return [
        start.strftime("%Y-%m-%d %H:%M:%S"),
        f"{each.topic}-{each.partition}",
        *counts,
        shares,
        verdict,
    ]


def _table(rows: list[list[str]]) -> Iterable[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
