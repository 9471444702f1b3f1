"""Record batches as columns of Arrow, decoded many records at a time.

A record of a v2 batch is framed by varints, so that each one's beginning is known only when the one
before has been looked at. That walk is the only loop over records here; it reads one number for
each. Everything else is done for all records of a fetch at once: numpy reads the n-th number of
every record in one step, and Arrow copies keys and values from where they lie.

The batches may lie, as for kraftpy.records.reader, and with the same outcome: InvalidRecord at the
first contradiction. Whether headers make sense is only looked at when they are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraftpy.records.batch import RecordBatch, TimestampType
from kraftpy.records.errors import InvalidRecord
from kraftpy.records.reader import record_data
from kraftpy.records.varint import read_varint

__all__ = ["HEADERS", "TIMESTAMP", "DecodedRecords", "decode"]

Positions: TypeAlias = npt.NDArray[np.int64]

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", _HEADER))
TIMESTAMP = pa.timestamp("us", tz="UTC")
# Arrow's plain binary arrays count in 32 bits, and every other element of ours is a gap.
_MAX_DATA_BYTES = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Column:
    """Where the values of one column lie in the data; a length of -1 means null."""

    starts: Positions
    lengths: Positions


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """Records of one partition, in order, as columns."""

    offsets: Positions
    timestamps: pa.Array
    timestamp_types: pa.Array
    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None


def decode(
    batches: Sequence[RecordBatch], *, max_batch_bytes: int, with_headers: bool
) -> DecodedRecords:
    """The records of `batches`, which are batches of one partition in the order of the log.

    Raises InvalidRecord, RecordTooLarge or UnsupportedCompression.
    """
    parts = [record_data(batch, max_bytes=max_batch_bytes) for batch in batches]
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    if len(data) > _MAX_DATA_BYTES:
        raise InvalidRecord(f"{len(data)} bytes of records are too many for one piece")
    try:
        return _decode(batches, parts, data, with_headers=with_headers)
    except IndexError:
        raise InvalidRecord("a batch ends before its records do") from None


def _decode(
    batches: Sequence[RecordBatch], parts: list[bytes], data: bytes, *, with_headers: bool
) -> DecodedRecords:
    starts = _record_starts(batches, parts, data)
    raw = np.frombuffer(data, np.uint8)
    ends = np.append(starts[1:], len(data))
    counts = np.array([batch.records_count for batch in batches])
    _, at = _varints(raw, starts)
    at += 1  # The record's attributes: nothing is defined in them.
    timestamp_deltas, at = _varints(raw, at)
    offset_deltas, at = _varints(raw, at)
    keys, at = _lengths(raw, at)
    values, at = _lengths(raw, at)
    header_counts, at = _varints(raw, at)
    _check_ends(at, ends, header_counts)
    headers = None
    if with_headers:
        headers = _headers(data, raw, at, ends, header_counts)
    timestamps, types = _timestamps(batches, counts, timestamp_deltas)
    return DecodedRecords(
        _offsets(batches, counts, offset_deltas),
        timestamps,
        types,
        _gather(data, keys, pa.binary()),
        _gather(data, values, pa.binary()),
        headers,
    )


def _record_starts(batches: Sequence[RecordBatch], parts: list[bytes], data: bytes) -> Positions:
    starts: list[int] = []
    append = starts.append
    position = 0
    end = 0
    for batch, part in zip(batches, parts, strict=True):
        end += len(part)
        for _ in range(batch.records_count):
            append(position)
            number = data[position]
            if number < 0x80:
                position += 1 + ((number >> 1) ^ -(number & 1))
            elif (second := data[position + 1]) < 0x80:
                number = number & 0x7F | second << 7
                position += 2 + ((number >> 1) ^ -(number & 1))
            else:
                length, position = read_varint(data, position)
                position += length
            if position <= starts[-1]:
                raise InvalidRecord("a record has a negative length")
        if position != end or batch.records_count < 0:
            raise InvalidRecord(f"{batch.records_count} records end at byte {position} of {end}")
    return np.array(starts, np.int64)


def _varints(raw: npt.NDArray[np.uint8], at: Positions) -> tuple[Positions, Positions]:
    """The signed numbers at these places, and where each ends."""
    byte = raw[at]
    numbers = (byte & 0x7F).astype(np.uint64)
    after = at + 1
    longer = np.flatnonzero(byte >= 0x80)
    shift = 7
    while longer.size:
        if shift > 63:
            raise InvalidRecord("a number is longer than any can be")
        byte = raw[after[longer]]
        numbers[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[longer] += 1
        longer = longer[byte >= 0x80]
        shift += 7
    signs = np.uint64(0) - (numbers & np.uint64(1))
    return ((numbers >> np.uint64(1)) ^ signs).view(np.int64), after


def _lengths(raw: npt.NDArray[np.uint8], at: Positions) -> tuple[Column, Positions]:
    """Bytes with their length before them, at these places; and where each ends."""
    lengths, starts = _varints(raw, at)
    if lengths.size and (lengths.min() < -1 or lengths.max() > raw.size):
        raise InvalidRecord("a key, a value or a header has a length that it can't have")
    return Column(starts, lengths), starts + np.maximum(lengths, 0)


def _check_ends(at: Positions, ends: Positions, header_counts: Positions) -> None:
    """Whatever ran out of its record on the way can't be where it should be."""
    is_bare = header_counts == 0
    if (header_counts < 0).any() or (at > ends).any() or (at[is_bare] != ends[is_bare]).any():
        raise InvalidRecord("a record is longer or shorter than it says")


def _offsets(
    batches: Sequence[RecordBatch], counts: npt.NDArray[np.int64], deltas: Positions
) -> Positions:
    last_deltas = np.repeat([batch.last_offset_delta for batch in batches], counts)
    offsets = np.repeat(np.array([batch.base_offset for batch in batches]), counts) + deltas
    is_outside = (deltas < 0) | (deltas > last_deltas)
    if is_outside.any() or (np.diff(offsets) <= 0).any():
        raise InvalidRecord("the offsets of records don't grow, or leave their batch")
    return offsets


def _timestamps(
    batches: Sequence[RecordBatch], counts: npt.NDArray[np.int64], deltas: Positions
) -> tuple[pa.Array, pa.Array]:
    """In microseconds, as Spark counts; and what kind of time each is."""
    types = np.array([batch.timestamp_type for batch in batches], np.int32)
    bases = np.array([batch.base_timestamp_ms for batch in batches])
    is_appended = types == TimestampType.LOG_APPEND_TIME
    if is_appended.any():
        bases[is_appended] = [
            batch.max_timestamp_ms
            for batch in batches
            if batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        ]
        deltas = np.where(np.repeat(is_appended, counts), 0, deltas)
    times = (np.repeat(bases, counts) + deltas) * 1_000
    return pa.array(times, pa.int64()).view(TIMESTAMP), pa.array(np.repeat(types, counts))


def _gather(data: bytes, column: Column, kind: pa.DataType) -> pa.Array:
    """The column's values, copied together.

    An array over the data as it lies has the values as its even elements, and what is between them
    as its odd ones; Arrow takes the even ones out.
    """
    count = len(column.starts)
    is_null = column.lengths < 0
    if is_null.all():
        return pa.nulls(count, kind)
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = column.starts
    bounds[1::2] = column.starts + np.maximum(column.lengths, 0)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    everything = pa.Array.from_buffers(kind, 2 * count - 1, buffers)
    evens = pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=is_null)
    return everything.take(evens)


def _headers(
    data: bytes,
    raw: npt.NDArray[np.uint8],
    at: Positions,
    ends: Positions,
    counts: Positions,
) -> pa.Array:
    """The lists of headers; null where there are none, as Spark's own connector has it."""
    total = len(counts)
    if not counts.any():
        return pa.nulls(total, HEADERS)
    at = at.copy()
    records, keys, values = [], [], []
    place = 0
    # All first headers, then all second ones: few records have many.
    while (having := np.flatnonzero(counts > place)).size:
        key, after = _lengths(raw, at[having])
        value, after = _lengths(raw, after)
        if (key.lengths < 0).any() or (after > ends[having]).any():
            raise InvalidRecord("a header has no key, or leaves its record")
        at[having] = after
        records.append(having)
        keys.append(key)
        values.append(value)
        place += 1
    if (at != ends).any():
        raise InvalidRecord("a record is longer than its headers")
    order = np.argsort(np.concatenate(records), kind="stable")
    entries = pa.StructArray.from_arrays(
        [
            _gather(data, _in_order(keys, order), pa.string()),
            _gather(data, _in_order(values, order), pa.binary()),
        ],
        fields=list(_HEADER),
    )
    bounds = np.zeros(total + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    return pa.ListArray.from_arrays(
        pa.array(bounds), entries, type=HEADERS, mask=pa.array(counts == 0)
    )


def _in_order(columns: list[Column], order: Positions) -> Column:
    return Column(
        np.concatenate([each.starts for each in columns])[order],
        np.concatenate([each.lengths for each in columns])[order],
    )
