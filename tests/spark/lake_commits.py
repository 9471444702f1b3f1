"""Commits and crashes of a lake, for tests without Spark: a line of text stands for Parquet."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from kraftpy_spark.jobs.lake import Lake
from kraftpy_spark.jobs.lake_files import LocalFiles
from kraftpy_spark.jobs.lake_state import AddedFile, Commit, Source, Span

CLICKS = Source("clicks", "id-1", 0)
FOLDER = "event_date=2026-11-16/event_hour=13"


class Crash(Exception):  # noqa: N818 (it names what happens)
    """The process ends here."""


class WatchedFiles(LocalFiles):
    """Before each change that is made to it, somebody hears of its number."""

    def __init__(self, root: Path, before: Callable[[int], None]) -> None:
        super().__init__(root)
        self._before = before
        self._numbers = itertools.count()

    def create(self, path: str, content: bytes) -> bool:
        self._before(next(self._numbers))
        return super().create(path, content)

    def replace(self, path: str, content: bytes) -> None:
        self._before(next(self._numbers))
        super().replace(path, content)

    def move(self, source: str, target: str) -> None:
        self._before(next(self._numbers))
        super().move(source, target)

    def delete(self, path: str) -> None:
        self._before(next(self._numbers))
        super().delete(path)


def crash(wanted: int, number: int) -> None:
    if number == wanted:
        raise Crash


def added(name: str, first: int, last: int, source: Source = CLICKS) -> AddedFile:
    path = f"{FOLDER}/{name}.parquet"
    return AddedFile(
        path, f"{FOLDER}/part-{name}.parquet", last - first + 1, 7, {source: Span(first, last)}
    )


def write_batch(lake: Lake, commit: Commit) -> None:
    """What a batch does, with a line of text for Parquet."""
    planned = lake.state()
    if planned.is_done(commit.writer, commit.batch):
        lake.recover()
        return
    folder = lake.staging(commit.writer, commit.batch)
    for each in commit.added:
        assert lake.files.create(f"{folder}/{each.staged}", each.path.encode())
    lake.commit(commit, planned)
    lake.publish(commit)


def seen(root: Path) -> list[str]:
    """What a plain reader finds."""
    found = (path.relative_to(root).as_posix() for path in root.rglob("*.parquet"))
    return sorted(path for path in found if not path.startswith("_"))
