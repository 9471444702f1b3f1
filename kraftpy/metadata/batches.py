"""Metadata records in batches of the metadata log, and out of them.

They are ordinary v2 batches: null keys, one record for each value, offsets without gaps. What the
Raft layer writes for itself stands in control batches, which hold no metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kraftpy.metadata.record_format import MetadataRecordError, RecordDecoder, encode_record
from kraftpy.metadata.records import MetadataRecord
from kraftpy.records.batch import RecordBatch
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.reader import Record, read_records

__all__ = [
    "MAX_BATCH_BYTES",
    "MetadataBatchBuilder",
    "build_batch",
    "log_records",
    "metadata_record",
    "read_batch",
]

# The largest batch of the metadata log.
MAX_BATCH_BYTES: Final = 8 << 20


class MetadataBatchBuilder:
    """One batch in the making."""

    __slots__ = ("_builder", "_timestamp_ms")

    def __init__(self, *, base_offset: int, epoch: int, timestamp_ms: int) -> None:
        self._builder = BatchBuilder(base_offset=base_offset, leader_epoch=epoch)
        self._timestamp_ms = timestamp_ms

    @property
    def count(self) -> int:
        return self._builder.count

    @property
    def size(self) -> int:
        return self._builder.size

    def append(self, record: MetadataRecord) -> None:
        self._builder.append(None, encode_record(record), timestamp_ms=self._timestamp_ms)

    def build(self) -> bytearray:
        return self._builder.build()


def build_batch(
    records: Iterable[MetadataRecord], *, base_offset: int, epoch: int, timestamp_ms: int
) -> bytearray:
    """One batch of all these records; there must be one at least."""
    builder = MetadataBatchBuilder(base_offset=base_offset, epoch=epoch, timestamp_ms=timestamp_ms)
    for record in records:
        builder.append(record)
    return builder.build()


def log_records(batch: RecordBatch) -> Iterator[Record]:
    """The log records that hold metadata: none in a control batch.

    Raises a RecordDataError, also from the iterator, if the batch can't be read.
    """
    if batch.is_control:
        return iter(())
    return read_records(batch, max_bytes=MAX_BATCH_BYTES)


def metadata_record(record: Record, decoder: RecordDecoder) -> MetadataRecord:
    """What a log record holds; MetadataRecordError if that is no metadata record."""
    if record.key is not None or record.value is None:
        raise MetadataRecordError("a metadata record has a value and no key")
    return decoder.decode(record.value)


def read_batch(batch: RecordBatch, decoder: RecordDecoder) -> Iterator[MetadataRecord]:
    """The metadata records of a batch; those of one decoder share what is equal in them."""
    for record in log_records(batch):
        yield metadata_record(record, decoder)
