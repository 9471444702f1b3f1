"""Each seeded bug is found by the seed that was recorded for it, as what it is.

That any 500 seeds find each is for the exam: `make exam`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from exam import SUITES
from exam_table import ASKED_FOR, DOCUMENT, with_table
from seeded_bugs import Bug, Suite

RECORDED = {suite.name: suite.recorded() for suite in SUITES}
BUGS = [
    pytest.param(suite, bug, id=f"{suite.name}: {bug.name}")
    for suite in SUITES
    for bug in suite.bugs
]
SEEDS = [
    pytest.param(suite, seed, id=f"{suite.name} {seed}")
    for suite in SUITES
    for seed in sorted({each["seed"] for each in RECORDED[suite.name].values()})
]


@pytest.mark.parametrize(("suite", "bug"), BUGS)
def test_the_simulation_finds(suite: Suite, bug: Bug) -> None:
    recorded = RECORDED[suite.name][bug.name]
    with bug.seeded():
        code = suite.failure_of(recorded["seed"])
    assert code == recorded["code"], "shifted: python tests/bugs/exam.py --record"


@pytest.mark.parametrize(("suite", "seed"), SEEDS)
def test_the_same_seed_is_clean_without_the_bug(suite: Suite, seed: int) -> None:
    assert suite.failure_of(seed) is None


def test_the_table_is_that_of_the_last_exam() -> None:
    """All 35 bugs that are asked for, and every other one."""
    assert len(ASKED_FOR) == 35
    text = (Path(__file__).parents[2] / DOCUMENT).read_text()
    assert text == with_table(text, SUITES), "stale: python tests/bugs/exam.py --table"
    for suite in SUITES:
        assert {bug.name for bug in suite.bugs} == RECORDED[suite.name].keys()
