"""JEP-170: what was found in Kafka and its kin (testing.md, section 4) has tests here, by its id.

Most of the findings have a seeded bug that does the same to us; test_seeded_bugs.py has the seed of
a simulation that finds it. Others are about clients, or about what is allowed: those have tests of
their own, whose words name the finding.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from exam import SUITES

TESTS = Path(__file__).parents[1]

# By finding: suites and bugs in them.
BUGS: dict[str, tuple[tuple[str, str], ...]] = {
    "F1": (
        ("transaction", "end accepted for any epoch"),
        ("transaction", "no epoch bump"),
        ("transaction", "late marker ends the next transaction"),
        ("transaction", "any guard fits"),
    ),
    "F2": (("coordinator", "offsets of an aborted transaction kept"),),
    "F4": (("transaction", "nobody times out"), ("transaction", "fencing forgets the epoch")),
    "F6": (
        ("replication", "acknowledged below min isr"),
        ("replication", "leader alone commits"),
        ("controller", "elected from outside the ISR"),
        ("controller", "unclean broker stays eligible"),
    ),
    "F7": (
        ("raft", "answer before the promise is durable"),
        ("raft", "high watermark counts unsynced data"),
        ("replication", "new leader counts what is not flushed"),
        ("log", "data not synced"),
    ),
    "F8": (
        ("replication", "repetition answered with offset 0"),
        ("server", "wake up lost while another is under way"),
    ),
    "F9": (
        ("replication", "followers know no producers"),
        ("replication", "repetition not recognized"),
    ),
    "F10": (
        ("replication", "acknowledged when the leader has it"),
        ("coordinator", "answers before the high watermark"),
    ),
    "F11": (
        ("replication", "one unstable record is shown"),
        ("replication", "stable before the end is replicated"),
        ("log", "aborted index skips the first batch"),
        ("log", "recovery rebuilds no aborted index"),
    ),
    "F12": (
        ("transaction", "markers before the decision is committed"),
        ("transaction", "decision not carried out after loading"),
    ),
    "F13": (
        ("controller", "reassignment ends early"),
        ("replication", "expansion commits without the new member"),
    ),
    "F14": (
        ("coordinator", "offsets visible before the marker"),
        ("coordinator", "loaded means committed"),
    ),
    "F15": (("coordinator", "stale coordinator answers"),),
    "F16": (
        ("coordinator", "generation not persisted"),
        ("coordinator", "commit without generation check"),
    ),
    "F17": (("log", "crc not checked on recovery"),),
    "F18": (("log", "compaction drops the last value"), ("log", "aborted values win")),
}
WITHOUT_BUG = ("F3", "F5", "F19", "F20")


def test_every_finding_is_here() -> None:
    numbers = sorted(int(each[1:]) for each in (*BUGS, *WITHOUT_BUG))
    assert numbers == list(range(1, 21))


@pytest.mark.parametrize("finding", BUGS)
def test_a_finding_has_bugs_that_simulations_find(finding: str) -> None:
    found = {(suite.name, name) for suite in SUITES for name in suite.recorded()}
    seeded = {(suite.name, bug.name) for suite in SUITES for bug in suite.bugs}
    assert found & seeded >= set(BUGS[finding])


@pytest.fixture(scope="module")
def named() -> set[str]:
    """The findings that tests name in the first line of their words."""
    words = re.compile(r'^    """(.*)$', re.MULTILINE)
    paths = (path for path in TESTS.rglob("test_*.py") if path != Path(__file__))
    lines = (line for path in paths for line in words.findall(path.read_text()))
    return {finding for line in lines for finding in re.findall(r"\bF\d{1,2}\b", line)}


@pytest.mark.parametrize(
    "finding", [*WITHOUT_BUG, "F1", "F2", "F4", "F8", "F10", "F12", "F14", "F15", "F16"]
)
def test_a_finding_has_a_test_that_names_it(finding: str, named: set[str]) -> None:
    assert finding in named
