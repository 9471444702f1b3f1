"""A run, or several, as a table in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jepsen_tests.report.facts import facts_of
from jepsen_tests.report.words import joined, milliseconds
from kraftpy.verify.checkers import Verdict
from kraftpy.verify.history import History

__all__ = ["summary_table"]

_HEAD = (
    "workload",
    "nemesis",
    "seed",
    "verdict",
    "ops",
    "ok",
    "acked",
    "p50",
    "p99",
    "faults",
    "bad",
)


def summary_table(runs: Iterable[tuple[History, Verdict, Mapping[str, Any]]]) -> str:
    """One line for each run, and below it what was bad or missing."""
    rows = [_HEAD]
    remarks: list[str] = []
    for history, verdict, run in runs:
        facts = facts_of(history)
        rows.append(
            (
                str(run.get("workload", "")),
                joined(run.get("nemesis", "")),
                str(run.get("seed", "")),
                verdict.state,
                f"{facts.total:,}",
                f"{100 * facts.ok / max(facts.total, 1):.0f} %",
                f"{facts.acked:,}",
                milliseconds(facts.quantiles.get("p50")),
                milliseconds(facts.quantiles.get("p99")),
                str(sum(not band.note for band in facts.bands)),
                str(len(verdict.bad)),
            )
        )
        name = f"{run.get('workload', 'run')} (seed {run.get('seed', '?')})"
        remarks += [f"{name}: {each.id} {each.name}: {each.text}" for each in verdict.bad[:5]]
        remarks += [f"{name}: {reason}" for reason in verdict.reasons]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:], *remarks])
