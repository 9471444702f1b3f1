"""All checkers over one history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from kraftpy.verify.checkers.commits import CommitTable
from kraftpy.verify.checkers.cycles import check_cycles
from kraftpy.verify.checkers.data import check_compaction, check_values
from kraftpy.verify.checkers.expectations import Expectations
from kraftpy.verify.checkers.group_offsets import check_commits, check_delivery
from kraftpy.verify.checkers.groups import check_views
from kraftpy.verify.checkers.logs import AuditedLogs
from kraftpy.verify.checkers.matrix import Matrix
from kraftpy.verify.checkers.metadata import check_metadata
from kraftpy.verify.checkers.offsets import (
    check_hanging,
    check_lag,
    check_offsets,
    check_positions,
)
from kraftpy.verify.checkers.order import check_order, check_stored_order
from kraftpy.verify.checkers.replicas import check_logs, check_torn
from kraftpy.verify.checkers.transactions import check_bank, check_copies, check_transactions
from kraftpy.verify.checkers.vacuity import reasons_against
from kraftpy.verify.checkers.verdict import Anomaly, Verdict
from kraftpy.verify.checkers.versions import Versions
from kraftpy.verify.history import History

__all__ = ["MAX_LISTED", "check"]

# Of one name, bad or not; a log that was cut in half would fill the report with itself.
MAX_LISTED: Final = 100


def check(
    history: History, expectations: Expectations, now_ns: Callable[[], int] | None = None
) -> Verdict:
    """The verdict on a run that promised what `expectations` say.

    With a clock the search for linearizations is limited in time, without one in steps alone.
    """
    versions = Versions(history, expectations)
    logs = None if expectations.audit is None else AuditedLogs(expectations.audit)
    findings = _Findings(Matrix(expectations, history))
    reasons: list[str] = []
    lag_anomalies, longest_lag_ns = check_lag(versions)
    findings.take(lag_anomalies)
    findings.take(_all(versions, logs, _deadline(expectations, now_ns), reasons.append))
    reasons += reasons_against(versions, findings.anomalies)
    if any(anomaly.is_bad for anomaly in findings.anomalies):
        return Verdict("invalid", *findings.result(reasons, versions, longest_lag_ns))
    state: Any = "inconclusive" if reasons else "valid"
    return Verdict(state, *findings.result(reasons, versions, longest_lag_ns))


def _deadline(expectations: Expectations, now_ns: Callable[[], int] | None) -> Callable[[], bool]:
    if now_ns is None:
        return lambda: False
    clock = now_ns
    deadline_ns = clock() + expectations.search_limit_ns
    return lambda: clock() > deadline_ns


def _all(
    versions: Versions,
    logs: AuditedLogs | None,
    give_up: Callable[[], bool],
    note: Callable[[str], None],
) -> Iterator[Anomaly]:
    commits = CommitTable(versions)
    yield from check_values(versions, logs)
    if versions.expectations.compacted:
        yield from check_compaction(versions)
    yield from check_order(versions)
    yield from check_stored_order(versions, logs)
    yield from check_offsets(versions)
    yield from check_hanging(versions)
    yield from check_positions(versions, commits)
    yield from check_views(versions, commits)
    yield from check_commits(commits)
    yield from check_delivery(versions, commits)
    yield from check_transactions(versions, logs)
    yield from check_copies(versions)
    yield from check_bank(versions)
    yield from check_torn(versions, logs)
    if logs is not None:
        yield from check_logs(versions, logs)
    yield from check_cycles(versions)
    yield from check_metadata(versions, give_up, note)


class _Findings:
    """All anomalies are counted, and of each name the first ones kept."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._counts: dict[tuple[str, bool], int] = {}
        self.anomalies: list[Anomaly] = []

    def take(self, anomalies: Iterable[Anomaly]) -> None:
        for found in anomalies:
            anomaly = self._matrix.judge(found)
            name = (anomaly.name, anomaly.is_bad)
            self._counts[name] = self._counts.get(name, 0) + 1
            if self._counts[name] <= MAX_LISTED:
                self.anomalies.append(anomaly)

    def result(
        self, reasons: list[str], versions: Versions, longest_lag_ns: int
    ) -> tuple[tuple[Anomaly, ...], tuple[str, ...], dict[str, Any]]:
        """What a verdict has beside its state."""
        outcomes: dict[str, int] = {"ok": 0, "fail": 0, "info": 0}
        for operation in versions.history.operations:
            outcomes[operation.type] += 1
        counts: dict[str, int] = {}
        for (name, _), count in sorted(self._counts.items()):
            counts[name] = counts.get(name, 0) + count
        statistics = {
            "operations": outcomes,
            "keys": len(versions.keys),
            "values": sum(len(found.writers) for found in versions.keys.values()),
            "records": sum(len(found.offsets) for found in versions.keys.values()),
            "anomalies": counts,
            "longest_lag_ns": longest_lag_ns,
        }
        ordered = sorted(
            self.anomalies, key=lambda anomaly: (not anomaly.is_bad, anomaly.id, anomaly.name)
        )
        return tuple(ordered), tuple(reasons), statistics
