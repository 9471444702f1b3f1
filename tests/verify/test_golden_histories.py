"""Every anomaly has bad histories that must be found, and near misses that must not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from verify.history_table import Case, Table, cases

from kraftpy.verify.checkers import check

FILES = sorted((Path(__file__).parent / "golden").glob("*.txt"))
CASES = [case for path in FILES for case in cases(path.read_text())]
CATALOGUE = [
    *(f"A{number}" for number in range(1, 29)),
    *(f"G{number}" for number in range(1, 11)),
    *(f"T{number}" for number in range(1, 15)),
    *("L1", "L2", "L3"),
]
# Two of the catalogue are other names.
SAME = {"T2": "A5", "T7": "A9"}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_golden_history(case: Case) -> None:
    """JEP-26 to JEP-77: A1 to A28, G1 to G10, T1 to T14, in this order; JEP-24, JEP-25."""
    table = Table(case.lines)
    verdict = check(table.history, table.expectations)
    name = SAME.get(case.anomaly, case.anomaly)
    found = [anomaly for anomaly in verdict.anomalies if anomaly.id == name]
    if case.expected == "bad":
        assert any(anomaly.is_bad for anomaly in found), verdict
        assert verdict.state == "invalid"
    elif case.expected == "seen":
        assert found, verdict
        assert not any(anomaly.is_bad for anomaly in found), found
    else:
        assert not found
        assert case.expected == "absent" or not verdict.bad
    for anomaly in verdict.anomalies:
        assert anomaly.text
        invocations = [table.recorder.events[index] for index in anomaly.operations]
        assert all(event.type == "invoke" for event in invocations), anomaly


@pytest.mark.parametrize("anomaly", CATALOGUE)
def test_there_are_three_of_each(anomaly: str) -> None:
    """The catalogue is covered: three histories that have it, three that nearly do."""
    counts = Counter(
        "found" if case.expected in ("bad", "seen") else "not found"
        for case in CASES
        if case.anomaly == anomaly
    )
    assert counts["found"] >= 3
    assert counts["not found"] >= 3


def test_the_document_has_them_all() -> None:
    """Every id of the catalogue has its row."""
    text = (Path(__file__).parents[2] / "docs" / "jepsen.md").read_text()
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| ")]
    named = {name.strip() for row in rows for name in row.split(",")}
    assert named.issuperset(CATALOGUE)
