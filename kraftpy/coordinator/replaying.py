"""The log of a shard, replayed into its machine when this broker becomes the coordinator.

Compaction may have removed any record that a later one replaces, so machines take records over in
any order. Types that a newer release has written are passed over (CRT-20); whatever else can't be
read means that the state can't be made, and ends the loading.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from kraftpy.coordinator.outcome import CoordinatorRecord
from kraftpy.coordinator.ports import Machine
from kraftpy.coordinator.timeline import Timeline
from kraftpy.protocol.coordinator_records import RecordTypes, UnknownRecordTypeError
from kraftpy.records.batch import RecordBatch
from kraftpy.records.control import EndTransactionMarker, read_control_record
from kraftpy.records.reader import Record, read_records
from kraftpy.world import Buffer

__all__ = ["replay_batches"]

log = logging.getLogger(__name__)

# Some milliseconds of work, after which others may run.
_RECORDS_IN_A_PIECE = 50
# Of one batch when it is inflated; coordinators write batches of no more than a message's size.
_BATCH_BYTES_MAX = 256 << 20


def replay_batches(
    data: Buffer, machine: Machine, timeline: Timeline, types: RecordTypes
) -> Iterator[None]:
    """Replay whole batches, pausing now and then; what was replayed before is passed over."""
    position = 0
    size = len(data)
    count = 0
    while position < size:
        batch = RecordBatch(data, position)
        position += batch.size
        for record in read_records(batch, max_bytes=_BATCH_BYTES_MAX):
            if record.offset < timeline.last_written:
                continue
            if batch.is_control:
                _replay_control(batch, record, machine)
            else:
                _replay_data(batch, record, machine, types)
            count += 1
            if count % _RECORDS_IN_A_PIECE == 0:
                yield
        timeline.written(max(timeline.last_written, batch.next_offset))


def _replay_control(batch: RecordBatch, record: Record, machine: Machine) -> None:
    marker = read_control_record(record)
    if isinstance(marker, EndTransactionMarker):
        machine.replay_marker(batch.producer_id, batch.producer_epoch, is_commit=marker.is_commit)


def _replay_data(batch: RecordBatch, record: Record, machine: Machine, types: RecordTypes) -> None:
    if record.key is None:
        raise ValueError(f"the record at offset {record.offset} has no key")
    try:
        key = types.decode_key(record.key)
    except UnknownRecordTypeError as error:
        log.warning("%s at offset %d, passed over", error, record.offset)
        return
    decoded = CoordinatorRecord(key)
    if record.value is not None:
        value, version = types.decode_value(key, record.value)
        decoded = CoordinatorRecord(key, value, version)
    is_transactional = batch.is_transactional
    machine.replay(
        record.offset,
        batch.producer_id if is_transactional else -1,
        batch.producer_epoch if is_transactional else -1,
        decoded,
    )
