"""What a leader checks before it appends a batch, in Kafka's order, with Kafka's errors.

By default the header alone is judged (design, decision 4): length, CRC, magic, codec, counts,
sequence, timestamps. That costs one pass of CRC-32C and no loop in Python. Kafka walks every record
here; so do we where the topic is compacted, because a record without a key must not enter it, or
where `kraftpy.record.validation=full` asks for it. The header-only rules differ from Kafka's in
that they believe the header: its count, its maximum timestamp, and that the first record's
timestamp stands for all against `message.timestamp.before.max.ms`.

A batch of another codec than the topic's `compression.type` is rewritten. Otherwise it stays where
it lies and only the timestamp type and maximum may be patched.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from kraftpy.records.batch import (
    CODEC_MASK,
    CONTROL,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    RecordBatch,
    TimestampType,
)
from kraftpy.records.builder import recompress
from kraftpy.records.compression import Codec
from kraftpy.records.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    RecordFault,
    RecordTooLarge,
    UnsupportedCompression,
)
from kraftpy.records.reader import read_records
from kraftpy.records.varint import MAX_INT64
from kraftpy.records.walker import batch_at

if TYPE_CHECKING:
    from kraftpy.world import Buffer

__all__ = ["AppendOrigin", "TopicRules", "check_batch", "prepare_batch", "single_batch"]

_FIRST_PRODUCE_WITH_ZSTD = 7
_MAX_REPORTED_FAULTS = 100


class AppendOrigin(Enum):
    """Who appends. Only clients are held to the rules of format; the others are ourselves."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"
    RAFT_LEADER = "raft leader"


# An enum's member is looked up by a call, and every append would do so ten times.
_CLIENT: Final = AppendOrigin.CLIENT
_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME
_LAST_CODEC: Final = int(Codec.ZSTD)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRules:
    """A topic's configuration, as far as it judges or changes batches."""

    max_message_bytes: int
    max_inflated_bytes: int
    """The most that a compressed batch may become when it has to be looked into."""
    codec: Codec | None = None
    """The codec to store; None is `compression.type=producer`."""
    codec_level: int | None = None
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = MAX_INT64
    timestamp_after_max_ms: int = MAX_INT64
    is_compacted: bool = False
    validates_fully: bool = False


def single_batch(records: Buffer | None, *, produce_version: int) -> RecordBatch:
    """The one v2 batch that a Produce request must carry for each partition.

    An incomplete batch behind it is passed over, as Kafka does. Raises CorruptRecord, InvalidRecord
    or UnsupportedCompression.
    """
    batch = None if records is None else batch_at(records)
    if records is None or batch is None:
        raise InvalidRecord("no record batch for this partition")
    if not isinstance(batch, RecordBatch):
        raise InvalidRecord(f"a batch of magic {batch.magic}; Produce takes magic 2 only")
    if produce_version < _FIRST_PRODUCE_WITH_ZSTD and batch.attributes & CODEC_MASK == Codec.ZSTD:
        raise UnsupportedCompression(f"Produce version {produce_version} knows no zstd")
    if batch_at(records, batch.size) is not None:
        raise InvalidRecord("more than one record batch for this partition")
    return batch


def check_batch(batch: RecordBatch, *, origin: AppendOrigin, max_message_bytes: int) -> None:
    """Judge a batch by its header and CRC."""
    is_client = origin is _CLIENT
    if is_client and batch.base_offset != 0:
        raise InvalidRecord(f"the base offset of a produced batch is {batch.base_offset}, not 0")
    if batch.size > max_message_bytes:
        raise RecordTooLarge(f"a batch of {batch.size} bytes, of {max_message_bytes} allowed")
    if batch.magic != MAGIC:
        raise CorruptRecord(f"magic {batch.magic}")
    crc = batch.compute_crc()
    if crc != batch.crc:
        raise CorruptRecord(f"the batch has CRC {batch.crc:#010x}, its bytes {crc:#010x}")
    attributes = batch.attributes
    if attributes & CODEC_MASK > _LAST_CODEC:
        raise UnsupportedCompression(f"{attributes & CODEC_MASK} names no codec")
    if not is_client:
        return
    if batch.last_offset_delta < 0:
        raise InvalidRecord(f"the last offset delta is {batch.last_offset_delta}")
    if batch.records_count != batch.last_offset_delta + 1:
        raise InvalidRecord(
            f"{batch.records_count} records with a last offset delta of {batch.last_offset_delta}"
        )
    if attributes & CONTROL:
        raise InvalidRecord("clients don't write control batches")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        raise InvalidRecord(
            f"producer {batch.producer_id} sends the sequence number {batch.base_sequence}"
        )


def prepare_batch(
    batch: RecordBatch, rules: TopicRules, *, origin: AppendOrigin, now_ms: int
) -> RecordBatch:
    """Judge a batch for a topic and make it what the topic stores, but for offset and epoch.

    Returns `batch` itself, patched where it lies, or the one that replaces it.
    """
    check_batch(batch, origin=origin, max_message_bytes=rules.max_message_bytes)
    max_timestamp_ms = batch.max_timestamp_ms
    if origin is _CLIENT:
        # Some clients leave the largest timestamp out of the header. Without it a batch is not
        # found by time and expires too early, so a header that contradicts itself is looked behind.
        lacks_timestamp = max_timestamp_ms < batch.base_timestamp_ms
        if rules.is_compacted or rules.validates_fully or lacks_timestamp:
            max_timestamp_ms = _check_records(batch, rules, now_ms=now_ms)
        else:
            _check_header_timestamps(batch, rules, now_ms=now_ms)
    if rules.codec is not None and rules.codec != batch.codec:
        batch = recompress(
            batch, rules.codec, level=rules.codec_level, max_bytes=rules.max_inflated_bytes
        )
        if batch.size > rules.max_message_bytes:
            raise RecordTooLarge(
                f"{batch.size} bytes after recompression, of {rules.max_message_bytes} allowed"
            )
    if rules.timestamp_type is _APPEND_TIME:
        max_timestamp_ms = now_ms
    batch.set_timestamp(rules.timestamp_type, max_timestamp_ms)
    return batch


def _check_header_timestamps(batch: RecordBatch, rules: TopicRules, *, now_ms: int) -> None:
    """Of a batch whose largest timestamp is not below its first."""
    first_ms, largest_ms = batch.base_timestamp_ms, batch.max_timestamp_ms
    if (
        first_ms > NO_TIMESTAMP
        and now_ms - first_ms <= rules.timestamp_before_max_ms
        and largest_ms - now_ms <= rules.timestamp_after_max_ms
        and rules.timestamp_type is not _APPEND_TIME
    ):
        # Nearly all batches: what holds for both ends holds for all between, at one look.
        return
    for timestamp_ms in (first_ms, largest_ms):
        fault = _timestamp_fault(timestamp_ms, batch, rules, now_ms=now_ms)
        if fault is not None:
            raise InvalidTimestamp(fault)


def _check_records(batch: RecordBatch, rules: TopicRules, *, now_ms: int) -> int:
    """Judge every record; the largest timestamp is returned."""
    faults: list[RecordFault] = []
    has_bad_timestamp = False
    max_timestamp_ms = NO_TIMESTAMP
    records = read_records(batch, max_bytes=rules.max_inflated_bytes)
    for index, record in enumerate(records):
        max_timestamp_ms = max(max_timestamp_ms, record.timestamp_ms)
        if record.offset != batch.base_offset + index:
            fault = f"offset delta {record.offset - batch.base_offset}, expected {index}"
        elif rules.is_compacted and record.key is None:
            fault = "a compacted topic takes no record without a key"
        else:
            timestamp_fault = _timestamp_fault(record.timestamp_ms, batch, rules, now_ms=now_ms)
            if timestamp_fault is None:
                continue
            fault = timestamp_fault
            has_bad_timestamp = True
        if len(faults) < _MAX_REPORTED_FAULTS:
            faults.append(RecordFault(index, fault))
    if has_bad_timestamp:
        raise InvalidTimestamp("some records have timestamps that the topic refuses", faults)
    if faults:
        raise InvalidRecord(f"some records are refused, the first: {faults[0].message}", faults)
    return max_timestamp_ms


def _timestamp_fault(
    timestamp_ms: int, batch: RecordBatch, rules: TopicRules, *, now_ms: int
) -> str | None:
    if rules.timestamp_type is _APPEND_TIME or timestamp_ms == NO_TIMESTAMP:
        if batch.attributes & LOG_APPEND_TIME:
            return "a producer can't claim LogAppendTime"
        return None
    if (
        now_ms - timestamp_ms <= rules.timestamp_before_max_ms
        and timestamp_ms - now_ms <= rules.timestamp_after_max_ms
    ):
        return None
    return (
        f"timestamp {timestamp_ms} is not within {rules.timestamp_before_max_ms} ms before "
        f"and {rules.timestamp_after_max_ms} ms after {now_ms}"
    )
