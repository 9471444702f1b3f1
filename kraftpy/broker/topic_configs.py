"""What topics are configured with on this broker: their own settings over the broker's.

Settings of topics come with the metadata, the broker's own from its configuration, which may change
while it runs. Whoever holds a configuration is told which topics have got another one.

A setting that is in the log and can't be used, because this release doesn't know it or its bounds
are others, is left out and reported; the rest of the topic's settings holds.

Install it before those publishers that open logs, so that a topic's first log has its settings.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kraftpy.broker.replication_throttles import ThrottledReplicas
from kraftpy.config import DynamicConfig, NodeConfig, TopicConfig
from kraftpy.config.definitions import TOPIC, node_synonyms
from kraftpy.config.problems import ConfigurationError
from kraftpy.log.log_config import LogConfig
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage
from kraftpy.metadata.publisher import Manifest
from kraftpy.metadata.records import ConfigResourceType

__all__ = ["TopicConfigs"]

log = logging.getLogger(__name__)

_VALIDATION: Final = "kraftpy.record.validation"
_NODE_KEYS: Final = frozenset(
    key
    for definition in TOPIC.values()
    for synonym in definition.synonyms
    for key in node_synonyms(synonym)
) | {_VALIDATION}
"""The broker's keys that give topics their defaults, or hold for all of them."""


class TopicConfigs:
    """A Publisher."""

    __slots__ = ("_defaults", "_image", "_node", "_special", "_subscribers")

    def __init__(self, node: DynamicConfig) -> None:
        self._node = node
        self._image = EMPTY_IMAGE
        self._subscribers: list[Callable[[Sequence[str]], None]] = []
        # Of topics without settings of their own, which share one, and of the others.
        self._defaults: _Config | None = None
        self._special: dict[str, _Config] = {}
        node.subscribe(self._node_changed)

    @property
    def name(self) -> str:
        return "TopicConfigs"

    def subscribe(self, subscriber: Callable[[Sequence[str]], None]) -> None:
        """Have `subscriber` called with the names of topics whose configuration has changed."""
        self._subscribers.append(subscriber)

    def config_of(self, topic: str) -> LogConfig:
        """Of a topic that isn't known, or not any more, the defaults."""
        return self._config(topic).log

    def min_insync_replicas(self, topic: str) -> int:
        return self._config(topic).min_insync_replicas

    def throttled_replicas(self, topic: str) -> ThrottledReplicas:
        return self._config(topic).throttled_replicas

    def configured_topics(self) -> list[str]:
        """Those that have settings of their own."""
        keys = self._image.configs
        return [key.name for key in keys if key.resource_type is ConfigResourceType.TOPIC]

    def publish(self, changes: ImageChanges, image: MetadataImage, manifest: Manifest) -> None:
        self._image = image
        changed = [
            change.key.name
            for change in changes.configs
            if change.key.resource_type is ConfigResourceType.TOPIC
        ]
        for topic in changed:
            self._special.pop(topic, None)
        self._tell(changed)

    def _node_changed(self, config: NodeConfig, keys: tuple[str, ...]) -> None:
        if not _NODE_KEYS.isdisjoint(keys):
            self._defaults = None
            self._special.clear()
            self._tell(self._image.topics)

    def _tell(self, topics: Iterable[str]) -> None:
        names = tuple(topics)
        if names:
            for subscriber in self._subscribers:
                subscriber(names)

    def _config(self, topic: str) -> _Config:
        config = self._special.get(topic)
        if config is not None:
            return config
        settings = self._image.config(ConfigResourceType.TOPIC, topic)
        if settings:
            config = self._special[topic] = self._build(topic, dict(settings))
            return config
        if self._defaults is None:
            self._defaults = self._build(topic, {})
        return self._defaults

    def _build(self, topic: str, settings: dict[str, str]) -> _Config:
        while True:
            try:
                node = self._node.current
                return _Config(TopicConfig(settings, node), node.get_str(_VALIDATION) == "full")
            except ConfigurationError as error:
                for problem in error.problems:
                    log.error("topic=%s: a setting is left out: %s", topic, problem)
                    del settings[problem.key]


class _Config:
    """What is asked of a topic's configuration, ready to be given."""

    __slots__ = ("log", "min_insync_replicas", "throttled_replicas")

    def __init__(self, topic: TopicConfig, validates_fully: bool) -> None:
        self.log = LogConfig.from_topic(topic, validates_fully=validates_fully)
        self.min_insync_replicas = topic.get_int("min.insync.replicas")
        self.throttled_replicas: ThrottledReplicas = (
            topic.get_list("leader.replication.throttled.replicas"),
            topic.get_list("follower.replication.throttled.replicas"),
        )
