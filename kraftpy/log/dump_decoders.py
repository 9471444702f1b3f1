"""Keys and values of internal topics, for `kraftpy log dump`, as Kafka's dump tool shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from kraftpy.log.dump_structs import Facts, struct_facts
from kraftpy.protocol.codec import DecodeError, decode
from kraftpy.protocol.coordinator_records import RecordTypes, UnknownRecordTypeError
from kraftpy.protocol.schema.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kraftpy.protocol.schema.group_records import GroupMetadataValue, MemberMetadata
from kraftpy.protocol.tables import Message
from kraftpy.records.reader import Record

__all__ = ["RecordDecoder", "UndecodableError", "as_bytes", "coordinator_decoder"]

# The facts `key` and `payload` of a record. Raises UndecodableError.
RecordDecoder: TypeAlias = Callable[[Record], Facts]

_CONSUMERS: Final = "consumer"
_VERSION_BYTES: Final = 2


class UndecodableError(Exception):
    """A record that is not what its topic should hold."""


def as_bytes(record: Record) -> Facts:
    """Key and value as they are."""
    facts: Facts = {} if record.key is None else {"key": record.key}
    return facts if record.value is None else facts | {"payload": record.value}


def coordinator_decoder(types: RecordTypes) -> RecordDecoder:
    """For the topic of a coordinator that writes records of these types."""

    def decode_record(record: Record) -> Facts:
        if record.key is None:
            raise UndecodableError("it has no key")
        try:
            key = types.decode_key(record.key)
            facts: Facts = {"key": {"type": str(key.KEY), "data": struct_facts(key, 0)}}
            if record.value is None:
                return facts | {"payload": "<DELETE>"}
            value, version = types.decode_value(key, record.value)
        except UnknownRecordTypeError as error:
            return {"key": str(error)}
        except DecodeError as error:
            raise UndecodableError(str(error)) from error
        data = struct_facts(value, version)
        if isinstance(value, GroupMetadataValue) and value.protocol_type == _CONSUMERS:
            for member, shown in zip(value.members, data["members"], strict=True):
                _show_consumer(member, shown)
        return facts | {"payload": {"version": str(version), "data": data}}

    return decode_record


def _show_consumer(member: MemberMetadata, shown: Facts) -> None:
    """What consumers tell each other through a classic group is shown too, where it can be read."""
    messages: dict[str, type[Message]] = {
        "subscription": ConsumerProtocolSubscription,
        "assignment": ConsumerProtocolAssignment,
    }
    for name, message in messages.items():
        told: bytes = getattr(member, name)
        version = int.from_bytes(told[:_VERSION_BYTES], "big", signed=True)
        try:
            read = decode(message, version, told[_VERSION_BYTES:], may_have_rest=True)
            shown[name] = struct_facts(read, version)
        except DecodeError:
            continue
