"""JEP-149: rare events have names, runs tell which they reached, and a ledger for how long not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftpy.cli.main import main
from kraftpy.raft.log_state import LogState
from kraftpy.sim.marks import DAY_SECONDS, MARKS, Ledger, Mark, marking

QUORUM = ["--level", "quorum", "--events", "4000"]


def test_the_product_has_every_method_that_is_marked() -> None:
    for mark in MARKS:
        assert callable(mark.owner.__dict__[mark.method]), mark
    assert len({mark.name for mark in MARKS}) == len(MARKS)


def test_calls_are_counted_that_fulfil_the_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    """JEP-149: two marks may be on one method, and nothing of them stays."""

    class Product:
        def cut(self, offset: int) -> int:
            return offset

    marks = (
        Mark("cut", Product, "cut", lambda product, offset: True),
        Mark("cut low", Product, "cut", lambda product, offset: offset < 5),
    )
    monkeypatch.setattr("kraftpy.sim.marks.MARKS", marks)
    original = Product.__dict__["cut"]
    with marking() as counts:
        assert [Product().cut(offset) for offset in (3, 7)] == [3, 7]
    assert counts == {"cut": 2, "cut low": 1}
    assert Product.__dict__["cut"] is original
    assert Product().cut(1) == 1
    assert counts == {"cut": 2, "cut low": 1}


def test_a_week_without_a_mark_is_too_long() -> None:
    """JEP-149"""
    ledger = Ledger()
    now = 100 * DAY_SECONDS
    for mark in MARKS[1:]:
        ledger.note({mark.name: 3}, "quorum", 4711, now - 8 * DAY_SECONDS)
    again = Ledger(ledger.text())
    again.note({MARKS[2].name: 1}, "whole", 5, now - 6 * DAY_SECONDS)
    unreached = again.unreached(7, now)
    assert MARKS[0].name in unreached
    assert MARKS[1].name in unreached
    assert MARKS[2].name not in unreached
    assert again.unreached(9, now) == [MARKS[0].name]
    lines = list(again.lines(now))
    assert lines[0] == f"never          {MARKS[0].name}"
    assert lines[2] == f"  6.0 days ago {MARKS[2].name} (whole, seed 5)"
    for text in ("[1]", '{"a": 1}', '{"a": {"seed": 1}}'):
        with pytest.raises(ValueError, match="no ledger"):
            Ledger(text)


def test_a_run_tells_what_it_has_reached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """JEP-149: the quorum alone cuts logs and takes over snapshots."""
    file = tmp_path / "marks.json"
    assert main(["sim", "run", "--seeds", "4", "--marks", str(file), *QUORUM]) == 0
    printed = capsys.readouterr().out
    assert f" of {len(MARKS)} rare events were reached" in printed
    known = json.loads(file.read_text())
    cut = next(mark.name for mark in MARKS if mark.owner is LogState and mark.method == "truncate")
    assert known[cut]["level"] == "quorum"
    assert 0 <= known[cut]["seed"] < 4
    # Nothing of the data was simulated.
    assert MARKS[0].name not in known
    assert main(["sim", "marks", str(file)]) == 1
    assert f"not reached for 7 days: {MARKS[0].name}" in capsys.readouterr().out
    monkeypatch.setattr("kraftpy.sim.marks.MARKS", tuple(m for m in MARKS if m.name in known))
    assert main(["sim", "marks", str(file)]) == 0
    assert main(["sim", "marks", str(tmp_path / "nothing")]) == 1


def test_a_file_that_is_no_ledger_is_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """JEP-149: not when the hours are over; and nothing that somebody else has there is lost."""
    file = tmp_path / "other.json"
    file.write_text("[1]")
    for path in (file, tmp_path / "no folder" / "marks.json"):
        assert main(["sim", "run", "--seeds", "4", "--marks", str(path), *QUORUM]) == 2
        printed = capsys.readouterr()
        assert f"--marks {path}: " in printed.err
        assert printed.out == ""
    assert file.read_text() == "[1]"
