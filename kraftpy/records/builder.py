"""Writing v2 batches: records in, the bytes of one batch out.

The builder appends records to one growing buffer that starts with room for the header; `build`
compresses what follows the header, if there is a codec, and fills the header in. A batch whose
records come from elsewhere keeps their offsets, gaps included, as the cleaner needs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kraftpy.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC,
    CRC_AT,
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAX_INT32,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    RecordBatch,
    crc32c,
)
from kraftpy.records.compression import Codec, compress
from kraftpy.records.errors import RecordTooLarge
from kraftpy.records.reader import Header, Record, record_data
from kraftpy.records.varint import append_varint, wrap_int64
from kraftpy.world import InternalInvariant, assert_always

if TYPE_CHECKING:
    from kraftpy.world import Buffer

__all__ = ["BatchBuilder", "build_batch", "empty_copy", "recompress", "with_records"]

_ONE_BYTE_MAX = 63


class BatchBuilder:
    """One batch in the making.

    With `log_append_time_ms` the batch has the type LogAppendTime: readers see that time on every
    record, and never those that stay inside. With `delete_horizon_ms` the batch carries the
    cleaner's mark for its tombstones.
    """

    __slots__ = (
        "_attributes",
        "_base_offset",
        "_base_sequence",
        "_base_timestamp_ms",
        "_buffer",
        "_codec",
        "_count",
        "_last_offset",
        "_leader_epoch",
        "_level",
        "_log_append_time_ms",
        "_max_timestamp_ms",
        "_producer_epoch",
        "_producer_id",
    )

    def __init__(
        self,
        *,
        base_offset: int = 0,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        leader_epoch: int = NO_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        log_append_time_ms: int | None = None,
        delete_horizon_ms: int | None = None,
    ) -> None:
        self._base_offset = base_offset
        self._codec = codec
        self._level = level
        self._leader_epoch = leader_epoch
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._log_append_time_ms = log_append_time_ms
        attributes = int(codec)
        if is_transactional:
            attributes |= TRANSACTIONAL
        if is_control:
            attributes |= CONTROL
        if log_append_time_ms is not None:
            attributes |= LOG_APPEND_TIME
        self._base_timestamp_ms = NO_TIMESTAMP
        if delete_horizon_ms is not None:
            attributes |= DELETE_HORIZON
            self._base_timestamp_ms = delete_horizon_ms
        self._attributes = attributes
        self._max_timestamp_ms = NO_TIMESTAMP
        self._last_offset = base_offset - 1
        self._count = 0
        self._buffer = bytearray(HEADER_SIZE)

    @property
    def count(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """The batch's size so far, before compression."""
        return len(self._buffer)

    def append(
        self,
        key: Buffer | None,
        value: Buffer | None,
        *,
        timestamp_ms: int,
        headers: Iterable[Header] = (),
        offset: int | None = None,
    ) -> None:
        """Append a record; its offset follows the last one's unless given."""
        if offset is None:
            offset = self._last_offset + 1
        offset_delta = offset - self._base_offset
        if offset <= self._last_offset or offset_delta > MAX_INT32:
            raise InternalInvariant(f"records.offset_order {offset} after {self._last_offset}")
        if self._count == 0 and not self._attributes & DELETE_HORIZON:
            self._base_timestamp_ms = timestamp_ms
        self._max_timestamp_ms = max(self._max_timestamp_ms, timestamp_ms)
        self._last_offset = offset
        self._count += 1

        record = bytearray(1)  # The record's attributes: nothing is defined in them.
        timestamp_delta = timestamp_ms - self._base_timestamp_ms
        if 0 <= timestamp_delta <= _ONE_BYTE_MAX:
            record.append(timestamp_delta << 1)
        else:
            append_varint(record, wrap_int64(timestamp_delta))
        append_varint(record, offset_delta)
        _append_nullable(record, key)
        _append_nullable(record, value)
        if headers:
            _append_headers(record, headers)
        else:
            record.append(0)
        append_varint(self._buffer, len(record))
        self._buffer += record

    def build(self, *, last_offset: int | None = None) -> bytearray:
        """The batch. `last_offset` widens it beyond its last record, for the cleaner."""
        if last_offset is None:
            last_offset = self._last_offset
        assert_always(
            self._count and last_offset >= self._last_offset,
            "records.last_offset",
            count=self._count,
            last_offset=last_offset,
        )
        buffer = self._buffer
        if self._codec:
            body = compress(self._codec, memoryview(buffer)[HEADER_SIZE:], level=self._level)
            buffer = bytearray(HEADER_SIZE)
            buffer += body
        max_timestamp_ms = self._max_timestamp_ms
        if self._log_append_time_ms is not None:
            max_timestamp_ms = self._log_append_time_ms
        _seal(
            buffer,
            base_offset=self._base_offset,
            leader_epoch=self._leader_epoch,
            attributes=self._attributes,
            last_offset_delta=last_offset - self._base_offset,
            base_timestamp_ms=self._base_timestamp_ms,
            max_timestamp_ms=max_timestamp_ms,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._base_sequence,
            records_count=self._count,
        )
        return buffer


def build_batch(records: Iterable[Record], builder: BatchBuilder) -> bytearray:
    """The batch of `builder` with these records, at their own offsets."""
    for offset, timestamp_ms, key, value, headers in records:
        builder.append(key, value, timestamp_ms=timestamp_ms, headers=headers, offset=offset)
    return builder.build()


def recompress(
    batch: RecordBatch, codec: Codec, *, level: int | None = None, max_bytes: int
) -> RecordBatch:
    """A copy of `batch` with another codec; its records stay as they are, unseen."""
    data = record_data(batch, max_bytes=max_bytes)
    buffer = bytearray(HEADER_SIZE)
    buffer += compress(codec, data, level=level) if codec else data
    _seal(
        buffer,
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        attributes=batch.attributes & ~CODEC_MASK | codec,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp_ms=batch.base_timestamp_ms,
        max_timestamp_ms=batch.max_timestamp_ms,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        records_count=batch.records_count,
    )
    return RecordBatch(buffer)


def with_records(
    batch: RecordBatch, data: Buffer, *, records_count: int, max_timestamp_ms: int
) -> bytearray:
    """`batch` with some of its records only: `data` has them as they were, see spans.py.

    All else stays, so that offsets and times still count from where they did.
    """
    buffer = bytearray(HEADER_SIZE)
    buffer += compress(batch.codec, data) if batch.is_compressed else data
    _seal(
        buffer,
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        attributes=batch.attributes,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp_ms=batch.base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        records_count=records_count,
    )
    return buffer


def empty_copy(batch: RecordBatch) -> bytearray:
    """`batch` without its records, which compaction keeps for the sake of a producer's sequence."""
    buffer = bytearray(HEADER_SIZE)
    _seal(
        buffer,
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        attributes=batch.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL),
        last_offset_delta=batch.last_offset_delta,
        base_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=batch.max_timestamp_ms,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        records_count=0,
    )
    return buffer


def _seal(
    buffer: bytearray,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    records_count: int,
) -> None:
    """Write the header of the batch that fills `buffer`."""
    length = len(buffer) - LOG_OVERHEAD
    if length > MAX_INT32:
        raise RecordTooLarge(f"a batch of {len(buffer)} bytes")
    HEADER.pack_into(
        buffer,
        0,
        base_offset,
        length,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    )
    CRC.pack_into(buffer, CRC_AT, crc32c(memoryview(buffer)[CRC_START:]))


def _append_nullable(buffer: bytearray, data: Buffer | None) -> None:
    if data is None:
        buffer.append(1)
        return
    length = len(data)
    if length <= _ONE_BYTE_MAX:
        buffer.append(length << 1)
    else:
        append_varint(buffer, length)
    buffer += data


def _append_headers(buffer: bytearray, headers: Iterable[Header]) -> None:
    headers = tuple(headers)
    append_varint(buffer, len(headers))
    for key, value in headers:
        _append_nullable(buffer, key.encode("utf-8", "surrogateescape"))
        _append_nullable(buffer, value)
