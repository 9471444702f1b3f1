"""Where the records of a v2 batch lie, for those who keep some of them as they are.

A record's offset and time are written relative to its batch, so whoever drops records and keeps the
batch's base offset and base timestamp can copy the others byte by byte. The cleaner does that. It
wants keys, and whether there is a value, but neither values nor headers, and reading those would
take it half as long again.

The batch may lie, as in reader.py. Beyond what is checked there, but for headers, which are passed
over, offsets must grow and stay within the batch: a batch made of these spans could not be read
otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from kraftpy.records.batch import MAX_INT32, RecordBatch, TimestampType
from kraftpy.records.errors import InvalidRecord
from kraftpy.records.varint import MAX_INT64, read_varint, read_varlong, wrap_int64

__all__ = ["RecordSpan", "record_spans"]

RecordSpan: TypeAlias = tuple[int, int, int, int, bytes | None, bool]
"""Where it begins and ends in the batch's record data; offset, time, key, whether it has a value.

A plain tuple: making a named one costs as much as reading a third of a record.
"""


def record_spans(batch: RecordBatch, data: bytes) -> Iterator[RecordSpan]:
    """The spans of the records in `data`, which is `batch`'s record data, inflated.

    Raises InvalidRecord, also from the iterator.
    """
    if not 0 <= batch.base_offset <= MAX_INT64 - MAX_INT32 - 1:
        raise InvalidRecord(f"base offset {batch.base_offset}")
    return _spans(batch, data)


def _spans(batch: RecordBatch, data: bytes) -> Iterator[RecordSpan]:
    count = batch.records_count
    base_offset = batch.base_offset
    base_timestamp_ms = batch.base_timestamp_ms
    log_append_time_ms = None
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        log_append_time_ms = batch.max_timestamp_ms
    # As in reader.py; times are often two bytes long, so that these are read in place as well.
    position = 0
    previous_delta = -1
    try:
        for _ in range(count):
            start = position
            number = data[position]
            if number < 0x80:
                end = position + 1 + ((number >> 1) ^ -(number & 1))
                position += 2  # With the record's attributes: nothing is defined in them.
            else:
                length, position = read_varint(data, position)
                end, position = position + length, position + 1
            number = data[position]
            if number < 0x80:
                position += 1
                timestamp_delta = (number >> 1) ^ -(number & 1)
            elif (second := data[position + 1]) < 0x80:
                position += 2
                number = number & 0x7F | second << 7
                timestamp_delta = (number >> 1) ^ -(number & 1)
            else:
                timestamp_delta, position = read_varlong(data, position)
            number = data[position]
            if number < 0x80:
                position += 1
                offset_delta = (number >> 1) ^ -(number & 1)
            else:
                offset_delta, position = read_varint(data, position)
            if offset_delta <= previous_delta:
                raise InvalidRecord(f"offset delta {offset_delta} follows {previous_delta}")
            previous_delta = offset_delta
            number = data[position]
            if number < 0x80:
                position += 1
                key_length = (number >> 1) ^ -(number & 1)
            else:
                key_length, position = read_varint(data, position)
            if key_length >= 0:
                key = data[position : position + key_length]
                position += key_length
            elif key_length == -1:
                key = None
            else:
                raise InvalidRecord(f"a key has length {key_length}")
            value_length, position = read_varint(data, position)
            # At least one byte follows a value: the number of headers.
            if not -1 <= value_length < end - position:
                raise InvalidRecord(f"a value of {value_length} bytes in {end - position}")
            if log_append_time_ms is None:
                timestamp_ms = base_timestamp_ms + timestamp_delta
                if not -MAX_INT64 <= timestamp_ms <= MAX_INT64:
                    timestamp_ms = wrap_int64(timestamp_ms)
            else:
                timestamp_ms = log_append_time_ms
            position = end
            yield start, end, base_offset + offset_delta, timestamp_ms, key, value_length >= 0
    except IndexError:
        raise InvalidRecord(f"the batch ends before its {count} records do") from None
    if previous_delta > batch.last_offset_delta:
        raise InvalidRecord(f"offset delta {previous_delta} of {batch.last_offset_delta} at most")
    if count < 0 or position != len(data):
        raise InvalidRecord(f"{count} records end at byte {position} of {len(data)}")
