"""meta.properties: to which cluster and node a data directory belongs.

A Java properties file in every data directory, written when the directory is formatted:
`version=1`, `cluster.id`, `node.id`, `directory.id`. A node refuses a directory that says something
else than its configuration, so that disks which were swapped are noticed before they are written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kraftpy.config.problems import ConfigurationError
from kraftpy.config.properties import Property, parse_properties
from kraftpy.log.errors import MalformedFileError
from kraftpy.protocol.ids import Uuid, format_uuid, parse_uuid

__all__ = ["META_PROPERTIES", "MetaProperties", "format_meta_properties", "parse_meta_properties"]

META_PROPERTIES: Final = "meta.properties"

_VERSION = "1"
_NODE_ID_MAX = 2**31 - 1
# Directory ids below this stand for "unassigned", "lost" and whatever Kafka may think of.
_RESERVED_DIRECTORY_IDS = 100
# What needs no escape in a properties file. Cluster ids are uuids unless somebody insisted.
_PLAIN = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """`directory_id` is None in a directory that an old Kafka formatted."""

    cluster_id: str
    node_id: int
    directory_id: Uuid | None


def format_meta_properties(meta: MetaProperties) -> str:
    """The content of the file."""
    if _PLAIN.fullmatch(meta.cluster_id) is None:
        raise ValueError(f"{meta.cluster_id!r} is no cluster id")
    lines = [f"version={_VERSION}", f"cluster.id={meta.cluster_id}", f"node.id={meta.node_id}"]
    if meta.directory_id is not None:
        lines.append(f"directory.id={format_uuid(meta.directory_id)}")
    return "\n".join([*lines, ""])


def parse_meta_properties(text: str, path: str) -> MetaProperties:
    """What the file says; `path` is for the error. Keys that are not known are passed over."""
    try:
        properties = {found.key: found for found in parse_properties(text)}
    except ConfigurationError as failure:
        raise MalformedFileError(path, 1, str(failure)) from failure
    version = _required(properties, "version", path)
    if version.value != _VERSION:
        reason = f"version {version.value!r} is not {_VERSION}"
        raise MalformedFileError(path, version.line, reason)
    cluster_id = _required(properties, "cluster.id", path)
    node_id = _required(properties, "node.id", path)
    if not cluster_id.value:
        raise MalformedFileError(path, cluster_id.line, "cluster.id is empty")
    if re.fullmatch(r"[0-9]{1,10}", node_id.value) is None or int(node_id.value) > _NODE_ID_MAX:
        raise MalformedFileError(path, node_id.line, f"{node_id.value!r} is no node id")
    directory = properties.get("directory.id")
    directory_id = None if directory is None else _directory_id(directory, path)
    return MetaProperties(cluster_id.value, int(node_id.value), directory_id)


def _required(properties: dict[str, Property], key: str, path: str) -> Property:
    found = properties.get(key)
    if found is None:
        raise MalformedFileError(path, 1, f"{key} is missing")
    return found


def _directory_id(directory: Property, path: str) -> Uuid:
    try:
        directory_id = parse_uuid(directory.value)
    except ValueError as failure:
        raise MalformedFileError(path, directory.line, str(failure)) from failure
    if int.from_bytes(directory_id) < _RESERVED_DIRECTORY_IDS:
        raise MalformedFileError(path, directory.line, f"{directory.value} is a reserved id")
    return directory_id
