"""What a record of a workload is made of, so that a reader can tell whether it is whole.

The value is a header (magic, key, value, process, operation, flags, checksum), a short text for
what a workload has to say about the record (EXTRAS of the history), and padding, all under one
CRC-32C. Record key, record headers and timestamp follow from (key, value) alone: a reader checks
them without knowing anything else. A record that fails any of this is a phantom; one with another
key in it than that of its partition was misrouted. A tombstone has no value to put a header in: it
has a header of the record's that says the same.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack

from kraftpy.records.batch import crc32c
from kraftpy.records.reader import Header

__all__ = ["Content", "Damage", "OutgoingRecord", "decode", "encode"]

_MAGIC = b"kvw1"
_LAYOUT = struct.Struct(">4sIqqqqBI")
_TRANSACTIONAL = 1
_CHECKED_FROM = 8
_TOMBSTONE = "tombstone"
# Long past, so that no record lies in a broker's future, whatever its clock says.
_EPOCH_MS = 1_600_000_000_000
_MS_PER_KEY = 100_000


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record on its way; where to is said beside it."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True)
class Content:
    key: int
    value: int
    process: int = 0
    operation: int = 0
    is_transactional: bool = False
    extras: Mapping[str, Any] = field(default_factory=dict)
    """Of the history: `from`, `account`, `balance`, `record_key`."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Why a record is not one of ours as it was sent."""

    reason: str


def encode(content: Content, *, padding: int = 0) -> OutgoingRecord:
    extras = msgpack.packb(dict(content.extras)) if content.extras else b""
    time_ms = timestamp_ms(content.key, content.value)
    if content.extras.get(_TOMBSTONE):
        said = msgpack.packb([content.key, content.value, record_key(content).decode()])
        return OutgoingRecord(record_key(content), None, time_ms, ((_TOMBSTONE, said),))
    checked = (
        _LAYOUT.pack(
            _MAGIC,
            0,
            content.key,
            content.value,
            content.process,
            content.operation,
            _TRANSACTIONAL if content.is_transactional else 0,
            len(extras),
        )[_CHECKED_FROM:]
        + extras
        + bytes(padding)
    )
    return OutgoingRecord(
        record_key(content),
        _MAGIC + struct.pack(">I", crc32c(checked)) + checked,
        time_ms,
        headers_of(content.key, content.value),
    )


def decode(
    value: bytes | None,
    *,
    key: bytes | None,
    time_ms: int | None = None,
    headers: tuple[Header, ...] | None = None,
) -> Content | Damage:
    """What the record says; a timestamp and headers are compared where they are given."""
    if value is None:
        return _decode_tombstone(key, headers or ())
    if len(value) < _LAYOUT.size:
        return Damage("no header: the value is too short")
    fields = _LAYOUT.unpack_from(value)
    if fields[0] != _MAGIC:
        return Damage("the value does not begin as ours do")
    if crc32c(memoryview(value)[_CHECKED_FROM:]) != fields[1]:
        return Damage("the checksum is not that of the value")
    extras_end = _LAYOUT.size + fields[7]
    extras = msgpack.unpackb(value[_LAYOUT.size : extras_end]) if fields[7] else {}
    content = Content(
        fields[2], fields[3], fields[4], fields[5], bool(fields[6] & _TRANSACTIONAL), extras
    )
    if key != record_key(content):
        return Damage(f"the record key is {key!r}, not {record_key(content)!r}")
    if time_ms is not None and time_ms != timestamp_ms(content.key, content.value):
        return Damage(f"the timestamp is {time_ms}")
    if headers is not None and headers != headers_of(content.key, content.value):
        return Damage(f"the headers are {headers!r}")
    return content


def _decode_tombstone(key: bytes | None, headers: tuple[Header, ...]) -> Content | Damage:
    if len(headers) != 1 or headers[0][0] != _TOMBSTONE:
        return Damage("a record without a value, and not by our hand")
    number, value, name = msgpack.unpackb(headers[0][1] or b"\xc0")
    if key != name.encode():
        return Damage(f"the record key of a tombstone is {key!r}, not {name!r}")
    return Content(number, value, extras={"record_key": name, _TOMBSTONE: True})


def record_key(content: Content) -> bytes:
    """What compaction goes by: the workload's choice, or one that occurs once."""
    chosen = content.extras.get("record_key")
    return (f"{content.key}:{content.value}" if chosen is None else str(chosen)).encode()


def timestamp_ms(key: int, value: int) -> int:
    return _EPOCH_MS + key * _MS_PER_KEY + value


def headers_of(key: int, value: int) -> tuple[Header, ...]:
    """None, one or two: the absence of headers is a case of its own on the wire."""
    content = f"{key}/{value}".encode()
    return tuple([(f"h{number}", content) for number in range((key + value) % 3)])
