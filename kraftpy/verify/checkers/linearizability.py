"""Is there one order of operations that respects real time and explains every answer?

Three ways, from the quickest:

*Version chain*, O(n log n): each operation has a version that says which state it made or saw, so
the order is known. It remains to see that versions respect real time: not below what was complete
before an operation began, not above what began after it was over.

*Zones* (Gibbons and Korach), O(n log n), for a register whose writes are all different. Each write
and its reads form a cluster that must be a block of the order. If some member ended before another
began, the register certainly had that value between these two moments (a forward zone); else there
is an instant at which all of them ran (a backward zone). The history is linearizable if and only
if no two forward zones overlap, no backward zone is inside a forward one, and no read ended before
its write began.

*Search* (Wing and Gong, with Lowe's memo of configurations), exponential at worst, for anything
with a model: take any operation that began before all others ended, apply it, go on; take it back
if that leads nowhere; never visit twice the same set of operations with the same state.

Operations without an end may have happened at any time after they began, or not at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

__all__ = [
    "Call",
    "GiveUp",
    "RegisterCall",
    "Step",
    "Versioned",
    "find_zone_conflict",
    "is_linearizable",
    "misplaced_versions",
]

Answer: TypeAlias = Literal["yes", "no", "unknown"]
Step: TypeAlias = Callable[[Hashable, Any], Hashable | None]
"""From a state and an operation to the next state; None if the operation is impossible there."""
GiveUp: TypeAlias = Callable[[], bool]

# How many steps of a search pass between two looks at the clock.
STEPS_BETWEEN_LOOKS = 1_024


@dataclass(frozen=True, slots=True)
class Versioned:
    """An operation with the version that it made or saw."""

    start: int
    end: int | None
    version: int
    is_write: bool


def misplaced_versions(calls: Sequence[Versioned]) -> list[tuple[int, int]]:
    """Pairs (earlier, later) of positions whose versions contradict real time.

    A later operation must not be below an earlier one; a write must be above it.
    """
    ended = sorted(
        (call.end, position) for position, call in enumerate(calls) if call.end is not None
    )
    ends = [end for end, _ in ended]
    # Up to each end: the one with the highest version so far.
    highest: list[int] = []
    for _, position in ended:
        best = highest[-1] if highest else position
        highest.append(position if calls[position].version > calls[best].version else best)
    wrong = []
    for position, call in enumerate(calls):
        place = bisect_left(ends, call.start) - 1
        if place < 0:
            continue
        earlier = calls[highest[place]]
        if call.version < earlier.version or (call.is_write and call.version == earlier.version):
            wrong.append((highest[place], position))
    return wrong


@dataclass(frozen=True, slots=True)
class RegisterCall:
    """A write, or a read that returned what the write with this value wrote."""

    start: int
    end: int | None
    value: Hashable
    is_write: bool


@dataclass(frozen=True, slots=True)
class _Zone:
    low: float
    high: float
    is_forward: bool
    ended: int
    """The position of the member that ended first."""
    began: int
    """The position of the member that began last."""


def find_zone_conflict(calls: Sequence[RegisterCall], initial: Hashable) -> tuple[int, ...] | None:
    """Positions of calls that no order explains, or None if there is an order for all.

    `initial` is the value before all writes. A read of a value that was never written conflicts
    by itself.
    """
    clusters: dict[Hashable, list[int]] = {initial: []}
    writes: dict[Hashable, int] = {}
    for position, call in enumerate(calls):
        if call.is_write:
            writes[call.value] = position
            clusters[call.value] = []
    for position, call in enumerate(calls):
        if call.is_write:
            continue
        if call.value not in clusters:
            return (position,)
        clusters[call.value].append(position)
        if call.value in writes:
            write = calls[writes[call.value]]
            if call.end is not None and call.end < write.start:
                return (writes[call.value], position)
    zones = []
    for value, reads in clusters.items():
        if value in writes:
            write_position = writes[value]
            # One that may not have happened, and that nobody saw, did not.
            if reads or calls[write_position].end is not None:
                zones.append(_zone(calls, [write_position, *reads]))
        elif reads:
            zones.append(_initial_zone(calls, reads))
    return _conflict(sorted(zones, key=lambda zone: (zone.low, zone.high)))


def _ends(call: RegisterCall) -> float:
    return float("inf") if call.end is None else call.end


def _zone(calls: Sequence[RegisterCall], members: list[int]) -> _Zone:
    ended = min(members, key=lambda position: _ends(calls[position]))
    began = max(members, key=lambda position: calls[position].start)
    low, high = _ends(calls[ended]), calls[began].start
    if low < high:
        return _Zone(low, high, True, ended, began)
    return _Zone(high, low, False, ended, began)


def _initial_zone(calls: Sequence[RegisterCall], reads: list[int]) -> _Zone:
    """The initial value was written before everything, so it holds up to its last read."""
    began = max(reads, key=lambda position: calls[position].start)
    return _Zone(float("-inf"), calls[began].start, True, began, began)


def _conflict(zones: list[_Zone]) -> tuple[int, ...] | None:
    """Zones in the order of their lower ends; the forward one that reaches furthest matters."""
    furthest: _Zone | None = None
    for zone in zones:
        if furthest is not None and zone.low < furthest.high:
            is_inside = zone.high < furthest.high
            if zone.is_forward or is_inside:
                members = (furthest.ended, furthest.began, zone.ended, zone.began)
                return tuple(dict.fromkeys(members))
        if zone.is_forward and (furthest is None or zone.high > furthest.high):
            furthest = zone
    return None


@dataclass(frozen=True, slots=True)
class Call:
    start: int
    end: int | None
    operation: Any


class _Entry:
    """A call or a return, in a list that can be unlinked and relinked in place."""

    __slots__ = ("call", "next", "number", "previous", "returns")

    def __init__(self, call: Call | None, number: int) -> None:
        self.call = call
        self.number = number
        self.returns: _Entry | None = None
        self.previous: _Entry | None = None
        self.next: _Entry | None = None

    def unlink(self) -> None:
        if self.previous is not None:
            self.previous.next = self.next
        if self.next is not None:
            self.next.previous = self.previous

    def relink(self) -> None:
        if self.previous is not None:
            self.previous.next = self
        if self.next is not None:
            self.next.previous = self


def _entries(calls: Sequence[Call]) -> _Entry:
    """The head of the list, in the order of time. Calls without an end return after all others,
    where nobody waits for them.
    """
    moments: list[tuple[float, int, _Entry]] = []
    for number, call in enumerate(calls):
        begin, end = _Entry(call, number), _Entry(None, number)
        begin.returns = end
        moments.append((call.start, 0, begin))
        # At the same moment a call precedes a return: then the two overlap.
        moments.append((float("inf") if call.end is None else call.end, 1, end))
    moments.sort(key=lambda moment: moment[:2])
    head = _Entry(None, -1)
    last = head
    for _, _, entry in moments:
        entry.previous = last
        last.next = entry
        last = entry
    return head


def is_linearizable(
    calls: Sequence[Call],
    initial: Hashable,
    step: Step,
    *,
    max_steps: int,
    give_up: GiveUp = lambda: False,
) -> Answer:
    """Whether some order of the calls is one of the model; unknown if the search was cut short."""
    head = _entries(calls)
    unfinished = sum(1 for call in calls if call.end is not None)
    state = initial
    done = 0
    seen: set[tuple[int, Hashable]] = {(0, initial)}
    taken: list[tuple[_Entry, Hashable]] = []
    entry = head.next
    steps = 0
    while unfinished:
        steps += 1
        if steps > max_steps or (steps % STEPS_BETWEEN_LOOKS == 0 and give_up()):
            return "unknown"
        if entry is not None and entry.call is not None and entry.returns is not None:
            reached = step(state, entry.call.operation)
            if reached is not None:
                configuration = (done | 1 << entry.number, reached)
                if configuration not in seen:
                    seen.add(configuration)
                    taken.append((entry, state))
                    done, state = configuration
                    unfinished -= entry.call.end is not None
                    entry.unlink()
                    entry.returns.unlink()
                    entry = head.next
                    continue
            entry = entry.next
            continue
        # A return that nobody could be put before: the last choice was wrong.
        if not taken:
            return "no"
        entry, state = taken.pop()
        if entry.call is not None and entry.returns is not None:
            unfinished += entry.call.end is not None
            done ^= 1 << entry.number
            entry.returns.relink()
            entry.relink()
        entry = entry.next
    return "yes"
