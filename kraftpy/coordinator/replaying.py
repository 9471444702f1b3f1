"""The log of a shard, replayed into its machine when this broker becomes the coordinator.

Compaction may have removed any record that a later one replaces, so machines take records over in
any order. Types that a newer release has written are passed over (CRT-20); whatever else can't be
read means that the state can't be made, and ends the loading.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import nullcontext

from kraftpy.coordinator.outcome import CoordinatorRecord
from kraftpy.coordinator.ports import Machine
from kraftpy.coordinator.timeline import Timeline
from kraftpy.protocol.coordinator_records import RecordTypes, UnknownRecordTypeError
from kraftpy.records.batch import RecordBatch
from kraftpy.records.control import EndTransactionMarker, read_control_record
from kraftpy.records.errors import CorruptRecord
from kraftpy.records.reader import Record
from kraftpy.records.walker import AnyBatch, records_of, walk_batches
from kraftpy.world import Buffer

__all__ = ["replay_batches"]

log = logging.getLogger(__name__)

# Some milliseconds of work, after which others may run.
_RECORDS_IN_A_PIECE = 50
# Of one batch when it is inflated; coordinators write batches of no more than a message's size.
_BATCH_BYTES_MAX = 256 << 20


def replay_batches(
    data: Buffer,
    machine: Machine,
    timeline: Timeline,
    types: RecordTypes,
    *,
    high_watermark: int,
) -> Iterator[None]:
    """Replay the whole batches in `data`, pausing now and then.

    What was replayed before is passed over; what is below the high watermark is committed batch by
    batch, so that no long journal comes together. Raises RecordDataError, DecodeError, or what the
    machine raises.
    """
    count = 0
    for batch in walk_batches(data):
        if not batch.is_valid:
            raise CorruptRecord(
                f"the batch that ends at offset {batch.last_offset} has a wrong CRC"
            )
        timeline.committed(min(high_watermark, timeline.last_written))
        is_settled = timeline.last_written <= batch.last_offset < high_watermark
        with timeline.settled_history() if is_settled else nullcontext():
            for record in records_of(batch, max_bytes=_BATCH_BYTES_MAX):
                if record.offset < timeline.last_written:
                    continue
                if isinstance(batch, RecordBatch) and batch.is_control:
                    _replay_control(batch, record, machine)
                else:
                    _replay_data(batch, record, machine, types)
                count += 1
                if count % _RECORDS_IN_A_PIECE == 0:
                    yield
        timeline.written(max(timeline.last_written, batch.last_offset + 1))
        timeline.committed(min(high_watermark, timeline.last_written))


def _replay_control(batch: RecordBatch, record: Record, machine: Machine) -> None:
    marker = read_control_record(record)
    if isinstance(marker, EndTransactionMarker):
        machine.replay_marker(batch.producer_id, batch.producer_epoch, is_commit=marker.is_commit)


def _replay_data(batch: AnyBatch, record: Record, machine: Machine, types: RecordTypes) -> None:
    if record.key is None:
        raise ValueError(f"the record at offset {record.offset} has no key")
    try:
        key = types.decode_key(record.key)
    except UnknownRecordTypeError as error:
        log.warning("%s at offset %d, passed over", error, record.offset)
        return
    if record.value is None:
        decoded = CoordinatorRecord(key)
    else:
        decoded = CoordinatorRecord(key, *types.decode_value(key, record.value))
    producer_id, producer_epoch = -1, -1
    if isinstance(batch, RecordBatch) and batch.is_transactional:
        producer_id, producer_epoch = batch.producer_id, batch.producer_epoch
    machine.replay(record.offset, producer_id, producer_epoch, decoded)
