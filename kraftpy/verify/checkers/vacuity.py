"""Did the run do enough to say anything? One in which nothing happened proves nothing.

A run is inconclusive unless every kind of operation succeeded at least once, enough of all
operations did, enough values were acked, every fault that was asked for happened and had an effect
that somebody observed, some operation ran inside a fault, the final read came to the highest
offset of every key or what it missed is reported, and the audit read every replica. Where a topic
was made again, the highest offset may be one of the old topic's, which nobody can read any more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from kraftpy.verify.checkers.expectations import Expectations, Vacuity
from kraftpy.verify.checkers.verdict import Anomaly
from kraftpy.verify.checkers.versions import Versions, highest_offset
from kraftpy.verify.history import History, Operation

__all__ = ["reasons_against"]

# These are never ok, or are for the report alone.
NOT_COUNTED: Final = ("close", "crash", "debug")


def reasons_against(versions: Versions, anomalies: Sequence[Anomaly]) -> Iterator[str]:
    """Why the run is inconclusive; nothing if it is not."""
    expected = versions.expectations
    if expected.vacuity is None:
        return
    operations = [
        operation for operation in versions.history.operations if operation.f not in NOT_COUNTED
    ]
    yield from _kinds(operations, expected.vacuity)
    yield from _acked(versions, expected.vacuity)
    yield from _faults(versions.history, operations, expected.vacuity)
    if expected.vacuity.needs_final_read:
        yield from _final_read(versions, anomalies)
    yield from _audit(expected)


def _kinds(operations: list[Operation], least: Vacuity) -> Iterator[str]:
    tried: dict[str, int] = dict.fromkeys(least.required_kinds, 0)
    for operation in operations:
        tried[operation.f] = tried.get(operation.f, 0) + (operation.type == "ok")
    for kind, count in sorted(tried.items()):
        if not count:
            yield f"no {kind} was ok"
    succeeded = sum(tried.values())
    if succeeded < least.min_ok_fraction * len(operations):
        yield (
            f"{succeeded} of {len(operations)} operations were ok, and "
            f"{least.min_ok_fraction:.0%} have to be"
        )


def _acked(versions: Versions, least: Vacuity) -> Iterator[str]:
    acked = sum(1 for operation, sent in versions.sends() if operation.has_committed(sent))
    if acked < least.min_acked_values:
        yield f"{acked} values were acked, and {least.min_acked_values} have to be"


def _faults(history: History, operations: list[Operation], least: Vacuity) -> Iterator[str]:
    fires: dict[str, int] = {}
    observed: set[str] = set()
    windows: list[tuple[int, int]] = []
    opened: dict[str, int] = {}
    for event in history.nemesis_events:
        name = str(event.value.get("name", ""))
        if event.value["phase"] == "start":
            fires[name] = fires.get(name, 0) + 1
            opened[name] = event.index
        else:
            if event.value.get("effects"):
                observed.add(name)
            if name in opened:
                windows.append((opened.pop(name), event.index))
    windows += [(begin, len(history.events)) for begin in opened.values()]
    for name in least.nemeses:
        if fires.get(name, 0) < least.min_fires:
            yield f"{name} happened {fires.get(name, 0)} times, and {least.min_fires} are needed"
        elif name not in observed:
            yield f"no effect of {name} was observed"
    if fires and not _ran_inside(operations, sorted(windows)):
        yield "no operation ran inside a fault"


def _ran_inside(operations: list[Operation], windows: list[tuple[int, int]]) -> bool:
    """Whether one was invoked and completed within a window."""
    begins = [operation.index for operation in operations]
    for begin, end in windows:
        for operation in operations[bisect_left(begins, begin) :]:
            if operation.index > end:
                break
            if operation.completion is not None and operation.completion.index < end:
                return True
    return False


def _final_read(versions: Versions, anomalies: Sequence[Anomaly]) -> Iterator[str]:
    reached: dict[int, int] = {}
    finals = [operation for operation in versions.operations if operation.meta.get("final")]
    if not finals:
        yield "there was no final read"
        return
    for operation in finals:
        for key, records in operation.reads.items():
            if records and operation.type == "ok":
                reached[key] = max(reached.get(key, -1), highest_offset(records))
    excused = {anomaly.key for anomaly in anomalies if anomaly.id == "A4"}
    excused |= versions.expectations.recreated_keys
    missing = [
        key
        for key, found in versions.keys.items()
        if found.offsets and reached.get(key, -1) < found.offsets[-1] and key not in excused
    ]
    if missing:
        key = missing[0]
        yield (
            f"the final read did not come to the end of {len(missing)} keys; in key {key} it came "
            f"to {reached.get(key)} of {versions.keys[key].offsets[-1]}"
        )


def _audit(expected: Expectations) -> Iterator[str]:
    if expected.audit is None:
        if expected.vacuity is not None and expected.vacuity.needs_audit:
            yield "there was no audit"
        return
    found: dict[int, int] = {}
    for replica in expected.audit.replicas:
        found[replica.key] = found.get(replica.key, 0) + 1
    for key, count in sorted(expected.audit.expected_replicas.items()):
        if found.get(key, 0) < count:
            yield f"the audit read {found.get(key, 0)} of {count} replicas of key {key}"
