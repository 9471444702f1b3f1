"""Records of coordinators as bytes: an int16 of the type and the key, an int16 of the version and
the value.

Which types there are depends on the topic, and a `RecordTypes` holds those of one. A newer release
may write more of them: `UnknownRecordTypeError` stands apart, since whoever replays a topic
passes over such records. Bytes behind a key or a value are passed over, as Kafka does it.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

import kraftpy.protocol.schema.group_records as group
import kraftpy.protocol.schema.share_group_records as share
import kraftpy.protocol.schema.streams_group_records as streams
import kraftpy.protocol.schema.transaction_records as transaction
from kraftpy.protocol.codec import DecodeError, decode, encode_bytes
from kraftpy.protocol.tables import RecordKey, RecordValue

if TYPE_CHECKING:
    from kraftpy.world import Buffer

__all__ = [
    "GROUP_RECORDS",
    "SHARE_STATE_RECORDS",
    "TRANSACTION_RECORDS",
    "RecordTypes",
    "UnknownRecordTypeError",
    "encode_key",
    "encode_value",
]

_PREFIX = Struct(">h")
_KEY_VERSION = 0


class UnknownRecordTypeError(Exception):
    """A record of a type that this release does not know."""

    def __init__(self, record_type: int) -> None:
        super().__init__(f"unknown record type {record_type}")
        self.record_type = record_type


def encode_key(key: RecordKey) -> bytes:
    return _PREFIX.pack(key.KEY) + encode_bytes(key, _KEY_VERSION)


def encode_value(value: RecordValue, version: int) -> bytes:
    return _PREFIX.pack(version) + encode_bytes(value, version)


class RecordTypes:
    """The types of the records in one topic."""

    __slots__ = ("_by_type",)

    def __init__(self, *pairs: tuple[type[RecordKey], type[RecordValue]]) -> None:
        self._by_type = {
            key_class.KEY: (key_class, value_class) for key_class, value_class in pairs
        }

    @property
    def classes(self) -> list[type[RecordKey | RecordValue]]:
        """Those of keys and values, by type."""
        return [each for pair in self._by_type.values() for each in pair]

    def decode_key(self, data: Buffer) -> RecordKey:
        record_type = _prefix(data, RecordKey, "type")
        if record_type not in self._by_type:
            raise UnknownRecordTypeError(record_type)
        key_class, _ = self._by_type[record_type]
        return decode(key_class, _KEY_VERSION, memoryview(data)[_PREFIX.size :], may_have_rest=True)

    def decode_value(self, key: RecordKey, data: Buffer) -> tuple[RecordValue, int]:
        """The value, and the version in which it was written."""
        _, value_class = self._by_type[key.KEY]
        version = _prefix(data, value_class, "version")
        rest = memoryview(data)[_PREFIX.size :]
        return decode(value_class, version, rest, may_have_rest=True), version


def _prefix(data: Buffer, message_class: type[RecordKey | RecordValue], what: str) -> int:
    if len(data) < _PREFIX.size:
        raise DecodeError(message_class, _KEY_VERSION, what, "the bytes end here")
    number: int = _PREFIX.unpack_from(data)[0]
    return number


GROUP_RECORDS = RecordTypes(
    (group.LegacyOffsetCommitKey, group.LegacyOffsetCommitValue),
    (group.OffsetCommitKey, group.OffsetCommitValue),
    (group.GroupMetadataKey, group.GroupMetadataValue),
    (group.ConsumerGroupMetadataKey, group.ConsumerGroupMetadataValue),
    (group.ConsumerGroupPartitionMetadataKey, group.ConsumerGroupPartitionMetadataValue),
    (group.ConsumerGroupMemberMetadataKey, group.ConsumerGroupMemberMetadataValue),
    (
        group.ConsumerGroupTargetAssignmentMetadataKey,
        group.ConsumerGroupTargetAssignmentMetadataValue,
    ),
    (group.ConsumerGroupTargetAssignmentMemberKey, group.ConsumerGroupTargetAssignmentMemberValue),
    (
        group.ConsumerGroupCurrentMemberAssignmentKey,
        group.ConsumerGroupCurrentMemberAssignmentValue,
    ),
    (share.ShareGroupMemberMetadataKey, share.ShareGroupMemberMetadataValue),
    (share.ShareGroupMetadataKey, share.ShareGroupMetadataValue),
    (share.ShareGroupTargetAssignmentMetadataKey, share.ShareGroupTargetAssignmentMetadataValue),
    (share.ShareGroupTargetAssignmentMemberKey, share.ShareGroupTargetAssignmentMemberValue),
    (share.ShareGroupCurrentMemberAssignmentKey, share.ShareGroupCurrentMemberAssignmentValue),
    (share.ShareGroupStatePartitionMetadataKey, share.ShareGroupStatePartitionMetadataValue),
    (group.ConsumerGroupRegularExpressionKey, group.ConsumerGroupRegularExpressionValue),
    (streams.StreamsGroupMetadataKey, streams.StreamsGroupMetadataValue),
    (streams.StreamsGroupMemberMetadataKey, streams.StreamsGroupMemberMetadataValue),
    (
        streams.StreamsGroupTargetAssignmentMetadataKey,
        streams.StreamsGroupTargetAssignmentMetadataValue,
    ),
    (
        streams.StreamsGroupTargetAssignmentMemberKey,
        streams.StreamsGroupTargetAssignmentMemberValue,
    ),
    (
        streams.StreamsGroupCurrentMemberAssignmentKey,
        streams.StreamsGroupCurrentMemberAssignmentValue,
    ),
    (streams.StreamsGroupTopologyKey, streams.StreamsGroupTopologyValue),
)
TRANSACTION_RECORDS = RecordTypes(
    (transaction.TransactionLogKey, transaction.TransactionLogValue),
)
SHARE_STATE_RECORDS = RecordTypes(
    (share.ShareSnapshotKey, share.ShareSnapshotValue),
    (share.ShareUpdateKey, share.ShareUpdateValue),
)
