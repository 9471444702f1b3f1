"""The exam: do the simulations find the bugs that are put into the product on purpose?

    python tests/bugs/exam.py --first-seed N [--suite raft] [--only PART] [--record] [--table]

looks for each bug from seed N on and tells where it was found. With `--record` it writes what it
found for the test suite, which replays it; that is due whenever a change of the product shifts the
seeds. With `--table` it only writes the table in docs/testing.md anew, from what was recorded.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path

import controller_bugs
import coordinator_bugs
import log_bugs
import raft_bugs
import replication_bugs
import server_bugs
import transaction_bugs
from exam_table import DOCUMENT, with_table
from seeded_bugs import Bug, Suite

SUITES: tuple[Suite, ...] = (
    raft_bugs.SUITE,
    controller_bugs.SUITE,
    log_bugs.SUITE,
    replication_bugs.SUITE,
    server_bugs.SUITE,
    coordinator_bugs.SUITE,
    transaction_bugs.SUITE,
)


def examine(suite: Suite, bug: Bug, first_seed: int) -> dict[str, object] | None:
    """What to record; None if the bug was missed, or if the seed fails without it."""
    found = suite.find(bug, first_seed)
    if found is None:
        print(f"MISSED  {suite.name}: {bug.name}", flush=True)
        return None
    seed, code = found
    if suite.failure_of(seed) is not None:
        print(f"BROKEN  {suite.name}: {bug.name}: seed {seed} fails without it", flush=True)
        return None
    tried = seed - first_seed + 1
    print(f"found   {suite.name}: {bug.name}: seed {seed} ({tried} tried), {code}", flush=True)
    return {"seed": seed, "code": code, "tried": tried}


def main() -> int:
    parser = argparse.ArgumentParser(description="find every seeded bug")
    parser.add_argument("--first-seed", type=int, default=0, help="0 by default")
    parser.add_argument("--suite", choices=[suite.name for suite in SUITES], help="all by default")
    parser.add_argument("--only", default="", help="part of a bug's name")
    parser.add_argument("--record", action="store_true", help="write the seeds for the test suite")
    parser.add_argument("--table", action="store_true", help=f"only write the table in {DOCUMENT}")
    options = parser.parse_args()
    logging.getLogger("kraftpy").addHandler(logging.NullHandler())
    logging.getLogger("kraftpy").propagate = False
    missed = 0
    for suite in SUITES:
        if options.table or options.suite not in (None, suite.name):
            continue
        records = suite.recorded() if options.only and options.record else {}
        for bug in suite.bugs:
            if options.only not in bug.name:
                continue
            record = examine(suite, bug, options.first_seed)
            if record is None:
                missed += 1
            else:
                records[bug.name] = record
        if options.record:
            suite.seeds_path.write_text(json.dumps(records, indent=2) + "\n")
    if options.table or options.record:
        path = Path(__file__).parents[2] / DOCUMENT
        path.write_text(with_table(path.read_text(), SUITES))
    return 1 if missed else 0


if __name__ == "__main__":
    # The world of transactions is among the tests of the coordinator.
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(main())
