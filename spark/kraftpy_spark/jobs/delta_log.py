"""`_delta_log`: the lake's commits in the words of Delta, for everybody who reads Delta tables.

The lake's own log stays the one that decides; Delta's tells of it, one version for each commit, in
the same order, when the commit's files are at their places. So a reader of Delta sees a batch whole
or not at all, at any moment. No jar is needed to write it: a version is a few lines of JSON, one
action each (the table's schema, files that come and go, and as `txn` the batch that did it).

Every so many versions the log gets a checkpoint (delta_checkpoint.py), from which readers start. It
is no more than a short cut: whoever tells of a commit makes the one that is due, and if it dies
before that, or before readers are pointed to it, the next one does.

Delta's readers go by the log, not by what lies in the folders. So the files that a compaction takes
away stay where they are, for readers that began before it, until somebody runs Delta's VACUUM.

Only the jobs may change the table: the lake would not know of rows that somebody else (an OPTIMIZE,
a DELETE) adds or takes away. `tell` refuses to go on then. A version that changes nothing, such as
VACUUM leaves two of, is passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, unquote

from kraftpy_spark.jobs.delta_checkpoint import Action, TableState, checkpoint_facts
from kraftpy_spark.jobs.failure import JobFailed
from kraftpy_spark.jobs.lake_files import LakeFiles
from kraftpy_spark.jobs.lake_state import AddedFile, Commit, Table

__all__ = ["DeltaLog", "table_schema"]

_LOG = "_delta_log"
_VERSION = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_CHECKPOINT_EVERY = 10
_POINTER = f"{_LOG}/_last_checkpoint"
_OPERATIONS = {"append": "WRITE", "compact": "OPTIMIZE"}
_ENGINE = "kraftpy-ingest"
_CHANGES = ("add", "remove", "metaData", "protocol", "txn")

Mark = tuple[str, int]


class DeltaLog:
    def __init__(
        self, files: LakeFiles, table_id: str, *, checkpoint_every: int = _CHECKPOINT_EVERY
    ) -> None:
        self._files = files
        self._table_id = table_id
        self._checkpoint_every = checkpoint_every
        self._next = 0
        self._checkpointed = -1
        self._pointed = -1

    def last_told(self) -> Mark | None:
        """The commit that the newest version tells of, as writer and batch."""
        names = self._files.names(_LOG)
        version = _newest(_VERSION, names)
        self._next = version + 1
        self._checkpointed = _newest(_CHECKPOINT, names)
        self._point()
        while version >= 0:
            mark = _mark_of(self._read(version))
            if mark is not None:
                return mark
            version -= 1
        return None

    def tell(self, commit: Commit, now_ms: int) -> None:
        """Of the commit after the last one that was told. Raises JobFailed if others write here.

        Somebody else may have told it meanwhile: versions are created, never replaced.
        """
        while True:
            version = self._next
            actions = self._actions(version, commit, now_ms)
            content = "".join(json.dumps(action) + "\n" for action in actions).encode()
            is_created = self._files.create(_path(version), content)
            found = actions if is_created else self._read(version)
            self._next += 1
            mark = _mark_of(found)
            if mark == (commit.writer, commit.batch):
                if version - max(self._checkpointed, 0) >= self._checkpoint_every:
                    self._checkpoint(version, now_ms)
                return
            if mark is not None or any(kind in each for each in found for kind in _CHANGES):
                raise JobFailed(
                    f"{self._files.root}/{_path(version)} is not from kraftpy-ingest, whose batch"
                    f" {commit.batch} of {commit.writer} should be there: the lake has it, and"
                    " Delta's readers don't.\nOnly kraftpy-ingest may change this table. If nothing"
                    " else is to be kept of that change, remove the file and those that follow it."
                )

    def _checkpoint(self, version: int, now_ms: int) -> None:
        """Put the log up to this version into one file, and have readers begin with it."""
        base = self._checkpointed
        state = TableState()
        if base >= 0:
            state = TableState.from_parquet(self._files.read(_checkpoint_path(base)))
        try:
            for each in range(base + 1, version + 1):
                state.apply(self._read(each))
        except FileNotFoundError:
            # Cleaned up behind a checkpoint of another form, from which readers start.
            return
        self._files.create(_checkpoint_path(version), state.to_parquet(now_ms))
        self._checkpointed = version
        self._point()

    def _point(self) -> None:
        """Have readers begin with the newest checkpoint. Who has made it may have died before."""
        version = self._checkpointed
        if version > self._pointed:
            if self._pointer_version() < version:
                content = self._files.read(_checkpoint_path(version))
                pointer = {"version": version, **checkpoint_facts(content)}
                self._files.replace(_POINTER, json.dumps(pointer).encode())
            self._pointed = version

    def _pointer_version(self) -> int:
        """-1 if there is none, or none that says anything: a lost power may have cut it off."""
        try:
            return int(json.loads(self._files.read(_POINTER))["version"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return -1

    def _read(self, version: int) -> list[Action]:
        return [json.loads(line) for line in self._files.read(_path(version)).splitlines()]

    def _actions(self, version: int, commit: Commit, now_ms: int) -> list[Action]:
        actions: list[Action] = [
            {
                "commitInfo": {
                    "timestamp": now_ms,
                    "operation": _OPERATIONS[commit.kind],
                    "operationParameters": {},
                    "engineInfo": _ENGINE,
                }
            }
        ]
        if version == 0:
            # The oldest protocol there is: every reader knows it.
            actions.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
        if commit.table is not None:
            actions.append({"metaData": self._described(commit.table)})
        actions.append(
            {"txn": {"appId": commit.writer, "version": commit.batch, "lastUpdated": now_ms}}
        )
        is_new = commit.kind == "append"
        for path in commit.removed:
            removed = {"path": _escaped(path), "deletionTimestamp": now_ms, "dataChange": is_new}
            actions.append({"remove": removed})
        actions += [{"add": _added(each, now_ms, is_new=is_new)} for each in commit.added]
        return actions

    def _described(self, table: Table) -> Action:
        return {
            "id": self._table_id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": table.schema,
            "partitionColumns": list(table.folders),
            "configuration": {},
        }


def table_schema(schema: Any) -> str:
    """A Spark schema as Delta writes it, with every column nullable: older files may lack it."""
    return json.dumps(_nullable(schema.jsonValue()))


def _nullable(value: Any) -> Any:
    if isinstance(value, list):
        return [_nullable(each) for each in value]
    if not isinstance(value, dict):
        return value
    flags = ("nullable", "containsNull", "valueContainsNull")
    return {key: True if key in flags else _nullable(each) for key, each in value.items()}


def _added(file: AddedFile, now_ms: int, *, is_new: bool) -> Action:
    folders = (part.split("=", 1) for part in file.folder.split("/"))
    return {
        "path": _escaped(file.path),
        "partitionValues": {name: unquote(value) for name, value in folders},
        "size": file.size,
        "modificationTime": now_ms,
        "dataChange": is_new,
        "stats": json.dumps({"numRecords": file.rows}),
    }


def _escaped(path: str) -> str:
    return quote(path, safe="/=")


def _path(version: int) -> str:
    return f"{_LOG}/{version:020d}.json"


def _checkpoint_path(version: int) -> str:
    return f"{_LOG}/{version:020d}.checkpoint.parquet"


def _newest(pattern: re.Pattern[str], names: Iterable[str]) -> int:
    """The highest version among the names that match; -1 if none does."""
    found = (pattern.fullmatch(name) for name in names)
    return max((int(each[1]) for each in found if each), default=-1)


def _mark_of(actions: list[Action]) -> Mark | None:
    """Of one of our versions: it alone says so, and has a batch."""
    is_ours = any(each.get("commitInfo", {}).get("engineInfo") == _ENGINE for each in actions)
    marks = [each["txn"] for each in actions if "txn" in each]
    return (marks[0]["appId"], marks[0]["version"]) if is_ours and marks else None
