"""Checkpoints of a Delta log: the table as it is at one version, in one file of Parquet.

Without them a reader opens every version since the first. A checkpoint has a row for each action
that still counts, with one column for each kind of action and all but one of them null: the
protocol, the table's description, the last batch of each writer, the files that are there, and
those that were taken away so lately that somebody may still read them (VACUUM asks for these).

A state is made of what the log itself says (an earlier checkpoint, and the versions after it), not
of the lake's: the two may not differ, and this way they can't.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["Action", "TableState", "checkpoint_facts"]

Action: TypeAlias = dict[str, Any]

_TEXTS = pa.map_(pa.string(), pa.string())
_SCHEMA = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
            }
        ),
        "remove": pa.struct(
            {"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _TEXTS,
            }
        ),
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
    }
)
_TOMBSTONES_MS = 7 * 24 * 3600 * 1000
"""Delta's default for how long a file that was taken away may still be read."""


@dataclass(slots=True)
class TableState:
    """What the actions up to a version come to."""

    protocol: Action = field(default_factory=dict)
    description: Action = field(default_factory=dict)
    writers: dict[str, Action] = field(default_factory=dict)
    files: dict[str, Action] = field(default_factory=dict)
    removed: dict[str, Action] = field(default_factory=dict)

    def apply(self, actions: Iterable[Action]) -> None:
        """Of one version."""
        for action in actions:
            for kind, content in action.items():
                match kind:
                    case "protocol":
                        self.protocol = content
                    case "metaData":
                        self.description = content
                    case "txn":
                        self.writers[content["appId"]] = content
                    case "add":
                        self.files[content["path"]] = content
                        self.removed.pop(content["path"], None)
                    case "remove":
                        self.files.pop(content["path"], None)
                        self.removed[content["path"]] = content

    def actions(self, now_ms: int) -> Iterator[Action]:
        """All that a reader or a VACUUM of now needs to know."""
        yield {"protocol": self.protocol}
        yield {"metaData": self.description}
        yield from ({"txn": each} for each in self.writers.values())
        # They are no news to anybody who reads them here.
        yield from ({"add": {**each, "dataChange": False}} for each in self.files.values())
        for each in self.removed.values():
            if each.get("deletionTimestamp", 0) > now_ms - _TOMBSTONES_MS:
                yield {"remove": {**each, "dataChange": False}}

    def to_parquet(self, now_ms: int) -> bytes:
        table = pa.Table.from_pylist(list(self.actions(now_ms)), schema=_SCHEMA)
        stream = pa.BufferOutputStream()
        pq.write_table(table, stream)
        content: bytes = stream.getvalue().to_pybytes()
        return content

    @classmethod
    def from_parquet(cls, content: bytes) -> TableState:
        """Of a checkpoint by anybody: what it has besides is left out, what it lacks is null."""
        found = pq.ParquetFile(pa.BufferReader(content)).read(columns=_SCHEMA.names)
        state = cls()
        for row in found.to_pylist(maps_as_pydicts="strict"):
            state.apply([{kind: _known(kind, each)} for kind, each in row.items() if each])
        return state


def checkpoint_facts(content: bytes) -> Action:
    """What readers are told of a checkpoint before they open it.

    Its schema is among that, in Spark's words: Delta 4.2.0 on Spark 4.2.0 fails to find it out.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    return {
        "size": pq.ParquetFile(pa.BufferReader(content)).metadata.num_rows,
        "sizeInBytes": len(content),
        "numOfAddFiles": len(TableState.from_parquet(content).files),
        "checkpointSchema": from_arrow_schema(_SCHEMA).jsonValue(),
    }


def _known(kind: str, content: Mapping[str, Any]) -> Action:
    names = {each.name for each in _SCHEMA.field(kind).type}
    return {name: value for name, value in content.items() if name in names and value is not None}
