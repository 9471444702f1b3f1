"""Where settings come from: a file, the environment, the command line.

Each source becomes a layer, a mapping of key to Setting. Layers are stacked in the order of their
strength, defaults < file < environment < command line, and a Setting never forgets where it was
made, so that an error message can point there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from kraftpy.config.problems import ConfigurationError, Problem
from kraftpy.config.properties import parse_properties

__all__ = [
    "Layer",
    "Setting",
    "Source",
    "cluster_id",
    "from_assignments",
    "from_environment",
    "from_mapping",
    "from_properties",
    "stack",
]


class Source(IntEnum):
    """Kinds of sources under the numbers that DescribeConfigs reports."""

    TOPIC = 1
    BROKER = 2
    CLUSTER = 3
    STATIC = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


class Setting(NamedTuple):
    text: str
    origin: str
    """Where it was made, for people: `server.properties line 7`."""
    source: Source = Source.STATIC


Layer: TypeAlias = Mapping[str, Setting]


def stack(*layers: Layer) -> dict[str, Setting]:
    """One layer of several; a later one is the stronger."""
    return {key: setting for layer in layers for key, setting in layer.items()}


def from_properties(text: str, name: str = "server.properties") -> Layer:
    """What a Java properties file says."""
    return {
        item.key: Setting(item.value, f"{name} line {item.line}")
        for item in parse_properties(text, name)
    }


def from_assignments(assignments: Iterable[str], origin: str = "--set") -> Layer:
    """What `key=value` arguments say."""
    layer = {}
    problems = []
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            problems.append(Problem(f"{origin} {assignment}", None, "must have the form key=value"))
        else:
            layer[key.strip()] = Setting(value, origin)
    if problems:
        raise ConfigurationError(problems)
    return layer


def from_mapping(values: Mapping[str, str], origin: str, source: Source = Source.STATIC) -> Layer:
    return {key: Setting(value, origin, source) for key, value in values.items()}


_PREFIX: Final = "KAFKA_"
# Variables of Kafka's container image that are no settings of the broker.
_NOT_SETTINGS: Final = (
    "KAFKA_VERSION",
    "KAFKA_HEAP_OPTS",
    "KAFKA_LOG4J_OPTS",
    "KAFKA_OPTS",
    "KAFKA_JMX_OPTS",
    "KAFKA_JMX_HOSTNAME",
    "KAFKA_JMX_PORT",
    "KAFKA_JVM_PERFORMANCE_OPTS",
    "KAFKA_GC_LOG_OPTS",
    "KAFKA_LOG4J_ROOT_LOGLEVEL",
    "KAFKA_LOG4J_LOGGERS",
    "KAFKA_TOOLS_LOG4J_LOGLEVEL",
    "KAFKA_HOME",
)


def from_environment(environment: Mapping[str, str]) -> Layer:
    """What the environment says, in the way of Kafka's container image.

    `KAFKA_NODE_ID` is node.id; two underscores stand for one, three for a hyphen.
    """
    layer = {
        _key_of(variable): Setting(value, f"environment {variable}")
        for variable, value in environment.items()
        if variable.startswith(_PREFIX) and variable not in _NOT_SETTINGS
    }
    advertised = layer.get("advertised.listeners")
    if advertised is not None and not advertised.text.strip():
        del layer["advertised.listeners"]
    elif advertised is not None and "listeners" not in layer:
        # The image listens everywhere at the ports that it is told to advertise.
        everywhere = re.sub(r"://(?:\[[^\]]*\]|[^:,]*):", "://0.0.0.0:", advertised.text)
        layer["listeners"] = Setting(everywhere, advertised.origin)
    return layer


def _key_of(variable: str) -> str:
    dotted = variable.removeprefix(_PREFIX).lower().replace("_", ".")
    return dotted.replace("...", "-").replace("..", "_")


def cluster_id(environment: Mapping[str, str]) -> str | None:
    """The id to format storage with, which the image takes from a variable without prefix."""
    return environment.get("CLUSTER_ID") or None
