"""Linearizability of topics, for W12: L1 `nonlinearizable`, L2 and L3 for what brokers show.

The state of a topic is whether it exists, its id, its number of partitions and one config value.
What changes it, and reads through the controller, must be linearizable: by versions where every
answer has one (the offset in the metadata log), else by search. An operation of unknown outcome
may have happened at any later time or never, and one that failed has not.

A broker may show an older state, but never goes back (L2 `metadata-regression`), and in the end
everybody shows the same (L3 `metadata-divergence`, over final reads).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, NamedTuple

from kraftpy.verify.checkers.linearizability import (
    Call,
    GiveUp,
    Versioned,
    is_linearizable,
    misplaced_versions,
)
from kraftpy.verify.checkers.verdict import Anomaly
from kraftpy.verify.checkers.versions import Versions
from kraftpy.verify.history import Operation

__all__ = ["Topic", "check_metadata", "topic_step"]

CHANGES: Final = ("md_create", "md_delete", "md_write", "md_cas")
CONTROLLER: Final = "controller"
UNKNOWN: Final = "?"
"""An id that nobody was told, of a creation whose outcome is unknown."""


class Topic(NamedTuple):
    """The state of a topic; ABSENT is none."""

    id: str
    partitions: int | None
    value: Hashable


ABSENT: Final = Topic("", None, None)


def topic_step(state: Hashable, operation: Operation) -> Hashable | None:
    """The model: the next state, or None if the answer is impossible in this one."""
    if not isinstance(state, Topic):
        return None
    value = operation.value
    if operation.f == "md_create":
        made = Topic(value.get("id", UNKNOWN), value.get("partitions"), value.get("value"))
        return made if state == ABSENT else None
    if operation.f == "md_read":
        return _read(state, value)
    if operation.f == "md_cas" and not value.get("swapped", True):
        return state if state.value != value["expected"] or state == ABSENT else None
    if state == ABSENT:
        return None
    if operation.f == "md_delete":
        return ABSENT
    if operation.f == "md_cas" and state.value != value["expected"]:
        return None
    return state._replace(value=value["value"])


def _read(state: Topic, seen: dict[str, Any]) -> Topic | None:
    """What an answer does not say is not compared; an id that nobody knew is learned."""
    if not seen["exists"]:
        return state if state == ABSENT else None
    if state == ABSENT or seen.get("value", state.value) != state.value:
        return None
    if seen.get("partitions", state.partitions) != state.partitions:
        return None
    if state.id == UNKNOWN and "id" in seen:
        return state._replace(id=seen["id"])
    return state if seen.get("id", state.id) == state.id else None


def check_metadata(
    versions: Versions, give_up: GiveUp, note: Callable[[str], None]
) -> Iterator[Anomaly]:
    """`note` is told of what could not be decided."""
    topics: dict[str, list[Operation]] = {}
    shown: dict[tuple[str, str], list[Operation]] = {}
    for kind in (*CHANGES, "md_read"):
        for operation in versions.others.get(kind, ()):
            if operation.type == "fail" or (kind == "md_read" and operation.type != "ok"):
                continue
            topic = operation.value["topic"]
            via = operation.value.get("via", CONTROLLER)
            if via == CONTROLLER:
                topics.setdefault(topic, []).append(operation)
            else:
                shown.setdefault((topic, str(via)), []).append(operation)
    for topic, operations in sorted(topics.items()):
        operations.sort(key=lambda operation: operation.index)
        yield from _linearizable(topic, operations, versions, give_up, note)
    for (topic, via), operations in sorted(shown.items()):
        yield from _going_back(topic, via, operations)
    yield from _divergence(versions)


def _linearizable(
    topic: str,
    operations: list[Operation],
    versions: Versions,
    give_up: GiveUp,
    note: Callable[[str], None],
) -> Iterator[Anomaly]:
    if all(
        operation.value.get("version") is not None
        for operation in operations
        if operation.type == "ok"
    ):
        yield from _by_versions(topic, operations)
        return
    calls = [Call(operation.index, operation.end_index, operation) for operation in operations]
    expected = versions.expectations
    answer = is_linearizable(
        calls, ABSENT, topic_step, max_steps=expected.search_limit_steps, give_up=give_up
    )
    if answer == "unknown":
        note(f"whether topic {topic} is linearizable took too long to find out")
    elif answer == "no":
        yield Anomaly(
            "L1",
            "nonlinearizable",
            tuple(operation.index for operation in operations[:100]),
            f"no order explains the {len(operations)} operations on topic {topic}",
        )


def _by_versions(topic: str, operations: list[Operation]) -> Iterator[Anomaly]:
    """The order is that of the versions, and reads see the newest change up to theirs."""
    known = [operation for operation in operations if operation.type == "ok"]
    calls = [
        Versioned(
            operation.index,
            operation.end_index,
            operation.value["version"],
            operation.f in CHANGES and bool(operation.value.get("swapped", True)),
        )
        for operation in known
    ]
    for earlier, later in misplaced_versions(calls):
        yield Anomaly(
            "L1",
            "nonlinearizable",
            (known[earlier].index, known[later].index),
            f"T{known[later].index} ({known[later].f} of topic {topic}) has version "
            f"{calls[later].version}, and T{known[earlier].index}, which was over before, has "
            f"version {calls[earlier].version}",
        )
    unknown = [operation for operation in operations if operation.type != "ok"]
    order = sorted(
        range(len(known)), key=lambda place: (calls[place].version, not calls[place].is_write)
    )
    # Where an unknown change may be at work, a read tells what the state is.
    state: Hashable = ABSENT
    for place in order:
        operation = known[place]
        reached = topic_step(state, operation)
        if reached is None:
            if not any(change.index < (operation.end_index or 0) for change in unknown):
                yield Anomaly(
                    "L1",
                    "nonlinearizable",
                    (operation.index,),
                    f"T{operation.index} ({operation.f} of topic {topic}) at version "
                    f"{calls[place].version} can't follow the state {state}",
                )
            reached = _state_after(operation, state)
        state = reached


def _state_after(operation: Operation, state: Hashable) -> Hashable:
    """As the answer has it, whatever was before."""
    value = operation.value
    if operation.f == "md_delete" or not value.get("exists", True):
        return ABSENT
    if not isinstance(state, Topic) or state == ABSENT:
        state = Topic(UNKNOWN, value.get("partitions"), None)
    return state._replace(
        id=value.get("id", state.id),
        partitions=value.get("partitions", state.partitions),
        value=value.get("value", state.value),
    )


def _going_back(topic: str, via: str, operations: list[Operation]) -> Iterator[Anomaly]:
    reads = [operation for operation in operations if operation.value.get("version") is not None]
    calls = [Versioned(read.index, read.end_index, read.value["version"], False) for read in reads]
    for earlier, later in misplaced_versions(calls):
        yield Anomaly(
            "L2",
            "metadata-regression",
            (reads[earlier].index, reads[later].index),
            f"node {via} showed version {calls[earlier].version} of topic {topic}, then "
            f"{calls[later].version}",
        )


def _divergence(versions: Versions) -> Iterator[Anomaly]:
    finals: dict[str, Operation] = {}
    for operation in versions.others.get("md_read", ()):
        if operation.type != "ok" or not operation.meta.get("final"):
            continue
        value = operation.value
        first = finals.setdefault(value["topic"], operation)
        fields = ("exists", "id", "partitions", "value")
        differing = [
            field
            for field in fields
            if field in value and field in first.value and value[field] != first.value[field]
        ]
        if differing:
            field = differing[0]
            yield Anomaly(
                "L3",
                "metadata-divergence",
                (first.index, operation.index),
                f"in the end node {first.value.get('via')} shows {first.value[field]!r} as "
                f"{field} of topic {value['topic']}, node {value.get('via')} {value[field]!r}",
            )
