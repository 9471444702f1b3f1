"""Judging a set of batches before it is appended, and giving it offsets. No I/O.

A leader checks every batch as its topic demands and assigns consecutive offsets and its own epoch,
in place. A follower takes the bytes as they are, once their checksums are right: the leader has
judged them. A set may end within a batch, which is left out.
"""

from __future__ import annotations

from kraftpy.log.batch_headers import BatchHeader
from kraftpy.log.batch_set import BatchSet
from kraftpy.log.errors import OffsetsOutOfOrderError, UnexpectedAppendOffsetError
from kraftpy.log.offsets import UNKNOWN
from kraftpy.log.producer_entries import BatchMetadata
from kraftpy.log.producers import ProducerState, ProducerUpdate
from kraftpy.log.transactions import AbortedTransaction
from kraftpy.records.batch import RecordBatch
from kraftpy.records.control import EndTransactionMarker, read_control_record
from kraftpy.records.errors import CorruptRecord, InvalidRecord
from kraftpy.records.reader import read_records
from kraftpy.records.validation import AppendOrigin, TopicRules, prepare_batch
from kraftpy.records.walker import batch_at, first_offset_of
from kraftpy.world import Buffer, InternalInvariant

__all__ = [
    "add_to_producers",
    "commit_to_producers",
    "find_duplicate",
    "judge_as_follower",
    "judge_as_leader",
]

# A marker is one record of a few bytes, and not compressed by anybody.
_MARKER_MAX_BYTES = 64 * 1024
_OFFSET_BYTES = 8


def judge_as_leader(
    records: Buffer,
    rules: TopicRules,
    *,
    first_offset: int,
    leader_epoch: int,
    origin: AppendOrigin,
    now_ms: int,
) -> BatchSet:
    """Check the batches and give them offsets from `first_offset` on, where they lie.

    Raises a RecordDataError for the first that may not be appended.
    """
    batches = BatchSet()
    position = 0
    offset = first_offset
    while position < len(records) and (found := batch_at(records, position)) is not None:
        if not isinstance(found, RecordBatch):
            raise InvalidRecord(f"a batch of magic {found.magic}; only magic 2 is written")
        position += found.size
        batch = prepare_batch(found, rules, origin=origin, now_ms=now_ms)
        batch.stamp(offset, leader_epoch)
        offset += batch.last_offset_delta + 1
        batches.add(batch)
    return batches


def judge_as_follower(records: Buffer, *, log_end_offset: int, leader_epoch: int) -> BatchSet:
    """Check what was fetched from the leader of `leader_epoch`.

    Batches of a later epoch, from a leader that this follower does not know yet, are left out with
    all that follows. Raises CorruptRecord, OffsetsOutOfOrderError, UnexpectedAppendOffsetError.
    """
    batches = BatchSet()
    is_monotonic = True
    view = memoryview(records)
    while (batch := batch_at(view, batches.size_bytes)) is not None:
        if isinstance(batch, RecordBatch) and batch.leader_epoch > leader_epoch:
            break
        first_offset = first_offset_of(batch)
        if not batch.is_valid:
            raise CorruptRecord(f"a replicated batch at offset {first_offset} has a wrong CRC")
        if not batches.last_offset < first_offset <= batch.last_offset:
            is_monotonic = False
        batches.note(batch)
    if batches.size_bytes + _OFFSET_BYTES <= len(view) and batches.batches:
        # The beginning of a batch that was cut off shows whether the last one is in its place.
        cut_off = view[batches.size_bytes : batches.size_bytes + _OFFSET_BYTES]
        if int.from_bytes(cut_off, signed=True) <= batches.last_offset:
            is_monotonic = False
    if not is_monotonic:
        raise OffsetsOutOfOrderError(
            f"the offsets of a replicated set from {batches.first_offset} on do not grow"
        )
    if batches.batches and batches.first_offset < log_end_offset:
        raise UnexpectedAppendOffsetError(
            f"a replicated set begins at {batches.first_offset}, below the log end "
            f"{log_end_offset}",
            first_offset=batches.first_offset,
            last_offset=batches.last_offset,
        )
    batches.parts.append(view[: batches.size_bytes])
    return batches


def find_duplicate(batches: BatchSet, producers: ProducerState) -> BatchMetadata | None:
    """The batch in the log that one of these repeats."""
    for batch in batches.batches:
        if isinstance(batch, RecordBatch) and batch.producer_id >= 0:
            duplicate = producers.find_duplicate(
                batch.producer_id,
                batch.producer_epoch,
                base_sequence=batch.base_sequence,
                last_offset_delta=batch.last_offset_delta,
            )
            if duplicate is not None:
                return duplicate
    return None


def add_to_producers(
    batch: RecordBatch | BatchHeader,
    update: ProducerUpdate,
    *,
    segment_base_offset: int = UNKNOWN,
    position: int = UNKNOWN,
) -> None:
    """Check a batch against its producer's state, and note what it changes.

    A header will do unless it is a control batch's. Raises a LogError or RecordDataError.
    """
    if not batch.is_control:
        update.add_batch(
            batch.producer_id,
            batch.producer_epoch,
            base_sequence=batch.base_sequence,
            base_offset=batch.base_offset,
            last_offset=batch.last_offset,
            max_timestamp_ms=batch.max_timestamp_ms,
            is_transactional=batch.is_transactional,
            segment_base_offset=segment_base_offset,
            position=position,
        )
        return
    if not isinstance(batch, RecordBatch):
        raise InternalInvariant("a control batch is judged by its record")
    # The cleaner may have left a marker's batch without its record.
    record = next(iter(read_records(batch, max_bytes=_MARKER_MAX_BYTES)), None)
    marker = None if record is None else read_control_record(record)
    if isinstance(marker, EndTransactionMarker):
        update.add_marker(
            batch.producer_id,
            batch.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            offset=batch.base_offset,
            timestamp_ms=batch.max_timestamp_ms,
            is_abort=not marker.is_commit,
        )


def commit_to_producers(
    update: ProducerUpdate, producers: ProducerState
) -> list[AbortedTransaction]:
    """The batches are in the log. The transactions that they aborted, for the index."""
    producers.commit(update)
    aborted = []
    for completed in update.completed:
        if completed.is_aborted:
            aborted.append(
                AbortedTransaction(
                    completed.producer_id,
                    completed.first_offset,
                    completed.last_offset,
                    producers.last_stable_offset_after(completed),
                )
            )
        producers.complete(completed)
    return aborted
