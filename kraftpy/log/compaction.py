"""What remains of a batch when its log is compacted. Sans-I/O.

A record stays if it is the last of its key, as far as the offset map knows; every record stays
whose offset the map has not reached. What makes this more than a filter:

Tombstones. A record without value deletes its key. It stays for `delete.retention.ms` so that
readers learn of it: the first cleaning that meets it stamps the batch with the time when it may go,
the delete horizon, in place of its base timestamp (KIP-534). A later cleaning drops it.

Transactions. Records of aborted transactions go at once. The marker that ends a transaction stays
as long as a batch of that transaction is there, and then for `delete.retention.ms` more, with a
horizon as tombstones have. Only decided transactions are ever cleaned.

Producers. The last batch of each producer that the log knows stays, without records if it must,
since its sequence number is how a repeated batch is recognised after the log was replayed. So does
the last batch of the cleaned part, for the sake of its offset.

A batch from which nothing is dropped is copied. Otherwise it keeps its header but for count,
largest time and checksum, and the records that stay are copied byte by byte; only a new delete
horizon changes what times count from and so has them written anew. Messages of the formats before
v2 that have to change become v2 batches.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from kraftpy.log.offset_map import OffsetMap
from kraftpy.log.producer_entries import ProducerEntry
from kraftpy.log.transactions import AbortedTransaction
from kraftpy.records.batch import NO_TIMESTAMP, RecordBatch, TimestampType
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.compression import Codec
from kraftpy.records.control import ControlType, control_type
from kraftpy.records.legacy import LegacyBatch
from kraftpy.records.reader import Record, read_records
from kraftpy.records.spans import RecordSpan

__all__ = [
    "Compaction",
    "KeptRecords",
    "TransactionTracker",
    "Verdict",
    "builder_for_legacy",
    "builder_with_horizon",
]

# A control record is a few bytes, and not compressed by anybody.
_CONTROL_MAX_BYTES: Final = 64 * 1024


class TransactionTracker:
    """Follows the transactions through the batches of a log, in order."""

    __slots__ = ("_aborted", "_ongoing_aborted", "_ongoing_committed", "_upcoming")

    def __init__(self) -> None:
        # Aborted transactions whose first offset was not reached yet, a heap by that offset.
        self._upcoming: list[tuple[int, AbortedTransaction]] = []
        # By producer: the transaction that is being read, and whether a batch of it was met.
        self._ongoing_aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._ongoing_committed: dict[int, None] = {}
        # For the index of the segment that is being written.
        self._aborted: list[AbortedTransaction] = []

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Those that overlap the batches to come. One may be given repeatedly."""
        for transaction in transactions:
            heapq.heappush(self._upcoming, (transaction.first_offset, transaction))

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Note a data batch; whether its transaction was aborted."""
        if not batch.is_transactional:
            return False
        self._reach(batch.last_offset)
        producer_id = batch.producer_id
        ongoing = self._ongoing_aborted.get(producer_id)
        if ongoing is None:
            self._ongoing_committed[producer_id] = None
            return False
        self._ongoing_aborted[producer_id] = (ongoing[0], True)
        return True

    def is_spent(self, marker: RecordBatch) -> bool:
        """Note a control batch; whether it ends a transaction of which nothing is left."""
        self._reach(marker.last_offset)
        record = next(iter(read_records(marker, max_bytes=_CONTROL_MAX_BYTES)), None)
        if record is None:
            return True
        producer_id = marker.producer_id
        match control_type(record):
            case ControlType.ABORT:
                ongoing = self._ongoing_aborted.pop(producer_id, None)
                if ongoing is None or not ongoing[1]:
                    return True
                self._aborted.append(ongoing[0])
            case ControlType.COMMIT:
                if producer_id not in self._ongoing_committed:
                    return True
                del self._ongoing_committed[producer_id]
        return False

    def take_aborted(self) -> list[AbortedTransaction]:
        """The transactions whose markers were noted since the last time, and still matter."""
        taken, self._aborted = self._aborted, []
        return taken

    def _reach(self, offset: int) -> None:
        while self._upcoming and self._upcoming[0][0] <= offset:
            transaction = heapq.heappop(self._upcoming)[1]
            self._ongoing_aborted.setdefault(transaction.producer_id, (transaction, False))


class Verdict(Enum):
    """What happens to a batch, as far as its header tells."""

    DROP = "drop"
    EMPTY = "keep the header"
    COPY = "copy"
    STAMP = "give it a delete horizon"
    SIFT = "look at its records"


class KeptRecords:
    """The records that stay of one batch: where they lie, and what the header must say of them.

    `has_tombstone`: one of those that the offset map has reached.
    """

    __slots__ = ("count", "has_tombstone", "max_timestamp_ms", "ranges")

    def __init__(self) -> None:
        self.count = 0
        self.max_timestamp_ms = NO_TIMESTAMP
        self.has_tombstone = False
        # Neighbours are joined.
        self.ranges: list[tuple[int, int]] = []

    def take_from(self, data: bytes) -> bytes:
        return b"".join([data[start:end] for start, end in self.ranges])


class Compaction:
    """The rules for one cleaning of one log."""

    __slots__ = (
        "_end_offset",
        "_horizon_ms",
        "_map",
        "_now_ms",
        "_producers",
        "keyless_count",
        "tracker",
    )

    def __init__(
        self,
        offset_map: OffsetMap,
        producers: Mapping[int, ProducerEntry],
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._map = offset_map
        self._end_offset = offset_map.latest_offset + 1
        self._producers = producers
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self.tracker = TransactionTracker()
        # Records without key have no place in a compacted log and are dropped.
        self.keyless_count = 0

    @property
    def new_horizon_ms(self) -> int:
        """For what is stamped by this cleaning."""
        return self._horizon_ms

    def judge(self, batch: RecordBatch) -> Verdict:
        """To be asked for every batch, in order."""
        horizon_ms = batch.delete_horizon_ms
        if batch.is_control:
            is_spent = self.tracker.is_spent(batch)
            is_gone = is_spent and horizon_ms is not None and horizon_ms <= self._now_ms
        else:
            is_spent = False
            is_gone = self.tracker.is_aborted(batch)
        if batch.base_offset >= self._end_offset:
            return Verdict.COPY
        if is_gone or batch.records_count == 0:
            return Verdict.EMPTY if self.keeps_header(batch) else Verdict.DROP
        if not batch.is_control:
            return Verdict.SIFT
        return Verdict.STAMP if is_spent and horizon_ms is None else Verdict.COPY

    def keeps_header(self, batch: RecordBatch) -> bool:
        """Whether something of the batch stays even if none of its records does."""
        if batch.next_offset == self._end_offset:
            return True
        entry = self._producers.get(batch.producer_id)
        if entry is None:
            return False
        if entry.batches:
            return batch.last_offset == entry.last_data_offset
        # Its last word was a marker: that has the epoch which fences its predecessors.
        return batch.is_control and batch.producer_epoch == entry.epoch

    def sift(self, batch: RecordBatch, spans: Iterable[RecordSpan], kept: KeptRecords) -> None:
        """Add to `kept` those of `spans`, records of `batch`, that stay."""
        end_offset = self._end_offset
        offset_of = self._map.get
        ranges = kept.ranges
        max_timestamp_ms = kept.max_timestamp_ms
        horizon_ms = batch.delete_horizon_ms
        keeps_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        for start, end, offset, timestamp_ms, key, has_value in spans:
            if offset < end_offset:
                if key is None:
                    self.keyless_count += 1
                    continue
                if offset_of(key) > offset:
                    continue
                if not has_value:
                    if not keeps_tombstones:
                        continue
                    kept.has_tombstone = True
            kept.count += 1
            if max_timestamp_ms < timestamp_ms:  # noqa: PLR1730 (max would be a call)
                max_timestamp_ms = timestamp_ms
            if ranges and ranges[-1][1] == start:
                ranges[-1] = (ranges[-1][0], end)
            else:
                ranges.append((start, end))
        kept.max_timestamp_ms = max_timestamp_ms

    def stays(self, record: Record) -> bool:
        """The same for a record of a format before v2."""
        if record.offset >= self._end_offset:
            return True
        if record.key is None:
            self.keyless_count += 1
            return False
        return self._map.get(record.key) <= record.offset


def builder_with_horizon(batch: RecordBatch, horizon_ms: int) -> BatchBuilder:
    """For `batch` with some or all of its records, and a delete horizon."""
    return BatchBuilder(
        base_offset=batch.base_offset,
        codec=batch.codec,
        leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        log_append_time_ms=_log_append_time_ms(batch),
        delete_horizon_ms=horizon_ms,
    )


def builder_for_legacy(
    batch: LegacyBatch, records: list[Record], horizon_ms: int | None
) -> BatchBuilder:
    """For a v2 batch of those records of a message of an older format that stay."""
    codec = batch.codec if len(records) > 1 else Codec.NONE
    return BatchBuilder(
        base_offset=records[0].offset,
        codec=codec,
        log_append_time_ms=_log_append_time_ms(batch),
        delete_horizon_ms=horizon_ms,
    )


def _log_append_time_ms(batch: RecordBatch | LegacyBatch) -> int | None:
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return batch.max_timestamp_ms
    return None
