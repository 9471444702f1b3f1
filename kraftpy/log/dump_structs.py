"""A message of the protocol as plain facts: what Kafka's own tools show of it as JSON."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, TypeAlias

from kraftpy.protocol.ids import Uuid, format_uuid
from kraftpy.protocol.tables import Field, Struct, covers

__all__ = ["Facts", "struct_facts"]

# Numbers, text, booleans, None, bytes (keys and values), and lists and dictionaries of them.
Facts: TypeAlias = dict[str, Any]


def struct_facts(struct: Struct, version: int) -> Facts:
    """The fields of a version; tagged ones only when they were written. Bytes are base64."""
    facts: Facts = {}
    for field in struct.FIELDS:
        if not covers(field.versions, version):
            continue
        value = getattr(struct, field.name)
        if field.tag is not None and value == _default(field):
            continue
        is_uuid = field.kind is not None and field.kind.name == "uuid"
        facts[_camel_case(field.name)] = (
            [_shown(each, version, is_uuid=is_uuid) for each in value]
            if isinstance(value, list)
            else _shown(value, version, is_uuid=is_uuid)
        )
    return facts


def _default(field: Field) -> object:
    if field.default is not ...:
        return field.default
    if field.is_array or field.struct is None:
        return []
    return field.struct()


def _shown(value: object, version: int, *, is_uuid: bool) -> object:
    if isinstance(value, Struct):
        return struct_facts(value, version)
    if is_uuid and isinstance(value, bytes):
        return format_uuid(Uuid(value))
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return value


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
