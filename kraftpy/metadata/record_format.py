"""Metadata records as bytes: msgpack, in the values of ordinary v2 batches whose keys are null.

A record is the array [1, type id, version, fields]: the version of this framing, Kafka's id for
the type, the version of the type, and the values of its fields in the order of the class. Fields at
the end that have their defaults are left out. Versions only ever append fields, so the number of
fields that a record needs decides its version: the lowest that has them all is written. A node
that knows version v reads whatever makes no use of later fields, and the controller holds those
back until metadata.version says that everybody knows them.

Whatever a reader does not know it refuses: a type, a version, one field too many. A node that
passed over half a record would hold another image than its peers, without knowing it.

Reading trusts nothing: the size is bounded, every field's type and range is checked, and whatever
is wrong ends in MetadataRecordError. Writing makes the same checks, because a record that can't
be read must not be committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from enum import IntEnum
from math import isfinite
from operator import attrgetter
from typing import Final, TypeAlias

import msgpack

from kraftpy.metadata import records
from kraftpy.metadata.records import (
    Endpoint,
    FeatureRange,
    MetadataRecord,
    PendingReplica,
    QuotaEntity,
)
from kraftpy.world import Buffer

__all__ = [
    "MAX_RECORD_BYTES",
    "RECORD_TYPES",
    "MetadataRecordError",
    "RecordDecoder",
    "RecordType",
    "decode_record",
    "encode_record",
]

FRAME_VERSION: Final = 1

# Far above any honest record, far below a batch of the metadata log.
MAX_RECORD_BYTES: Final = 1 << 20

# Beyond this many different values a RecordDecoder begins anew, which costs sharing, nothing else.
MAX_SHARED_VALUES: Final = 1 << 16

# Kafka counts its types from 0; ours keep out of its way.
FIRST_TYPE_OF_OUR_OWN: Final = 1000


class MetadataRecordError(Exception):
    """Bytes that are no metadata record we know, or a record that can't be written."""


# A reader returns the field's value for what msgpack has given, or raises ValueError.
_Reader: TypeAlias = Callable[[object], object]


def _integer(bits: int, *, lowest: int | None = None) -> _Reader:
    low = -(1 << (bits - 1)) if lowest is None else lowest
    high = (1 << (bits - 1)) - 1 if low < 0 or lowest is None else (1 << bits) - 1

    def read(value: object) -> object:
        # Not isinstance: a bool passes for a number and is packed as something else.
        if (type(value) is int or isinstance(value, IntEnum)) and low <= value <= high:
            return value
        raise ValueError(f"no integer from {low} to {high}")

    return read


def _boolean(value: object) -> object:
    if value is True or value is False:
        return value
    raise ValueError("no boolean")


def _number(value: object) -> object:
    # Not-a-number differs from itself, and an image that holds one would differ from itself too.
    if type(value) is float and isfinite(value):
        return value
    raise ValueError("no finite number")


def _text(value: object) -> object:
    if type(value) is str:
        return value
    raise ValueError("no text")


def _binary(value: object) -> object:
    if type(value) is bytes:
        return value
    raise ValueError("no bytes")


def _uuid(value: object) -> object:
    if type(value) is bytes and len(value) == 16:
        return value
    raise ValueError("no uuid")


def _optional(read_value: _Reader) -> _Reader:
    def read(value: object) -> object:
        return None if value is None else read_value(value)

    return read


def _int32s(value: object) -> object:
    if type(value) is tuple:
        for item in value:
            if type(item) is not int or not -0x8000_0000 <= item <= 0x7FFF_FFFF:
                break
        else:
            return value
    raise ValueError("no list of 32-bit integers")


def _uuids(value: object) -> object:
    if type(value) is tuple:
        for item in value:
            if type(item) is not bytes or len(item) != 16:
                break
        else:
            return value
    raise ValueError("no list of uuids")


def _texts(value: object) -> object:
    if type(value) is tuple and all(type(item) is str for item in value):
        return value
    raise ValueError("no list of texts")


def _structs_of(make: Callable[..., tuple[object, ...]], *readers: _Reader) -> _Reader:
    """A list of named tuples, which msgpack writes as arrays."""

    def read(value: object) -> object:
        if type(value) is not tuple:
            raise ValueError("no list")
        return tuple([make(*_read_each(readers, item)) for item in value])

    return read


def _read_each(readers: tuple[_Reader, ...], item: object) -> list[object]:
    if not isinstance(item, tuple) or len(item) != len(readers):
        raise ValueError(f"no list of {len(readers)} values")
    return [read(value) for read, value in zip(readers, item, strict=True)]


_INT8 = _integer(8)
_INT16 = _integer(16)
_UINT16 = _integer(16, lowest=0)
_INT32 = _integer(32)
_INT64 = _integer(64)
_ENDPOINTS = _structs_of(Endpoint, _text, _text, _UINT16, _INT16)
_FEATURES = _structs_of(FeatureRange, _text, _INT16, _INT16)


@dataclass(frozen=True, slots=True)
class RecordType:
    """One type of record: its id, its class, and how many fields each of its versions has."""

    type_id: int
    record_class: Callable[..., MetadataRecord]
    fields_by_version: tuple[int, ...]
    field_names: tuple[str, ...]
    required_count: int
    defaults: tuple[object, ...]
    readers: tuple[_Reader, ...]
    values_of: Callable[[MetadataRecord], tuple[object, ...]]

    @property
    def name(self) -> str:
        return self.record_class.__name__

    @property
    def max_version(self) -> int:
        return len(self.fields_by_version) - 1


def _type(
    type_id: int,
    record_class: type[MetadataRecord],
    *readers: _Reader,
    fields_by_version: tuple[int, ...] = (),
) -> RecordType:
    names = tuple([field.name for field in fields(record_class)])
    defaults = tuple([field.default for field in fields(record_class)])
    return RecordType(
        type_id,
        record_class,
        fields_by_version or (len(readers),),
        names,
        defaults.count(MISSING),
        defaults,
        readers,
        _getter(names),
    )


def _getter(names: tuple[str, ...]) -> Callable[[MetadataRecord], tuple[object, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    # attrgetter of one name gives the bare value, and of none nothing at all.
    return lambda record: tuple([getattr(record, name) for name in names])


# Every type there is. Kafka's ids 6, 13, 16 and 21 are retired and never used again.
RECORD_TYPES: Final = (
    _type(
        0,
        records.RegisterBrokerRecord,
        *(_INT32, _uuid, _INT64, _ENDPOINTS, _FEATURES, _optional(_text), _boolean),
        *(_boolean, _uuids, _optional(_uuids)),
        fields_by_version=(7, 8, 8, 9, 10),
    ),
    _type(1, records.UnregisterBrokerRecord, _INT32, _INT64),
    _type(2, records.TopicRecord, _text, _uuid),
    _type(
        3,
        records.PartitionRecord,
        *(_INT32, _uuid, _int32s, _int32s, _int32s, _int32s, _INT32, _INT8, _INT32, _INT32),
        *(_uuids, _int32s, _int32s),
        fields_by_version=(10, 11, 13),
    ),
    _type(4, records.ConfigRecord, _INT8, _text, _text, _optional(_text)),
    _type(
        5,
        records.PartitionChangeRecord,
        *(_INT32, _uuid, _optional(_int32s), _INT32, *(_optional(_int32s),) * 3, _INT8),
        *(_optional(_uuids), *(_optional(_int32s),) * 2),
        fields_by_version=(8, 9, 11),
    ),
    _type(7, records.FenceBrokerRecord, _INT32, _INT64),
    _type(8, records.UnfenceBrokerRecord, _INT32, _INT64),
    _type(9, records.RemoveTopicRecord, _uuid),
    _type(
        10,
        records.DelegationTokenRecord,
        *(_text, _text, _texts, _INT64, _INT64, _INT64, _text),
    ),
    _type(11, records.UserScramCredentialRecord, _text, _INT8, _binary, _binary, _binary, _INT32),
    _type(12, records.FeatureLevelRecord, _text, _INT16),
    _type(
        14,
        records.ClientQuotaRecord,
        *(_structs_of(QuotaEntity, _text, _optional(_text)), _text, _number, _boolean),
    ),
    _type(15, records.ProducerIdsRecord, _INT32, _INT64, _INT64),
    _type(
        17,
        records.BrokerRegistrationChangeRecord,
        *(_INT32, _INT64, _INT8, _boolean, _uuids, _optional(_uuids)),
        fields_by_version=(3, 4, 5, 6),
    ),
    _type(
        18,
        records.AccessControlEntryRecord,
        *(_uuid, _INT8, _text, _INT8, _text, _text, _INT8, _INT8),
    ),
    _type(19, records.RemoveAccessControlEntryRecord, _uuid),
    _type(20, records.NoOpRecord),
    _type(22, records.RemoveUserScramCredentialRecord, _text, _INT8),
    _type(23, records.BeginTransactionRecord, _optional(_text)),
    _type(24, records.EndTransactionRecord),
    _type(25, records.AbortTransactionRecord, _optional(_text)),
    _type(26, records.RemoveDelegationTokenRecord, _text),
    _type(27, records.RegisterControllerRecord, _INT32, _uuid, _ENDPOINTS, _FEATURES),
    _type(28, records.ClearElrRecord, _text),
    _type(FIRST_TYPE_OF_OUR_OWN, records.ReplicaDeletedRecord, _uuid, _INT32, _INT32),
    _type(
        FIRST_TYPE_OF_OUR_OWN + 1,
        records.PendingDeletionRecord,
        *(_uuid, _text, _structs_of(PendingReplica, _INT32, _INT32)),
    ),
)

_BY_ID: Final = {record_type.type_id: record_type for record_type in RECORD_TYPES}
_BY_CLASS: Final = {record_type.record_class: record_type for record_type in RECORD_TYPES}


def encode_record(record: MetadataRecord) -> bytes:
    """The value of the log record for `record`."""
    record_type = _BY_CLASS.get(type(record))
    if record_type is None:
        raise MetadataRecordError(f"{type(record).__name__} is no metadata record")
    values = record_type.values_of(record)
    _read_fields(record_type, values)
    defaults = record_type.defaults
    count = len(values)
    while count and values[count - 1] == defaults[count - 1]:
        count -= 1
    version = 0
    while record_type.fields_by_version[version] < count:
        version += 1
    try:
        data: bytes = msgpack.packb((FRAME_VERSION, record_type.type_id, version, values[:count]))
    except ValueError as error:
        raise MetadataRecordError(f"{record_type.name} can't be written: {error}") from error
    if len(data) > MAX_RECORD_BYTES:
        raise MetadataRecordError(f"{record_type.name} of {len(data)} bytes")
    return data


def decode_record(data: Buffer) -> MetadataRecord:
    """The record in the value of a log record."""
    record_type, values = _decode(data)
    return record_type.record_class(*values)


class RecordDecoder:
    """Decodes records that are kept: equal uuids and lists of different records are one object.

    Partitions name few topics, replica lists and directories again and again; an image whose
    records share them takes less than a third of the memory (bench/metadata.py).
    """

    __slots__ = ("_shared",)

    def __init__(self) -> None:
        self._shared: dict[object, object] = {}

    def decode(self, data: Buffer) -> MetadataRecord:
        record_type, values = _decode(data)
        shared = self._shared
        if len(shared) > MAX_SHARED_VALUES:
            shared.clear()
        for index, value in enumerate(values):
            if type(value) is tuple or (type(value) is bytes and len(value) == 16):
                values[index] = shared.setdefault(value, value)
        return record_type.record_class(*values)


def _decode(data: Buffer) -> tuple[RecordType, list[object]]:
    if len(data) > MAX_RECORD_BYTES:
        raise MetadataRecordError(f"a metadata record of {len(data)} bytes")
    try:
        frame = msgpack.unpackb(data, use_list=False)
    except ValueError as error:
        raise MetadataRecordError(f"no msgpack: {error}") from error
    if type(frame) is not tuple or len(frame) != 4:
        raise MetadataRecordError("no array of four elements")
    frame_version, type_id, version, values = frame
    # Compared as exact integers: msgpack's true and 1.0 equal 1 but are not it.
    if type(frame_version) is not int or frame_version != FRAME_VERSION:
        raise MetadataRecordError(f"frame version {frame_version!r}")
    record_type = _BY_ID.get(type_id) if type(type_id) is int else None
    if record_type is None:
        raise MetadataRecordError(f"unknown type {type_id!r}")
    if type(version) is not int or not 0 <= version <= record_type.max_version:
        raise MetadataRecordError(f"{record_type.name} has no version {version!r}")
    most = record_type.fields_by_version[version]
    if type(values) is not tuple or not record_type.required_count <= len(values) <= most:
        raise MetadataRecordError(f"{record_type.name} version {version} with other fields")
    return record_type, _read_fields(record_type, values)


def _read_fields(record_type: RecordType, values: tuple[object, ...]) -> list[object]:
    """The fields' values, checked; fewer of them if defaults were left out."""
    result: list[object] = []
    try:
        for read, value in zip(record_type.readers, values, strict=False):
            result.append(read(value))
    except ValueError as error:
        name = record_type.field_names[len(result)]
        raise MetadataRecordError(f"{record_type.name}.{name}: {error}") from error
    return result
