"""Fuzzing: bytes that are almost right, for decoders and files (JEP-156, JEP-157).

    python tests/fuzz/fuzz.py --seconds 300                    all targets in turn
    python tests/fuzz/fuzz.py --target segments --cases 2000
    python tests/fuzz/fuzz.py --target segments --seed 7 --first-case 411 --cases 1     one again

Every case is drawn from the seed, the target and its number, so that a failure is had again by
them; they are printed with it. Whatever is not a declared error is a failure: another exception, a
case that takes longer than a minute, more than 2 GiB of memory, or an answer that can't be right.
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from random import Random, SystemRandom
from types import FrameType

import trio

TESTS = Path(__file__).parents[1]
if __name__ == "__main__":
    # Samples are those of the tests of each room.
    sys.path[:0] = [str(TESTS / room) for room in ("protocol", "records", "log", "raft", "support")]
    sys.path[:0] = [str(TESTS), str(Path(__file__).parent)]

from targets import TARGETS, Target  # noqa: E402 (found by the lines above)

CASE_SECONDS = 60
MEMORY_BYTES = 2 << 30
PROGRESS_SECONDS = 10.0
MOST_FAILURES = 5


class HangError(Exception):
    """A case does not end."""


def try_case(target: Target, seed: int, number: int) -> str | None:
    """What is wrong, with where; None if nothing is."""
    try:
        trio.run(target.case, Random(f"{seed}/{target.name}/{number}"))
    except Exception:
        return traceback.format_exc(limit=-6)
    return None


def cases(targets: Sequence[Target], first: int, limit: int | None) -> Iterator[tuple[Target, int]]:
    numbers = count(first) if limit is None else range(first, first + limit)
    for number in numbers:
        for target in targets:
            yield target, number


def no_alarm(seconds: int) -> None:
    """For tests, whose runner has an alarm of its own."""


def main(
    arguments: Sequence[str] | None = None, set_alarm: Callable[[int], object] = no_alarm
) -> int:
    """The command; `set_alarm` interrupts a case that does not end, and is set to 0 after it."""
    options = _parser().parse_args(arguments)
    names = options.target.split(",") if options.target else [each.name for each in TARGETS]
    unknown = [name for name in names if name not in [each.name for each in TARGETS]]
    if unknown:
        print(f"fuzz: there is no target {unknown[0]!r}; --list shows them", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(f"{each.name:<10} {each.about}" for each in TARGETS))
        return 0
    seed = SystemRandom().getrandbits(32) if options.seed is None else options.seed
    targets = [each for each in TARGETS if each.name in names]
    began = told = time.monotonic()
    done, failures = 0, []
    limit = None if options.seconds is not None else options.cases
    for target, number in cases(targets, options.first_case, limit):
        now = time.monotonic()
        if options.seconds is not None and now >= began + options.seconds:
            break
        if now - told >= PROGRESS_SECONDS:
            told = now
            print(f"fuzz: {done:,} cases, {len(failures)} failed", file=sys.stderr, flush=True)
        set_alarm(CASE_SECONDS)
        problem = try_case(target, seed, number)
        set_alarm(0)
        done += 1
        if problem is not None:
            failures.append({"target": target.name, "case": number, "problem": problem})
            if len(failures) >= MOST_FAILURES:
                break
    _tell(options.format, seed, done, failures)
    return 1 if failures else 0


def _tell(form: str, seed: int, done: int, failures: list[dict[str, object]]) -> None:
    if form == "json":
        facts = {"kind": "fuzz", "seed": seed, "cases": done, "failures": failures}
        print(json.dumps(facts, indent=2))
        return
    for failure in failures:
        words = f"--target {failure['target']} --seed {seed} --first-case {failure['case']}"
        print(f"{failure['problem']}\n  again: python tests/fuzz/fuzz.py {words} --cases 1\n")
    print(f"fuzz: {done:,} cases from seed {seed}, {len(failures)} failed")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--target", default="", metavar="T", help="names, with commas (all)")
    add("--seconds", type=float, help="how long; instead of --cases")
    add("--cases", type=int, default=1000, metavar="N", help="of each target (1000)")
    add("--first-case", type=int, default=0, metavar="N", help="the number of the first (0)")
    add("--seed", type=int, help="(drawn, and printed)")
    add("--list", action="store_true", help="show the targets and stop")
    add("--format", choices=("text", "json"), default="text", help="(text)")
    return parser


def _give_up(signal_number: int, frame: FrameType | None) -> None:
    raise HangError(f"not over after {CASE_SECONDS} s")


if __name__ == "__main__":
    # What recovery says about damage is no news here.
    logging.getLogger("kraftpy").addHandler(logging.NullHandler())
    signal.signal(signal.SIGALRM, _give_up)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    sys.exit(main(set_alarm=signal.alarm))
