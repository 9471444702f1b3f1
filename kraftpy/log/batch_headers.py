"""Walking the batches of a segment's file by their headers, without reading their records.

Reads a few pages at a time and skips over what lies between headers. What is found there is only as
good as the file: nothing here checks a CRC. A header that can't be one raises CorruptRecord; a file
that ends within a batch ends the walk.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from kraftpy.records.batch import (
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
)
from kraftpy.records.errors import CorruptRecord
from kraftpy.records.legacy import RECORD_OVERHEAD
from kraftpy.world import File

__all__ = ["READ_AHEAD_BYTES", "BatchHeader", "header_at", "walk_headers"]

READ_AHEAD_BYTES: Final = 8192

# Both formats agree on offset, length and the place of the magic.
_COMMON = Struct(">qi4xb")
_LEGACY_TIMESTAMP = Struct(">q")
_LEGACY_TIMESTAMP_AT = 18


class BatchHeader(NamedTuple):
    """A batch in a file. Of a legacy message the base offset isn't known: it is the last."""

    position: int
    size: int
    magic: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    leader_epoch: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def end_position(self) -> int:
        return self.position + self.size


def header_at(data: bytes, index: int, position: int) -> BatchHeader:
    """The header at `index` of `data`, which was read from the file's `position` + `index`.

    `data` has at least 61 bytes there, or ends where the file does. Raises CorruptRecord.
    """
    if len(data) - index < HEADER_SIZE:
        data, index = data[index:].ljust(HEADER_SIZE, b"\0"), 0
    fields = HEADER.unpack_from(data, index)
    magic = fields[3]
    if magic == MAGIC:
        length = fields[1]
        if length < HEADER_SIZE - LOG_OVERHEAD:
            raise CorruptRecord(f"a batch of {length} bytes at position {position}")
        return BatchHeader(
            position,
            length + LOG_OVERHEAD,
            MAGIC,
            fields[0],
            fields[0] + fields[6],
            fields[8],
            fields[2],
            fields[5],
            *fields[9:],
        )
    return _legacy_header(data, index, position)


def _legacy_header(data: bytes, index: int, position: int) -> BatchHeader:
    offset, length, magic = _COMMON.unpack_from(data, index)
    if not 0 <= magic < MAGIC:
        raise CorruptRecord(f"magic {magic} at position {position}")
    if length < RECORD_OVERHEAD[magic]:
        raise CorruptRecord(f"a message of {length} bytes at position {position}")
    timestamp_ms = NO_TIMESTAMP
    if magic == 1:
        (timestamp_ms,) = _LEGACY_TIMESTAMP.unpack_from(data, index + _LEGACY_TIMESTAMP_AT)
    return BatchHeader(
        position,
        length + LOG_OVERHEAD,
        magic,
        offset,
        offset,
        timestamp_ms,
        NO_EPOCH,
        data[index + 17],
        NO_PRODUCER_ID,
        NO_EPOCH,
        NO_SEQUENCE,
        1,
    )


def walk_headers(file: File, position: int, end: int) -> Iterator[BatchHeader]:
    """The batches from `position` on that lie whole before `end`."""
    data = b""
    start = position
    while end - position >= LOG_OVERHEAD + RECORD_OVERHEAD[0]:
        index = position - start
        if len(data) - index < HEADER_SIZE and start + len(data) < end:
            data = file.pread(min(READ_AHEAD_BYTES, end - position), position)
            start, index = position, 0
            if not data:
                return
        header = header_at(data, index, position)
        position += header.size
        if position > end:
            return
        yield header
