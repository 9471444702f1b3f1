"""What a job tells of its batches: a line for a person, a line of JSON for a machine, a plot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TextIO

__all__ = ["BatchReport", "Reporter", "lag_plot"]

_BAR_COLUMNS = 50
_PLOT_LINES = 20


@dataclass(frozen=True, slots=True)
class BatchReport:
    batch: int
    records: int
    """Read from the topics."""
    rows: int
    """Written into the lake."""
    bad: int
    """Sent to the dead-letter topic."""
    late: int
    """Older than the watermark, wherever they went."""
    duplicates: int
    files: int
    size_bytes: int
    seconds: float
    watermark_ms: int | None
    lag: int | None = None
    """Records that the topics have and the lake has not yet; None if the cluster can't be asked."""
    untraced: str | None = None
    """Why the traces of this batch are lost."""

    def line(self) -> str:
        rate = self.records / self.seconds if self.seconds else 0.0
        parts = [f"batch {self.batch}: {self.records:,} records, {self.rows:,} rows"]
        parts += [
            f"{count:,} {name}"
            for name, count in (
                ("bad", self.bad),
                ("late", self.late),
                ("duplicates", self.duplicates),
            )
            if count
        ]
        parts.append(f"{self.files} files, {self.size_bytes / 1e6:.1f} MB")
        parts.append(f"{self.seconds:.1f} s ({rate:,.0f} records/s)")
        parts.append("lag unknown" if self.lag is None else f"lag {self.lag:,}")
        if self.untraced is not None:
            parts.append(f"not traced: {self.untraced}")
        return ", ".join(parts)


class Reporter:
    """Says what batches did, in their order, and remembers it for the end."""

    def __init__(self, out: TextIO, metrics: Path | None) -> None:
        self._out = out
        self._metrics = metrics
        self.reports: list[BatchReport] = []

    def tell(self, report: BatchReport) -> None:
        rounded = replace(report, seconds=round(report.seconds, 3))
        self.reports.append(rounded)
        print(rounded.line(), file=self._out, flush=True)
        if self._metrics is not None:
            with self._metrics.open("a") as stream:
                stream.write(json.dumps(asdict(rounded)) + "\n")

    def summary(self) -> str:
        if not self.reports:
            return "there was nothing new to read"
        records = sum(each.records for each in self.reports)
        rows = sum(each.rows for each in self.reports)
        bad = sum(each.bad for each in self.reports)
        duplicates = sum(each.duplicates for each in self.reports)
        return (
            f"{len(self.reports)} batches: {records:,} records read, {rows:,} rows written,"
            f" {bad:,} dead letters, {duplicates:,} duplicates left out"
        )


def lag_plot(reports: Sequence[BatchReport]) -> str:
    """The lag after each batch, one bar for each, or for every so many of them."""
    known = [each for each in reports if each.lag is not None]
    step = -(-len(known) // _PLOT_LINES) or 1
    shown = known[::-1][::step][::-1]
    most = max((each.lag or 0 for each in shown), default=0)
    lines = ["lag after each batch, in records"]
    for each in shown:
        lag = each.lag or 0
        bar = "█" * (-(-lag * _BAR_COLUMNS // most) if most else 0)
        lines.append(f"{each.batch:>6} |{bar:<{_BAR_COLUMNS}} {lag:,}")
    return "\n".join(lines)
