"""What clients did and what they were told: operations in one order, on one clock.

A history is a list of events. An operation is an `invoke` and at most one completion by the same
process: `ok` (it happened), `fail` (it certainly did not), `info` (nobody knows). One that never
completes counts as `info`. Whatever a checker concludes stands on two things that the recorder
keeps: all times come from one monotonic clock, and a process does one thing at a time. After
`info` a process is retired, because its operation may still take effect while the next one runs.

A *key* is an integer that stands for one topic partition. Values are unique for each key.

Values by kind of operation (`f`), invocation -> completion; maps have integer keys where a key of
the workload is meant, and everything is what msgpack can carry:

    assign      [k, ...] -> the same; meta `seek_to_beginning`
    subscribe   [k, ...] -> the same; meta `group`
    send, poll, txn   micro-operations in order:
                ["send", k, v]  -> ["send", k, [offset or None, v]]
                ["poll"]        -> ["poll", {k: [[offset, v], ...]}]
                A record or ack may have a third element, a map of EXTRAS (below).
                meta `transactional` says that the operation was one transaction; its meta may also
                have `transactional_id`, `producer_id`, `producer_epoch`, `commit_ns` (when commit
                was asked for) and `outcome` ("committed", "aborted": what EndTxn's answer
                confirmed; "commit-refused": a definite error). The meta of any of the three has
                `offsets`, {"group": g, "offsets": {k: [offset, id or None]}}, if it committed
                offsets: in its transaction, or after a poll in a group. In the latter case an
                `error` beside ok says that only the commit failed.
    crash       None -> always info
    commit      {k: [offset, id]} -> the same; the id is unique for each commit and stored as
                metadata; meta `group`, `member`, `generation`
    committed   [k, ...] -> {k: [offset, id] or None}; meta `group`
    end_offsets [k, ...] -> {k: [log_start, last_stable, high_watermark]}, or a fourth element, the
                leader epoch; meta `isolation`
    join_view   {"group", "member", "generation", "owned"} -> {"group", "member", "generation",
                "assignment": [k, ...]}, perhaps with "members": [...] and "subscribed": [k, ...].
                The invocation says what the member told the coordinator: generation 0 or absent
                for a join, and `owned`, what it still holds. The member epoch of the newer
                protocol is a generation here. One whose members are on different epochs at a
                time gives the completion "target", the epoch of the target assignment. A view
                from a client's memory, not from an answer, has "local": true. A static member
                has "instance".
    leave       {"group", "member"} -> the same
    group_state {"group"} -> {"group", "state", "generation"}
    init_producer  {"transactional_id"} -> {"transactional_id", "producer_id", "producer_epoch"}
    md_create   {"topic", "partitions", "value"} -> the same with "id", perhaps "version"
    md_delete   {"topic"} -> the same, perhaps "version"
    md_write    {"topic", "value"} -> the same, perhaps "version"
    md_cas      {"topic", "expected", "value"} -> the same with "swapped": bool, perhaps "version"
    md_read     {"topic", "via"} -> {"topic", "via", "exists", "id", "partitions", "value",
                "version"}; `via` is "controller" or the id of a broker
    delete_records {k: offset} -> the same
    debug       [k, ...] -> anything

EXTRAS of a record: `epoch` (leader epoch), `timestamp`, `key` (the key written inside it, or the
partition that the ack named, where that differs), `damage` (why its header did not parse), `from`
([k, v], what it was copied from), `account` and `balance`, `record_key` and `tombstone`.

Other metadata: `node`, `client`, `final` (the operation belongs to the final read).

The nemesis has its events in the same order: f `nemesis`, type `info`, a map as the value with
`name` and `phase` ("start" or "end"), and at the end `effects`, the list of what was observed.

A file is a stream of msgpack: a map with the format's name and the facts of the run, then one map
for each event with the short names i, t, p, type, f, value, error, rebalance, meta.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, Literal, TypeAlias

import msgpack

__all__ = [
    "NEMESIS",
    "Event",
    "EventType",
    "History",
    "HistoryError",
    "Invocation",
    "Operation",
    "Recorder",
    "read_history",
    "write_history",
]

EventType: TypeAlias = Literal["invoke", "ok", "fail", "info"]
Process: TypeAlias = int | str

NEMESIS: Final = "nemesis"
FORMAT: Final = "kraftpy-history"
VERSION: Final = 1
COMPLETIONS: Final = ("ok", "fail", "info")
PHASES: Final = ("start", "end")


class HistoryError(ValueError):
    """An event that can't be in a history, or a file that is none."""


@dataclass(frozen=True, slots=True)
class Event:
    index: int
    time_ns: int
    process: Process
    type: EventType
    f: str
    value: Any = None
    error: str | None = None
    rebalance: Sequence[Mapping[str, Any]] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operation:
    """An invocation with its completion, if there is one."""

    invoke: Event
    completion: Event | None

    @property
    def index(self) -> int:
        """Its name: the index of its invocation."""
        return self.invoke.index

    @property
    def process(self) -> Process:
        return self.invoke.process

    @property
    def f(self) -> str:
        return self.invoke.f

    @property
    def type(self) -> EventType:
        return "info" if self.completion is None else self.completion.type

    @property
    def value(self) -> Any:
        """The result; of one without, what was asked for."""
        if self.completion is None or self.completion.value is None:
            return self.invoke.value
        return self.completion.value

    @property
    def meta(self) -> Mapping[str, Any]:
        if self.completion is None or not self.completion.meta:
            return self.invoke.meta
        return {**self.invoke.meta, **self.completion.meta}

    @property
    def start_ns(self) -> int:
        return self.invoke.time_ns

    @property
    def end_ns(self) -> int | None:
        """When it was over; None for one that may still take effect."""
        completion = self.completion
        return None if completion is None or completion.type == "info" else completion.time_ns

    @property
    def end_index(self) -> int | None:
        """The index of the event that ended it, in the same sense as `end_ns`."""
        completion = self.completion
        return None if completion is None or completion.type == "info" else completion.index

    @property
    def gave_up_keys(self) -> bool:
        """Whether some were revoked or lost while it ran."""
        completion = self.completion
        return completion is not None and any(
            entry["kind"] != "assigned" for entry in completion.rebalance
        )

    @property
    def rebalanced_keys(self) -> frozenset[int]:
        if self.completion is None or not self.completion.rebalance:
            return frozenset()
        return frozenset(key for entry in self.completion.rebalance for key in entry["keys"])


class Rules:
    """The legal next events: dense indexes, time that goes forward, one operation at a time."""

    def __init__(self) -> None:
        self._next_index = 0
        self._time_ns: int | None = None
        self._open: dict[Process, str] = {}
        self._retired: dict[Process, int] = {}

    def admit(self, event: Event) -> None:
        """Take the event into account, or raise HistoryError and leave everything as it is."""
        if event.index != self._next_index:
            raise HistoryError(f"event {event.index} where {self._next_index} should be")
        if self._time_ns is not None and event.time_ns < self._time_ns:
            raise HistoryError(f"event {event.index} is before its predecessor in time")
        if event.process == NEMESIS:
            self._check_nemesis(event)
        elif not isinstance(event.process, int):
            raise HistoryError(f"event {event.index}: {event.process!r} is no process")
        elif event.type == "invoke":
            self._begin(event)
        elif event.type in COMPLETIONS:
            self._end(event)
        else:
            raise HistoryError(f"event {event.index}: there is no type {event.type!r}")
        self._next_index += 1
        self._time_ns = event.time_ns

    def _begin(self, event: Event) -> None:
        if event.process in self._open:
            raise HistoryError(
                f"event {event.index}: process {event.process} is still in "
                f"{self._open[event.process]!r} and can't begin {event.f!r}"
            )
        if event.process in self._retired:
            raise HistoryError(
                f"event {event.index}: process {event.process} is retired since event "
                f"{self._retired[event.process]}, the outcome of which is unknown"
            )
        self._open[event.process] = event.f

    def _end(self, event: Event) -> None:
        began = self._open.get(event.process)
        if began is None:
            raise HistoryError(f"event {event.index}: process {event.process} has begun nothing")
        if began != event.f:
            raise HistoryError(f"event {event.index}: {event.f!r} ends what began as {began!r}")
        if event.f == "crash" and event.type != "info":
            raise HistoryError(f"event {event.index}: a crash is always info")
        del self._open[event.process]
        if event.type == "info":
            self._retired[event.process] = event.index

    @staticmethod
    def _check_nemesis(event: Event) -> None:
        phase = event.value.get("phase") if isinstance(event.value, dict) else None
        if event.type != "info" or phase not in PHASES:
            raise HistoryError(
                f"event {event.index}: the nemesis has events of type info, with a map that has "
                f"phase start or end"
            )


class Invocation:
    """An operation under way. Exactly one of `ok`, `fail` and `info` ends it."""

    __slots__ = ("_record", "event")

    def __init__(self, event: Event, record: Callable[..., Event]) -> None:
        self.event = event
        self._record = record

    def ok(
        self,
        value: Any,
        error: str | None = None,
        rebalance: Sequence[Mapping[str, Any]] = (),
        meta: Mapping[str, Any] | None = None,
    ) -> Event:
        """It happened. An error here is a remark, as when only the commit after a poll failed."""
        return self._complete("ok", value, error, rebalance, meta)

    def fail(
        self,
        error: str,
        value: Any = None,
        rebalance: Sequence[Mapping[str, Any]] = (),
        meta: Mapping[str, Any] | None = None,
    ) -> Event:
        """It certainly did not happen; `value` has what was learned before that was known."""
        return self._complete("fail", value, error, rebalance, meta)

    def info(
        self,
        error: str,
        value: Any = None,
        rebalance: Sequence[Mapping[str, Any]] = (),
        meta: Mapping[str, Any] | None = None,
    ) -> Event:
        """Nobody knows whether it happened, and the process is over."""
        return self._complete("info", value, error, rebalance, meta)

    def _complete(
        self,
        type_: EventType,
        value: Any,
        error: str | None,
        rebalance: Sequence[Mapping[str, Any]],
        meta: Mapping[str, Any] | None,
    ) -> Event:
        begun = self.event
        return self._record(
            begun.process, type_, begun.f, value, error=error, rebalance=rebalance, meta=meta
        )


class Recorder:
    """Takes events as they happen. Whatever it refuses leaves the history as it was.

    Values are copied: a client may go on filling its own in place.
    """

    def __init__(self, time_ns: Callable[[], int]) -> None:
        self._now_ns = time_ns
        self._rules = Rules()
        self.events: list[Event] = []

    def invoke(
        self, process: int, f: str, value: Any, meta: Mapping[str, Any] | None = None
    ) -> Invocation:
        return Invocation(self._record(process, "invoke", f, value, meta=meta), self._record)

    def nemesis(self, value: Mapping[str, Any]) -> Event:
        """One end of a fault: `phase` in the value is "start" or "end"."""
        return self._record(NEMESIS, "info", NEMESIS, value)

    def history(self, run: Mapping[str, Any]) -> History:
        return History(self.events, run)

    def _record(
        self,
        process: Process,
        type_: EventType,
        f: str,
        value: Any,
        *,
        error: str | None = None,
        rebalance: Sequence[Mapping[str, Any]] = (),
        meta: Mapping[str, Any] | None = None,
    ) -> Event:
        try:
            packed = msgpack.packb([value, list(rebalance), dict(meta or {})])
        except (TypeError, ValueError, OverflowError) as reason:
            raise HistoryError(f"a file can't hold the value of {f!r}: {reason}") from None
        value, rebalance, meta = msgpack.unpackb(packed, strict_map_key=False)
        event = Event(
            len(self.events), self._now_ns(), process, type_, f, value, error, rebalance, meta
        )
        self._rules.admit(event)
        self.events.append(event)
        return event


class History:
    """Events, the facts of the run that they are from, and the operations they make up."""

    def __init__(self, events: Iterable[Event], run: Mapping[str, Any]) -> None:
        self.events = list(events)
        self.run = dict(run)
        self.operations = self._pair()
        """In the order of their invocations, without the nemesis."""

    @property
    def nemesis_events(self) -> list[Event]:
        return [event for event in self.events if event.process == NEMESIS]

    def _pair(self) -> list[Operation]:
        rules = Rules()
        completions: dict[int, Event] = {}
        begun: dict[Process, int] = {}
        for event in self.events:
            rules.admit(event)
            if event.type == "invoke":
                begun[event.process] = event.index
            elif event.process != NEMESIS:
                completions[begun.pop(event.process)] = event
        return [
            Operation(event, completions.get(event.index))
            for event in self.events
            if event.type == "invoke"
        ]


def write_history(stream: BinaryIO, history: History) -> None:
    pack = msgpack.Packer().pack
    stream.write(pack({"format": FORMAT, "version": VERSION, "run": history.run}))
    stream.writelines(pack(_to_map(event)) for event in history.events)


def read_history(stream: BinaryIO) -> History:
    begin = stream.tell()
    unpacker = msgpack.Unpacker(stream, strict_map_key=False)
    try:
        head = next(unpacker, None)
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            raise HistoryError("this is not a history")
        if head.get("version") != VERSION:
            raise HistoryError(
                f"a history of version {head.get('version')}; this reads version {VERSION}"
            )
        events = [_of_map(entry) for entry in unpacker]
        if unpacker.tell() != stream.tell() - begin:
            raise HistoryError(f"the history ends in the middle of event {len(events)}")
        return History(events, head["run"])
    except (msgpack.exceptions.UnpackException, KeyError, TypeError, AttributeError) as reason:
        raise HistoryError(f"the history is damaged: {reason!r}") from None


def _to_map(event: Event) -> dict[str, Any]:
    """What is empty is left out."""
    entry: dict[str, Any] = {
        "i": event.index,
        "t": event.time_ns,
        "p": event.process,
        "type": event.type,
        "f": event.f,
        "value": event.value,
    }
    if event.error is not None:
        entry["error"] = event.error
    if event.rebalance:
        entry["rebalance"] = list(event.rebalance)
    if event.meta:
        entry["meta"] = dict(event.meta)
    return entry


def _of_map(entry: Mapping[str, Any]) -> Event:
    return Event(
        entry["i"],
        entry["t"],
        entry["p"],
        entry["type"],
        entry["f"],
        entry["value"],
        entry.get("error"),
        entry.get("rebalance", []),
        entry.get("meta", {}),
    )
