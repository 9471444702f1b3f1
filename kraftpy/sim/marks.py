"""Coverage marks: rare things that the product does, and whether simulations ever see them.

A suite that no longer reaches the code which a rare failure depends on is silent, and silence looks
like health. So some events have names here. Each is a method of the product and a condition on its
call; while `marking()` is open, calls are counted that fulfil it. The product itself knows nothing
of marks.

`Ledger` remembers when each was reached last, over many runs: one that was not for a week is a hole
in the suite (`kraftpy sim marks FILE`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

from kraftpy.coordinator.transactions.machine import TransactionMachine
from kraftpy.log.partition_log import PartitionLog
from kraftpy.metadata.controller.partition_change import PartitionChangeBuilder
from kraftpy.raft.log_state import LogState

__all__ = ["MARKS", "Ledger", "Mark", "marking"]

DAY_SECONDS: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Mark:
    name: str
    owner: type
    method: str
    holds: Callable[..., bool]
    """Of the arguments of the call, before it is made."""


def _always(*_: Any) -> bool:
    return True


def _cuts(log: PartitionLog, offset: int) -> bool:
    return offset < log.log_end_offset


def _cuts_committed(log: PartitionLog, offset: int) -> bool:
    return offset < min(log.log_end_offset, log.high_watermark)


def _has_none_in_sync(change: PartitionChangeBuilder) -> bool:
    return not change.isr


def _is_complete(change: PartitionChangeBuilder) -> bool:
    staying = [each for each in change.isr if each not in change.removing]
    return bool(staying) and all(each in staying for each in change.adding)


MARKS: Final = (
    Mark("a replica cuts off what its leader has not", PartitionLog, "truncate_to", _cuts),
    Mark("below its own high watermark", PartitionLog, "truncate_to", _cuts_committed),
    Mark(
        "a replica begins anew, behind its leader's start",
        PartitionLog,
        "truncate_fully_and_start_at",
        _always,
    ),
    Mark("a voter cuts off uncommitted metadata", LogState, "truncate", _always),
    Mark("a node takes over a snapshot of the metadata", LogState, "install", _always),
    Mark("the metadata log is trimmed", LogState, "trim", _always),
    Mark(
        "a leader is sought while nobody is in sync",
        PartitionChangeBuilder,
        "_clean_leader",
        _has_none_in_sync,
    ),
    Mark(
        "a reassignment comes to its end",
        PartitionChangeBuilder,
        "_finish_reassignment",
        _is_complete,
    ),
    Mark("a producer is shut out of its transaction", TransactionMachine, "_fence", _always),
    Mark("a decision is carried out by another coordinator", TransactionMachine, "_go_on", _always),
)


@contextmanager
def marking() -> Iterator[dict[str, int]]:
    """Counts by the names of marks; those that were not reached are not in it."""
    counts: dict[str, int] = {}
    originals: list[tuple[type, str, Any]] = []
    for mark in MARKS:
        original = mark.owner.__dict__[mark.method]
        originals.append((mark.owner, mark.method, original))
        setattr(mark.owner, mark.method, _counted(mark, original, counts))
    try:
        yield counts
    finally:
        # Of two marks on one method, the one that was put on last goes first.
        for owner, method, original in reversed(originals):
            setattr(owner, method, original)


def _counted(mark: Mark, original: Any, counts: dict[str, int]) -> Any:
    @wraps(original)
    def counted(*arguments: Any, **named: Any) -> Any:
        if mark.holds(*arguments):
            counts[mark.name] = counts.get(mark.name, 0) + 1
        return original(*arguments, **named)

    return counted


class Ledger:
    """When each mark was reached last, and by which seed of which level."""

    def __init__(self, text: str = "") -> None:
        """Raises ValueError for a file that is none."""
        known = json.loads(text) if text else {}
        if not isinstance(known, dict) or not all(
            isinstance(each, dict) and each.keys() >= {"level", "seed", "at"}
            for each in known.values()
        ):
            raise ValueError("this is no ledger of marks")
        self._known: dict[str, dict[str, Any]] = known

    def note(self, counts: Mapping[str, int], level: str, seed: int, now_seconds: float) -> None:
        for name in counts:
            self._known[name] = {"level": level, "seed": seed, "at": round(now_seconds)}

    def text(self) -> str:
        return json.dumps(self._known, indent=2, sort_keys=True) + "\n"

    def lines(self, now_seconds: float) -> Iterator[str]:
        for mark in MARKS:
            found = self._known.get(mark.name)
            if found is None:
                yield f"never          {mark.name}"
            else:
                days = (now_seconds - found["at"]) / DAY_SECONDS
                where = f"{found['level']}, seed {found['seed']}"
                yield f"{days:5.1f} days ago {mark.name} ({where})"

    def unreached(self, days: float, now_seconds: float) -> list[str]:
        """Marks that nothing has reached for so many days."""
        since = now_seconds - days * DAY_SECONDS
        return [
            mark.name
            for mark in MARKS
            if self._known.get(mark.name, {"at": float("-inf")})["at"] < since
        ]
