"""What DescribeConfigs reports: for each key its value, where that comes from, and its synonyms.

Synonyms are all settings that could give a key its value, the strongest first: the broker's own,
the cluster's, the file's, the default. As in Kafka, those before the key's own name are left out,
which is why a retention given in hours shows as a default without synonyms.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import dropwhile
from typing import NamedTuple

from kraftpy.config.definition import REQUIRED, ConfigType, Definition, UpdateMode, render
from kraftpy.config.definitions import (
    CLIENT_METRICS,
    GROUP,
    NODE,
    TOPIC,
    find_node_key,
    node_synonyms,
)
from kraftpy.config.dynamic import DynamicConfig
from kraftpy.config.layers import Source
from kraftpy.config.topic_config import TopicConfig

__all__ = [
    "Description",
    "Synonym",
    "describe_client_metrics",
    "describe_cluster_defaults",
    "describe_group",
    "describe_node",
    "describe_topic",
]


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class Description(NamedTuple):
    name: str
    value: str | None
    """None for no value, and for a secret."""
    source: Source
    read_only: bool
    sensitive: bool
    type: ConfigType | None
    doc: str
    synonyms: tuple[Synonym, ...]


def describe_node(dynamic: DynamicConfig) -> list[Description]:
    """Every key of a node and whatever else was set there."""
    names = [name for name, definition in NODE.items() if not definition.internal]
    settings = dynamic.current.settings
    names += [name for name in settings if name not in NODE or NODE[name].internal]
    return [_describe_node_key(dynamic, name) for name in dict.fromkeys(names)]


def _describe_node_key(dynamic: DynamicConfig, name: str) -> Description:
    found = find_node_key(name)
    # What nobody knows may be a secret.
    sensitive = found is None or found.definition.sensitive
    synonyms = _synonyms(dynamic, name, sensitive=sensitive)
    value = render(dynamic.current[name]) if name in dynamic.current else None
    return Description(
        name=name,
        value=None if sensitive else value,
        source=synonyms[0].source if synonyms else Source.DEFAULT,
        read_only=found is None or found.definition.mode is UpdateMode.READ_ONLY,
        sensitive=sensitive,
        type=found.definition.type if found is not None else None,
        doc=found.definition.doc if found is not None else "",
        synonyms=synonyms,
    )


def describe_cluster_defaults(dynamic: DynamicConfig) -> list[Description]:
    """The dynamic settings for all brokers: what the broker resource without a name has."""
    described = (_describe_node_key(dynamic, name) for name in dynamic.cluster_settings)
    result = []
    for item in described:
        synonyms = tuple(each for each in item.synonyms if each.source is Source.CLUSTER)
        shown = None if item.sensitive else dynamic.cluster_settings[item.name]
        result.append(item._replace(value=shown, source=Source.CLUSTER, synonyms=synonyms))
    return result


def describe_topic(topic: TopicConfig, dynamic: DynamicConfig) -> list[Description]:
    """Every key of a topic."""
    return [
        _describe_resource_key(
            definition, render(topic[name]), Source.TOPIC, dynamic, is_own=name in topic.settings
        )
        for name, definition in TOPIC.items()
        if not definition.internal or name in topic.settings
    ]


def describe_group(settings: Mapping[str, str], dynamic: DynamicConfig) -> list[Description]:
    """Every key of a group; what it doesn't set comes from the node's keys for all groups."""
    descriptions = []
    for name, definition in GROUP.items():
        value = settings.get(name)
        if value is None:
            inherited = definition.synonyms[0] if definition.synonyms else None
            value = (
                _default(definition) if inherited is None else render(dynamic.current[inherited])
            )
        described = _describe_resource_key(
            definition, value, Source.GROUP, dynamic, is_own=name in settings
        )
        descriptions.append(described)
    return descriptions


def describe_client_metrics(
    settings: Mapping[str, str], dynamic: DynamicConfig
) -> list[Description]:
    """Every key of a subscription to the metrics of clients."""
    return [
        _describe_resource_key(
            definition,
            settings.get(name, _default(definition)),
            Source.CLIENT_METRICS,
            dynamic,
            is_own=name in settings,
        )
        for name, definition in CLIENT_METRICS.items()
    ]


def _describe_resource_key(
    definition: Definition,
    value: str | None,
    own_source: Source,
    dynamic: DynamicConfig,
    *,
    is_own: bool,
) -> Description:
    synonyms: tuple[Synonym, ...] = ()
    if definition.synonyms:
        synonyms = _synonyms(dynamic, definition.synonyms[0], sensitive=False)
    if is_own:
        synonyms = (Synonym(definition.name, value, own_source), *synonyms)
    return Description(
        name=definition.name,
        value=value,
        source=synonyms[0].source if synonyms else Source.DEFAULT,
        read_only=False,
        sensitive=definition.sensitive,
        type=definition.type,
        doc=definition.doc,
        synonyms=synonyms,
    )


def _default(definition: Definition) -> str | None:
    return None if definition.default is REQUIRED else render(definition.default)


def _synonyms(dynamic: DynamicConfig, name: str, *, sensitive: bool) -> tuple[Synonym, ...]:
    names = node_synonyms(name)
    static = {key: setting.text for key, setting in dynamic.static_settings.items()}
    defaults = {
        key: shown
        for key in names
        if key in NODE
        and (default := NODE[key].default) is not REQUIRED
        and (shown := render(default)) is not None
    }
    sources = (
        (Source.BROKER, dynamic.broker_settings),
        (Source.CLUSTER, dynamic.cluster_settings),
        (Source.STATIC, static),
        (Source.DEFAULT, defaults),
    )
    found = [
        Synonym(key, None if sensitive else settings[key], source)
        for source, settings in sources
        for key in names
        if key in settings
    ]
    return tuple(dropwhile(lambda synonym: synonym.name != name, found))
