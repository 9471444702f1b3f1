"""The shape of records: a JSON schema or a struct in Spark's DDL, made into Spark's types.

What is enforced on each record is its types, and that required fields are there: `required` of a
JSON schema, NOT NULL of a DDL. Other keywords of JSON schemas that judge values (`minimum`,
`pattern`, `enum`, ...) are refused rather than ignored, so that nobody relies on them; those that
only describe (`title`, `description`, ...) are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kraftpy_spark.jobs.failure import JobFailed

__all__ = ["SchemaMistake", "load_schema", "parse_schema", "struct_of_json_schema"]

_DESCRIPTIVE = frozenset(
    {
        *("$schema", "$id", "$comment", "title", "description", "default", "examples"),
        *("deprecated", "readOnly", "writeOnly"),
    }
)
_HOW = "Write it as 'id BIGINT NOT NULL, url STRING, at TIMESTAMP', or give a JSON schema."
_PLAIN: Mapping[str, DataType] = {
    "string": StringType(),
    "integer": LongType(),
    "number": DoubleType(),
    "boolean": BooleanType(),
}
_FORMATS: Mapping[str, DataType] = {"date-time": TimestampType(), "date": DateType()}


class SchemaMistake(JobFailed):
    """The schema can't be used; the message says where and what to do."""


def load_schema(text: str) -> StructType:
    """From `@FILE`, or from the text itself."""
    if not text.startswith("@"):
        return parse_schema(text)
    path = Path(text[1:])
    try:
        return parse_schema(path.read_text())
    except OSError as error:
        raise SchemaMistake(f"the schema's file can't be read: {error}") from error


def parse_schema(text: str) -> StructType:
    """A JSON schema if it begins with a brace, otherwise a DDL as `id BIGINT NOT NULL, url STRING`.

    A DDL needs a session that runs. Raises SchemaMistake.
    """
    if text.lstrip().startswith("{"):
        try:
            value = json.loads(text)
        except ValueError as error:
            raise SchemaMistake(f"the schema is not JSON: {error}") from error
        return struct_of_json_schema(value)
    from pyspark.errors import ParseException

    try:
        made = DataType.fromDDL(text)
    except ParseException as error:
        first = str(error).strip().splitlines()[0]
        raise SchemaMistake(f"the schema is no struct of Spark's: {first}\n{_HOW}") from error
    if not isinstance(made, StructType):
        raise SchemaMistake(f"the schema is a {made.simpleString()}, not a struct.\n{_HOW}")
    return made


def struct_of_json_schema(value: object) -> StructType:
    """Of a schema for an object. Raises SchemaMistake with the place."""
    if not isinstance(value, dict) or value.get("type") != "object":
        raise SchemaMistake('the schema of a record has to say "type": "object"')
    made = _type_of(value, "$")
    if not isinstance(made, StructType):
        raise SchemaMistake('the schema of a record needs "properties": they become columns')
    return made


def _type_of(schema: Mapping[str, Any], place: str) -> DataType:
    kind = _kind_of(schema, place)
    known = {"type", *_DESCRIPTIVE}
    if kind == "object":
        known |= {"properties", "required", "additionalProperties"}
        made: DataType = _object_type(schema, place)
    elif kind == "array":
        known.add("items")
        items = schema.get("items")
        if not isinstance(items, dict):
            raise SchemaMistake(f'{place}: an array needs "items" with one schema')
        made = ArrayType(_type_of(items, f"{place}[]"))
    elif kind in _PLAIN:
        known |= {"format"} if kind == "string" else set()
        made = _FORMATS.get(str(schema.get("format")), _PLAIN[kind])
    else:
        raise SchemaMistake(f"{place}: {kind!r} is no type that a column can have")
    unknown = sorted(key for key in schema if key not in known)
    if unknown:
        raise SchemaMistake(
            f"{place}: {', '.join(unknown)} can't be enforced here. Take it out of the schema"
            " and check it with --transform, or later in the lake."
        )
    return made


def _kind_of(schema: Mapping[str, Any], place: str) -> str:
    """The type beside null."""
    given = schema.get("type")
    kinds = [each for each in (given if isinstance(given, list) else [given]) if each != "null"]
    if len(kinds) != 1 or not isinstance(kinds[0], str):
        raise SchemaMistake(f'{place}: "type" has to be one type, alone or with "null"')
    return kinds[0]


def _object_type(schema: Mapping[str, Any], place: str) -> DataType:
    properties = schema.get("properties")
    others = schema.get("additionalProperties")
    if properties is None:
        if not isinstance(others, dict):
            raise SchemaMistake(f'{place}: an object needs "properties"')
        return MapType(StringType(), _type_of(others, f"{place}.*"))
    required = schema.get("required", [])
    unknown = [each for each in required if each not in properties]
    if unknown:
        raise SchemaMistake(f'{place}: {unknown[0]!r} is required and not among "properties"')
    return StructType(
        [
            StructField(name, _type_of(each, f"{place}.{name}"), name not in required)
            for name, each in properties.items()
        ]
    )
