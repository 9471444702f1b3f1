"""Records out of a v2 batch, for those who must look inside: consumers, cleaner, dump, validation.

The batch may lie. Its count, every length and every varint in it come from somebody else, so the
reader never reserves anything for a number it has read, never leaves the bytes of the batch, and
ends with InvalidRecord at the first contradiction: a record that is longer or shorter than it
says, more or fewer records than the header says, bytes behind the last one. What it yielded before
is as good as those bytes were.

The records' bytes are copied once, as a block, so that keys and values are cheap slices of a bytes
object and hold no socket or file buffer alive.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from kraftpy.records.batch import CODEC_MASK, LOG_APPEND_TIME, MAX_INT32, RecordBatch
from kraftpy.records.compression import decompress
from kraftpy.records.errors import InvalidRecord
from kraftpy.records.varint import MAX_INT64, read_varint, read_varlong, wrap_int64

__all__ = ["Header", "Record", "read_records", "record_data"]

# A header's key is UTF-8 by agreement only. Other bytes come as surrogate escapes, which the
# builder turns back into the same bytes.
Header: TypeAlias = tuple[str, bytes | None]

_new_tuple = tuple.__new__
# The length of what is not there: -1, as a varint.
_NULL: Final = 1


class Record(NamedTuple):
    """One record, of any format: what was sent, and its place in the log."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def record_data(batch: RecordBatch, *, max_bytes: int) -> bytes:
    """The records of `batch`, inflated to no more than `max_bytes`."""
    if batch.attributes & CODEC_MASK:
        return decompress(batch.codec, batch.body, max_bytes=max_bytes)
    return bytes(batch.body)


def read_records(batch: RecordBatch, *, max_bytes: int) -> Iterator[Record]:
    """The records of `batch` in order; a compressed one inflates to `max_bytes` at most.

    Raises InvalidRecord (also from the iterator), RecordTooLarge or UnsupportedCompression. The CRC
    isn't checked here.
    """
    if not 0 <= batch.base_offset <= MAX_INT64 - MAX_INT32 - 1:
        raise InvalidRecord(f"base offset {batch.base_offset}")
    return _read(
        record_data(batch, max_bytes=max_bytes),
        batch.records_count,
        batch.base_offset,
        batch.base_timestamp_ms,
        batch.max_timestamp_ms if batch.attributes & LOG_APPEND_TIME else None,
    )


def _read(
    data: bytes,
    count: int,
    base_offset: int,
    base_timestamp_ms: int,
    log_append_time_ms: int | None,
) -> Iterator[Record]:
    # The common varints, of one byte, are read in place: calls would cost as much as all the rest.
    position = 0
    try:
        for _ in range(count):
            number = data[position]
            if number < 0x80:
                position += 1
                end = position + ((number >> 1) ^ -(number & 1))
            else:
                length, position = read_varint(data, position)
                end = position + length
            position += 1  # The record's attributes: nothing is defined in them.
            number = data[position]
            if number < 0x80:
                position += 1
                timestamp_delta = (number >> 1) ^ -(number & 1)
            else:
                timestamp_delta, position = read_varlong(data, position)
            number = data[position]
            if number < 0x80:
                position += 1
                offset_delta = (number >> 1) ^ -(number & 1)
            else:
                offset_delta, position = read_varint(data, position)
            number = data[position]
            if number == _NULL:
                key, position = None, position + 1
            elif number < 0x80 and not number & 1:
                position += 1
                start, position = position, position + (number >> 1)
                key = data[start:position]
            else:
                key, position = _read_nullable(data, position)
            number = data[position]
            if number < 0x80 and not number & 1:
                position += 1
                start, position = position, position + (number >> 1)
                value: bytes | None = data[start:position]
            else:
                value, position = _read_nullable(data, position)
            number = data[position]
            headers: tuple[Header, ...] = ()
            if number:
                headers, position = _read_headers(data, position)
            else:
                position += 1
            # Only here, once: whatever ran out of its record on the way can't end where it should.
            if position != end:
                raise InvalidRecord(f"a record should end at byte {end} and ends at {position}")
            if log_append_time_ms is None:
                timestamp_ms = base_timestamp_ms + timestamp_delta
                if not -MAX_INT64 <= timestamp_ms <= MAX_INT64:
                    timestamp_ms = wrap_int64(timestamp_ms)
            else:
                timestamp_ms = log_append_time_ms
            # As Record(...), without the call of its constructor: a tenth of the whole loop.
            yield _new_tuple(
                Record, (base_offset + offset_delta, timestamp_ms, key, value, headers)
            )
    except IndexError:
        raise InvalidRecord(f"the batch ends before its {count} records do") from None
    if count < 0 or position != len(data):
        raise InvalidRecord(f"{count} records end at byte {position} of {len(data)}")


def _read_nullable(data: bytes, position: int) -> tuple[bytes | None, int]:
    number = data[position]
    if number < 0x80:
        position += 1
        length = (number >> 1) ^ -(number & 1)
    else:
        length, position = read_varint(data, position)
    if length < 0:
        if length != -1:
            raise InvalidRecord(f"a key or value has length {length}")
        return None, position
    end = position + length
    return data[position:end], end


def _read_headers(data: bytes, position: int) -> tuple[tuple[Header, ...], int]:
    count, position = read_varint(data, position)
    if count < 0:
        raise InvalidRecord(f"a record claims {count} headers")
    headers = []
    for _ in range(count):
        number = data[position]
        if number < 0x80 and not number & 1:
            position += 1
            start, position = position, position + (number >> 1)
            key: bytes | None = data[start:position]
        else:
            key, position = _read_nullable(data, position)
        if key is None:
            raise InvalidRecord("a header has no key")
        value, position = _read_nullable(data, position)
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position
