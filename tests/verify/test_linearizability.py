"""Three ways to decide linearizability against all permutations, and against porcupine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.go_program import BUILD_TIMEOUT_SECONDS, build_go_program

from kraftpy.verify.checkers.linearizability import (
    Call,
    RegisterCall,
    Versioned,
    find_zone_conflict,
    is_linearizable,
    misplaced_versions,
)

MAX_STEPS = 10**6
SOURCES = Path(__file__).with_name("porcupine_probe")


@dataclass(frozen=True)
class Operation:
    kind: str
    value: int
    expected: int = 0
    swapped: bool = True
    unknown: bool = False


def step(state: Hashable, operation: Operation) -> Hashable | None:
    """A register with read, write and compare-and-set."""
    if operation.kind == "read":
        return state if state == operation.value else None
    if operation.kind == "write":
        return operation.value
    if operation.unknown:
        return operation.value if state == operation.expected else state
    if operation.swapped:
        return operation.value if state == operation.expected else None
    return state if state != operation.expected else None


def of_chance(random: Random, count: int, values: int, *, truth: float) -> list[Call]:
    """Calls side by side. Each takes effect at a moment within it, and mostly says so."""
    moments: list[tuple[float, float, float]] = []
    clock = 0.0
    for _ in range(count):
        clock += random.random()
        length = random.random() * 4
        moments.append((clock, clock + length * random.random(), clock + length))
    state = 0
    operations: dict[int, Operation] = {}
    for place in sorted(range(count), key=lambda place: moments[place][1]):
        kind = random.choice(["read", "read", "write", "cas"])
        value, expected = random.randrange(values), random.randrange(values)
        unknown = kind != "read" and random.random() < 0.1
        swapped = state == expected
        if kind == "read":
            value = state if random.random() < truth else value
        elif unknown and random.random() < 0.5:
            pass
        elif kind == "write" or swapped:
            state = value
        if random.random() > truth:
            swapped = not swapped
        operations[place] = Operation(kind, value, expected, swapped, unknown)
    # Times become numbers in their order, as in a history.
    times = sorted(time for begin, _, end in moments for time in (begin, end))
    return [
        Call(
            times.index(begin),
            None if operations[place].unknown else times.index(end),
            operations[place],
        )
        for place, (begin, _, end) in enumerate(moments)
    ]


def precedes(one: Any, other: Any) -> bool:
    return one.end is not None and one.end < other.start


def by_permutations(calls: list[Call]) -> bool:
    """Every subset that has all finished calls, in every order that respects time."""
    optional = [place for place, call in enumerate(calls) if call.end is None]
    for mask in range(1 << len(optional)):
        left_out = {place for bit, place in enumerate(optional) if mask >> bit & 1}
        chosen = [call for place, call in enumerate(calls) if place not in left_out]
        for order in permutations(chosen):
            in_time = not any(
                precedes(later, earlier)
                for place, earlier in enumerate(order)
                for later in order[place + 1 :]
            )
            if in_time and explains(order):
                return True
    return False


def explains(order: tuple[Call, ...]) -> bool:
    state: Hashable | None = 0
    for call in order:
        state = step(state, call.operation)
        if state is None:
            return False
    return True


def test_search_against_permutations() -> None:
    """JEP-82."""
    answers = {"yes": 0, "no": 0}
    for seed in range(400):
        random = Random(seed)
        calls = of_chance(random, random.randint(1, 5), 3, truth=0.7)
        found = is_linearizable(calls, 0, step, max_steps=MAX_STEPS)
        assert (found == "yes") == by_permutations(calls), seed
        answers[found] += 1
    assert min(answers.values()) > 50


@pytest.mark.timeout(BUILD_TIMEOUT_SECONDS + 60)
def test_search_against_porcupine() -> None:
    """JEP-82, JEP-86: on longer histories, with a checker that others rely on."""
    program = build_go_program(SOURCES, "porcupine")
    histories = []
    for seed in range(600):
        random = Random(seed)
        count = random.randint(5, 40)
        histories.append(of_chance(random, count, 4, truth=random.choice([1.0, 0.99, 0.9])))
    lines = "".join(json.dumps([as_map(call) for call in calls]) + "\n" for calls in histories)
    done = subprocess.run(
        [str(program)], input=lines, capture_output=True, text=True, check=True, timeout=240
    )
    theirs = done.stdout.split()
    ours = [is_linearizable(calls, 0, step, max_steps=MAX_STEPS) for calls in histories]
    assert len(theirs) == len(histories)
    for seed, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert one == {"true": "yes", "false": "no"}[other], seed
    assert min(ours.count("yes"), ours.count("no")) > 100


def as_map(call: Call) -> dict[str, Any]:
    operation: Operation = call.operation
    return {
        "start": call.start,
        "end": 10**9 if call.end is None else call.end,
        **vars(operation),
    }


def test_the_search_is_cut_short() -> None:
    """JEP-82: by steps, or by whoever looks at the clock; the answer is that nobody knows."""
    calls = [Call(0, 100, Operation("write", value)) for value in range(12)]
    calls += [Call(101 + value, 102 + value, Operation("read", 99)) for value in range(2)]
    assert is_linearizable(calls, 0, step, max_steps=500) == "unknown"
    looks: list[int] = []

    def give_up() -> bool:
        looks.append(1)
        return len(looks) == 3

    assert is_linearizable(calls, 0, step, max_steps=MAX_STEPS, give_up=give_up) == "unknown"
    assert len(looks) == 3


def test_no_configuration_is_visited_twice() -> None:
    """JEP-82, the memo: nine writes at once have 2**9 subsets, and 9! orders."""
    calls = [Call(0, 100, Operation("write", value)) for value in range(9)]
    calls.append(Call(101, 102, Operation("read", 99)))
    assert is_linearizable(calls, 0, step, max_steps=200_000) == "no"


def test_many_operations_need_no_recursion() -> None:
    calls = [
        Call(2 * place, 2 * place + 1, Operation("write" if place % 2 == 0 else "read", place // 2))
        for place in range(5_000)
    ]
    assert is_linearizable(calls, 0, step, max_steps=MAX_STEPS) == "yes"
    wrong = Call(10_000, 10_001, Operation("read", -1))
    assert is_linearizable([*calls, wrong], 0, step, max_steps=MAX_STEPS) == "no"


def registers(random: Random) -> list[RegisterCall]:
    """Writes of different values, and reads of any of them."""
    count = random.randint(1, 5)
    ends = random.sample(range(4 * count), 2 * count)
    calls = []
    written = 0
    for place in range(count):
        start, end = sorted(ends[2 * place : 2 * place + 2])
        is_write = random.random() < 0.5
        written += is_write
        value = written if is_write else random.randint(0, 3)
        unknown = is_write and random.random() < 0.2
        calls.append(RegisterCall(start, None if unknown else end, value, is_write))
    return calls


def test_zones_against_permutations() -> None:
    """JEP-81, for registers whose writes all differ (G5)."""
    answers = {True: 0, False: 0}
    for seed in range(600):
        calls = registers(Random(seed))
        plain = [
            Call(call.start, call.end, Operation("write" if call.is_write else "read", call.value))
            for call in calls
            if isinstance(call.value, int)
        ]
        conflict = find_zone_conflict(calls, 0)
        assert (conflict is None) == by_permutations(plain), seed
        answers[conflict is None] += 1
        if conflict is not None:
            assert all(0 <= place < len(calls) for place in conflict)
    assert min(answers.values()) > 50


def test_version_chain_against_all_pairs() -> None:
    """JEP-81: who comes later is not below, and a later write is above."""
    wrong = 0
    for seed in range(600):
        random = Random(seed)
        count = random.randint(1, 8)
        times = random.sample(range(4 * count), 2 * count)
        calls = [
            Versioned(
                min(times[2 * place : 2 * place + 2]),
                None if random.random() < 0.1 else max(times[2 * place : 2 * place + 2]),
                random.randrange(6),
                random.random() < 0.4,
            )
            for place in range(count)
        ]
        expected = {
            place
            for place, call in enumerate(calls)
            for other in calls
            if precedes(other, call)
            and (call.version < other.version or (call.is_write and call.version == other.version))
        }
        found = misplaced_versions(calls)
        assert {later for _, later in found} == expected, seed
        for earlier, later in found:
            assert precedes(calls[earlier], calls[later])
        wrong += bool(expected)
    assert wrong > 100
