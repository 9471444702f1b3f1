"""The facts about a batch and a record, under the names of Kafka's dump tool and in its order."""

from __future__ import annotations

from kraftpy.log.dump_decoders import RecordDecoder
from kraftpy.log.dump_structs import Facts, struct_facts
from kraftpy.records.batch import CODEC_MASK, MAX_INT32, NO_SEQUENCE, RecordBatch, TimestampType
from kraftpy.records.compression import Codec
from kraftpy.records.control import EndTransactionMarker, read_control_record
from kraftpy.records.reader import Record
from kraftpy.records.walker import AnyBatch

__all__ = ["batch_facts", "record_facts"]

_CONTROL_NAMES = {
    "LeaderChangeMessage": "LeaderChange",
    "SnapshotHeaderRecord": "SnapshotHeader",
    "SnapshotFooterRecord": "SnapshotFooter",
    "KRaftVersionRecord": "KRaftVersion",
    "VotersRecord": "KRaftVoters",
}


def batch_facts(batch: AnyBatch, position: int) -> Facts:
    """What the header says, and whether the CRC is right."""
    facts: Facts
    if isinstance(batch, RecordBatch):
        facts = {
            "baseOffset": batch.base_offset,
            "lastOffset": batch.last_offset,
            "count": batch.records_count,
            "baseSequence": batch.base_sequence,
            "lastSequence": batch.last_sequence,
            "producerId": batch.producer_id,
            "producerEpoch": batch.producer_epoch,
            "partitionLeaderEpoch": batch.leader_epoch,
            "isTransactional": batch.is_transactional,
            "isControl": batch.is_control,
            "deleteHorizonMs": batch.delete_horizon_ms,
        }
    else:
        facts = {"offset": batch.last_offset}
    return facts | {
        "position": position,
        "timestampType": _timestamp_type(batch),
        "timestamp": batch.max_timestamp_ms,
        "size": batch.size,
        "magic": batch.magic,
        "compresscodec": _codec_name(batch.attributes),
        "crc": batch.crc,
        "isvalid": batch.is_valid,
    }


def _timestamp_type(batch: AnyBatch) -> str:
    if batch.magic == 0:
        return "NoTimestampType"
    return (
        "LogAppendTime" if batch.timestamp_type is TimestampType.LOG_APPEND_TIME else "CreateTime"
    )


def _codec_name(attributes: int) -> str:
    number = attributes & CODEC_MASK
    return Codec(number).name.lower() if number <= Codec.ZSTD else f"unknown({number})"


def record_facts(batch: AnyBatch, record: Record, decoder: RecordDecoder | None = None) -> Facts:
    """What a record says, with what `decoder` makes of its key and value.

    InvalidRecord for a control record that makes no sense, UndecodableError for another.
    """
    facts: Facts = {
        "offset": record.offset,
        "timestampType": _timestamp_type(batch),
        "timestamp": record.timestamp_ms,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
    }
    if isinstance(batch, RecordBatch):
        facts["sequence"] = _sequence(batch, record)
        facts["headerKeys"] = [key for key, _ in record.headers]
        if batch.is_control:
            return facts | _control_facts(record)
    return facts if decoder is None else facts | decoder(record)


def _sequence(batch: RecordBatch, record: Record) -> int:
    if batch.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (batch.base_sequence + record.offset - batch.base_offset) & MAX_INT32


def _control_facts(record: Record) -> Facts:
    content = read_control_record(record)
    if content is None:
        number = int.from_bytes((record.key or b"")[2:4])
        return {"controlType": f"UNKNOWN({number})"}
    if isinstance(content, EndTransactionMarker):
        return {
            "endTxnMarker": "COMMIT" if content.is_commit else "ABORT",
            "coordinatorEpoch": content.coordinator_epoch,
        }
    name = _CONTROL_NAMES[type(content).__name__]
    return {name: struct_facts(content, content.version)}
