"""Batches that are written together, and what the log must know of them."""

from __future__ import annotations

from kraftpy.log.offsets import UNKNOWN
from kraftpy.records.batch import NO_TIMESTAMP, RecordBatch
from kraftpy.records.walker import AnyBatch, first_offset_of
from kraftpy.world import Buffer

__all__ = ["BatchSet"]


class BatchSet:
    """`parts` are the bytes to write, all of `batches` in order and nothing else."""

    __slots__ = (
        "batches",
        "first_offset",
        "has_producers",
        "last_offset",
        "max_timestamp_ms",
        "offset_of_max_timestamp",
        "parts",
        "size_bytes",
    )

    def __init__(self) -> None:
        self.batches: list[AnyBatch] = []
        self.parts: list[Buffer] = []
        self.size_bytes = 0
        # Of a legacy set: the last offset of its first batch.
        self.first_offset = UNKNOWN
        self.last_offset = UNKNOWN
        self.max_timestamp_ms = NO_TIMESTAMP
        self.offset_of_max_timestamp = UNKNOWN
        self.has_producers = False

    def note(self, batch: AnyBatch) -> None:
        """One more batch, whose bytes the caller puts into `parts`, alone or with others."""
        last_offset = batch.last_offset
        if not self.batches:
            self.first_offset = first_offset_of(batch)
        self.batches.append(batch)
        self.size_bytes += batch.size
        self.last_offset = last_offset
        if batch.max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = batch.max_timestamp_ms
            self.offset_of_max_timestamp = last_offset
        if isinstance(batch, RecordBatch) and batch.producer_id >= 0:
            self.has_producers = True

    def add(self, batch: AnyBatch) -> None:
        """One more batch, with its bytes."""
        self.note(batch)
        self.parts.append(batch.data)
