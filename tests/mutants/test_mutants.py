"""JEP-168: the command that measures how much the tests of the cores notice, in short."""

from __future__ import annotations

import ast
from pathlib import Path

import mutants
import pytest
from mutants import CORES, ROOT, Core, examine, main
from mutation_points import described, mutants_of, mutated

SOURCE = '''
"""Words."""

__all__ = ["clamp"]

LIMIT: int = 3


def clamp(value: int, low: int = 0) -> int:
    """Between low and LIMIT."""
    if value < low or not value:
        return low
    return min(value, LIMIT) + 0
'''
WEAK = "from small import clamp\n\ndef test_clamp():\n    assert clamp(5) == 3\n"
STRONG = WEAK + "    assert clamp(-5) == 0\n    assert clamp(2, 2) == 2 and clamp(1, 2) == 2\n"


def test_every_place_is_changed_once() -> None:
    found = mutants_of(SOURCE)
    lines = list(described(SOURCE, found))
    assert lines == [
        "line 6: 3 becomes one more: LIMIT: int = 3",
        "line 11: Lt becomes LtE: if value < low or not value:",
        "line 11: not is left out: if value < low or not value:",
        "line 11: and becomes or, or or and: if value < low or not value:",
        "line 13: 0 becomes one more: return min(value, LIMIT) + 0",
        "line 13: Add becomes Sub: return min(value, LIMIT) + 0",
        "line 9: 0 becomes one more: def clamp(value: int, low: int = 0) -> int:",
    ]
    originals = ast.unparse(ast.parse(SOURCE))
    texts = {ast.unparse(mutated(SOURCE, each.number)) for each in found}
    assert len(texts) == len(found)
    assert originals not in texts
    with pytest.raises(ValueError, match="there is no mutant 7"):
        mutated(SOURCE, 7)


def test_a_mutant_that_no_test_notices_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JEP-168: Add becomes Sub means the same here, and nobody can notice."""
    # The small tests need no plug-ins, and start sooner without.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "small.py").write_text(SOURCE)
    (tmp_path / "test_small.py").write_text(WEAK)
    core = Core("small", "small", ["test_small.py"])
    tried, left = examine(core, 0, 0, tmp_path)
    assert tried == 7
    assert {(each.line, each.change) for each in left} == {
        (9, "0 becomes one more"),
        (11, "Lt becomes LtE"),
        (11, "and becomes or, or or and"),
        (13, "Add becomes Sub"),
    }
    # With a better test it is noticed.
    (tmp_path / "test_small.py").write_text(STRONG)
    [number] = [each.number for each in left if each.line == 9]
    assert mutants.is_killed(core, number, tmp_path)


def test_the_command_has_a_measure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """JEP-168: 85 of a hundred."""
    killed = iter([True] * 17 + [False] * 3 + [True] * 16 + [False] * 4)
    monkeypatch.setattr(mutants, "is_killed", lambda *words: next(killed))
    assert main(["--only", "wheel", "--sample", "20"]) == 0
    assert capsys.readouterr().out == "wheel: 17 of 20 killed, 85 %\n"
    assert main(["--only", "wheel", "--sample", "20"]) == 1


def test_every_core_is_there_and_has_mutants() -> None:
    for core in CORES:
        assert len(mutants_of((ROOT / core.path).read_text())) >= 10
        assert (ROOT / core.tests[0]).exists()


def test_the_tests_of_a_core_notice_a_change() -> None:
    """JEP-168: one of the timing wheel's."""
    assert mutants.is_killed(CORES[0], len(mutants_of((ROOT / CORES[0].path).read_text())) // 2)
