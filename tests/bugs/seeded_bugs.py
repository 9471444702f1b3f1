"""Bugs that are put into the product on purpose, and the exam: does a simulation find them?

    python tests/bugs/raft_bugs.py --first-seed N [--only PART] [--record]

looks for each bug from seed N on and tells where it was found. With `--record` it writes what it
found to a file for the test suite; that is due whenever a change of the product shifts the seeds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kraftpy.sim.quorum_invariants import InvariantViolated
from kraftpy.world import InternalInvariant

SEED_LIMIT = 500


@dataclass(frozen=True)
class Bug:
    """`owner.method` is replaced by `broken`."""

    name: str
    owner: type
    method: str
    broken: Callable[..., Any]

    @contextmanager
    def seeded(self) -> Iterator[None]:
        original = self.owner.__dict__[self.method]
        setattr(self.owner, self.method, self.broken)
        try:
            yield
        finally:
            setattr(self.owner, self.method, original)


def failure_of(run: Callable[[int], None], seed: int) -> str | None:
    """The code of what a run is found guilty of."""
    try:
        run(seed)
    except InvariantViolated as violation:
        return violation.code
    except InternalInvariant as broken:
        return str(broken).split(":")[0].split()[0]
    return None


def find(bug: Bug, run: Callable[[int], None], first_seed: int) -> tuple[int, str] | None:
    """The seed that shows the bug, and as what."""
    with bug.seeded():
        for seed in range(first_seed, first_seed + SEED_LIMIT):
            code = failure_of(run, seed)
            if code is not None:
                return seed, code
    return None


def examine(bugs: Sequence[Bug], run: Callable[[int], None], seeds_file: Path) -> int:
    """The command: look for every bug; 1 if one was missed."""
    parser = argparse.ArgumentParser(description="find every seeded bug")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of a bug's name")
    parser.add_argument("--record", action="store_true", help="write the seeds for the test suite")
    options = parser.parse_args()
    seeds = json.loads(seeds_file.read_text()) if options.only and options.record else {}
    missed = 0
    for bug in bugs:
        if options.only not in bug.name:
            continue
        found = find(bug, run, options.first_seed)
        if found is None:
            missed += 1
            print(f"MISSED  {bug.name}", flush=True)
        elif failure_of(run, found[0]) is not None:
            missed += 1
            print(f"BROKEN  {bug.name}: seed {found[0]} fails without it", flush=True)
        else:
            seed, code = found
            seeds[bug.name] = {"seed": seed, "code": code}
            count = seed - options.first_seed + 1
            print(f"found   {bug.name}: seed {seed} ({count} tried), {code}", flush=True)
    if options.record:
        seeds_file.write_text(json.dumps(seeds, indent=2) + "\n")
    return 1 if missed else 0
