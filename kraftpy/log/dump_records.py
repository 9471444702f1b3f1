"""The facts about a batch and a record, under the names of Kafka's dump tool and in its order."""

from __future__ import annotations

from typing import Any, TypeAlias

from kraftpy.protocol.ids import Uuid, format_uuid
from kraftpy.protocol.tables import Struct, covers
from kraftpy.records.batch import CODEC_MASK, MAX_INT32, NO_SEQUENCE, RecordBatch, TimestampType
from kraftpy.records.compression import Codec
from kraftpy.records.control import EndTransactionMarker, read_control_record
from kraftpy.records.reader import Record
from kraftpy.records.walker import AnyBatch

__all__ = ["Facts", "batch_facts", "record_facts"]

# Numbers, text, booleans, None, bytes (keys and values), and lists and dictionaries of them.
Facts: TypeAlias = dict[str, Any]

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


def record_facts(batch: AnyBatch, record: Record, *, shows_data: bool) -> Facts:
    """What a record says; InvalidRecord for a control record that makes no sense."""
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
    if shows_data:
        if record.key is not None:
            facts["key"] = record.key
        if record.value is not None:
            facts["payload"] = record.value
    return facts


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
    return {name: _struct_facts(content, content.version)}


def _struct_facts(struct: Struct, version: int) -> Facts:
    facts: Facts = {}
    for field in struct.FIELDS:
        if not covers(field.versions, version):
            continue
        value = getattr(struct, field.name)
        if field.kind is not None and field.kind.name == "uuid":
            value = format_uuid(Uuid(value))
        elif isinstance(value, list):
            value = [_struct_facts(each, version) for each in value]
        elif isinstance(value, Struct):
            value = _struct_facts(value, version)
        facts[_camel_case(field.name)] = value
    return facts


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
