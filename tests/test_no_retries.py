"""JEP-169: no test is tried again until it is green.

A test that fails once in a while has found something, or is wrong; to run it again hides both. So
neither a plugin nor a mark nor a loop in what CI runs does so. (What a product's client repeats
against a broker is another matter, and is not looked at.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RUNS_TESTS = [ROOT / name for name in (".ci/run", "Makefile", "pyproject.toml", "constraints.txt")]
TESTS = sorted((ROOT / "tests").rglob("*.py")) + sorted((ROOT / "spark").rglob("test_*.py"))

_PLUGIN = re.compile(r"\b(pytest[-_](rerunfailures|retry|repeat)|flaky|flaky[-_]?pytest)\b")
_OPTION = re.compile(r"--(reruns?|retries|force-flaky|max-runs|flaky)\b|-p\s+\w*rerun")
_MARK = re.compile(r"@(?:\w+\.)*(flaky|reruns?|retry|retries)\b|\bmark\.(flaky|reruns?|retry)\b")
# A command of the shell that runs tests, in a loop or once more when it failed.
_RUNS = re.compile(r"\bpytest\b|\bmake (test|unit|crash)\b")
_AGAIN = re.compile(r"\b(for|until|while)\b.*\bdo\b|\|\|(?!\s*(exit|false)\b)|\bretry\b")


def retries_in_commands(text: str) -> Iterator[str]:
    """In a Makefile, a script of the shell or a list of packages."""
    for line in text.replace("\\\n", " ").splitlines():
        code = line.partition("#")[0]
        is_repeated = _RUNS.search(code) and _AGAIN.search(code)
        if _PLUGIN.search(code) or _OPTION.search(code) or is_repeated:
            yield line


def retries_in_tests(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if _MARK.search(line) or (line.lstrip().startswith(("import", "from")) and "flaky" in line):
            yield line


@pytest.mark.parametrize("path", RUNS_TESTS, ids=lambda path: path.name)
def test_no_command_tries_again(path: Path) -> None:
    """JEP-169."""
    assert list(retries_in_commands(path.read_text())) == []


def test_no_test_asks_to_be_tried_again() -> None:
    """JEP-169."""
    found = {
        path.relative_to(ROOT).as_posix(): lines
        for path in TESTS
        if path != Path(__file__) and (lines := list(retries_in_tests(path.read_text())))
    }
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        '    "pytest-rerunfailures>=14",',
        "flaky==3.8",
        "\t$(BIN)/python -m pytest --reruns 2 tests",
        "until make test; do sleep 1; done",
        "for try in 1 2 3; do python -m pytest && break; done",
        "python -m pytest || python -m pytest --lf",
        "make test || make test",
        "for try in 1 2; \\\n  do pytest; done",
    ],
)
def test_a_command_that_does_is_seen(line: str) -> None:
    assert len(list(retries_in_commands(line))) == 1


@pytest.mark.parametrize(
    "line", ["exec make test", "pytest -q tests || exit 1", "for l in a b; do kraftpy sim; done"]
)
def test_a_command_that_does_not_is_left_alone(line: str) -> None:
    assert list(retries_in_commands(line)) == []


@pytest.mark.parametrize(
    "line",
    ["@pytest.mark.flaky(reruns=3)", "@flaky", "@retry(3)", "pytestmark = pytest.mark.flaky"],
)
def test_a_mark_is_seen(line: str) -> None:
    assert list(retries_in_tests(line)) == [line]
