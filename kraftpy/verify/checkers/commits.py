"""Commits of offsets, however they were made, and what was read of them.

A commit is an operation `commit`, or the `offsets` in the metadata of an operation on data: those
of a transaction, or of a poll that committed before it completed. For a (group, key) it is a
register; commits with an id of their own tell which of them a read returned.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from kraftpy.verify.checkers.versions import DataOperation, Versions
from kraftpy.verify.history import Operation

__all__ = ["Commit", "CommitRead", "CommitTable", "NewestCommits", "Register"]

Register: TypeAlias = tuple[str, int]
"""A group and a key."""


@dataclass(frozen=True, slots=True)
class Commit:
    operation: Operation
    offset: int
    id: str | int | None
    is_known: bool
    """Whether it certainly took place."""
    is_transactional: bool

    @property
    def start(self) -> int:
        return self.operation.index

    @property
    def end(self) -> int | None:
        return self.operation.end_index if self.is_known else None


@dataclass(frozen=True, slots=True)
class CommitRead:
    operation: Operation
    offset: int | None
    id: str | int | None

    @property
    def start(self) -> int:
        return self.operation.index

    @property
    def end(self) -> int:
        end = self.operation.end_index
        return self.operation.index if end is None else end


class CommitTable:
    """By (group, key): commits that happened or may have, those that failed, and reads."""

    def __init__(self, versions: Versions) -> None:
        self.commits: dict[Register, list[Commit]] = {}
        self.failed: dict[Register, list[Commit]] = {}
        self.reads: dict[Register, list[CommitRead]] = {}
        for operation in versions.others.get("commit", ()):
            group = operation.meta.get("group", "")
            self._take(operation, group, operation.value, operation.type == "ok")
        for data in versions.operations:
            offsets = data.meta.get("offsets")
            if offsets:
                self._take(data.operation, offsets["group"], offsets["offsets"], _is_sure(data))
        for operation in versions.others.get("committed", ()):
            if operation.type == "ok":
                group = operation.meta.get("group", "")
                for key, found in operation.value.items():
                    offset, id_ = (None, None) if found is None else found
                    self.reads.setdefault((group, key), []).append(
                        CommitRead(operation, offset, id_)
                    )

    def _take(
        self,
        operation: Operation,
        group: str,
        offsets: dict[int, tuple[int, str | int | None]],
        is_known: bool,
    ) -> None:
        table = self.failed if operation.type == "fail" else self.commits
        transactional = bool(operation.meta.get("transactional"))
        for key, (offset, id_) in offsets.items():
            table.setdefault((group, key), []).append(
                Commit(operation, offset, id_, is_known, transactional)
            )

    def known_by_group(self) -> dict[str, dict[int, Commit]]:
        """Those that took place, by the index of their operation."""
        groups: dict[str, dict[int, Commit]] = {}
        for (group, _), commits in self.commits.items():
            found = groups.setdefault(group, {})
            found.update({commit.start: commit for commit in commits if commit.is_known})
        return groups

    def registers(self) -> Iterator[Register]:
        yield from sorted({**self.commits, **self.failed, **self.reads})


def _is_sure(operation: DataOperation) -> bool:
    """A poll that is ok with a remark was read, but its commit may have failed."""
    completion = operation.operation.completion
    return operation.type == "ok" and completion is not None and completion.error is None


class NewestCommits:
    """Which offsets a reader of a register may have been given at some time."""

    def __init__(self, commits: list[Commit]) -> None:
        known = [commit for commit in commits if commit.end is not None]
        self._by_end = sorted(known, key=_end)
        self._ends = [_end(commit) for commit in self._by_end]
        self._latest_start = list(accumulate((commit.start for commit in self._by_end), max))
        self._by_start = sorted(known, key=_start)
        self._starts = [commit.start for commit in self._by_start]
        self._latest_end = list(accumulate(map(_end, self._by_start), max))
        unknown = sorted((commit for commit in commits if commit.end is None), key=_start)
        self._unknown_starts = [commit.start for commit in unknown]
        self._unknown_lowest = list(accumulate((commit.offset for commit in unknown), min))
        self._unknown_highest = list(accumulate((commit.offset for commit in unknown), max))

    def before(self, index: int) -> list[Commit]:
        """Those that may be what a read beginning at `index` must return, if nothing came since:
        completed by then, and not followed by one that began after they had completed.
        """
        position = bisect_left(self._ends, index) - 1
        if position < 0:
            return []
        latest = self._latest_start[position]
        found = []
        while position >= 0 and self._ends[position] >= latest:
            found.append(self._by_end[position])
            position -= 1
        return found

    def possible(self, first: int, last: int) -> tuple[int, int]:
        """The lowest and the highest offset that may have been the newest between two events;
        there must be one before the first.
        """
        offsets = [commit.offset for commit in self.before(first)]
        position = bisect_left(self._starts, last) - 1
        while position >= 0 and self._latest_end[position] >= first:
            if _end(self._by_start[position]) >= first:
                offsets.append(self._by_start[position].offset)
            position -= 1
        unknown = bisect_left(self._unknown_starts, last) - 1
        if unknown >= 0:
            offsets += [self._unknown_lowest[unknown], self._unknown_highest[unknown]]
        return min(offsets), max(offsets)


def _start(commit: Commit) -> int:
    return commit.start


def _end(commit: Commit) -> int:
    """Of one that is known to have taken place."""
    return commit.start if commit.end is None else commit.end
