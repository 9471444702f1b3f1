"""Mutation testing of the cores (JEP-168): how many small changes do the tests notice?

    python tests/mutants/mutants.py                           a sample of each core
    python tests/mutants/mutants.py --only wheel --sample 0   all of one
    python tests/mutants/mutants.py --only wheel --show       and those that nobody noticed

For each mutant the tests of its core run in a process of their own, until the first that fails. One
that fails, does not end, or can't even be collected has killed it. The score of a core is the share
of those killed; it must be 85 %. Mutants that mean the same as the original count as not killed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from mutation_points import Mutant, described, mutants_of

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LEAST_PERCENT = 85
SAMPLE = 20
TIMEOUT_SECONDS = 300
# pytest's own codes: all passed, and nothing was there to be run.
PASSED, NOTHING = 0, 5


@dataclass(frozen=True)
class Core:
    """`tests` are what has to notice: those at the lowest level, and simulations of seconds."""

    name: str
    module: str
    tests: Sequence[str]

    @property
    def path(self) -> str:
        return f"{self.module.replace('.', '/')}.py"


CORES = (
    Core("wheel", "kraftpy.purgatory.wheel", ["tests/purgatory"]),
    Core("epochs", "kraftpy.log.epochs", ["tests/log/test_log_epochs.py"]),
    Core("varint", "kraftpy.records.varint", ["tests/records/test_varint.py"]),
    Core("voters", "kraftpy.raft.voters", ["tests/raft/test_raft_membership.py"]),
    Core("log-state", "kraftpy.raft.log_state", ["tests/raft", "-k", "not driver and not real"]),
    Core(
        "partition-change",
        "kraftpy.metadata.controller.partition_change",
        ["tests/metadata", "-k", "partition_change or elections or reassignment"],
    ),
)


def is_killed(core: Core, number: int, root: Path = ROOT) -> bool:
    """Raises RuntimeError if there are no tests to kill it."""
    environment = {**os.environ, "KRAFTPY_MUTANT": f"{core.module}:{number}"}
    paths = [str(HERE), str(root), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    # What was compiled of the original must not be taken for it.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    words = ["-x", "-q", "-p", "mutant_plugin", "-p", "no:cacheprovider", *core.tests]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return True
    if done.returncode == NOTHING:
        raise RuntimeError(f"{core.name} has no tests: {done.stdout}")
    return done.returncode != PASSED


def examine(core: Core, sample: int, seed: int, root: Path = ROOT) -> tuple[int, list[Mutant]]:
    """How many were tried, and those that nobody noticed."""
    found = mutants_of((root / core.path).read_text())
    if sample and sample < len(found):
        found = sorted(Random(f"{seed}/{core.name}").sample(found, sample), key=lambda e: e.number)
    alive = []
    for number, mutant in enumerate(found, 1):
        if not is_killed(core, mutant.number, root):
            alive.append(mutant)
        print(
            f"mutants: {core.name}, {number} of {len(found)}, {len(alive)} not noticed",
            file=sys.stderr,
            flush=True,
        )
    return len(found), alive


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", default="", metavar="PART", help="cores with that in their names")
    add("--sample", type=int, default=SAMPLE, metavar="N", help=f"of each; 0: all ({SAMPLE})")
    add("--seed", type=int, default=0, help="of the sample (0)")
    add("--show", action="store_true", help="those that nobody noticed")
    add("--format", choices=("text", "json"), default="text", help="(text)")
    options = parser.parse_args(arguments)
    bad = 0
    for core in CORES:
        if options.only not in core.name:
            continue
        tried, alive = examine(core, options.sample, options.seed)
        percent = 100 * (tried - len(alive)) / tried
        bad += percent < LEAST_PERCENT
        if options.format == "json":
            facts = {"kind": "mutants", "core": core.name, "tried": tried, "alive": len(alive)}
            print(json.dumps(facts))
        else:
            print(f"{core.name}: {tried - len(alive)} of {tried} killed, {percent:.0f} %")
        if options.show:
            source = (ROOT / core.path).read_text()
            print("\n".join(f"  {line}" for line in described(source, alive)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
