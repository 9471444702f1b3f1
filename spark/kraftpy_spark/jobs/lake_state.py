"""What a lake holds, by its log of commits: without files and without Spark.

A commit adds files and takes others away, all at once. It names its writer (a streaming query, a
back-fill, a compaction) and the writer's batch. Invariants:

- A writer's batches grow. A batch that is in the state is done: whoever runs it again (Spark does,
  after a crash) has nothing to do. This is what makes a lake hold every record once.
- A file is added once and taken away at most once, so names are never used again.
- Every file says which offsets it has of which partition, at least and at most. Two writers that
  add the same offsets at the same time are found by that, and the later one begins again.

Topics are told apart by their ids too: offsets of a topic that was made anew are other records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

__all__ = ["AddedFile", "Commit", "Conflict", "LakeState", "Source", "Span", "Table", "Writer"]

Kind: TypeAlias = Literal["append", "compact"]


class Conflict(Exception):  # noqa: N818 (it names what happened)
    """Another writer has changed what this commit was made from; do it again."""


class Source(NamedTuple):
    """A partition that records come from. The id is empty where the cluster was not asked."""

    topic: str
    topic_id: str
    partition: int


class Span(NamedTuple):
    """Offsets, both included."""

    first: int
    last: int

    def meets(self, other: Span) -> bool:
        return self.first <= other.last and other.first <= self.last


class Table(NamedTuple):
    """How rows look; kept for lakes that tell others of it."""

    schema: str
    """JSON of Spark's, with the folders' columns."""
    folders: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"schema": self.schema, "folders": list(self.folders)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> Table | None:
        return None if value is None else cls(value["schema"], tuple(value["folders"]))


@dataclass(frozen=True, slots=True)
class AddedFile:
    path: str
    """Within the lake, with `key=value` folders."""
    staged: str
    """Where it was written, within the commit's staging folder."""
    rows: int
    size: int
    spans: Mapping[Source, Span]

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]

    def to_json(self) -> dict[str, Any]:
        spans = [[*source, *span] for source, span in self.spans.items()]
        return {
            "path": self.path,
            "staged": self.staged,
            "rows": self.rows,
            "bytes": self.size,
            "offsets": spans,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> AddedFile:
        spans = {
            Source(topic, topic_id, partition): Span(first, last)
            for topic, topic_id, partition, first, last in value["offsets"]
        }
        return cls(value["path"], value["staged"], value["rows"], value["bytes"], spans)


@dataclass(frozen=True, slots=True)
class Commit:
    writer: str
    batch: int
    kind: Kind
    added: tuple[AddedFile, ...]
    removed: tuple[str, ...] = ()
    max_event_ms: int | None = None
    """The newest event of the batch, which moves the writer's watermark."""
    ends: Mapping[Source, int] = field(default_factory=dict)
    """The last offset of each partition in the batch: what comes later from it is larger."""
    table: Table | None = None
    """What rows look like from here on, if that is new."""

    @property
    def staging(self) -> str:
        """The folder that it is written in."""
        return f"{self.writer}-{self.batch:06d}"

    def to_json(self) -> str:
        value = {
            "writer": self.writer,
            "batch": self.batch,
            "kind": self.kind,
            "added": [each.to_json() for each in self.added],
            "removed": list(self.removed),
            "max_event_ms": self.max_event_ms,
            "ends": [[*source, offset] for source, offset in self.ends.items()],
        }
        if self.table is not None:
            value["table"] = self.table.to_json()
        return json.dumps(value, indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> Commit:
        value = json.loads(text)
        return cls(
            writer=value["writer"],
            batch=value["batch"],
            kind=value["kind"],
            added=tuple(AddedFile.from_json(each) for each in value["added"]),
            removed=tuple(value["removed"]),
            max_event_ms=value["max_event_ms"],
            ends=_ends_of(value["ends"]),
            table=Table.from_json(value.get("table")),
        )


@dataclass(frozen=True, slots=True)
class Writer:
    """How far one writer has come."""

    batch: int = -1
    max_event_ms: int | None = None
    ends: Mapping[Source, int] = field(default_factory=dict)

    def after(self, commit: Commit) -> Writer:
        events = [each for each in (self.max_event_ms, commit.max_event_ms) if each is not None]
        return Writer(commit.batch, max(events, default=None), {**self.ends, **commit.ends})

    def to_json(self) -> dict[str, Any]:
        ends = [[*source, offset] for source, offset in self.ends.items()]
        return {"batch": self.batch, "max_event_ms": self.max_event_ms, "ends": ends}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Writer:
        return cls(value["batch"], value["max_event_ms"], _ends_of(value["ends"]))


_NOBODY = Writer()


@dataclass(frozen=True, slots=True)
class LakeState:
    """Immutable: `after` gives the next one."""

    version: int = -1
    files: Mapping[str, AddedFile] = field(default_factory=dict)
    writers: Mapping[str, Writer] = field(default_factory=dict)
    table: Table | None = None

    def writer(self, name: str) -> Writer:
        return self.writers.get(name, _NOBODY)

    def is_done(self, writer: str, batch: int) -> bool:
        return self.writer(writer).batch >= batch

    def files_with(self, wanted: Mapping[Source, Span]) -> list[AddedFile]:
        """The files that may have some of these offsets."""
        return [each for each in self.files.values() if _meet(each.spans, wanted)]

    def files_in(self, folders: Iterable[str]) -> list[AddedFile]:
        wanted = frozenset(folders)
        return [each for each in self.files.values() if each.folder in wanted]

    def check(self, commit: Commit, planned: LakeState) -> None:
        """Whether a commit that was made from `planned` holds here, too. Raises Conflict."""
        gone = [path for path in commit.removed if path not in self.files]
        if gone:
            raise Conflict(f"{gone[0]} is no longer in the lake")
        if commit.kind == "compact":
            return
        for path, other in self.files.items():
            if path in planned.files:
                continue
            if any(_meet(other.spans, mine.spans) for mine in commit.added):
                raise Conflict(f"another writer has added {path} with some of the same offsets")

    def after(self, commit: Commit) -> LakeState:
        """With one commit more. Raises ValueError for one that can't be."""
        if self.is_done(commit.writer, commit.batch):
            raise ValueError(f"batch {commit.batch} of {commit.writer} is in the lake already")
        files = dict(self.files)
        for path in commit.removed:
            if files.pop(path, None) is None:
                raise ValueError(f"{path} is taken away and is not there")
        for each in commit.added:
            if each.path in files:
                raise ValueError(f"{each.path} is added twice")
            files[each.path] = each
        writer = self.writer(commit.writer).after(commit)
        return replace(
            self,
            version=self.version + 1,
            files=files,
            writers={**self.writers, commit.writer: writer},
            table=commit.table or self.table,
        )

    def to_json(self) -> str:
        value = {
            "version": self.version,
            "files": [each.to_json() for each in self.files.values()],
            "writers": {name: writer.to_json() for name, writer in self.writers.items()},
            "table": None if self.table is None else self.table.to_json(),
        }
        return json.dumps(value)

    @classmethod
    def from_json(cls, text: str | bytes) -> LakeState:
        value = json.loads(text)
        files = [AddedFile.from_json(each) for each in value["files"]]
        return cls(
            version=value["version"],
            files={each.path: each for each in files},
            writers={name: Writer.from_json(each) for name, each in value["writers"].items()},
            table=Table.from_json(value.get("table")),
        )


def _meet(one: Mapping[Source, Span], other: Mapping[Source, Span]) -> bool:
    return any(source in other and span.meets(other[source]) for source, span in one.items())


def _ends_of(value: Iterable[tuple[str, str, int, int]]) -> dict[Source, int]:
    return {Source(topic, topic_id, partition): last for topic, topic_id, partition, last in value}
