"""The exam of the process suite: does it find seeded bugs in real nodes within five minutes?

    python tests/bugs/process_exam.py [--seed N] [--only PART] [--seconds 300] [--record]

A trial is a bug with the workload and the faults that suit it. All three nodes have the bug, and
short runs with the seeds N, N + 1, ... go on until one is found guilty of what the bug causes, or
until the time is over. Neither a node's death nor a failure of the harness counts: a checker must
have found it in what clients saw, or in the logs. Nor does a seed count whose run is not valid
without the bug.

With `--record` what was found is written for docs/testing.md, and the table there anew. Runs are
kept below `--out` with histories and reports.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import trio
from buggy_node import node_command
from exam import SUITES
from exam_table import DOCUMENT, PROCESS_RESULTS, with_table
from process_trials import TRIALS, Trial

from jepsen_tests.clients.table import find_clients
from jepsen_tests.nemeses import nemesis_of
from jepsen_tests.report import write_report
from jepsen_tests.run import Outcome, RunOptions, perform
from kraftpy.launch.cluster import NODE_COMMAND
from kraftpy.verify.workloads.catalogue import find_workload

LIMIT_SECONDS = 300.0
# A log that was cut short never shows what it had: who waits for it waits in vain.
FINAL_READ_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Conviction:
    anomaly: str
    seed: int
    tried: int
    seconds: float
    """From the start of the first run to the verdict of the last."""


class Silence:
    """A RunEvents."""

    def phase(self, name: str) -> None:
        pass

    def tick(self, seconds: float, counts: dict[str, int]) -> None:
        pass


class Exam:
    def __init__(self, out: Path, limit_seconds: float) -> None:
        self._out = out
        self._limit_seconds = limit_seconds
        self.is_product_guilty = False

    def find(self, trial: Trial, first_seed: int) -> Conviction | None:
        """None if it was missed."""
        spent = 0.0
        for tried, options in enumerate(self._runs(trial, first_seed), 1):
            begun = time.monotonic()
            outcome = _perform(options)
            spent += time.monotonic() - begun
            _say(f"  seed {options.seed}, {spent:.0f} s: {_told(outcome)}")
            if spent > self._limit_seconds:
                return None
            guilty = _guilty_of(outcome, trial)
            if guilty is not None and self._is_innocent_without(options):
                return Conviction(guilty, options.seed, tried, round(spent))
        return None

    def _runs(self, trial: Trial, first_seed: int) -> Iterator[RunOptions]:
        seed = first_seed
        while True:
            yield RunOptions(
                find_workload(trial.workload),
                nemesis_of(trial.nemeses),
                tuple(find_clients(["own"])),
                self._out / f"{trial.suite}-{trial.bug.replace(' ', '-')}-{seed}",
                seconds=trial.seconds,
                seed=seed,
                rate=trial.rate,
                group_protocol=trial.group_protocol,
                quiet_seconds=0.5,
                recovery_seconds=1.0,
                final_read_seconds=FINAL_READ_SECONDS,
                node_command=node_command(trial.suite, trial.bug),
            )
            seed += 1

    def _is_innocent_without(self, options: RunOptions) -> bool:
        """The control: the same run of nodes as they are must be valid."""
        name = f"control-{options.workload.name}-{'+'.join(options.nemesis.names)}"
        directory = self._out / f"{name}-{options.seed}"
        outcome = _perform(_without_bug(options, directory))
        _say(f"  seed {options.seed} without the bug: {_told(outcome)}")
        if outcome.state == "invalid":
            self.is_product_guilty = True
            _say(f"  GUILTY WITHOUT THE BUG: {directory}")
        return outcome.is_good


def _without_bug(options: RunOptions, directory: Path) -> RunOptions:
    # A nemesis of its own: it remembers what it had to skip.
    nemesis = nemesis_of(options.nemesis.names)
    return replace(options, directory=directory, nemesis=nemesis, node_command=NODE_COMMAND)


def _perform(options: RunOptions) -> Outcome:
    shutil.rmtree(options.directory, ignore_errors=True)
    options.directory.mkdir(parents=True)
    outcome = trio.run(perform, options, Silence())
    write_report(outcome.report_path, outcome.history, outcome.shown_verdict, outcome.history.run)
    if outcome.is_good:
        shutil.rmtree(options.directory / "cluster", ignore_errors=True)
    return outcome


def _told(outcome: Outcome) -> str:
    """The verdict, and what it stands on."""
    verdict = outcome.shown_verdict
    found = ", ".join(sorted({each.name for each in verdict.bad})) or "; ".join(verdict.reasons)
    return f"{outcome.state} ({found})" if found else outcome.state


def _guilty_of(outcome: Outcome, trial: Trial) -> str | None:
    if outcome.verdict is None:
        return None
    found = {each.name for each in outcome.verdict.bad}
    return next((name for name in trial.anomalies if name in found), None)


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--seed", type=int, default=0, metavar="N", help="the first one (0)")
    add("--only", default="", metavar="PART", help="of `suite: bug`; all trials by default")
    add("--seconds", type=float, default=LIMIT_SECONDS, help="for each bug (300)")
    add("--out", type=Path, default=Path("jepsen-runs/exam"), metavar="DIR", help="of the runs")
    add("--record", action="store_true", help=f"write what was found into {DOCUMENT}")
    options = parser.parse_args()
    exam = Exam(options.out.resolve(), options.seconds)
    missed = 0
    for trial in TRIALS:
        if options.only not in trial.title:
            continue
        faults = ", ".join(trial.nemeses)
        _say(f"{trial.title}: {trial.workload} under {faults}")
        found = exam.find(trial, options.seed)
        if found is None:
            missed += 1
            _say(f"MISSED  {trial.title}")
        else:
            _say(
                f"found   {trial.title}: {found.anomaly}, seed {found.seed} "
                f"({found.tried} tried), {found.seconds:.0f} s"
            )
        if options.record:
            _record(trial, found)
    return 1 if missed or exam.is_product_guilty else 0


def _record(trial: Trial, found: Conviction | None) -> None:
    """At once, so that an exam that is interrupted keeps what it has."""
    results: dict[str, Any] = json.loads(PROCESS_RESULTS.read_text())
    results.pop(trial.title, None)
    if found is not None:
        results[trial.title] = {
            "workload": trial.workload,
            "nemeses": list(trial.nemeses),
            "code": found.anomaly,
            "seed": found.seed,
            "tried": found.tried,
            "seconds": found.seconds,
        }
    PROCESS_RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")
    path = Path(__file__).parents[2] / DOCUMENT
    path.write_text(with_table(path.read_text(), SUITES))


if __name__ == "__main__":
    # The world of transactions is among the tests of the coordinator.
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(main())
