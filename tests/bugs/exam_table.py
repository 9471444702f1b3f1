"""The table of docs/testing.md: which simulation finds which bug, as what, after how many seeds,
and whether the process suite finds it too.

The first part has the 35 bugs that the project's specification of its tests asks for, each with
those of ours that it is; the second part has all others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from seeded_bugs import Bug, Suite

DOCUMENT: Final = "docs/testing.md"
BEGIN: Final = "<!-- the exam: python tests/bugs/exam.py --table -->\n"
END: Final = "<!-- the end of the exam -->\n"
# What the last exam of the process suite has found.
PROCESS_RESULTS: Final = Path(__file__).with_name("process_results.json")

# What is asked for, and the bug that it is: suite and name.
ASKED_FOR: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "ack before min ISR": (
        ("replication", "acknowledged below min isr"),
        ("replication", "acknowledged when the leader has it"),
    ),
    "high watermark advanced by the leader alone": (
        ("raft", "high watermark by the leader alone"),
        ("replication", "leader alone commits"),
    ),
    "high watermark allowed to decrease": (
        ("raft", "high watermark falls"),
        ("replication", "high watermark falls"),
    ),
    "vote not persisted": (("raft", "vote not persisted"),),
    "election without log check": (("raft", "election without log check"),),
    "truncate to the high watermark instead of the epoch's end": (
        ("raft", "truncate to the watermark"),
        ("replication", "follower truncates to its high watermark"),
    ),
    "stale leader serves fetch": (
        ("replication", "deposed leader serves"),
        ("replication", "any leader epoch served"),
    ),
    "last stable offset + 1": (("replication", "one unstable record is shown"),),
    "aborted index skips the first batch": (("log", "aborted index skips the first batch"),),
    "commit marker before PREPARE is durable": (
        ("coordinator", "markers before the decision is committed"),
        ("transaction", "markers before the decision is committed"),
    ),
    "no epoch bump for each transaction": (("transaction", "no epoch bump"),),
    "EndTxn accepted for any epoch": (("transaction", "end accepted for any epoch"),),
    "producer state not rebuilt after a failover": (
        ("replication", "followers know no producers"),
    ),
    "duplicate answered with offset 0": (("replication", "repetition answered with offset 0"),),
    "sequence check off": (("replication", "sequence unchecked"),),
    "generation not persisted": (("coordinator", "generation not persisted"),),
    "offset commit without generation check": (("coordinator", "commit without generation check"),),
    "two members get one partition": (
        ("coordinator", "two members get one partition"),
        ("coordinator", "everything is free"),
    ),
    "committed offset read from a stale coordinator": (
        ("coordinator", "stale coordinator answers"),
    ),
    "sync skipped before rename": (("log", "sync skipped before rename"),),
    "directory not synced": (("log", "directory not synced"),),
    "CRC not checked on recovery": (("log", "crc not checked on recovery"),),
    "index not truncated with the log": (("log", "index not truncated with the log"),),
    "compaction drops the last value": (("log", "compaction drops the last value"),),
    "retention by wall clock after a jump": (("log", "retention by the wall clock of creation"),),
    "purgatory loses a wake-up": (
        ("server", "wake up lost while another is under way"),
        ("server", "wake up lost for all but the first key"),
    ),
    "timer never fires at the wheel's overflow": (
        ("server", "timer never fires beyond the first wheel"),
    ),
    "ISR expands before the log's end reaches the epoch's start": (
        ("replication", "joins below the start of the epoch"),
    ),
    "broker epoch check missing in AlterPartition": (
        ("controller", "alteration of an earlier process"),
        ("controller", "member's broker epoch unchecked"),
    ),
    "unclean node stays in ELR": (("controller", "unclean broker stays eligible"),),
    "metadata batch applied half": (("controller", "last record of a batch is lost"),),
    "snapshot without epoch": (("raft", "snapshot without epoch"),),
    "deleted topic's data served to a topic of the same name": (
        ("log", "another topics log is taken"),
        ("log", "deleted log stays where it was"),
    ),
    "response sent out of order on a pipelined connection": (
        ("server", "answers leave as they are finished"),
    ),
    "connection limit counter leaks": (
        ("server", "connection count leaks"),
        ("server", "refused connection stays counted"),
    ),
}


def with_table(text: str, suites: Sequence[Suite]) -> str:
    """The document with the table of now."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return before + BEGIN + "\n".join(_lines(suites)) + "\n" + END + after


def _lines(suites: Sequence[Suite]) -> Iterator[str]:
    by_processes = json.loads(PROCESS_RESULTS.read_text())
    by_name = {
        (suite.name, bug.name): _row(suite, bug, by_processes)
        for suite in suites
        for bug in suite.bugs
    }
    head = (
        "| Bug | Replaced method | Simulation | Found as | Seeds | Processes |",
        "| --- | --- | --- | --- | --- | --- |",
    )
    yield from ("", f"Asked for ({len(ASKED_FOR)}):", "", *head)
    known: dict[tuple[str, str], None] = {}
    for what, names in ASKED_FOR.items():
        for name in names:
            known[name] = None
            told = what if name[1] == what else f"{what}: {name[1]}"
            yield f"| {told} {by_name[name]}"
    others = [name for name in by_name if name not in known]
    yield from ("", f"Our own ({len(others)}):", "", *head)
    for name in others:
        yield f"| {name[1]} {by_name[name]}"
    yield ""


def _row(suite: Suite, bug: Bug, by_processes: dict[str, dict[str, Any]]) -> str:
    found = suite.recorded().get(bug.name, {})
    place = f"`{bug.owner.__name__}.{bug.method}`"
    processes = by_processes.get(f"{suite.name}: {bug.name}")
    return (
        f"| {place} | {suite.level} | {found.get('code', '?')} | {found.get('tried', '?')} | "
        f"{'' if processes is None else _told(processes)} |"
    )


def _told(found: dict[str, Any]) -> str:
    """By which workload and faults, as what, after how many seeds and seconds."""
    faults = ", ".join(found["nemeses"])
    under = "" if faults == "none" else f" under {faults}"
    seeds = "1 seed" if found["tried"] == 1 else f"{found['tried']} seeds"
    return f"{found['workload']}{under}: {found['code']}, {seeds}, {found['seconds']} s"
