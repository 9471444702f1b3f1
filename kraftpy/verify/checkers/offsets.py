"""A23 to A28: what brokers say about the ends of their logs, and where readers are put.

A23 `end-offset-regression`: a high watermark at or below an offset that had been acked by all, or
polled, before the question was asked, or below an earlier answer. A new leader must not answer
before its high watermark has reached the start of its epoch.

A24 `lso-order`: not log start <= last stable offset <= high watermark; or the last stable offset
of one leader epoch went back. A25 `log-start-regression`: the log start went back, or forward past
what retention or delete-records removed.

A26 `hanging-txn`: the last stable offset stays below the high watermark though no transaction that
could hold it there was open for as long as one may be. A27 `realtime-lag`: a poll brought nothing
although records had been there for longer than the limit, in a healed cluster. A28
`stale-position`: a group's reader began behind its commits (the reset policy was applied, though
there was a commit), or ahead of them (records were skipped).

"Before" is the order of the recorder: the one's completion precedes the other's invocation. Each
rule keeps running maxima, taken when the question is asked and compared with the answer.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any

from kraftpy.verify.checkers.commits import CommitTable, NewestCommits, Register
from kraftpy.verify.checkers.verdict import Anomaly
from kraftpy.verify.checkers.versions import DataOperation, Versions, highest_offset
from kraftpy.verify.history import Event, Operation, Process

__all__ = ["check_hanging", "check_lag", "check_offsets", "check_positions"]


class _Known:
    """The highest numbers by key that somebody had been told, and by whom."""

    def __init__(self) -> None:
        self._highest: dict[Any, tuple[int, int]] = {}

    def learn(self, name: Any, number: int, operation: int) -> None:
        if name not in self._highest or number > self._highest[name][0]:
            self._highest[name] = (number, operation)

    def get(self, name: Any) -> tuple[int, int]:
        return self._highest.get(name, (-1, -1))


def check_offsets(versions: Versions) -> Iterator[Anomaly]:
    """A23, A24 and A25."""
    questions = versions.others.get("end_offsets", [])
    if questions:
        yield from _EndOffsets(versions).run()


class _EndOffsets:
    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._ends = _Known()
        self._watermarks = _Known()
        self._stables: dict[tuple[int, int], tuple[list[int], list[tuple[int, int]]]] = {}
        """By key and leader epoch: when an answer came, and the highest up to then."""
        self._starts = _Known()
        self._deleted = _Known()
        self._asked: dict[int, dict[int, tuple[tuple[int, int], ...]]] = {}

    def run(self) -> Iterator[Anomaly]:
        """Events in their order."""
        for is_end, operation, data in self._versions.moments():
            if not is_end:
                self._begin(operation)
            elif data is not None:
                self._learn(data)
            elif operation.f == "end_offsets" and operation.type == "ok":
                yield from self._judge(operation)

    def _begin(self, operation: Operation) -> None:
        if operation.f == "end_offsets":
            self._asked[operation.index] = {
                key: (
                    self._ends.get(key),
                    self._watermarks.get(key),
                    self._starts.get(key),
                )
                for key in operation.invoke.value
            }
        elif operation.f == "delete_records" and operation.type != "fail":
            for key, offset in operation.invoke.value.items():
                self._deleted.learn(key, offset, operation.index)

    def _learn(self, operation: DataOperation) -> None:
        for sent in operation.sends:
            if sent.offset is not None and self._versions.acks_are_firm(sent.key):
                self._ends.learn(sent.key, sent.offset, operation.index)
        for key, records in operation.reads.items():
            if records:
                self._ends.learn(key, highest_offset(records), operation.index)

    def _judge(self, operation: Operation) -> Iterator[Anomaly]:
        asked = self._asked.pop(operation.index)
        for key, answer in operation.value.items():
            start, stable, watermark = answer[:3]
            end, before, started = asked.get(key, ((-1, -1),) * 3)
            if watermark <= end[0]:
                yield _regressed(
                    key, operation, end, f"high watermark {watermark}, though offset {end[0]}"
                )
            if watermark < before[0]:
                yield _regressed(
                    key, operation, before, f"high watermark {watermark}, though {before[0]}"
                )
            if not start <= stable <= watermark:
                yield Anomaly(
                    "A24",
                    "lso-order",
                    (operation.index,),
                    f"key {key} has log start {start}, last stable offset {stable} and high "
                    f"watermark {watermark}",
                    key,
                )
            yield from self._judge_epoch(key, operation, answer)
            yield from self._judge_start(key, operation, start, started)
            self._watermarks.learn(key, watermark, operation.index)
            self._starts.learn(key, start, operation.index)

    def _judge_epoch(self, key: int, operation: Operation, answer: list[int]) -> Iterator[Anomaly]:
        if len(answer) < 4:
            return
        told = self._stables.setdefault((key, answer[3]), ([], []))
        place = bisect_left(told[0], operation.index)
        highest, witness = told[1][place - 1] if place else (-1, -1)
        if answer[1] < highest:
            yield Anomaly(
                "A24",
                "lso-order",
                (witness, operation.index),
                f"the last stable offset of key {key} in leader epoch {answer[3]} was {highest}, "
                f"then {answer[1]}",
                key,
            )
        told[0].append(operation.end_index or operation.index)
        told[1].append(max([*told[1][-1:], (answer[1], operation.index)]))

    def _judge_start(
        self, key: int, operation: Operation, start: int, before: tuple[int, int]
    ) -> Iterator[Anomaly]:
        if start < before[0]:
            text = f"the log start of key {key} was {before[0]}, then {start}"
            yield Anomaly("A25", "log-start-regression", (before[1], operation.index), text, key)
        removed = max(self._deleted.get(key)[0], 0)
        if start > removed and not self._versions.expectations.retention:
            text = f"the log start of key {key} is {start}, and only {removed} records may be gone"
            yield Anomaly("A25", "log-start-regression", (operation.index,), text, key)


def _regressed(key: int, operation: Operation, before: tuple[int, int], what: str) -> Anomaly:
    return Anomaly(
        "A23",
        "end-offset-regression",
        (before[1], operation.index),
        f"key {key} was said to have {what} was known before the question",
        key,
    )


def check_hanging(versions: Versions) -> Iterator[Anomaly]:
    """A26, for runs that set a limit."""
    limit_ns = versions.expectations.hanging_limit_ns
    if limit_ns is None:
        return
    transactions: dict[int, list[DataOperation]] = {}
    for data in versions.operations:
        if data.is_transactional:
            for key in dict.fromkeys(sent.key for sent in data.sends):
                transactions.setdefault(key, []).append(data)
    ends = {key: _RunningEnds(found) for key, found in transactions.items()}
    for operation in versions.others.get("end_offsets", ()):
        if operation.type != "ok":
            continue
        for key, (_, stable, watermark, *_) in operation.value.items():
            quiet_since = ends[key].last_activity(operation) if key in ends else 0
            if stable < watermark and quiet_since is not None:
                quiet_ns = operation.start_ns - quiet_since
                if quiet_ns > limit_ns:
                    yield Anomaly(
                        "A26",
                        "hanging-txn",
                        (operation.index,),
                        f"the last stable offset of key {key} is {stable} below the high "
                        f"watermark {watermark}, and no transaction was open there for "
                        f"{quiet_ns / 1e9:.1f} s",
                        key,
                    )


class _RunningEnds:
    """When the transactions of a key had all been over, as of some invocation."""

    def __init__(self, operations: list[DataOperation]) -> None:
        self._starts = [operation.start for operation in operations]
        self._ends: list[tuple[float, int]] = []
        """Up to each transaction: the index and the time of the latest completion of all."""
        latest: tuple[float, int] = (-1, 0)
        for operation in operations:
            completion = operation.operation.completion
            if completion is None:
                latest = (float("inf"), 0)
            else:
                latest = max(latest, (completion.index, completion.time_ns))
            self._ends.append(latest)

    def last_activity(self, question: Operation) -> int | None:
        """When the last transaction was over; None if one is not over for its client."""
        position = bisect_right(self._starts, question.index) - 1
        if position < 0:
            return 0
        index, time_ns = self._ends[position]
        return time_ns if index < question.index else None


def check_lag(versions: Versions) -> tuple[list[Anomaly], int]:
    """A27, and the longest lag in nanoseconds.

    For a reader at offset o of a key, records beyond o exist since the first time that an offset
    above o was acked or polled by anybody; a poll that begins later and brings nothing lags by the
    time between.
    """
    known = _existence(versions)
    limit_ns = versions.expectations.lag_limit_ns
    nemesis = versions.history.nemesis_events
    healed_ns = nemesis[-1].time_ns if nemesis else 0
    positions: dict[Process, dict[int, int]] = {}
    worst: dict[int, tuple[int, Anomaly]] = {}
    longest_ns = 0
    for operation, polled in versions.in_order():
        position = positions.setdefault(operation.process, {})
        if operation.f in ("assign", "subscribe") and operation.type == "ok":
            positions[operation.process] = _kept(position, operation)
        elif polled is not None and polled.type == "ok" and polled.polls:
            moved = False
            for key, records in polled.reads.items():
                if records and key in position:
                    position[key] = records[-1][0]
                    moved = True
            for key, offset in position.items() if not moved else ():
                lag_ns = _lag(known.get(key), offset, operation.invoke)
                longest_ns = max(longest_ns, lag_ns)
                if (
                    limit_ns is not None
                    and lag_ns > limit_ns
                    and operation.start_ns - healed_ns > limit_ns
                    and lag_ns > worst.get(key, (0, None))[0]
                ):
                    worst[key] = (lag_ns, _lagging(key, offset, operation, lag_ns))
    return [anomaly for _, (_, anomaly) in sorted(worst.items())], longest_ns


def _kept(position: dict[int, int], operation: Operation) -> dict[int, int]:
    """Positions after an assignment. Where a group puts its reader is not known before it reads."""
    if operation.f == "subscribe":
        return {}
    is_reset = bool(operation.meta.get("seek_to_beginning"))
    return {key: -1 if is_reset else position.get(key, -1) for key in operation.value}


def _lag(known: tuple[list[int], list[int]] | None, offset: int, poll: Event) -> int:
    if known is None:
        return 0
    offsets, times_ns = known
    place = bisect_right(offsets, offset)
    return 0 if place == len(offsets) else max(0, poll.time_ns - times_ns[place])


def _lagging(key: int, offset: int, operation: Operation, lag_ns: int) -> Anomaly:
    return Anomaly(
        "A27",
        "realtime-lag",
        (operation.index,),
        f"process {operation.process} is at offset {offset} of key {key} and polled nothing, "
        f"though there was more for {lag_ns / 1e9:.1f} s",
        key,
    )


def _existence(versions: Versions) -> dict[int, tuple[list[int], list[int]]]:
    """By key: ever higher offsets, and when somebody was first told that they exist."""
    completed = sorted(
        (operation.operation.completion.index, operation)
        for operation in versions.operations
        if operation.operation.completion is not None and operation.is_committed
    )
    known: dict[int, tuple[list[int], list[int]]] = {}
    for _, operation in completed:
        completion = operation.operation.completion
        if completion is None:
            continue
        highest = {key: highest_offset(found) for key, found in operation.reads.items() if found}
        for sent in operation.sends:
            if sent.offset is not None:
                highest[sent.key] = max(highest.get(sent.key, -1), sent.offset)
        for key, offset in highest.items():
            offsets, times_ns = known.setdefault(key, ([], []))
            if not offsets or offset > offsets[-1]:
                offsets.append(offset)
                times_ns.append(completion.time_ns)
    return known


def check_positions(versions: Versions, commits: CommitTable) -> Iterator[Anomaly]:
    """A28: the first read of a key by a process that subscribed begins where commits say.

    Commits that clients make by themselves are in no history, so nothing is known with them.
    """
    if versions.expectations.auto_commit:
        return
    newest: dict[Register, NewestCommits] = {}
    subscribed: dict[Process, Operation] = {}
    begun: set[tuple[Process, int]] = set()
    for operation, polled in versions.in_order():
        if operation.f == "subscribe" and operation.type != "fail":
            subscribed[operation.process] = operation
        elif operation.f == "assign":
            subscribed.pop(operation.process, None)
        elif polled is not None:
            for key, records in polled.reads.items():
                if not records or (operation.process, key) in begun:
                    continue
                begun.add((operation.process, key))
                subscription = subscribed.get(operation.process)
                if subscription is None:
                    continue
                register = (subscription.meta.get("group", ""), key)
                if register not in newest:
                    newest[register] = NewestCommits(commits.commits.get(register, []))
                yield from _judge_position(
                    versions, newest[register], subscription, polled, (key, records[0][0])
                )


def _judge_position(
    versions: Versions,
    newest: NewestCommits,
    subscription: Operation,
    polled: DataOperation,
    read: tuple[int, int],
) -> Iterator[Anomaly]:
    key, offset = read
    before = newest.before(subscription.index)
    if not before:
        return
    completion = polled.operation.completion
    last = polled.index if completion is None else completion.index
    lowest, highest = newest.possible(subscription.index, last)
    key_versions = versions.keys[key]
    start, first = f"a reader of the group began at offset {offset} of key {key}", offset
    involved = (before[0].start, subscription.index, polled.index)
    if first < lowest:
        text = f"{start}, though offset {lowest} had been committed"
        yield Anomaly("A28", "stale-position", involved, text, key)
    # The first record at or after the commit may be anywhere behind it.
    place = bisect_right(key_versions.offsets, highest - 1)
    if place < key_versions.rank[first] and key_versions.offsets[place] >= key_versions.floor:
        text = (
            f"{start}, though only {highest} had been committed: it skipped offset "
            f"{key_versions.offsets[place]}"
        )
        yield Anomaly("A28", "stale-position", involved, text, key)
