"""JEP-167: the exam as a command, which a week's work ends with (`make exam`): one short run."""

from __future__ import annotations

import sys
from dataclasses import replace

import exam
import pytest
import server_bugs
from seeded_bugs import SEED_LIMIT, Bug, Suite

from kraftpy.purgatory.wheel import TimingWheel

FOUND_AT_ONCE = "timer never fires beyond the first wheel"


def run_exam(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["exam.py", *words])
    return exam.main()


def test_the_exam_finds_a_bug_from_any_seed_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """JEP-167: with its seed, what it was found as, and how many seeds that took."""
    words = ("--first-seed", "90210", "--suite", "server", "--only", FOUND_AT_ONCE)
    assert run_exam(monkeypatch, *words) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith(f"found   server: {FOUND_AT_ONCE}: seed 9")
    assert line.endswith("tried), timer-overdue")


def test_a_bug_that_no_seed_finds_fails_the_exam(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """JEP-167: after 500 seeds, and not one more."""
    tried: list[int] = []
    harmless = Bug("harmless", TimingWheel, "add", TimingWheel.add)
    suite: Suite = replace(server_bugs.SUITE, bugs=[harmless], run=tried.append)
    monkeypatch.setattr(exam, "SUITES", (suite,))
    assert run_exam(monkeypatch, "--first-seed", "7") == 1
    assert capsys.readouterr().out == "MISSED  server: harmless\n"
    assert tried == list(range(7, 7 + SEED_LIMIT))
