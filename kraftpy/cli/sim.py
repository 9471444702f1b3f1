"""Run clusters in a simulated world, where one seed is one run, event for event.

Everything that may go wrong does: nodes are killed and lose power, links are cut, clocks jump,
disks fail. Whatever must never be is checked all the time; `run` says which seeds have shown it,
`replay` shows what happened, and `shrink` finds a small world in which it still happens.

examples:
  kraftpy sim run --seeds 100 --jobs 2              whole clusters under a hundred seeds
  kraftpy sim run --seeds 1000 --level quorum       the Raft quorum alone, which is much quicker
  kraftpy sim replay 4711                           one run again; the last line is its digest
  kraftpy sim replay 4711 --until 3200              and what happened before its event 3200
  kraftpy sim replay 4711 --trace n2,__cluster      events with these words
  kraftpy sim shrink 4711                           fewer faults, fewer features, the same failure

Exit codes: 0 all was well; 1 something was violated; 2 the command line is wrong.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from kraftpy.cli.failure import EXIT_FAILED

if TYPE_CHECKING:
    from kraftpy.sim.levels import SeedReport, Size

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


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def run(options: Namespace) -> int:
    verbs = {"run": _run, "replay": _replay, "shrink": _shrink}
    return verbs[options.verb](options)


def _size(options: Namespace) -> Size:
    from kraftpy.sim.levels import Size

    seconds = None if options.minutes is None else options.minutes * 60
    return Size(options.events, seconds, options.messages)


def _run_seed(level: str, seed: int, size: Size) -> SeedReport:
    """In a process of its own, perhaps."""
    from kraftpy.sim.levels import find_level

    return find_level(level).run(seed, size, range(0))


# run


def _run(options: Namespace) -> int:
    tally = _Tally(options.seeds)
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
    if options.format == "text":
        print("\n".join([tally.text(), *tally.coverage()]))
    return EXIT_FAILED if tally.failures else 0


def _reports(options: Namespace) -> Iterator[SeedReport]:
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    size = _size(options)
    if options.jobs == 1:
        for seed in seeds:
            yield _run_seed(options.level, seed, size)
        return
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        waiting = [pool.submit(_run_seed, options.level, seed, size) for seed in seeds]
        try:
            for future in as_completed(waiting):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


class _Tally:
    """What was done so far, and how fast."""

    def __init__(self, seeds: int) -> None:
        self._seeds = seeds
        self._began = self._shown = time.monotonic()
        self.done = self.failures = self.steps = 0
        self.virtual_seconds = self.processor_seconds = 0.0
        self._buggified: dict[str, int] = {}

    def add(self, report: SeedReport) -> None:
        self.done += 1
        self.failures += not report.is_good
        self.steps += report.steps
        self.virtual_seconds += report.virtual_seconds
        self.processor_seconds += report.processor_seconds
        for site, count in report.figures.get("buggified", {}).items():
            self._buggified[site] = self._buggified.get(site, 0) + count

    def text(self) -> str:
        seconds = max(time.monotonic() - self._began, 0.001)
        processor_seconds = max(self.processor_seconds, 0.001)
        return (
            f"{self.done} of {self._seeds} seeds, {self.done / seconds:.2f} seeds/s,"
            f" {self.virtual_seconds / 3600:.2f} simulated hours"
            f" ({self.virtual_seconds / processor_seconds:,.0f} times real time),"
            f" {self.steps / processor_seconds:,.0f} steps/s a processor, {self.failures} failed"
        )

    def coverage(self) -> list[str]:
        """Of the places where the product makes rare choices, those that have made none."""
        if not self._buggified:
            return []
        from kraftpy.sim.buggify import product_sites

        sites = product_sites()
        silent = [site for site in sites if not self._buggified.get(site)]
        made = f"rare choices were made at {len(sites) - len(silent)} of {len(sites)} sites"
        return [made, *([f"  none at: {', '.join(silent)}"] if silent else [])]

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
