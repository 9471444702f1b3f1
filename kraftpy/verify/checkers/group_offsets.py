"""G5 to G9: what a group remembers, and what its members were given.

G5 `commit-lost`, `commit-regression`: the committed offset of a (group, key) is not a linearizable
register; each commit has an id of its own, so the quick algorithm of zones decides. G6
`txn-offset-early`: offsets of a transaction were visible before commit was asked for, or though it
was aborted.

G7 `group-unseen`: commits passed a committed value that no member was ever given. G8 `group-dup`:
a value was given more than once, which is at-least-once delivery and therefore information. G9
`auto-commit-ahead`: a client that commits by itself has committed more than what it had returned
before the poll that was last begun.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraftpy.verify.checkers.commits import Commit, CommitRead, CommitTable, Register
from kraftpy.verify.checkers.linearizability import RegisterCall, find_zone_conflict
from kraftpy.verify.checkers.verdict import Anomaly
from kraftpy.verify.checkers.versions import DataOperation, Versions
from kraftpy.verify.history import Operation, Process

__all__ = ["check_commits", "check_delivery"]


def check_commits(commits: CommitTable) -> Iterator[Anomaly]:
    """G5 and G6."""
    for register in commits.registers():
        reads = commits.reads.get(register, [])
        if reads:
            yield from _early_offsets(register, commits, reads)
            yield from _register_conflict(register, commits, reads)


def _register_conflict(
    register: Register, commits: CommitTable, reads: list[CommitRead]
) -> Iterator[Anomaly]:
    made = commits.commits.get(register, [])
    if any(commit.id is None for commit in made):
        # Without names nobody can tell which commit a read returned.
        return
    failed = {commit.id for commit in commits.failed.get(register, ())}
    members: list[Commit | CommitRead] = [*made]
    members += [read for read in reads if read.id not in failed]
    calls = [
        RegisterCall(member.start, member.end, member.id, isinstance(member, Commit))
        for member in members
    ]
    conflict = find_zone_conflict(calls, None)
    if conflict is None:
        return
    group, key = register
    involved = [members[position] for position in conflict]
    lost = any(isinstance(member, CommitRead) and member.id is None for member in involved)
    shown = ", ".join(
        f"{'commit' if isinstance(member, Commit) else 'read'} of {member.id!r} by T{member.start}"
        for member in involved
    )
    yield Anomaly(
        "G5",
        "commit-lost" if lost else "commit-regression",
        tuple(dict.fromkeys(member.start for member in involved)),
        f"no order explains the committed offset of group {group} for key {key}: {shown}",
        key,
    )


def _early_offsets(
    register: Register, commits: CommitTable, reads: list[CommitRead]
) -> Iterator[Anomaly]:
    group, key = register
    made = {commit.id: commit for commit in commits.commits.get(register, ())}
    failed = {commit.id: commit for commit in commits.failed.get(register, ())}
    for read in reads:
        if read.id is None:
            continue
        commit, why = made.get(read.id), "before it was asked to commit"
        if read.id in failed:
            commit, why = failed[read.id], "though that failed"
        elif commit is not None and commit.is_transactional:
            asked_ns = commit.operation.meta.get("commit_ns", commit.operation.start_ns)
            completion = read.operation.completion
            if completion is None or completion.time_ns >= asked_ns:
                commit = None
        else:
            commit = None
        if commit is not None:
            yield Anomaly(
                "G6",
                "txn-offset-early",
                (commit.start, read.start),
                f"T{read.start} was told offset {read.offset} of group {group} for key {key}, "
                f"which T{commit.start} had brought, {why}",
                key,
            )


def check_delivery(versions: Versions, commits: CommitTable) -> Iterator[Anomaly]:
    """G7, G8 and G9: what the members of a group were given."""
    given: dict[str, dict[int, dict[int, int]]] = {}
    subscribed: dict[Process, str] = {}
    for operation, polled in versions.in_order():
        if operation.f == "subscribe" and operation.type != "fail":
            subscribed[operation.process] = operation.meta.get("group", "")
        elif operation.f == "assign":
            subscribed.pop(operation.process, None)
        elif polled is not None and operation.process in subscribed:
            _give(given.setdefault(subscribed[operation.process], {}), polled)
    for group, keys in sorted(given.items()):
        for key, counts in sorted(keys.items()):
            yield from _unseen_by_group((group, key), counts, versions, commits)
            yield from _given_twice((group, key), counts, versions)
    if versions.expectations.auto_commit:
        yield from _commits_ahead(versions, commits)


def _give(keys: dict[int, dict[int, int]], polled: DataOperation) -> None:
    """Counts of ok deliveries; one that did not count is still a delivery, of zero."""
    once = int(polled.type == "ok")
    for key, records in polled.reads.items():
        counts = keys.setdefault(key, {})
        for record in records:
            counts[record[1]] = counts.get(record[1], 0) + once


def _unseen_by_group(
    register: Register, counts: dict[int, int], versions: Versions, commits: CommitTable
) -> Iterator[Anomaly]:
    group, key = register
    passed = max(
        (commit for commit in commits.commits.get(register, ()) if commit.is_known),
        key=lambda commit: commit.offset,
        default=None,
    )
    if passed is None:
        return
    key_versions = versions.keys[key]
    for value, rank in key_versions.first.items():
        offset = key_versions.offsets[rank]
        writer = key_versions.writers.get(value)
        if (
            key_versions.floor <= offset < passed.offset
            and value not in counts
            and writer is not None
            and writer.is_committed
        ):
            yield Anomaly(
                "G7",
                "group-unseen",
                (writer.index, passed.start),
                f"no member of group {group} was given value {value} at offset {offset} of key "
                f"{key}, and offset {passed.offset} is committed",
                key,
            )


def _given_twice(
    register: Register, counts: dict[int, int], versions: Versions
) -> Iterator[Anomaly]:
    group, key = register
    twice = [value for value, count in counts.items() if count > 1]
    if twice:
        writer = versions.keys[key].writers.get(twice[0])
        yield Anomaly(
            "G8",
            "group-dup",
            () if writer is None else (writer.index,),
            f"group {group} was given {len(twice)} values of key {key} more than once, the first "
            f"of them {twice[0]}",
            key,
            is_bad=False,
        )


class _Polled:
    """How far one member has come with each key, now and at the poll before the last."""

    __slots__ = ("at_last", "at_previous", "may_commit_all")

    def __init__(self) -> None:
        self.at_previous: dict[int, int] = {}
        self.at_last: dict[int, int] = {}
        self.may_commit_all = False

    def begin(self) -> None:
        """A poll: all that was returned before may be committed, and no more."""
        self.at_previous = dict(self.at_last)
        self.may_commit_all = False

    def end(self, polls: list[dict[int, list[list[int]]]]) -> None:
        for number, poll in enumerate(polls):
            if number:
                self.at_previous = dict(self.at_last)
            for key, records in poll.items():
                if records:
                    self.at_last[key] = records[-1][0] + 1


def _commits_ahead(versions: Versions, commits: CommitTable) -> Iterator[Anomaly]:
    """G9. Whoever leaves, crashes or gives up keys may have committed all that it had returned."""
    members: dict[Process, _Polled] = {}
    for is_end, operation, data in versions.moments():
        member = members.setdefault(operation.process, _Polled())
        if not is_end:
            if data is not None and data.polls:
                member.begin()
        elif data is not None:
            member.end(data.polls)
            member.may_commit_all |= operation.gave_up_keys or operation.type == "info"
        elif operation.f in ("crash", "leave", "close", "subscribe", "assign"):
            member.may_commit_all |= operation.f != "subscribe" or bool(member.at_last)
        elif operation.f == "committed" and operation.type == "ok":
            group = operation.meta.get("group", "")
            for key, found in operation.value.items():
                if found is not None and (group, key) not in commits.commits:
                    yield from _judge_ahead(operation, key, found[0], members)


def _judge_ahead(
    operation: Operation, key: int, offset: int, members: dict[Process, _Polled]
) -> Iterator[Anomaly]:
    bound = max(
        (
            (member.at_last if member.may_commit_all else member.at_previous).get(key, 0)
            for member in members.values()
        ),
        default=0,
    )
    if offset > bound:
        yield Anomaly(
            "G9",
            "auto-commit-ahead",
            (operation.index,),
            f"offset {offset} of key {key} is committed, and polls before the last begun one had "
            f"returned nothing beyond {bound}",
            key,
        )
