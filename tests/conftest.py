"""What holds for the whole suite: hypothesis profiles, the order of trio's tasks, where temporary
files go, and skips that CI does not accept.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator
from random import Random

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook
from hypothesis import HealthCheck, settings
from trio._core import _run as trio_run

from kraftpy.sim.scheduler import RandomOfThisThread

# The default profile gives the same examples in every run, so that a red test stays red. The long
# one explores: KRAFTPY_HYPOTHESIS=long make unit.
settings.register_profile(
    "fixed",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("long", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("KRAFTPY_HYPOTHESIS", "fixed"))

# pytest rewrites the assertions of a whole package that has a plugin for it. The product's are not
# its tests', and each worker would compile all of it once more.
for finder in sys.meta_path:
    if isinstance(finder, AssertionRewritingHook):
        finder._must_rewrite.discard("kraftpy")

# A skip with this prefix names something that no clone contains; it is fine anywhere.
OUTSIDE_THE_CLONE = "not part of a clone:"

TRIO_SEED = "--trio-seed"
_TRIOS_OWN = trio_run._r


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        TRIO_SEED,
        type=int,
        default=0,
        metavar="NUMBER",
        help="Which order trio gives to tasks that are due in the same turn (default: 0).",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: about half of the time, a test waits for something."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """The same order in every run, so that a red test stays red: whichever tests ran before, and
    whatever the loop of a cluster does that lives in another thread of this process."""
    random = Random(f"{item.config.getoption(TRIO_SEED)} {item.nodeid}")
    trio_run._r = RandomOfThisThread(random, _TRIOS_OWN)
    return (yield)


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """What a process leaves that was killed is below pytest's own directory, which it clears."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With CI=true a skip is a failure: CI's machines have every component."""
    report = yield
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if OUTSIDE_THE_CLONE not in reason:
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} was skipped, which CI does not accept: {reason}"
    if report.failed:
        again = f"pytest {TRIO_SEED} {item.config.getoption(TRIO_SEED)} '{item.nodeid}'"
        report.sections.append(("the same order of tasks again", again))
    return report
