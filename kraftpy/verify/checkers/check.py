"""All checkers over one history."""

from __future__ import annotations

from kraftpy.verify.checkers.expectations import Expectations
from kraftpy.verify.checkers.verdict import Verdict
from kraftpy.verify.history import History

__all__ = ["check"]


def check(history: History, expectations: Expectations) -> Verdict:
    """The verdict on a run that promised what `expectations` say."""
    counts: dict[str, int] = {}
    for operation in history.operations:
        counts[operation.type] = counts.get(operation.type, 0) + 1
    reasons = ("the checkers are not built yet",) if expectations.vacuity is not None else ()
    return Verdict("inconclusive", (), reasons, {"operations": counts})
