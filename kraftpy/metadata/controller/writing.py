"""From a result to batches of the metadata log.

A batch holds at most 10,000 records and 8 MiB. A result that is not atomic is cut into as many
batches as that takes; an atomic one must fit. Encoding rests now and then.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple

from kraftpy.metadata.batches import MAX_BATCH_BYTES
from kraftpy.metadata.controller.result import MAX_RECORDS_PER_REQUEST, ControllerResult, Outcome
from kraftpy.metadata.record_format import encode_record
from kraftpy.metadata.records import MetadataRecord

__all__ = ["EncodedBatch", "TooManyRecordsError", "encoded_batches"]

# What a batch, and a record around its value, add at most to the bytes of the values.
_BATCH_OVERHEAD_BYTES: Final = 61
_RECORD_OVERHEAD_BYTES: Final = 32


class TooManyRecordsError(Exception):
    """An atomic result is larger than a batch can be."""


class EncodedBatch(NamedTuple):
    """Records, and their stored form."""

    records: tuple[MetadataRecord, ...]
    values: tuple[bytes, ...]


def encoded_batches(
    result: Outcome[object], at_once: int
) -> Generator[None, None, list[EncodedBatch]]:
    """The batches that hold a result, none if it has no records; a rest after so many of them."""
    batches: list[EncodedBatch] = []
    values: list[bytes] = []
    start, size = 0, _BATCH_OVERHEAD_BYTES
    for index, record in enumerate(result.records):
        if index and index % at_once == 0:
            yield
        value = encode_record(record)
        size += len(value) + _RECORD_OVERHEAD_BYTES
        if values and (len(values) == MAX_RECORDS_PER_REQUEST or size > MAX_BATCH_BYTES):
            batches.append(EncodedBatch(result.records[start:index], tuple(values)))
            start, values = index, []
            size = _BATCH_OVERHEAD_BYTES + len(value) + _RECORD_OVERHEAD_BYTES
        values.append(value)
    if values:
        batches.append(EncodedBatch(result.records[start:], tuple(values)))
    is_atomic = isinstance(result, ControllerResult) and result.is_atomic
    if is_atomic and len(batches) > 1:
        raise TooManyRecordsError(f"{len(result.records)} records in one atomic change")
    return batches
