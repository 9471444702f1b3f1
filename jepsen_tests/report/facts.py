"""What a report shows, taken from a history in a few passes: times are seconds from its start.

Nothing here grows faster than the history, and what is drawn is put together in bins, so that a run
of 100,000 operations is as readable as one of a hundred.

The run's facts may have `timeline`: samples of `jepsen_tests.cluster.Watcher`.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kraftpy.verify.history import Event, History, Operation

__all__ = ["BINS", "Band", "Facts", "Gap", "Reign", "facts_of", "micro_operations"]

BINS: Final = 240
# Shorter ones are no news: a poll alone takes longer.
LEAST_GAP_SECONDS: Final = 1.0
_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Band:
    """A fault, from when to when."""

    name: str
    start: float
    end: float
    faults: tuple[str, ...]
    effects: tuple[str, ...]
    note: str
    """Why it did not happen; empty if it did."""


@dataclass(frozen=True, slots=True)
class Reign:
    """A time in which a partition had one leader in one epoch, and the same replicas in sync."""

    start: float
    end: float
    leader: int
    epoch: int
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which no write of a key was acknowledged, though one was tried or waited."""

    key: int
    start: float
    end: float


@dataclass(slots=True)
class Facts:
    seconds: float
    counts: Mapping[str, Counter[str]]
    """By kind of operation: how many of each outcome."""
    rates: Mapping[str, list[int]]
    """By outcome: operations that were completed in each bin."""
    latencies: list[tuple[float, float, str, str]]
    """When it was asked, how many milliseconds it took, outcome, kind."""
    bands: list[Band]
    reigns: Mapping[str, list[Reign]]
    gaps: list[Gap]
    unseen: list[int]
    """By bin: acknowledged values that nobody has read yet."""
    lag: list[float]
    """By bin: the longest time, in seconds, by which a reader was behind."""
    acked: int = 0
    quantiles: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds of operations that were ok."""

    @property
    def total(self) -> int:
        return sum(sum(each.values()) for each in self.counts.values())

    @property
    def ok(self) -> int:
        return sum(each["ok"] for each in self.counts.values())


def facts_of(history: History) -> Facts:
    events = history.events
    origin = events[0].time_ns if events else 0
    end = events[-1].time_ns if events else 0
    seconds = max((end - origin) / _NS, 0.001)
    scale = _Scale(origin, seconds)
    counts: dict[str, Counter[str]] = {}
    rates = {outcome: [0] * BINS for outcome in ("ok", "fail", "info")}
    latencies: list[tuple[float, float, str, str]] = []
    for operation in history.operations:
        counts.setdefault(operation.f, Counter())[operation.type] += 1
        done = operation.completion
        if done is None:
            continue
        rates[operation.type][scale.bin(done.time_ns)] += 1
        milliseconds = (done.time_ns - operation.start_ns) / 1_000_000
        latencies.append(
            (scale.seconds(operation.start_ns), milliseconds, operation.type, operation.f)
        )
    progress = _progress(history.operations, scale)
    return Facts(
        seconds=seconds,
        counts=counts,
        rates=rates,
        latencies=latencies,
        bands=_bands(history.nemesis_events, scale),
        reigns=_reigns(history.run.get("timeline") or (), scale),
        gaps=progress.gaps(scale),
        unseen=progress.unseen,
        lag=progress.lag,
        acked=progress.acked,
        quantiles=_quantiles([each[1] for each in latencies if each[2] == "ok"]),
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    """From the recorder's nanoseconds to seconds and bins."""

    origin: int
    length: float

    def seconds(self, time_ns: int) -> float:
        return (time_ns - self.origin) / _NS

    def bin(self, time_ns: int) -> int:
        share = self.seconds(time_ns) / self.length
        return min(BINS - 1, max(0, int(share * BINS)))


def _bands(events: Sequence[Event], scale: _Scale) -> list[Band]:
    """Starts and ends of one kind come in turns; one that never ended lasts to the end."""
    open_since: dict[str, float] = {}
    bands = []
    for event in events:
        value: Mapping[str, Any] = event.value
        name = str(value.get("name", "fault"))
        now = scale.seconds(event.time_ns)
        if value.get("phase") == "start":
            open_since[name] = now
            continue
        note = str(value.get("skipped") or value.get("refused") or "")
        faults = tuple(str(each) for each in value.get("faults") or ())
        effects = tuple(str(each) for each in value.get("effects") or ())
        bands.append(Band(name, open_since.pop(name, now), now, faults, effects, note))
    for name, since in open_since.items():
        bands.append(Band(name, since, scale.length, (), (), "it has no end in the history"))
    return sorted(bands, key=lambda band: (band.start, band.name))


def _reigns(samples: Sequence[Sequence[Any]], scale: _Scale) -> dict[str, list[Reign]]:
    grouped: dict[str, list[Sequence[Any]]] = {}
    for sample in samples:
        grouped.setdefault(str(sample[1]), []).append(sample)
    reigns: dict[str, list[Reign]] = {}
    for name, found in grouped.items():
        ends = [scale.seconds(each[0]) for each in found[1:]] + [scale.length]
        reigns[name] = [
            Reign(max(0.0, scale.seconds(each[0])), end, each[2], each[3], tuple(each[4]))
            for each, end in zip(found, ends, strict=True)
            if end > 0
        ]
    return reigns


class _Progress:
    """Writes that were acknowledged, and how far readers are, as time goes on."""

    def __init__(self) -> None:
        self.acked = 0
        self.unseen = [0] * BINS
        self.lag = [0.0] * BINS
        # By key: offsets with the times of their acknowledgements, in the order of offsets.
        self._acks: dict[int, list[tuple[int, int]]] = {}
        self._waiting: set[tuple[int, Any]] = set()
        self._seen: set[tuple[int, Any]] = set()
        # By key: when a write was asked for, and when acknowledged; None for one that was not.
        self._tries: dict[int, list[tuple[int, int | None]]] = {}

    def sent(self, key: int, ack: Any, asked_ns: int, at_ns: int) -> None:
        """One micro-operation that was ok."""
        self._tries.setdefault(key, []).append((asked_ns, at_ns))
        offset, value = ack[0], ack[1]
        if offset is None:
            return
        self.acked += 1
        insort(self._acks.setdefault(key, []), (offset, at_ns))
        if (key, value) not in self._seen:
            self._waiting.add((key, value))

    def failed(self, key: int, asked_ns: int) -> None:
        self._tries.setdefault(key, []).append((asked_ns, None))

    def polled(self, key: int, records: Sequence[Sequence[Any]], at_ns: int, number: int) -> None:
        for record in records:
            self._seen.add((key, record[1]))
            self._waiting.discard((key, record[1]))
        if not records:
            return
        acks = self._acks.get(key, ())
        following = bisect_right(acks, (records[-1][0], at_ns + 1))
        if following < len(acks) and acks[following][1] < at_ns:
            behind = (at_ns - acks[following][1]) / _NS
            self.lag[number] = max(self.lag[number], behind)

    def end_bin(self, first: int, last: int) -> None:
        for number in range(first, last):
            self.unseen[number] = len(self._waiting)

    def gaps(self, scale: _Scale) -> list[Gap]:
        """From the last acknowledgement, or from when a write was asked for if that is later, to
        the next.
        """
        found = []
        for key, tries in sorted(self._tries.items()):
            since: int | None = None
            waiting_since: int | None = None
            for asked_ns, at_ns in tries:
                if waiting_since is None:
                    waiting_since = asked_ns
                if at_ns is None:
                    continue
                begun = waiting_since if since is None else max(since, waiting_since)
                if at_ns - begun >= LEAST_GAP_SECONDS * _NS:
                    found.append(Gap(key, scale.seconds(begun), scale.seconds(at_ns)))
                since, waiting_since = at_ns, None
        return found


def _progress(operations: Sequence[Operation], scale: _Scale) -> _Progress:
    progress = _Progress()
    done = [(each.completion, each) for each in operations if each.completion is not None]
    done.sort(key=lambda pair: pair[0].index)
    reached = 0
    for completion, operation in done:
        number = scale.bin(completion.time_ns)
        progress.end_bin(reached, number)
        reached = max(reached, number)
        for kind, key, what in micro_operations(operation):
            if kind == "poll":
                progress.polled(key, what, completion.time_ns, number)
            elif completion.type == "ok":
                progress.sent(key, what, operation.start_ns, completion.time_ns)
            else:
                progress.failed(key, operation.start_ns)
    progress.end_bin(reached, BINS)
    return progress


def micro_operations(operation: Operation) -> Iterator[tuple[str, int, Any]]:
    """Sends with their acknowledgements, and polls with what they gave, key by key."""
    if operation.f not in ("send", "poll", "txn") or not isinstance(operation.value, list):
        return
    for part in operation.value:
        if not isinstance(part, list) or not part:
            continue
        if part[0] == "send" and len(part) > 2:
            ack = part[2] if isinstance(part[2], list) else [None, part[2]]
            yield "send", part[1], ack
        elif part[0] == "poll" and len(part) > 1 and isinstance(part[1], dict):
            for key, records in part[1].items():
                yield "poll", key, records


def _quantiles(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    values.sort()
    last = len(values) - 1
    return {name: values[round(share * last)] for name, share in _QUANTILES}


_QUANTILES: Final = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))
