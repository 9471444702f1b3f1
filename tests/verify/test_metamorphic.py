"""What does not matter does not change a verdict: names of processes and keys, time, strangers."""

from __future__ import annotations

import copy
import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from verify.history_table import Table, cases
from verify.simulated_history import Draw, valid_history

from kraftpy.verify.checkers import Expectations, Verdict, check
from kraftpy.verify.history import Event, History

JUDGED = Expectations(vacuity=None)
SEEDS = range(40)


def spoiled(seed: int) -> list[Event]:
    """A history of which half is wrong in some way."""
    history = valid_history(Draw(operations=30, processes=3, keys=3), seed)
    events = copy.deepcopy(history.events)
    random = Random(seed)
    for event in events:
        for micro in event.value if event.f in ("send", "poll", "txn") else ():
            if micro[0] == "poll" and len(micro) > 1 and random.random() < 0.1:
                for records in micro[1].values():
                    random.shuffle(records)
    return events


def with_value(event: Event, change: Callable[[int], int]) -> Event:
    """With every key changed."""
    value: Any = event.value
    if event.f == "assign":
        return replace(event, value=[change(key) for key in value])
    renamed = []
    for micro in value:
        if micro[0] == "send":
            renamed.append(["send", change(micro[1]), micro[2]])
        elif len(micro) > 1:
            renamed.append(["poll", {change(key): found for key, found in micro[1].items()}])
        else:
            renamed.append(micro)
    return replace(event, value=renamed)


def rename_keys(events: list[Event], random: Random) -> list[Event]:
    return [with_value(event, lambda key: 90 - 7 * key) for event in events]


def permute_processes(events: list[Event], random: Random) -> list[Event]:
    numbers = sorted({int(event.process) for event in events})
    others = random.sample(range(1_000), len(numbers))
    names = dict(zip(numbers, others, strict=True))
    return [replace(event, process=names[int(event.process)]) for event in events]


def shift_time(events: list[Event], random: Random) -> list[Event]:
    return [replace(event, time_ns=event.time_ns + 10**15) for event in events]


def add_strangers(events: list[Event], random: Random) -> list[Event]:
    """Operations of another process on another key, anywhere in between."""
    found: list[Event] = []
    sent = 0
    for event in events:
        if random.random() < 0.3:
            for type_, value in (
                ("invoke", [["send", 77, sent]]),
                ("ok", [["send", 77, [sent, sent]]]),
            ):
                place = len(found)
                found.append(Event(place, event.time_ns, 5_000, type_, "send", value))  # type: ignore[arg-type]
            sent += 1
        found.append(replace(event, index=len(found)))
    # They are read as well, or they would be missing.
    time_ns = events[-1].time_ns
    read = [["poll", {77: [[value, value] for value in range(sent)]}]] if sent else [["poll", {}]]
    for type_, value in (("invoke", [["poll"]]), ("ok", read)):
        found.append(Event(len(found), time_ns, 5_001, type_, "poll", value))  # type: ignore[arg-type]
    return found


def kinds(verdict: Verdict) -> Counter[str]:
    """How often each anomaly was found; which of many cycles are listed is a matter of names."""
    return Counter(anomaly.name for anomaly in verdict.anomalies if anomaly.id[0] == "A")


def cycle_kinds(verdict: Verdict) -> set[str]:
    return {anomaly.name for anomaly in verdict.anomalies if anomaly.is_bad}


@pytest.mark.parametrize("change", [rename_keys, permute_processes, shift_time, add_strangers])
def test_the_verdict_stays(change: Callable[[list[Event], Random], list[Event]]) -> None:
    """JEP-85."""
    invalid = 0
    for seed in SEEDS:
        events = spoiled(seed)
        before = check(History(events, {}), JUDGED)
        after = check(History(change(events, Random(seed)), {}), JUDGED)
        assert after.state == before.state, seed
        assert kinds(after) == kinds(before), seed
        assert cycle_kinds(after) == cycle_kinds(before), seed
        invalid += before.state == "invalid"
    # Both kinds of verdicts were there to be changed.
    assert 5 < invalid < len(SEEDS)


def print_digest() -> None:
    """Of many verdicts to the letter, those of the golden files among them."""
    digest = hashlib.sha256()
    for seed in range(10):
        digest.update(repr(check(History(spoiled(seed), {}), JUDGED)).encode())
    for path in sorted((Path(__file__).parent / "golden").glob("*.txt")):
        for case in cases(path.read_text()):
            table = Table(case.lines)
            digest.update(repr(check(table.history, table.expectations)).encode())
    print(digest.hexdigest())


def test_a_history_has_one_verdict() -> None:
    """The same input, the same answer, in whatever order an interpreter has its sets."""
    tests = str(Path(__file__).parents[1])
    code = "from verify.test_metamorphic import print_digest; print_digest()"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": tests, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
