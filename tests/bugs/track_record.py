"""The track record: is what was found and fixed still caught, if the fix is taken back?

    python tests/bugs/track_record.py [--record]

runs the test that each finding of docs/findings.md is kept as, once as it is, which must pass, and
once against the code as it was before the fix, which must fail. With `--record` the commit at which
that was so is written into the last column of the table. Due before any large change of the tests.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from seeded_bugs import Bug
from unfixed import FINDINGS, VARIABLE, Finding

ROOT = Path(__file__).parents[2]
DOCUMENT = "docs/findings.md"
# pytest's own: tests ran, and some failed.
TESTS_FAILED = 1


def is_caught(finding: Finding, test: str, bug: Bug | None) -> bool:
    """Whether the test fails; raises RuntimeError if it did not even run."""
    environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
    if bug is not None:
        environment[VARIABLE] = bug.name
    paths = [str(Path(__file__).parent), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    words = ["-q", "--no-header", "-p", "unfixed", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, f"{finding.kept}::{test}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, TESTS_FAILED):
        raise RuntimeError(f"{finding.kept}::{test} did not run:\n{done.stdout}{done.stderr}")
    return done.returncode == TESTS_FAILED


def rows(text: str) -> list[list[str]]:
    """The cells of the table in the document, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines[1:]]


def with_commit(text: str, finding: Finding, commit: str) -> str:
    """The document, with the commit at which the finding was caught again."""
    [line] = [each for each in text.splitlines() if finding.words in each]
    *cells, _ = line.rstrip(" |").split(" | ")
    return text.replace(line, " | ".join([*cells, f"{commit} |"]))


def examine(finding: Finding) -> bool:
    """Whether everything that was wrong is caught, and nothing else is."""
    good = True
    for bug, test in finding.unfixed:
        if is_caught(finding, test, None):
            print(f"BROKEN  {test} fails as it is", flush=True)
            good = False
        elif is_caught(finding, test, bug):
            print(f"caught  {bug.name}: {test}", flush=True)
        else:
            print(f"MISSED  {bug.name}: {test} passes", flush=True)
            good = False
    return good


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="is what was fixed still caught without its fix?")
    parser.add_argument("--record", action="store_true", help=f"write the commit into {DOCUMENT}")
    options = parser.parse_args(arguments)
    command = ["git", "rev-parse", "--short=7", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    missed = 0
    for finding in FINDINGS:
        if not examine(finding):
            missed += 1
        elif options.record:
            path = ROOT / DOCUMENT
            path.write_text(with_commit(path.read_text(), finding, commit.stdout.strip()))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
