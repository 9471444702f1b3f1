"""kio as an oracle: its schema classes beside our tables, its messages beside ours.

kio has one dataclass for each struct and version. Its fields come in the order of ours; their names
and values differ by a few rules:

- A time in milliseconds loses its `_ms` and becomes a timedelta or a datetime; an error code
  becomes an enum member; a uuid becomes a uuid.UUID, or None when it is zero; an array a tuple.
- `id` is `id_`, `type` is `type_`, and KRaft is two words (`k_raft_...`).

What kio can't express is drawn within kio's limits in the comparison with kio, and without limits
in our own round trip:

- error codes that Kafka has not assigned;
- negative points in time (but for -1, which is None where kio knows the field as nullable) and ones
  after the year 2100, since it goes through float seconds;
- durations of 64 bits beyond ten thousand years;
- our own tagged fields, which Kafka does not have.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import typing
import uuid
from functools import cache

from hypothesis import strategies as st
from kio.index import load_entity_schema, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from protocol_cases import INTEGERS, Limit, kafka_fields

from kraftpy.protocol.tables import Field, Message, Request, Response, Struct

_LOOSE_NAMES = {
    "RequestHeader": "request_header",
    "ResponseHeader": "response_header",
    "ConsumerProtocolSubscription": "consumer_protocol_subscription",
    "ConsumerProtocolAssignment": "consumer_protocol_assignment",
    "ControlRecordTypeSchema": "control_record_type_schema",
    "EndTxnMarker": "end_txn_marker",
    "LeaderChangeMessage": "leader_change_message",
    "SnapshotHeaderRecord": "snapshot_header_record",
    "SnapshotFooterRecord": "snapshot_footer_record",
    "KRaftVersionRecord": "k_raft_version_record",
    "VotersRecord": "voters_record",
    "DefaultPrincipalData": "default_principal_data",
}

# kio's name for a type, where it is more special than the type on the wire.
WIRE_TYPES = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)
_YEAR_2100_MS = 4_102_444_800_000
_TEN_THOUSAND_YEARS_MS = 315_576_000_000_000


def kio_class_of(message_class: type[Message], version: int) -> type:
    if issubclass(message_class, Request):
        return load_request_schema(message_class.KEY, version)
    if issubclass(message_class, Response):
        return load_response_schema(message_class.KEY, version)
    name = _LOOSE_NAMES[message_class.__name__]
    kind = EntityType.header if name.endswith("header") else EntityType.data
    return load_entity_schema(name, version, kind)


def kio_name(name: str, kafka_type: str | None) -> str:
    """kio's name for a field that we call `name`."""
    if kafka_type in ("timedelta_i32", "timedelta_i64", "datetime_i64"):
        name = name.removesuffix("_ms")
    if name in ("id", "type"):
        return f"{name}_"
    return name.replace("kraft_", "k_raft_")


def kafka_type_of(kio_field: dataclasses.Field[object]) -> str | None:
    return kio_field.metadata.get("kafka_type")


def is_optional(kio_field: dataclasses.Field[object]) -> bool:
    return type(None) in typing.get_args(kio_field.type)


def nested_class(annotation: object) -> type | None:
    """The dataclass inside an annotation such as `tuple[Topic, ...] | None`."""
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return annotation
    for argument in typing.get_args(annotation):
        found = nested_class(argument)
        if found is not None:
            return found
    return None


@cache
def paired_fields(
    struct_class: type[Struct], kio_class: type, version: int
) -> list[tuple[Field, dataclasses.Field[object]]]:
    ours = kafka_fields(struct_class, version)
    return list(zip(ours, dataclasses.fields(kio_class), strict=True))


def kio_limits(message_class: type[Message], version: int) -> Limit:
    """Strategies for the fields that kio can't take in full."""
    limits: dict[tuple[type[Struct], str], st.SearchStrategy[object]] = {}

    def collect(struct_class: type[Struct], kio_class: type) -> None:
        for field, kio_field in paired_fields(struct_class, kio_class, version):
            strategy = _limit(kafka_type_of(kio_field), optional=is_optional(kio_field))
            if strategy is not None:
                limits[struct_class, field.name] = strategy
            if field.struct is not None:
                nested = nested_class(kio_field.type)
                assert nested is not None
                collect(field.struct, nested)

    collect(message_class, kio_class_of(message_class, version))
    return lambda owner, field: limits.get((owner, field.name))


def _limit(kafka_type: str | None, *, optional: bool) -> st.SearchStrategy[object] | None:
    if kafka_type == "error_code":
        return st.sampled_from([code.value for code in KioErrorCode])
    if kafka_type == "datetime_i64":
        times = st.integers(0, _YEAR_2100_MS)
        return times | st.just(-1) if optional else times
    if kafka_type == "timedelta_i64":
        return st.integers(-_TEN_THOUSAND_YEARS_MS, _TEN_THOUSAND_YEARS_MS)
    return None


def to_kio(message: Struct, kio_class: type, version: int) -> object:
    arguments = {}
    for field, kio_field in paired_fields(type(message), kio_class, version):
        value = getattr(message, field.name)
        if value is not None:
            value = _value_to_kio(field, kio_field, value, version)
        arguments[kio_field.name] = value
    return kio_class(**arguments)


def _value_to_kio(
    field: Field, kio_field: dataclasses.Field[object], value: typing.Any, version: int
) -> object:
    if field.struct is not None:
        nested = nested_class(kio_field.type)
        assert nested is not None
        if field.is_array:
            return tuple(to_kio(each, nested, version) for each in value)
        return to_kio(value, nested, version)
    kafka_type = kafka_type_of(kio_field)
    optional = is_optional(kio_field)
    if field.is_array:
        return tuple(_scalar_to_kio(kafka_type, each, optional=optional) for each in value)
    return _scalar_to_kio(kafka_type, value, optional=optional)


def _scalar_to_kio(kafka_type: str | None, value: typing.Any, *, optional: bool) -> object:
    match kafka_type:
        case "uuid":
            return None if not any(value) else uuid.UUID(bytes=bytes(value))
        case "error_code":
            return KioErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return value * _MILLISECOND
        case "datetime_i64":
            return None if optional and value == -1 else _EPOCH + value * _MILLISECOND
        case "records" | "bytes":
            return bytes(value)
    return value


def kio_encode(kio_message: typing.Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(kio_message))(buffer, kio_message)
    return buffer.getvalue()


def kio_decode(kio_class: type, data: bytes) -> object:
    message, size = entity_reader(kio_class)(data, 0)
    assert size == len(data)
    return message


assert set(WIRE_TYPES.values()) <= set(INTEGERS)
