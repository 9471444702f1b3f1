"""On histories of chance the checkers find what the definitions, taken word for word, find."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from verify.simulated_history import Draw, valid_history
from verify.slow_checker import Finding, SlowChecker

from kraftpy.verify.checkers import Expectations, Verdict, check
from kraftpy.verify.history import History, Invocation, Recorder

JUDGED = Expectations(vacuity=None)
COMPARED = [f"A{number}" for number in (1, 2, 3, 5, 6, 8, 13, 14, 15, 16, 17, 18, 19, 20)]
CYCLES = ["G0", "G1c-wr", "G0-process", "G0-realtime", "G1c-wr-process", "G1c-wr-realtime"]


class Chance:
    """Operations side by side with results that no log explains."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.time_ns = 0
        self.recorder = Recorder(self.tick)
        self.values = dict.fromkeys(range(2), 0)
        self.processes = 3

    def tick(self) -> int:
        self.time_ns += 1
        return self.time_ns

    def history(self) -> History:
        running: dict[int, tuple[Invocation, list[Any]]] = {}
        free = list(range(self.processes))
        for _ in range(self.random.randint(6, 24)):
            if free and (not running or self.random.random() < 0.5):
                process = free.pop(self.random.randrange(len(free)))
                running[process] = self.begin(process)
            else:
                process = self.random.choice(sorted(running))
                invocation, answer = running.pop(process)
                free.append(self.end(process, invocation, answer))
        return self.recorder.history({})

    def begin(self, process: int) -> tuple[Invocation, list[Any]]:
        asked: list[Any] = []
        answer: list[Any] = []
        for _ in range(self.random.randint(1, 3)):
            if self.random.random() < 0.5:
                key = self.random.randrange(2)
                self.values[key] += 1
                offset = None if self.random.random() < 0.2 else self.random.randrange(8)
                asked.append(["send", key, self.values[key]])
                answer.append(["send", key, [offset, self.values[key]]])
            else:
                asked.append(["poll"])
                answer.append(["poll", self.poll()])
        kinds = sorted({micro[0] for micro in asked})
        meta = {"transactional": True} if self.random.random() < 0.6 else {}
        f = "txn" if len(kinds) > 1 else kinds[0]
        return self.recorder.invoke(process, f, asked, meta), answer

    def poll(self) -> dict[int, list[list[int]]]:
        found: dict[int, list[list[int]]] = {}
        for key in range(2):
            start = self.random.randrange(6)
            offsets = range(start, start + self.random.randrange(4))
            if offsets:
                limit = self.values[key] + 3
                found[key] = [[offset, self.random.randrange(1, limit)] for offset in offsets]
        return found

    def end(self, process: int, invocation: Invocation, answer: list[Any]) -> int:
        chance = self.random.random()
        if chance < 0.7:
            invocation.ok(answer)
        elif chance < 0.85:
            invocation.fail("REFUSED", answer)
        else:
            invocation.info("TIMEOUT", answer)
            self.processes += 1
            return self.processes - 1
        return process


def comparable(verdict: Verdict) -> Counter[Finding]:
    """Without what the slow checker does not say: which of several operations is named first."""
    found: Counter[Finding] = Counter()
    for anomaly in verdict.anomalies:
        if anomaly.id not in COMPARED:
            continue
        assert anomaly.key is not None
        operations = anomaly.operations
        if anomaly.id in ("A1", "A2"):
            operations = ()
        elif anomaly.id == "A20":
            operations = operations[-1:]
        found[anomaly.id, anomaly.key, operations] += 1
    return found


def shortest(verdict: Verdict) -> dict[str, int]:
    lengths: dict[str, int] = {}
    for anomaly in verdict.anomalies:
        if anomaly.name in CYCLES:
            length = len(anomaly.operations)
            lengths[anomaly.name] = min(length, lengths.get(anomaly.name, length))
    return lengths


@pytest.mark.parametrize("first_seed", range(0, 600, 100))
def test_histories_of_chance(first_seed: int) -> None:
    """JEP-86, with a slow checker of our own for the reference; JEP-78: minimal cycles."""
    seen: set[str] = set()
    for seed in range(first_seed, first_seed + 100):
        history = Chance(seed).history()
        verdict = check(history, JUDGED)
        slow = SlowChecker(history)
        assert comparable(verdict) == slow.findings(), seed
        assert shortest(verdict) == slow.shortest_cycles(), seed
        seen.update(anomaly.id for anomaly in verdict.anomalies)
    # Chance has shown everything that is compared.
    assert seen.issuperset(COMPARED)


def test_valid_histories() -> None:
    """The slow checker agrees that there is nothing bad in them."""
    for seed in range(20):
        history = valid_history(Draw(operations=14, processes=3, keys=2, final_read=False), seed)
        found = SlowChecker(history).findings()
        assert {name for name, _, _ in found} <= {"A17"}, seed
