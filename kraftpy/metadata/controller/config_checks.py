"""Which settings a resource may have, by its kind.

A topic's and a group's settings are judged as a whole, together with what the brokers give by
default. A broker's are judged key by key: the node that they are for has more to say, and has said
it before a request comes here. What stands in the log under a key that this release doesn't know
is left alone, so that it can't keep people from changing other keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kraftpy.config.definition import ConfigType, Definition, parse
from kraftpy.config.definitions import CLIENT_METRICS, GROUP, TOPIC, find_node_key
from kraftpy.config.dynamic import check_dynamic_settings
from kraftpy.config.node_config import NodeConfig
from kraftpy.config.problems import BadValueError, ConfigurationError
from kraftpy.config.topic_config import check_group_settings, check_topic_settings
from kraftpy.metadata.controller.result import Refusal
from kraftpy.metadata.controller.topic_names import wrong_name
from kraftpy.metadata.controller.view import MetadataView
from kraftpy.metadata.image import ConfigResource
from kraftpy.metadata.records import ConfigResourceType
from kraftpy.protocol.errors import ErrorCode

__all__ = ["definition_of", "list_default", "missing_resource", "wrong_settings"]

# A value can be sent back only if it is no longer than a text on the wire.
MAX_VALUE_BYTES: Final = 32_767

_CLIENT_METRICS_INTERVAL_MS: Final = range(100, 3_600_001)
_CLIENT_PATTERNS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def definition_of(resource_type: ConfigResourceType, key: str) -> Definition | None:
    """What is known of a key of such a resource; None for a key that nobody knows."""
    match resource_type:
        case ConfigResourceType.TOPIC:
            return TOPIC.get(key)
        case ConfigResourceType.GROUP:
            return GROUP.get(key)
        case ConfigResourceType.CLIENT_METRICS:
            return CLIENT_METRICS.get(key)
        case _:
            found = find_node_key(key)
            return None if found is None else found.definition


def list_default(resource_type: ConfigResourceType, key: str) -> list[str] | None:
    """The items that a list has before anybody sets it; None for a key that is no list."""
    definition = definition_of(resource_type, key)
    if definition is None or definition.type is not ConfigType.LIST:
        return None
    default = definition.default
    return list(default) if isinstance(default, tuple) else []


def wrong_settings(
    resource: ConfigResource,
    before: Mapping[str, str],
    changes: Mapping[str, str | None],
    node: NodeConfig,
) -> Refusal | None:
    """Why a resource with the settings `before` can't be changed like this; None if it can."""
    for key, value in changes.items():
        if value is not None and len(value.encode()) > MAX_VALUE_BYTES:
            message = f"the value of {key} is longer than {MAX_VALUE_BYTES} bytes"
            return Refusal(ErrorCode.INVALID_CONFIG, message)
    refusal = _wrong_resource_name(resource)
    if refusal is not None:
        return refusal
    given = {key: value for key, value in changes.items() if value is not None}
    kept = {
        key: value
        for key, value in before.items()
        if key not in changes and definition_of(resource.resource_type, key) is not None
    }
    try:
        match resource.resource_type:
            case ConfigResourceType.TOPIC:
                check_topic_settings(kept | given, node)
            case ConfigResourceType.GROUP:
                check_group_settings(kept | given, node)
            case ConfigResourceType.CLIENT_METRICS:
                return _wrong_client_metrics(given)
            case _:
                check_dynamic_settings(given, per_broker=bool(resource.name))
    except ConfigurationError as error:
        return Refusal(ErrorCode.INVALID_CONFIG, "; ".join(str(each) for each in error.problems))
    return None


def _wrong_resource_name(resource: ConfigResource) -> Refusal | None:
    name = resource.name
    match resource.resource_type:
        case ConfigResourceType.TOPIC if name:
            reason = wrong_name(name)
            return None if reason is None else Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        case ConfigResourceType.BROKER if name and _node_id(name) is None:
            return Refusal(ErrorCode.INVALID_REQUEST, f"{name!r} is not the id of a node")
        case ConfigResourceType.BROKER:
            return None
        case ConfigResourceType.BROKER_LOGGER:
            message = "loggers are no part of the cluster's metadata"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
    if name:
        return None
    kind = resource.resource_type.name.lower()
    return Refusal(ErrorCode.INVALID_REQUEST, f"there are no defaults for all of the kind {kind}")


def _node_id(name: str) -> int | None:
    is_number = re.fullmatch("[0-9]{1,10}", name) is not None
    return int(name) if is_number and int(name) < 1 << 31 else None


def _wrong_client_metrics(given: Mapping[str, str]) -> Refusal | None:
    for key, text in given.items():
        definition = CLIENT_METRICS.get(key)
        if definition is None:
            return Refusal(ErrorCode.INVALID_REQUEST, f"{key} is no key of client metrics")
        try:
            value = parse(definition, text)
        except BadValueError as error:
            return Refusal(ErrorCode.INVALID_CONFIG, f"{key}={text}: {error}")
        if key == "interval.ms" and value not in _CLIENT_METRICS_INTERVAL_MS:
            low, high = _CLIENT_METRICS_INTERVAL_MS[0], _CLIENT_METRICS_INTERVAL_MS[-1]
            return Refusal(ErrorCode.INVALID_REQUEST, f"{key} must be from {low} to {high}")
        if key == "match" and isinstance(value, tuple):
            for pattern in value:
                if not _is_client_pattern(pattern):
                    return Refusal(ErrorCode.INVALID_CONFIG, f"can't read the pattern {pattern!r}")
    return None


def _is_client_pattern(text: str) -> bool:
    name, equals, expression = text.partition("=")
    if not equals or name.strip() not in _CLIENT_PATTERNS:
        return False
    try:
        re.compile(expression.strip())
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def missing_resource(resource: ConfigResource, context: MetadataView) -> Refusal | None:
    """Why settings can't be stored for a resource: it isn't there. None if it is."""
    image, name = context.image, resource.name
    if resource.resource_type is ConfigResourceType.TOPIC and name not in image.topics:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    if resource.resource_type is ConfigResourceType.BROKER and name:
        node_id = int(name)
        if (
            node_id not in image.brokers
            and node_id not in image.controllers
            and node_id != context.settings.node_id
        ):
            message = f"there is no node with the id {node_id}"
            return Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, message)
    return None
