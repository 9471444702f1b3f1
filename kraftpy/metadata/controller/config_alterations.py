"""What a request to change settings makes of those that a resource has, before they are judged.

Brokers ask this as well as the controller: a broker judges its own settings first, since it alone
knows what else it is configured with.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TypeAlias

from kraftpy.metadata.controller.config_checks import list_default
from kraftpy.metadata.controller.result import Refusal
from kraftpy.metadata.records import ConfigResourceType
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k33_alter_configs as k33
from kraftpy.protocol.schema import k44_incremental_alter_configs as k44

__all__ = ["Alteration", "Operation", "increments", "kind_of", "replacement"]

Alteration: TypeAlias = Mapping[str, str | None] | Refusal
"""The new value of each key, None to take it away, or why the request makes no sense."""


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def increments(present: Mapping[str, str], resource: k44.AlterConfigsResource) -> Alteration:
    """Set, delete, append to or subtract from single keys of what is set at present."""
    changes: dict[str, str | None] = {}
    for config in resource.configs:
        key, value = config.name, config.value
        if key in changes:
            return Refusal(ErrorCode.INVALID_REQUEST, f"{key} is named twice")
        if config.config_operation == Operation.DELETE:
            changes[key] = None
            continue
        if value is None:
            return Refusal(ErrorCode.INVALID_REQUEST, f"{key} can't be set to null")
        if config.config_operation == Operation.SET:
            changes[key] = value
        elif config.config_operation in (Operation.APPEND, Operation.SUBTRACT):
            items = _items(resource.resource_type, key, present.get(key))
            if items is None:
                message = f"{key} is no list, so that nothing can be added or taken away"
                return Refusal(ErrorCode.INVALID_CONFIG, message)
            if config.config_operation == Operation.APPEND:
                items += [each for each in value.split(",") if each not in items]
            else:
                items = [each for each in items if each not in value.split(",")]
            changes[key] = ",".join(items)
        else:
            message = f"there is no operation {config.config_operation}"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
    return changes


def replacement(present: Mapping[str, str], resource: k33.AlterConfigsResource) -> Alteration:
    """Replace what is set at present: what is not named goes."""
    changes: dict[str, str | None] = {}
    for config in resource.configs:
        if config.name in changes:
            return Refusal(ErrorCode.INVALID_REQUEST, f"{config.name} is named twice")
        if config.value is None:
            return Refusal(ErrorCode.INVALID_REQUEST, f"{config.name} can't be set to null")
        changes[config.name] = config.value
    for key in present:
        changes.setdefault(key, None)
    return changes


def kind_of(resource_type: int) -> ConfigResourceType | None:
    """The kind of resource that a request names by its number; None if there is none."""
    try:
        return ConfigResourceType(resource_type)
    except ValueError:
        return None


def _items(resource_type: int, key: str, value: str | None) -> list[str] | None:
    """The items of a list key, its default's if it isn't set; None for a key that is no list."""
    kind = kind_of(resource_type)
    default = None if kind is None else list_default(kind, key)
    if default is None or value is None:
        return default
    return [item for item in value.split(",") if item]
