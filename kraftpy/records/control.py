"""Control batches: records that the cluster writes for itself and that no application sees.

The key of a control record is an int16 version (0) and an int16 type. The ends of transactions
(commit, abort) are one record in a batch with the producer's id and epoch and both the
transactional and the control bit; they take one offset. Their value is an int16 version and the
int32 epoch of the transaction coordinator. The other types belong to the metadata log: leader
change, head and foot of a snapshot, KRaft version, voters. Their values are messages in Kafka's
flexible encoding whose first field is their own version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import TypeAlias

from kraftpy.protocol.codec import DecodeError, decode, encode_bytes
from kraftpy.protocol.schema.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.errors import InvalidRecord
from kraftpy.records.reader import Record

__all__ = [
    "ControlMessage",
    "ControlType",
    "EndTransactionMarker",
    "build_control_batch",
    "build_end_transaction",
    "control_type",
    "read_control_record",
]

_KEY = Struct(">hh")
_KEY_VERSION = 0
_MARKER = Struct(">hi")
_MARKER_VERSION = 0
_VERSION = Struct(">h")


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """How a transaction ended, and the epoch of the coordinator that said so."""

    is_commit: bool
    coordinator_epoch: int


ControlMessage: TypeAlias = (
    LeaderChangeMessage
    | SnapshotHeaderRecord
    | SnapshotFooterRecord
    | KRaftVersionRecord
    | VotersRecord
)

_MESSAGE_CLASSES: dict[ControlType, type[ControlMessage]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
_TYPES_OF_MESSAGES = {message: kind for kind, message in _MESSAGE_CLASSES.items()}


def control_type(record: Record) -> ControlType | None:
    """The type of a control record; None if it is newer than we are, to be passed over."""
    if record.key is None or len(record.key) < _KEY.size:
        raise InvalidRecord("the key of a control record has no type")
    version, number = _KEY.unpack_from(record.key)
    if version < _KEY_VERSION:
        raise InvalidRecord(f"the key of a control record has version {version}")
    return ControlType(number) if 0 <= number <= ControlType.KRAFT_VOTERS else None


def read_control_record(record: Record) -> EndTransactionMarker | ControlMessage | None:
    """What a control record says; None if its type is newer than we are."""
    kind = control_type(record)
    if kind is None:
        return None
    value = record.value or b""
    if kind is ControlType.COMMIT or kind is ControlType.ABORT:
        # A newer version may append fields, never change these two.
        if len(value) < _MARKER.size:
            raise InvalidRecord("the end of a transaction has no coordinator epoch")
        version, coordinator_epoch = _MARKER.unpack_from(value)
        if version < _MARKER_VERSION:
            raise InvalidRecord(f"the end of a transaction has version {version}")
        return EndTransactionMarker(kind is ControlType.COMMIT, coordinator_epoch)
    if len(value) < _VERSION.size:
        raise InvalidRecord(f"a {kind.name} record has no version")
    (version,) = _VERSION.unpack_from(value)
    try:
        return decode(_MESSAGE_CLASSES[kind], version, value)
    except DecodeError as error:
        raise InvalidRecord(f"a {kind.name} record can't be read: {error}") from error


def build_end_transaction(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The batch that ends a producer's transaction."""
    builder = BatchBuilder(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
    kind = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
    value = _MARKER.pack(_MARKER_VERSION, marker.coordinator_epoch)
    builder.append(_KEY.pack(_KEY_VERSION, kind), value, timestamp_ms=timestamp_ms)
    return builder.build()


def build_control_batch(
    messages: Sequence[ControlMessage],
    *,
    base_offset: int,
    leader_epoch: int,
    timestamp_ms: int,
) -> bytearray:
    """A control batch of the metadata log; each message is written in its own `version`."""
    builder = BatchBuilder(base_offset=base_offset, leader_epoch=leader_epoch, is_control=True)
    for message in messages:
        key = _KEY.pack(_KEY_VERSION, _TYPES_OF_MESSAGES[type(message)])
        value = encode_bytes(message, message.version)
        builder.append(key, value, timestamp_ms=timestamp_ms)
    return builder.build()
