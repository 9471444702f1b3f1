"""Tiers (section 10.1): what is run how often, in which time, and what it adds up to.

    python -m jepsen_tests tier commit
    python -m jepsen_tests tier night --out nights/2026-11-17
    python -m jepsen_tests tier night --scale 0.01         a hundredth of everything, to try it

A tier is a list of steps, each a command with a budget of time. A step that is not over by then is
ended and counts as failed, and so does a tier that takes longer than its own budget. What each step
prints is kept in the directory, and what all of them add up to is in `totals.json` there: seeds,
simulated hours, runs and operations, failures. `python -m jepsen_tests report` makes a report of
one or several of these.

Seeds begin at a number made of the commit, so that nobody can tune the product to them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from jepsen_tests.long.totals import Totals, shortfalls
from kraftpy.world.real import real_world

__all__ = ["TIERS", "Step", "StepResult", "Tier", "add_arguments", "perform", "run"]

ROOT: Final = Path(__file__).parents[2]
_HOUR: Final = 3600.0
# Beside what a step is asked to spend: starting, healing, reading in the end.
_GRACE_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class Step:
    """`words` may have {seconds}, {hours}, {count} and {seed}."""

    name: str
    words: tuple[str, ...]
    seconds: float
    count: int = 0

    def command(self, scale: float, seed: int) -> list[str]:
        values = {
            "seconds": f"{max(1.0, self.seconds * scale):g}",
            "hours": f"{self.seconds * scale / _HOUR:g}",
            "count": str(max(1, round(self.count * scale))),
            "seed": str(seed),
        }
        return [sys.executable, *(word.format(**values) for word in self.words)]

    def limit_seconds(self, scale: float) -> float:
        return self.seconds * scale + _GRACE_SECONDS


def _simulated(level: str, seconds: float) -> Step:
    words = ("-m", "kraftpy.cli.main", "sim", "run", "--level", level, "--for", "{seconds}")
    more = ("--jobs", "2", "--first-seed", "{seed}", "--format", "json")
    return Step(f"sim-{level}", (*words, *more), seconds)


def _seeds(level: str, count: int, seconds: float) -> Step:
    words = ("-m", "kraftpy.cli.main", "sim", "run", "--level", level, "--seeds", "{count}")
    more = ("--jobs", "2", "--first-seed", "{seed}", "--format", "json")
    return Step(f"sim-{level}", (*words, *more), seconds, count)


def _processes(number: int, workload: str, nemesis: str, seconds: float) -> Step:
    words = ("-m", "jepsen_tests", "run", "--workload", workload, "--nemesis", nemesis)
    more = ("--time", "{seconds}", "--seed", "{seed}", "--format", "json", "--quick")
    return Step(f"run-{number}-{workload}", (*words, *more), seconds)


_KERNELS: Final = ("quorum", "cluster", "data", "coordinators", "logs", "requests")
# Section 5.3: the canonical sets of faults, over the workloads.
_CANONICAL: Final = (
    ("queue-assign", "none"),
    ("queue-txn", "partition"),
    ("list-append", "kill"),
    ("queue-subscribe", "pause"),
    ("eos-copy", "kill,pause"),
    ("bank", "clock"),
    ("queue-txn", "kill,pause,clock,partition"),
    ("reconfigure", "voters,kill"),
    ("list-append", "power"),
    ("queue-assign", "slow-disk,disk-full"),
    ("fencing", "hold"),
    ("metadata", "isolate-controller,elections"),
)
_FUZZ: Final = (
    "tests/fuzz/fuzz.py",
    "--seconds",
    "{seconds}",
    "--seed",
    "{seed}",
    "--format",
    "json",
)
_POWER: Final = ("-m", "jepsen_tests", "power", "--cycles", "{count}", "--seed", "{seed}")
_SOAK: Final = ("-m", "jepsen_tests", "soak", "--hours", "{hours}", "--seed", "{seed}")


@dataclass(frozen=True, slots=True)
class Tier:
    name: str
    budget_seconds: float
    steps: tuple[Step, ...]
    asked: dict[str, float]
    """The least that it must add up to, by the names of `Totals`."""


_COMMIT: Final = Tier(
    "commit",
    600,
    (
        *(_seeds(level, 40, 40) for level in _KERNELS if level != "data"),
        _seeds("whole", 20, 240),
        _processes(1, "queue-txn", "isolate-leader,kill", 30),
    ),
    {"kernel_seeds": 200, "whole_seeds": 20, "runs": 1},
)
_NIGHT: Final = Tier(
    "night",
    8 * _HOUR,
    (
        *(_simulated(level, 2 * _HOUR / len(_KERNELS)) for level in _KERNELS),
        _simulated("whole", 3 * _HOUR),
        *(_processes(n, each, faults, 480) for n, (each, faults) in enumerate(_CANONICAL, 1)),
        Step("fuzz", _FUZZ, 1200),
        Step("power-flush", (*_POWER, "--format", "json"), 1200, 100),
        Step("power-default", (*_POWER, "--mode", "default", "--format", "json"), 1200, 100),
    ),
    {
        "kernel_seeds": 20_000,
        "whole_seeds": 700,
        "kernel_hours": 4_000,
        "whole_hours": 120,
        "runs": 12,
        "power_cycles": 200,
    },
)
_WEEK: Final = Tier(
    "week",
    30 * _HOUR,
    (
        Step("soak", (*_SOAK, "--format", "json"), 24 * _HOUR),
        Step("overload", ("-m", "jepsen_tests", "overload", "--format", "json"), 900),
        Step("exam", ("tests/bugs/exam.py", "--first-seed", "{seed}"), 2 * _HOUR),
        Step("track-record", ("tests/bugs/track_record.py",), 300),
        Step("mutants", ("tests/mutants/mutants.py", "--seed", "{seed}"), 2 * _HOUR),
    ),
    {},
)
_RELEASE: Final = Tier(
    "release",
    110 * _HOUR,
    (
        Step("soak", (*_SOAK, "--format", "json"), 72 * _HOUR),
        Step("fuzz", _FUZZ, 8 * _HOUR),
        *(_processes(n, *_CANONICAL[n % len(_CANONICAL)], 1000) for n in range(100)),
    ),
    {"runs": 100},
)
TIERS: Final = {tier.name: tier for tier in (_COMMIT, _NIGHT, _WEEK, _RELEASE)}


@dataclass(frozen=True, slots=True)
class StepResult:
    name: str
    command: tuple[str, ...]
    exit_code: int | None
    """None: it was not over in time."""
    seconds: float
    output: str

    @property
    def is_good(self) -> bool:
        return self.exit_code == 0


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("tier", choices=tuple(TIERS))
    add("--scale", type=float, default=1.0, help="of all times and counts (1)")
    add("--only", default="", metavar="PART", help="steps with that in their names")
    add("--seed", type=int, help="the first one (made of the commit)")
    add("--out", type=Path, metavar="DIR", help="(tiers/NAME-SEED)")


async def run(options: Namespace) -> int:
    """The command."""
    if options.scale <= 0:
        raise ValueError("--scale must be more than 0")
    tier = TIERS[options.tier]
    steps = [step for step in tier.steps if options.only in step.name]
    if not steps:
        names = ", ".join(step.name for step in tier.steps)
        raise ValueError(f"no step has {options.only!r} in its name; there are {names}")
    seed = seed_of_commit() if options.seed is None else options.seed
    out = options.out or Path("tiers") / f"{tier.name}-{seed}"
    is_whole = steps == list(tier.steps)
    totals = await perform(tier, steps, out, scale=options.scale, seed=seed)
    short = shortfalls(totals, tier.asked, options.scale) if is_whole else []
    budget = tier.budget_seconds * options.scale
    if is_whole and totals.seconds > budget + _GRACE_SECONDS:
        short.append(f"it took {totals.seconds:.0f} s, and has {budget:.0f} s")
    print("\n".join([*totals.lines(), *short, f"kept in {out}"]))
    return 1 if totals.failures or short else 0


def commit() -> str:
    """Empty where there is none."""
    command = ["git", "rev-parse", "--short=7", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def seed_of_commit() -> int:
    return int(commit() or "0", 16)


async def perform(
    tier: Tier, steps: Sequence[Step], out: Path, *, scale: float, seed: int
) -> Totals:
    """Run them one after the other; each is told on standard error when it begins and ends."""
    out.mkdir(parents=True, exist_ok=True)
    clock = real_world().clock
    results = []
    for number, step in enumerate(steps, 1):
        say = f"tier {tier.name}: {number} of {len(steps)}, {step.name}"
        print(f"{say}, at most {step.limit_seconds(scale):.0f} s", file=sys.stderr, flush=True)
        began = clock.monotonic()
        kept = out / f"{step.name}.out"
        code = await _run_step(step, scale, seed, kept)
        seconds = clock.monotonic() - began
        output = kept.read_text(errors="replace")
        result = StepResult(step.name, tuple(step.command(scale, seed)), code, seconds, output)
        results.append(result)
        state = {None: "not over in time", 0: "good"}.get(code, f"ended with {code}")
        print(f"{say}: {state} after {seconds:.0f} s", file=sys.stderr, flush=True)
    totals = Totals.of(results)
    facts: dict[str, Any] = {"tier": tier.name, "scale": scale, "seed": seed, "commit": commit()}
    facts |= totals.as_json()
    (out / "totals.json").write_text(json.dumps(facts, indent=2) + "\n")
    return totals


async def _run_step(step: Step, scale: float, seed: int, kept: Path) -> int | None:
    """Its exit code, None for one that was ended; what it prints goes to the file."""
    with kept.open("wb") as output, trio.move_on_after(step.limit_seconds(scale)):
        done = await trio.run_process(
            step.command(scale, seed),
            cwd=ROOT,
            stdout=output,
            check=False,
            deliver_cancel=_end,
        )
        return done.returncode
    return None


async def _end(process: trio.Process) -> None:
    """As a user does: it cleans up behind itself, or is killed after a while."""
    process.terminate()
    await trio.sleep(30)
    process.kill()
