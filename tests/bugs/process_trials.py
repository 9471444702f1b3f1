"""Which seeded bugs the process suite is examined with: the workload and the faults that suit each,
and what it must be found guilty of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LOSS = ("lost-write", "unseen-lost", "inconsistent-offsets", "replica-divergence")


@dataclass(frozen=True, slots=True)
class Trial:
    """`anomalies` are the names of what the bug causes; anything else found is not counted."""

    suite: str
    bug: str
    workload: str
    nemeses: tuple[str, ...]
    anomalies: tuple[str, ...]
    seconds: float = 25.0
    rate: float = 100.0
    group_protocol: Literal["classic", "consumer"] | None = None

    @property
    def title(self) -> str:
        return f"{self.suite}: {self.bug}"


TRIALS = (
    Trial(
        "replication",
        "one unstable record is shown",
        "early-read",
        ("none",),
        ("G1a", "G1b"),
    ),
    Trial(
        "log",
        "aborted index skips the first batch",
        "abort-rewind",
        ("none",),
        ("G1a",),
    ),
    Trial(
        "coordinator",
        "two members get one partition",
        "membership",
        ("none",),
        ("double-assignment", "ownership-overlap"),
        group_protocol="classic",
    ),
    Trial(
        "coordinator",
        "commit without generation check",
        "membership",
        ("pause",),
        ("zombie-commit",),
        group_protocol="classic",
    ),
    Trial(
        "coordinator",
        "generation not persisted",
        "membership",
        ("kill",),
        ("generation-regression", "double-assignment", "ownership-overlap"),
        group_protocol="classic",
    ),
    Trial(
        "replication",
        "followers know no producers",
        "queue-txn",
        ("restart",),
        ("G1a", "G1b", "duplicate", "duplicate-nonzero", "torn-txn"),
    ),
    Trial(
        "replication",
        "repetition answered with offset 0",
        "idempotent",
        ("pause",),
        ("inconsistent-offsets", "duplicate", "nonmonotonic-send", "int-nonmonotonic-send"),
    ),
    Trial(
        "transaction",
        "end accepted for any epoch",
        "fencing",
        ("none",),
        ("fencing-violation", "torn-txn", "resurrected-txn", "G1a"),
    ),
    Trial(
        "log",
        "compaction drops the last value",
        "compaction",
        ("none",),
        ("compaction-loss",),
    ),
    Trial(
        "replication",
        "acknowledged when the leader has it",
        "list-append",
        ("isolate-leader",),
        LOSS,
    ),
    Trial(
        "replication",
        "leader alone commits",
        "list-append",
        ("isolate-leader",),
        LOSS,
    ),
    Trial(
        "replication",
        "divergence not told",
        "list-append",
        ("isolate-leader",),
        LOSS,
    ),
    Trial(
        "coordinator",
        "offsets of an aborted transaction kept",
        "eos-copy",
        ("none",),
        ("eos-loss",),
    ),
)
