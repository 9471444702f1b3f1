"""JEP-166: what was found is in a table, with the commit at which the unfixed code was caught."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import track_record
from track_record import DOCUMENT, ROOT, examine, rows, with_commit
from unfixed import FINDINGS, Finding


def test_every_finding_has_its_unfixed_code_and_a_commit() -> None:
    """JEP-166: found by, symptom, cause, fix, kept as, and when it was caught again."""
    table = rows((ROOT / DOCUMENT).read_text())
    assert table[0][0].startswith("---")
    for row in table[1:]:
        found_by, symptom, _cause, _fix, kept, caught_at = row
        assert found_by
        [finding] = [each for each in FINDINGS if each.words in symptom]
        assert kept == f"`{finding.kept}`"
        assert re.fullmatch("[0-9a-f]{7}", caught_at), "python tests/bugs/track_record.py --record"
    assert len(table) == len(FINDINGS) + 1


@pytest.mark.parametrize("finding", FINDINGS[-1:], ids=lambda each: each.kept)
def test_the_unfixed_code_is_caught(finding: Finding) -> None:
    """JEP-166: one of them here; `python tests/bugs/track_record.py` has all."""
    assert examine(finding)


def test_what_is_not_caught_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """JEP-166: a test keeps nothing that passes without the fix, or fails with it."""
    [(bug, test)] = FINDINGS[-1].unfixed
    monkeypatch.setattr(track_record, "is_caught", lambda finding, test, bug: False)
    assert not examine(FINDINGS[-1])
    assert capsys.readouterr().out == f"MISSED  {bug.name}: {test} passes\n"
    monkeypatch.setattr(track_record, "is_caught", lambda finding, test, bug: True)
    assert not examine(FINDINGS[-1])
    assert capsys.readouterr().out == f"BROKEN  {test} fails as it is\n"


def test_a_test_that_is_not_there_keeps_nothing() -> None:
    """JEP-166"""
    [(bug, _)] = FINDINGS[-1].unfixed
    with pytest.raises(RuntimeError, match="did not run"):
        examine(replace(FINDINGS[-1], unfixed=[(bug, "test_that_is_not_there")]))


def test_the_commit_is_written_into_the_row(tmp_path: Path) -> None:
    text = (ROOT / DOCUMENT).read_text()
    written = with_commit(text, FINDINGS[1], "0123abc")
    changed = [new for old, new in zip(rows(text), rows(written), strict=True) if old != new]
    assert [row[-1] for row in changed] == ["0123abc"]
    assert FINDINGS[1].words in changed[0][1]
