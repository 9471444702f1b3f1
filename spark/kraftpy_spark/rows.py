"""The rows that a sink is given, as records: which columns there are, and what they may hold."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from zlib import crc32

import pyarrow as pa

from kraftpy_spark.options import OptionMistake

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kraftpy.records.reader import Header

__all__ = ["Digest", "OutgoingRow", "RowMistake", "ShortDigest", "check_columns", "rows_of"]

Headers: TypeAlias = "tuple[Header, ...]"

_BYTES = ("string", "binary")
_HEADERS = "array<struct<key:string,value:binary>>"
_COLUMNS = {
    "topic": ("string",),
    "partition": ("int",),
    "key": _BYTES,
    "value": _BYTES,
    "headers": (_HEADERS,),
}
_NULL = 0x6E756C6C
_HASH_BYTES = 16
_HASHES = 1 << (8 * _HASH_BYTES)


class RowMistake(ValueError):  # noqa: N818 (it names what is wrong)
    """A row can't be a record."""


class OutgoingRow(NamedTuple):
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


class Digest:
    """What a task has written, in a few bytes, whatever the order of its rows.

    It stands for the rows: who has the same digest has the same rows, and need not write them. So
    it is a sum of hashes of 128 bits, which no two sets of rows share by chance.
    """

    __slots__ = ("_sum", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0

    def add(self, row: OutgoingRow) -> None:
        topic, partition, key, value, headers = row
        # Where each part ends, and which of them are null. There is no blank in a topic's name.
        shape = f"{topic} {partition} {_length(key)} {_length(value)} "
        content = shape.encode() + (key or b"") + (value or b"")
        if headers:
            content += repr(headers).encode()
        found = blake2b(content, digest_size=_HASH_BYTES).digest()
        self.count += 1
        self._sum += int.from_bytes(found, "big")

    def __str__(self) -> str:
        return f"{self.count}-{self._sum % _HASHES:0{2 * _HASH_BYTES}x}"


def _length(content: bytes | None) -> int | None:
    return None if content is None else len(content)


class ShortDigest:
    """Of marks that earlier versions have left: shorter, so that it is never taken for the other.

    Sums of CRCs, of which one in four billion is that of other rows; and more if these are few and
    much alike.
    """

    __slots__ = ("_sum", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0

    def add(self, row: OutgoingRow) -> None:
        topic, partition, key, value, headers = row
        found = crc32(topic.encode(), -1 if partition is None else partition & 0xFFFF)
        found = crc32(key, found) if key is not None else found ^ _NULL
        # Where a key ends and a value begins.
        found = crc32(b"\0", found)
        found = crc32(value, found) if value is not None else found ^ _NULL
        for name, content in headers:
            found = crc32(name.encode("utf-8", "surrogateescape"), found ^ len(headers))
            found = crc32(content, found) if content is not None else found ^ _NULL
        self.count += 1
        self._sum += found

    def __str__(self) -> str:
        return f"{self.count}-{self._sum & 0xFFFF_FFFF_FFFF_FFFF:x}"


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raises OptionMistake unless rows of this schema can be written."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, kind in kinds.items():
        if name not in _COLUMNS:
            raise OptionMistake(
                f"column {name!r} can't be written; a sink takes {', '.join(_COLUMNS)}:"
                " select these, for example with to_json(struct(*)) AS value"
            )
        if kind not in _COLUMNS[name]:
            raise OptionMistake(
                f"column {name!r} is {kind} and must be {' or '.join(_COLUMNS[name])}; cast it"
            )
    if "value" not in kinds:
        raise OptionMistake("there is no column 'value' to write")
    if topic is None and "topic" not in kinds:
        raise OptionMistake("neither an option nor a column says to which topic: set one of them")


def rows_of(batch: pa.RecordBatch, topic: str | None) -> Iterator[OutgoingRow]:
    """The rows of `batch`; `topic` goes before the column of that name."""
    count = batch.num_rows
    names = batch.schema.names

    def column(name: str, kind: pa.DataType | None = None) -> list[object]:
        if name not in names:
            return [None] * count
        found = batch.column(name)
        values: list[object] = (found if kind is None else found.cast(kind)).to_pylist()
        return values

    topics = [topic] * count if topic is not None else column("topic")
    keys = column("key", pa.binary())
    values = column("value", pa.binary())
    partitions = column("partition")
    headers = map(_headers, column("headers"))
    for row in zip(topics, partitions, keys, values, headers, strict=True):
        if row[0] is None:
            raise RowMistake("a row's topic is null; set the option topic, or fill the column")
        yield OutgoingRow._make(row)


def _headers(found: object) -> Headers:
    if not isinstance(found, list):
        return ()
    return tuple((each["key"], each["value"]) for each in found)
