"""A valid history with one thing changed is found out, by the anomaly of that change."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from verify.simulated_history import Draw, valid_history

from kraftpy.verify.checkers import Expectations, check
from kraftpy.verify.history import Event, History

JUDGED = Expectations(vacuity=None)
MUTANTS_OF_A_KIND = 125
NEW_OFFSET = 1_000
NEW_VALUE = 1_000_000

Mutation = Callable[[list[Event], Random], bool]
"""Changes the events in place; False if there is nothing to change."""


def polled(events: list[Event], *, is_ok: bool = True) -> list[tuple[Event, int, list[Any]]]:
    """(event, key, records) of polls that brought something."""
    return [
        (event, key, records)
        for event in events
        if event.f in ("poll", "txn") and (event.type == "ok" if is_ok else event.type != "invoke")
        for micro in event.value
        if micro[0] == "poll" and len(micro) > 1
        for key, records in micro[1].items()
    ]


def acked(events: list[Event]) -> list[tuple[Event, int, list[Any]]]:
    """(event, key, [offset, value]) of sends that were ok."""
    return [
        (event, micro[1], micro[2])
        for event in events
        if event.f in ("send", "txn") and event.type == "ok"
        for micro in event.value
        if micro[0] == "send"
    ]


def drop_a_value_everywhere(events: list[Event], random: Random) -> bool:
    sends = acked(events)
    if not sends:
        return False
    _, key, (_, value) = random.choice(sends)
    for _, other, records in polled(events, is_ok=False):
        if other == key:
            records[:] = [record for record in records if record[1] != value]
    return True


def swap_two_polled(events: list[Event], random: Random) -> bool:
    several = [records for _, _, records in polled(events) if len(records) > 1]
    if not several:
        return False
    records = random.choice(several)
    place = random.randrange(len(records) - 1)
    records[place], records[place + 1] = records[place + 1], records[place]
    return True


def duplicate_a_record(events: list[Event], random: Random) -> bool:
    reads = polled(events)
    if not reads:
        return False
    _, _, records = random.choice(reads)
    records.append([NEW_OFFSET, random.choice(records)[1]])
    return True


def change_a_value(events: list[Event], random: Random) -> bool:
    reads = polled(events)
    if not reads:
        return False
    _, _, records = random.choice(reads)
    place = random.randrange(len(records))
    records[place] = [records[place][0], NEW_VALUE]
    return True


def exchange_two_values(events: list[Event], random: Random) -> bool:
    """One reader sees two values in each other's place."""
    several = [records for _, _, records in polled(events) if len(records) > 1]
    if not several:
        return False
    records = random.choice(several)
    place = random.randrange(len(records) - 1)
    (first, one), (second, other) = records[place], records[place + 1]
    records[place : place + 2] = [[first, other], [second, one]]
    return True


def turn_ok_into_fail(events: list[Event], random: Random) -> bool:
    """Of an operation that somebody else read."""
    read = {(key, record[1]) for event, key, records in polled(events) for record in records}
    sends = [event for event, key, told in acked(events) if (key, told[1]) in read]
    if not sends:
        return False
    event = random.choice(sends)
    events[event.index] = replace(event, type="fail", error="REFUSED")
    # Its own reads may have been the only ones.
    others = {
        (key, record[1])
        for other, key, records in polled(events)
        for record in records
        if other.index != event.index
    }
    return any((micro[1], micro[2][1]) in others for micro in event.value if micro[0] == "send")


def move_an_ack_backwards(events: list[Event], random: Random) -> bool:
    later = [told for _, _, told in acked(events) if told[0] > 0]
    if not later:
        return False
    told = random.choice(later)
    told[0] -= 1
    return True


def skip_a_record(events: list[Event], random: Random) -> bool:
    """One reader is not given what others are."""
    several = [records for _, _, records in polled(events) if len(records) > 2]
    if not several:
        return False
    records = random.choice(several)
    del records[random.randrange(1, len(records) - 1)]
    return True


MUTATIONS: list[tuple[Mutation, set[str]]] = [
    (drop_a_value_everywhere, {"A3", "A4"}),
    (swap_two_polled, {"A14"}),
    (duplicate_a_record, {"A2"}),
    (change_a_value, {"A6"}),
    (exchange_two_values, {"A1"}),
    (turn_ok_into_fail, {"A5"}),
    (move_an_ack_backwards, {"A1", "A2"}),
    (skip_a_record, {"A13"}),
]


@pytest.mark.parametrize(
    ("mutate", "expected"), MUTATIONS, ids=[mutate.__name__ for mutate, _ in MUTATIONS]
)
def test_mutants_are_caught(mutate: Mutation, expected: set[str]) -> None:
    """JEP-84: 8 times 125 mutants, all caught, and the originals are clean."""
    made = 0
    for seed in range(1_000):
        if made == MUTANTS_OF_A_KIND:
            break
        draw = Draw(operations=30, processes=3, keys=2, transactional=seed % 2 == 0)
        original = valid_history(draw, seed)
        events = copy.deepcopy(original.events)
        if not mutate(events, Random(seed)):
            continue
        made += 1
        clean = check(original, JUDGED)
        assert clean.state == "valid", (seed, clean.bad)
        verdict = check(History(events, {}), JUDGED)
        assert verdict.state == "invalid", (seed, mutate)
        found = {anomaly.id for anomaly in verdict.bad}
        assert found & expected, (seed, mutate, verdict.bad)
    assert made == MUTANTS_OF_A_KIND
