"""Our tables field by field: against kio's schema classes always, against Kafka's own schema files
where they are present. kio lacks the records of coordinators; Kafka's own classes read those.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from protocol_cases import (
    LOOSE_MESSAGES,
    RECORD_MESSAGES,
    all_messages,
    kafka_fields,
    versions_of,
)
from protocol_kio import (
    WIRE_TYPES,
    is_optional,
    kafka_type_of,
    kio_class_of,
    kio_name,
    nested_class,
    paired_fields,
)

from kraftpy.protocol.registry import API
from kraftpy.protocol.tables import (
    Field,
    Message,
    RecordKey,
    RecordValue,
    Request,
    Response,
    Struct,
    covers,
    version_bounds,
)

SCHEMAS = Path("/work/shared/protocol")
COORDINATORS = ("group-coordinator", "transaction-coordinator", "share-coordinator")
FOLDERS = [SCHEMAS / "messages", *(SCHEMAS / "records" / name for name in COORDINATORS)]
KIO_CLASSES = list(all_messages())
CLASSES = [*KIO_CLASSES, *RECORD_MESSAGES]


# kio


@pytest.mark.parametrize("message_class", KIO_CLASSES, ids=lambda each: each.__name__)
def test_fields_are_those_of_kio(message_class: type[Message]) -> None:
    for version in versions_of(message_class):
        kio_class: Any = kio_class_of(message_class, version)
        assert kio_class.__flexible__ == covers(message_class.FLEXIBLE, version)
        assert kio_class.__name__ == message_class.__name__
        _compare_with_kio(message_class, kio_class, version)


def _compare_with_kio(struct_class: type[Struct], kio_class: type, version: int) -> None:
    where = f"{struct_class.__name__} v{version}"
    for field, kio_field in paired_fields(struct_class, kio_class, version):
        place = f"{where} {field.name}"
        kafka_type = kafka_type_of(kio_field)
        assert kio_name(field.name, kafka_type) == kio_field.name, place
        assert kio_field.metadata.get("tag") == field.tag, place
        assert str(kio_field.type).startswith("tuple[") == field.is_array, place
        if field.struct is not None:
            nested = nested_class(kio_field.type)
            assert nested is not None, place
            _compare_with_kio(field.struct, nested, version)
        else:
            assert field.kind is not None
            assert WIRE_TYPES.get(kafka_type or "", kafka_type) == field.kind.name, place
        # kio shows a zero uuid, and -1 for a point in time, as None.
        if kafka_type not in ("uuid", "datetime_i64"):
            assert is_optional(kio_field) == covers(field.nullable, version), place


def test_kio_knows_no_version_that_we_lack() -> None:
    from kio.schema.index import api_key_map, schema_name_map
    from kio.static.constants import EntityType

    assert sorted(api_key_map) == sorted(API)
    for key, name in api_key_map.items():
        for direction, message_class in (
            (EntityType.request, API[key].request_class),
            (EntityType.response, API[key].response_class),
        ):
            known = [
                version for version, types in schema_name_map[name].items() if direction in types
            ]
            assert sorted(known) == list(versions_of(message_class)), name


# Kafka's own files

needs_schemas = pytest.mark.skipif(
    not SCHEMAS.is_dir(),
    reason="not part of a clone: Kafka's schema files; the comparison with kio has run",
)


def _schema(name: str) -> dict[str, Any]:
    [path] = [path for folder in FOLDERS for path in folder.glob(f"{name}.json")]
    text = path.read_text()
    schema: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return schema


def _python_name(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name.replace("KRaft", "Kraft")).lower()


@needs_schemas
@pytest.mark.parametrize("message_class", CLASSES, ids=lambda each: each.__name__)
def test_fields_are_those_of_kafka(message_class: type[Message]) -> None:
    schema = _schema(message_class.__name__)
    assert schema["validVersions"] == message_class.VERSIONS
    assert schema["flexibleVersions"] == message_class.FLEXIBLE
    if issubclass(message_class, Request | Response | RecordKey | RecordValue):
        assert schema["apiKey"] == message_class.KEY
    common = {each["name"]: each["fields"] for each in schema.get("commonStructs", [])}
    for version in versions_of(message_class):
        _compare_with_kafka(message_class, schema["fields"], common, version)


def _compare_with_kafka(
    struct_class: type[Struct],
    fields: list[dict[str, Any]],
    common: dict[str, Any],
    version: int,
) -> None:
    theirs = [each for each in fields if covers(_versions(each), version)]
    ours = kafka_fields(struct_class, version)
    where = f"{struct_class.__name__} v{version}"
    assert [field.name for field in ours] == [_python_name(each["name"]) for each in theirs], where
    for field, each in zip(ours, theirs, strict=True):
        place = f"{where} {field.name}"
        assert covers(field.nullable, version) == covers(each.get("nullableVersions", ""), version)
        assert field.tag == each.get("tag"), place
        assert field.tag is None or covers(each["taggedVersions"], version), place
        assert field.key == each.get("mapKey", False), place
        assert field.compact == ("flexibleVersions" not in each), place
        assert field.is_array == each["type"].startswith("[]"), place
        element = each["type"].removeprefix("[]")
        if field.struct is None:
            assert field.kind is not None
            assert field.kind.name == element, place
        else:
            assert field.struct.__name__.endswith(element), place
            _compare_with_kafka(
                field.struct, each.get("fields") or common[element], common, version
            )
        assert field.default == _default(each, is_nullable=bool(field.nullable)), place
    _compare_absent(struct_class, fields, version)


def _versions(each: dict[str, Any]) -> str:
    """A field that is always tagged need not say twice where it exists."""
    versions: str = each.get("versions") or each["taggedVersions"]
    return versions


def _compare_absent(struct_class: type[Struct], fields: list[dict[str, Any]], version: int) -> None:
    """What may be dropped when a version without the field is written."""
    theirs = {_python_name(each["name"]): each for each in fields}
    for field in struct_class.FIELDS:
        if not covers(field.versions, version):
            place = f"{struct_class.__name__} v{version} {field.name}"
            assert field.ignorable == theirs[field.name].get("ignorable", False), place


def _default(each: dict[str, Any], *, is_nullable: bool) -> object:
    """As Kafka's generator reads it. Record data is null by default where null is allowed."""
    given = each.get("default")
    element = each["type"]
    if given == "null" or (element == "records" and is_nullable):
        return None
    if element.startswith("[]") or element[0].isupper():
        return ...
    match element:
        case "bool":
            return str(given).lower() == "true"
        case "string":
            return given or ""
        case "bytes" | "records":
            return b""
        case "uuid":
            return bytes(16)
        case "float64":
            return float(given or 0)
    return int(str(given or 0), 0)


@needs_schemas
def test_every_live_schema_has_a_table() -> None:
    ours = {message_class.__name__ for message_class in CLASSES}
    theirs = {
        path.stem
        for folder in FOLDERS
        for path in folder.glob("*.json")
        if _schema(path.stem)["validVersions"] != "none"
    }
    assert theirs == ours


@needs_schemas
def test_registry_rows_are_those_of_kafka() -> None:
    for api in API.values():
        schema = _schema(f"{api.name}Request")
        first, last = version_bounds(schema["validVersions"])
        unstable = schema.get("latestVersionUnstable", False)
        assert (api.min_version, api.max_version) == (first, last - unstable), api
        assert api.latest_unstable == unstable, api
        assert sorted(api.listeners) == sorted(schema["listeners"]), api


# The tables themselves


def test_registry_rows_agree_with_the_classes() -> None:
    assert len(API) == 89
    for api in API.values():
        for message_class in (api.request_class, api.response_class):
            last = api.max_version + api.latest_unstable
            assert api.key == message_class.KEY
            assert version_bounds(message_class.VERSIONS) == (api.min_version, last), api
            assert message_class.VERSIONS != "none"
            for version in versions_of(message_class):
                assert covers(message_class.FLEXIBLE, version) == api.is_flexible(version), api


def _structs(struct_class: type[Struct]) -> list[type[Struct]]:
    inner = [
        each for field in struct_class.FIELDS if field.struct for each in _structs(field.struct)
    ]
    return [struct_class, *inner]


def _fields() -> list[tuple[str, Field]]:
    return [
        (f"{struct_class.__name__}.{field.name}", field)
        for message_class in CLASSES
        for struct_class in _structs(message_class)
        for field in struct_class.FIELDS
    ]


def test_tables_keep_the_rules_that_the_generators_rely_on() -> None:
    for place, field in _fields():
        assert (field.kind is None) != (field.struct is None), place
        if field.default is None:
            assert field.nullable, place
        if field.tag is not None:
            assert field.kind is None or field.kind.name != "records", place
        if field.is_array and field.kind is not None:
            assert field.kind.name != "records", place


def test_versions_are_read_as_kafka_writes_them() -> None:
    assert version_bounds("3-13") == (3, 13)
    assert version_bounds("4") == (4, 4)
    assert version_bounds("9+") == (9, 32767)
    assert not covers("none", 0)
    assert not covers("", 0)
    assert [version for version in range(8) if covers("2-5", version)] == [2, 3, 4, 5]


def test_loose_messages_are_all_there() -> None:
    """Headers, the consumer protocol, control records, the forwarded principal."""
    assert len({each.__name__ for each in LOOSE_MESSAGES}) == 12


def test_what_went_with_zookeeper_is_not_offered() -> None:
    """CTL-85: Kafka 4 has no ControlledShutdown (7); a heartbeat's wish to stop is in its place."""
    assert [key for key in range(max(API)) if key not in API][:4] == [4, 5, 6, 7]
