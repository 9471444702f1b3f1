"""Run clusters in a simulated world, where one seed is one run, event for event.

Everything that may go wrong does: nodes are killed and lose power, links are cut, clocks jump,
disks fail. Whatever must never be is checked all the time; `run` says which seeds have shown it,
`replay` shows what happened, and `shrink` finds a small world in which it still happens.

examples:
  kraftpy sim run --seeds 100 --jobs 2              whole clusters under a hundred seeds
  kraftpy sim run --seeds 1000 --level quorum       the Raft quorum alone, which is much quicker
  kraftpy sim run --for 3600 --jobs 2               as many as an hour has room for
  kraftpy sim replay 4711                           one run again; the last line is its digest
  kraftpy sim replay 4711 --until 3200              and what happened before its event 3200
  kraftpy sim replay 4711 --trace n2,__cluster      events with these words
  kraftpy sim run --seeds 500 --marks marks.json    and note which rare events were reached
  kraftpy sim marks marks.json                      is there one that was not for a week?
  kraftpy sim shrink 4711                           fewer faults, fewer features, the same failure

Exit codes: 0 all was well; 1 something was violated; 2 the command line is wrong.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import count as count_from
from itertools import islice
from typing import TYPE_CHECKING

from kraftpy.cli.failure import EXIT_FAILED, EXIT_USAGE, CommandFailed

if TYPE_CHECKING:
    from kraftpy.sim.levels import SeedReport, Size
    from kraftpy.sim.marks import Ledger

__all__ = ["add_arguments", "run"]

_LEVELS = ("whole", "quorum", "cluster", "data", "coordinators", "logs", "requests")
_SHOWN_EVENTS = 100
_PROGRESS_SECONDS = 5.0


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    running = verbs.add_parser("run", help="many seeds; which of them fail")
    running.add_argument("--seeds", type=_count, default=20, metavar="N", help="how many (20)")
    running.add_argument("--first-seed", type=int, default=0, metavar="S", help="the first one (0)")
    running.add_argument("--jobs", type=_count, default=1, metavar="J", help="processes (1)")
    running.add_argument(
        "--for",
        dest="for_seconds",
        type=_seconds,
        metavar="SECONDS",
        help="as many seeds as begin in that time, instead of --seeds",
    )
    running.add_argument(
        "--marks", metavar="FILE", help="note there which rare events were reached, and when"
    )
    running.add_argument("--fail-fast", action="store_true", help="stop at the first failure")
    replaying = verbs.add_parser("replay", help="one seed again, with what happened")
    replaying.add_argument("seed", type=int)
    replaying.add_argument(
        "--until", type=_count, metavar="E", help=f"show the {_SHOWN_EVENTS} events before event E"
    )
    replaying.add_argument(
        "--trace",
        type=_words,
        default=(),
        metavar="WORD,WORD",
        help="show events with all of these",
    )
    shrinking = verbs.add_parser("shrink", help="the smallest world that fails alike")
    shrinking.add_argument("seed", type=int)
    shrinking.add_argument(
        "--budget", type=_count, default=200, metavar="N", help="runs to spend at most (200)"
    )
    marking = verbs.add_parser("marks", help="rare events, and when seeds have reached them last")
    marking.add_argument("file", help="what `run --marks` has written")
    marking.add_argument(
        "--days", type=float, default=7.0, help="for so long, none may be without a seed (7)"
    )
    for verb in (running, replaying, shrinking):
        verb.add_argument(
            "--level", choices=_LEVELS, default="whole", help="what is simulated (whole)"
        )
        verb.add_argument("--events", type=_count, metavar="N", help="length; not for whole")
        verb.add_argument(
            "--minutes", type=float, metavar="M", help="length with faults (1); whole"
        )
        verb.add_argument("--messages", type=_count, metavar="N", help="at most so many; for whole")
        verb.add_argument(
            "--format", choices=("text", "json"), default="text", help="output (text)"
        )


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise ArgumentTypeError(f"{text!r} is no time")
    return seconds


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def run(options: Namespace) -> int:
    verbs = {"run": _run, "replay": _replay, "shrink": _shrink, "marks": _show_marks}
    return verbs[options.verb](options)


def _size(options: Namespace) -> Size:
    from kraftpy.sim.levels import Size

    seconds = None if options.minutes is None else options.minutes * 60
    return Size(options.events, seconds, options.messages)


def _run_seed(level: str, seed: int, size: Size) -> SeedReport:
    """In a process of its own, perhaps."""
    from kraftpy.sim.levels import find_level
    from kraftpy.sim.marks import marking

    with marking() as marks:
        report = find_level(level).run(seed, size, range(0))
    return replace(report, figures={**report.figures, "marks": marks})


# run


def _run(options: Namespace) -> int:
    if options.marks is not None:
        # Hours may be spent before anything is written there.
        _ledger(options.marks)
    tally = _Tally(None if options.for_seconds is not None else options.seeds)
    for report in _reports(options):
        tally.add(report)
        if options.format == "json":
            print(json.dumps(_as_json(report)), flush=True)
        elif not report.is_good:
            _show_failure(report, options)
        if not report.is_good and options.fail_fast:
            break
        tally.show_progress()
    tally.end()
    if options.marks is not None:
        _note_marks(options.marks, options.level, tally.marks)
    if options.format == "text":
        print("\n".join([tally.text(), *tally.coverage()]))
    return EXIT_FAILED if tally.failures else 0


def _seeds(options: Namespace) -> Iterator[int]:
    if options.for_seconds is None:
        yield from range(options.first_seed, options.first_seed + options.seeds)
        return
    ends_at = time.monotonic() + options.for_seconds
    for seed in count_from(options.first_seed):
        yield seed
        if time.monotonic() >= ends_at:
            return


def _reports(options: Namespace) -> Iterator[SeedReport]:
    seeds = _seeds(options)
    size = _size(options)
    if options.jobs == 1:
        for seed in seeds:
            yield _run_seed(options.level, seed, size)
        return
    from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
    from multiprocessing import get_context

    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        waiting: set[Future[SeedReport]] = set()

        def begin(most: int) -> None:
            """No more than the processes can have at once and next: time may be over by then."""
            for seed in islice(seeds, most):
                waiting.add(pool.submit(_run_seed, options.level, seed, size))

        begin(2 * options.jobs)
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                begin(len(done))
                yield from sorted((each.result() for each in done), key=lambda each: each.seed)
        finally:
            pool.shutdown(cancel_futures=True)


class _Tally:
    """What was done so far, and how fast."""

    def __init__(self, seeds: int | None) -> None:
        """Without a number, time says when it is enough."""
        self._seeds = "" if seeds is None else f" of {seeds}"
        self._began = self._shown = time.monotonic()
        self.done = self.failures = self.steps = 0
        self.virtual_seconds = self.processor_seconds = 0.0
        self._buggified: dict[str, int] = {}
        # Of rare events, the last seed that has reached each.
        self.marks: dict[str, int] = {}

    def add(self, report: SeedReport) -> None:
        self.done += 1
        self.failures += not report.is_good
        self.steps += report.steps
        self.virtual_seconds += report.virtual_seconds
        self.processor_seconds += report.processor_seconds
        self.marks |= dict.fromkeys(report.figures.get("marks", {}), report.seed)
        for site, count in report.figures.get("buggified", {}).items():
            self._buggified[site] = self._buggified.get(site, 0) + count

    def text(self) -> str:
        seconds = max(time.monotonic() - self._began, 0.001)
        processor_seconds = max(self.processor_seconds, 0.001)
        return (
            f"{self.done}{self._seeds} seeds, {self.done / seconds:.2f} seeds/s,"
            f" {self.virtual_seconds / 3600:.2f} simulated hours"
            f" ({self.virtual_seconds / processor_seconds:,.0f} times real time),"
            f" {self.steps / processor_seconds:,.0f} steps/s a processor, {self.failures} failed"
        )

    def coverage(self) -> list[str]:
        """Of rare events, those that were not reached; and of the places where the product makes
        rare choices, those that have made none.
        """
        from kraftpy.sim.marks import MARKS

        unreached = [mark.name for mark in MARKS if mark.name not in self.marks]
        lines = [f"{len(self.marks)} of {len(MARKS)} rare events were reached"]
        lines += [f"  not reached: {'; '.join(unreached)}"] if unreached else []
        if not self._buggified:
            return lines
        from kraftpy.sim.buggify import product_sites

        sites = product_sites()
        silent = [site for site in sites if not self._buggified.get(site)]
        made = f"rare choices were made at {len(sites) - len(silent)} of {len(sites)} sites"
        return [*lines, made, *([f"  none at: {', '.join(silent)}"] if silent else [])]

    def show_progress(self) -> None:
        """On standard error: in place on a terminal, now and then elsewhere."""
        now = time.monotonic()
        if sys.stderr.isatty():
            print(f"\r{self.text()}\x1b[K", end="", file=sys.stderr, flush=True)
        elif now - self._shown >= _PROGRESS_SECONDS:
            self._shown = now
            print(self.text(), file=sys.stderr, flush=True)

    def end(self) -> None:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


# marks


def _ledger(path: str) -> Ledger:
    """What is there; a new one if nothing is, but for the folder."""
    from pathlib import Path

    from kraftpy.sim.marks import Ledger

    file = Path(path)
    try:
        if not file.exists() and file.parent.is_dir():
            return Ledger()
        return Ledger(file.read_text())
    except (OSError, ValueError) as error:
        raise CommandFailed(f"--marks {path}: {error}", exit_code=EXIT_USAGE) from error


def _note_marks(path: str, level: str, seeds: dict[str, int]) -> None:
    from pathlib import Path

    ledger = _ledger(path)
    for name, seed in seeds.items():
        ledger.note({name: 1}, level, seed, time.time())
    Path(path).write_text(ledger.text())


def _show_marks(options: Namespace) -> int:
    from pathlib import Path

    from kraftpy.sim.marks import Ledger

    try:
        ledger = Ledger(Path(options.file).read_text())
    except (OSError, ValueError) as error:
        raise CommandFailed(f"{options.file}: {error}") from error
    print("\n".join(ledger.lines(time.time())))
    unreached = ledger.unreached(options.days, time.time())
    if unreached:
        print(f"not reached for {options.days:g} days: {'; '.join(unreached)}")
    return EXIT_FAILED if unreached else 0


def _as_json(report: SeedReport) -> dict[str, object]:
    return {key: value for key, value in asdict(report).items() if value not in ((), {})}


def _same_world(options: Namespace) -> str:
    """The options that a repetition needs."""
    words = [] if options.level == "whole" else [f"--level {options.level}"]
    for name in ("events", "minutes", "messages"):
        value = getattr(options, name)
        if value is not None:
            words.append(f"--{name} {value:g}")
    return " ".join(["", *words])


def _show_failure(report: SeedReport, options: Namespace) -> None:
    same = _same_world(options)
    print(f"\nseed {report.seed} failed: {report.code}")
    print(f"  {report.details}")
    print(f"  after {report.virtual_seconds:.3f} virtual seconds, {report.events} events")
    print(f"  again:   kraftpy sim replay {report.seed}{same}")
    print(f"  smaller: kraftpy sim shrink {report.seed}{same}", flush=True)


# replay


def _replay(options: Namespace) -> int:
    from kraftpy.sim.levels import find_level

    window = range(0)
    if options.trace:
        window = range(options.until or sys.maxsize)
    elif options.until:
        window = range(max(0, options.until - _SHOWN_EVENTS), options.until)
    report = find_level(options.level).run(options.seed, _size(options), window)
    if options.format == "json":
        print(json.dumps(_as_json(report)))
        return 0 if report.is_good else EXIT_FAILED
    for line in report.timeline:
        print(line)
    for line in report.window:
        if all(word in line for word in options.trace):
            print(line[:500])
    if report.is_good:
        print(f"seed {report.seed}: all was well in {report.virtual_seconds:.1f} virtual seconds")
    else:
        print(f"seed {report.seed} failed: {report.code}: {report.details}")
    print(f"{report.events} events, {report.steps} steps")
    print(report.digest)
    return 0 if report.is_good else EXIT_FAILED


# shrink


def _shrink(options: Namespace) -> int:
    report = _run_seed(options.level, options.seed, _size(options))
    if report.is_good:
        print(f"seed {options.seed} does not fail: there is nothing to make smaller")
        return 0
    assert report.code is not None
    if options.level != "whole":
        return _shrink_events(options, report)
    from kraftpy.sim.levels import run_case
    from kraftpy.sim.whole.run import WholeCase, make_case
    from kraftpy.sim.whole.shrinking import case_as_test, shrink

    reports: dict[WholeCase, SeedReport] = {}

    def judge(case: WholeCase) -> str | None:
        found = reports[case] = run_case(case)
        return found.code

    size = _size(options)
    case = make_case(options.seed, seconds=size.seconds or 60.0, messages=size.messages)
    shrunk = shrink(case, report.code, judge, budget=options.budget, progress=_tell)
    smallest = reports.get(shrunk.case, report)
    if options.format == "json":
        faults = [str(each) for each in shrunk.case.plan]
        print(json.dumps({**_as_json(smallest), "faults": faults, "runs": shrunk.runs}))
        return EXIT_FAILED
    for line in smallest.timeline:
        print(line)
    print(f"\n{smallest.code}: {smallest.details}")
    print(f"{len(shrunk.case.plan)} faults are left after {shrunk.runs} runs. A test:\n")
    print(case_as_test(shrunk.case, report.code))
    return EXIT_FAILED


def _tell(runs: int, what: str) -> None:
    print(f"run {runs}: {what}", file=sys.stderr, flush=True)


def _shrink_events(options: Namespace, report: SeedReport) -> int:
    """The least number of events after which it fails alike; on a heap, time is all there is."""
    from kraftpy.sim.levels import Size, find_level

    level = find_level(options.level)
    low, high = 0, report.events
    smallest = report
    for number in range(1, options.budget + 1):
        if high - low <= max(1, high // 100):
            break
        middle = (low + high) // 2
        found = level.run(options.seed, Size(events=middle), range(0))
        _tell(number, f"{middle} events: {'still ' if found.code == report.code else 'not '}it")
        if found.code == report.code:
            high, smallest = middle, found
        else:
            low = middle
    window = range(max(0, smallest.events - _SHOWN_EVENTS), smallest.events)
    shown = level.run(options.seed, Size(events=high), window)
    if options.format == "json":
        print(json.dumps({**_as_json(shown), "limit": high}))
        return EXIT_FAILED
    for line in shown.window:
        print(line[:500])
    print(f"\n{shown.code}: {shown.details}")
    print(f"again: kraftpy sim replay {options.seed} --level {options.level} --events {high}")
    return EXIT_FAILED
