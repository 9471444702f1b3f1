"""What is committed in the logs of partitions, batch by batch, as soon as a leader shows it.

Each batch is read once, whoever leads. Records that are gone before they were read, because they
were deleted or compacted away, are a gap: rules that need every record must know of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kraftpy.log.errors import StorageError
from kraftpy.log.offsets import Isolation
from kraftpy.records.batch import RecordBatch
from kraftpy.records.walker import walk_batches
from kraftpy.sim.cluster_data_rules import PartitionKey
from kraftpy.sim.cluster_producer_rules import CheckedLog

__all__ = ["CommittedNews", "News"]

_ALL_BYTES = 1 << 30


class News(NamedTuple):
    batch: RecordBatch
    # Whether something between the batch before and this one, or in it, was not seen.
    follows_gap: bool


class CommittedNews:
    __slots__ = ("ends",)

    def __init__(self) -> None:
        self.ends: dict[PartitionKey, int] = {}

    def of(self, key: PartitionKey, log: CheckedLog) -> Iterator[News]:
        """All that a leader's log has below its high watermark, and that was not given before."""
        while (start := self.ends.get(key, 0)) < log.high_watermark:
            found = False
            for batch in self._read(log, max(start, log.log_start_offset)):
                if batch.next_offset > log.high_watermark:
                    return
                if batch.next_offset <= start:
                    continue
                count = batch.last_offset - batch.base_offset + 1
                has_gap = batch.base_offset > start or batch.records_count != count
                self.ends[key] = start = batch.next_offset
                found = True
                yield News(batch, has_gap)
            if not found:
                return

    def _read(self, log: CheckedLog, start: int) -> Iterator[RecordBatch]:
        try:
            records = log.read(start, _ALL_BYTES, Isolation.LOG_END).records
        except StorageError:
            # The disk has failed, or the node is about to end.
            return
        if records is not None:
            for batch in walk_batches(records.file.pread(records.length, records.position)):
                if isinstance(batch, RecordBatch):
                    yield batch
