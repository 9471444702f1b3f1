"""The report of a release (JEP-171): what was tried, what was found, and how soon bugs are found.

    python -m jepsen_tests report nights/*/totals.json > release.md

Adds up the totals of tiers, and takes the findings from docs/findings.md and the results of the
last exams from tests/bugs.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import trio

from jepsen_tests.long.tiers import ROOT
from kraftpy import __version__

__all__ = ["add_arguments", "report", "run"]

FINDINGS: Final = "docs/findings.md"
_COUNTED: Final = (
    ("L2 seeds", "kernel_seeds"),
    ("L2 simulated hours", "kernel_hours"),
    ("L3 seeds", "whole_seeds"),
    ("L3 simulated hours", "whole_hours"),
    ("runs on processes", "runs"),
    ("operations in them", "operations"),
    ("losses of power", "power_cycles"),
    ("windows of soaks", "soak_windows"),
    ("cases of fuzzing", "fuzz_cases"),
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("totals", nargs="+", type=Path, help="files that tiers have left")


async def run(options: Namespace) -> int:
    """The command."""
    try:
        totals = [json.loads(path.read_text()) for path in options.totals]
    except (OSError, ValueError) as error:
        raise ValueError(f"these are no totals: {error}") from error
    command = ["git", "describe", "--always", "--dirty"]
    done = await trio.run_process(command, cwd=ROOT, capture_stdout=True, check=False)
    print(report(totals, done.stdout.decode().strip() or "unknown", ROOT), end="")
    return 0


def report(totals: Sequence[Mapping[str, Any]], commit: str, root: Path) -> str:
    """Markdown."""
    lines = [f"# kraftpy {__version__}: how it was tested", ""]
    tiers = ", ".join(dict.fromkeys(str(each["tier"]) for each in totals))
    lines += [f"Commit {commit}; tiers: {tiers}; {len(totals)} in all.", ""]
    lines += ["| What | How many |", "| --- | --- |"]
    for title, name in _COUNTED:
        lines.append(f"| {title} | {sum(each[name] for each in totals):,.0f} |")
    hours = sum(each["seconds"] for each in totals) / 3600
    lines += [f"| hours of two cores | {hours:,.1f} |", "", "## Found in these", ""]
    found: dict[str, int] = {}
    for each in totals:
        for name, count in each["anomalies"].items():
            found[name] = found.get(name, 0) + count
    lines += [f"- {name}: {count}" for name, count in sorted(found.items())] or ["Nothing."]
    lines += [f"- failed: {text}" for each in totals for text in each["failures"]]
    lines += ["", "## Found and fixed so far", "", *_findings(root)]
    lines += ["", "## How soon seeded bugs are found", "", *_exams(root)]
    return "\n".join(lines) + "\n"


def _findings(root: Path) -> list[str]:
    rows = [line for line in (root / FINDINGS).read_text().splitlines() if line.startswith("| L")]
    cells = [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in rows]
    return [f"{len(rows)}, all of them with a test:", "", *(f"- {e[1]} ({e[0]})" for e in cells)]


def _exams(root: Path) -> list[str]:
    bugs = root / "tests/bugs"
    tried = [
        each["tried"]
        for path in sorted(bugs.glob("*_seeds.json"))
        for each in json.loads(path.read_text()).values()
    ]
    results = json.loads((bugs / "process_results.json").read_text())
    seconds = [each["seconds"] for each in results.values()]
    most, half = max(tried), median(tried)
    longest, usual = max(seconds), median(seconds)
    return [
        f"- simulation: all of {len(tried)} within {most} seeds, half of them within {half:g}",
        f"- processes: {len(seconds)} of them within {longest:.0f} s, half within {usual:.0f} s",
    ]
