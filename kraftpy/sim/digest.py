"""The digest of a run: one hash over every event, in order.

Two runs are the same run if their digests are. When they are not, the checkpoints (the hash after
every 1,000 events) tell by bisection in which thousand they parted, because a hash that covers
all events before it stays different once it differs. A second pass with that thousand as the
`window` keeps its events themselves and names the first that differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

__all__ = ["CHECKPOINT_EVENTS", "EventDigest", "RunTrace", "first_difference"]

CHECKPOINT_EVENTS = 1_000
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class RunTrace:
    """What a digest has seen, to be kept and compared."""

    digest: str
    event_count: int
    checkpoints: tuple[str, ...]
    window_start: int
    window_events: tuple[str, ...]


class EventDigest:
    """`window` is a range of event numbers that are kept in words."""

    __slots__ = ("_checkpoints", "_count", "_hash", "_window", "_window_events")

    def __init__(self, window: range = range(0)) -> None:
        self._hash = blake2b(digest_size=_DIGEST_BYTES)
        self._count = 0
        self._checkpoints: list[str] = []
        self._window = window
        self._window_events: list[str] = []

    def record(self, time: float, kind: str, place: str | int, data: bytes) -> None:
        """Take one event: when, what and where it happened, and the bytes that came with it."""
        line = f"{time!r}\t{kind}\t{place}\t{len(data)}\n"
        self._hash.update(line.encode() + data)
        if self._window and self._count in self._window:
            self._window_events.append(f"{time:.6f} {kind} {place} {data!r}")
        self._count += 1
        if self._count % CHECKPOINT_EVENTS == 0:
            self._checkpoints.append(self._hash.hexdigest())

    def trace(self) -> RunTrace:
        return RunTrace(
            digest=self._hash.hexdigest(),
            event_count=self._count,
            checkpoints=tuple(self._checkpoints),
            window_start=self._window.start,
            window_events=tuple(self._window_events),
        )


def first_difference(left: RunTrace, right: RunTrace) -> range | None:
    """The event numbers among which two runs part, or None if they are the same.

    One number, if both kept the window in which it lies.
    """
    if left.digest == right.digest:
        return None
    low, high = 0, min(len(left.checkpoints), len(right.checkpoints))
    while low < high:
        middle = (low + high) // 2
        if left.checkpoints[middle] == right.checkpoints[middle]:
            low = middle + 1
        else:
            high = middle
    start = low * CHECKPOINT_EVENTS
    if left.window_start == right.window_start == start:
        pairs = zip(left.window_events, right.window_events, strict=False)
        for number, (mine, other) in enumerate(pairs, start):
            if mine != other:
                return range(number, number + 1)
        shorter = min(len(left.window_events), len(right.window_events))
        if len(left.window_events) != len(right.window_events):
            return range(start + shorter, start + shorter + 1)
    return range(start, start + CHECKPOINT_EVENTS)
