"""Writing what remains of a group of segments: `.cleaned` segments that will replace it."""

from __future__ import annotations

from typing import Final

from kraftpy.log.batch_set import BatchSet
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.segment import RELATIVE_OFFSET_MAX
from kraftpy.log.transactions import AbortedTransaction
from kraftpy.records.errors import InvalidRecord
from kraftpy.records.walker import AnyBatch, first_offset_of

__all__ = ["CleanedOutput"]

# Written at a time; every call of the system costs as much as copying a few pages.
_WRITE_BYTES: Final = 64 * 1024
# Positions in an offset index have 31 bits.
_SEGMENT_MAX_BYTES: Final = 2**31 - 1


class CleanedOutput:
    """The `.cleaned` segment that a group becomes.

    There is a second one if the first has no room: with a delete horizon a batch takes more bytes
    than without.
    """

    __slots__ = (
        "_aborted",
        "_batches",
        "_first_offset",
        "_last_offset",
        "_log",
        "_unpaid_bytes",
        "segments",
    )

    def __init__(self, log: PartitionLog, base_offset: int) -> None:
        self._log = log
        self._last_offset = base_offset - 1
        self._unpaid_bytes = 0
        self.segments = [log.create_cleaned_segment(base_offset)]
        self._begin_write()

    def _begin_write(self) -> None:
        # Those of the write that is being collected are above what was written before.
        self._first_offset = self._last_offset + 1
        self._batches = BatchSet()
        self._aborted: list[AbortedTransaction] = []

    def add(self, batch: AnyBatch) -> None:
        """Behind what there is. InvalidRecord if its offsets do not belong there."""
        last_offset = batch.last_offset
        if not self._last_offset < first_offset_of(batch) <= last_offset:
            raise InvalidRecord(
                f"offsets {first_offset_of(batch)} to {last_offset} behind {self._last_offset}"
            )
        if self._batches.size_bytes >= _WRITE_BYTES:
            self._write()
        self._batches.add(batch)
        self._last_offset = last_offset

    def add_aborted(self, transactions: list[AbortedTransaction]) -> None:
        """Transactions that end with the batch that was added last."""
        self._aborted += transactions

    def _write(self) -> None:
        size_bytes = self._batches.size_bytes
        if not size_bytes:
            return
        segment = self.segments[-1]
        if (
            segment.size_bytes > _SEGMENT_MAX_BYTES - size_bytes
            or self._last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or segment.offset_index.is_full
            or segment.time_index.is_full
        ):
            segment.make_inactive()
            segment = self._log.create_cleaned_segment(self._first_offset)
            self.segments.append(segment)
        segment.append(self._batches)
        for transaction in self._aborted:
            segment.transaction_index.append(transaction)
        self._unpaid_bytes += size_bytes
        self._begin_write()

    async def finish(self) -> None:
        """Nothing will be added. Synced here, where a full disk is no harm yet."""
        self._write()
        self.segments[-1].make_inactive()
        for segment in self.segments:
            await segment.sync()

    def take_written(self) -> int:
        """How many bytes were written since the last time."""
        written, self._unpaid_bytes = self._unpaid_bytes, 0
        return written
