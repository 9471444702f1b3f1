"""Settings that change while a node runs.

Kafka keeps dynamic settings in the metadata log: some for the whole cluster, some for single
brokers; a broker's own win over the cluster's, which win over the file. Here they meet the static
configuration of one node. `check` answers a request to change them, before it becomes a record;
`update` takes in what the log says. The first is strict, the second can't be: a record is there
already, so that a value this node can't use is left out and reported, and the rest takes effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from kraftpy.config.definition import UpdateMode, parse
from kraftpy.config.definitions import find_node_key, presentable, update_mode
from kraftpy.config.layers import Layer, Source, from_mapping
from kraftpy.config.node_config import NodeConfig
from kraftpy.config.problems import BadValueError, ConfigurationError, Problem

__all__ = ["DynamicConfig", "Subscriber", "check_dynamic_settings"]

Subscriber: TypeAlias = Callable[[NodeConfig, tuple[str, ...]], None]
"""Called with the new configuration and the names of the keys whose values differ."""


class DynamicConfig:
    """The configuration in force at this moment, and who wants to hear of changes."""

    __slots__ = ("_cluster", "_per_broker", "_static", "_subscribers", "current")

    def __init__(self, static: NodeConfig) -> None:
        self._static: Layer = static.settings
        self._cluster: dict[str, str] = {}
        self._per_broker: dict[str, str] = {}
        self._subscribers: list[Subscriber] = []
        self.current = static

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` at every change, in the order of subscription; returns the way out."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def check(self, settings: Mapping[str, str], *, per_broker: bool) -> None:
        """Whether these could be the dynamic settings; ConfigurationError says why not."""
        problems = _refused(settings, per_broker=per_broker)
        if problems:
            raise ConfigurationError(problems)
        cluster = self._cluster if per_broker else settings
        own = settings if per_broker else self._per_broker
        self._build(cluster, own)

    def update(
        self,
        *,
        cluster: Mapping[str, str] | None = None,
        per_broker: Mapping[str, str] | None = None,
    ) -> list[Problem]:
        """Replace one or both kinds of settings and tell everyone; returns what was left out."""
        problems: list[Problem] = []
        if cluster is not None:
            self._cluster = _usable(cluster, problems, per_broker=False)
        if per_broker is not None:
            self._per_broker = _usable(per_broker, problems, per_broker=True)
        fresh = self._build_without_bad_ones(problems)
        before, self.current = self.current, fresh
        keys = dict.fromkeys((*before.settings, *fresh.settings))
        changed = tuple(key for key in keys if before.get(key) != fresh.get(key))
        if changed:
            for subscriber in tuple(self._subscribers):
                subscriber(fresh, changed)
        return problems

    def _build(self, cluster: Mapping[str, str], per_broker: Mapping[str, str]) -> NodeConfig:
        config = NodeConfig(
            self._static,
            from_mapping(cluster, "dynamic, for the cluster", Source.CLUSTER),
            from_mapping(per_broker, "dynamic, for this broker", Source.BROKER),
        )
        if config.topology.listeners != self.current.topology.listeners:
            # Others know the node by what it registered when it started.
            raise ConfigurationError(
                [
                    Problem(key, per_broker[key], _LISTENERS_STAY)
                    for key in _LISTENER_KEYS
                    if key in per_broker
                ]
            )
        return config

    def _build_without_bad_ones(self, problems: list[Problem]) -> NodeConfig:
        """The configuration without the settings that make it inconsistent."""
        while True:
            try:
                return self._build(self._cluster, self._per_broker)
            except ConfigurationError as error:
                problems += error.problems
                guilty = [problem.key for problem in error.problems]
                # A rule may name a static key that a dynamic one clashes with.
                if not any(key in self._cluster or key in self._per_broker for key in guilty):
                    guilty = [*self._cluster, *self._per_broker]
                for key in guilty:
                    self._cluster.pop(key, None)
                    self._per_broker.pop(key, None)

    @property
    def cluster_settings(self) -> Mapping[str, str]:
        return self._cluster

    @property
    def broker_settings(self) -> Mapping[str, str]:
        return self._per_broker

    @property
    def static_settings(self) -> Layer:
        return self._static


def check_dynamic_settings(settings: Mapping[str, str], *, per_broker: bool) -> None:
    """Whether any node could have these as dynamic settings; ConfigurationError says why not.

    Each key is judged alone: only the node itself knows what else it is configured with.
    """
    problems = _refused(settings, per_broker=per_broker)
    for key, text in settings.items():
        found = find_node_key(key)
        try:
            if found is not None:
                parse(found.definition, text)
        except BadValueError as error:
            problems.append(Problem(key, presentable(key, text), str(error)))
    if problems:
        raise ConfigurationError(problems)


def _usable(
    settings: Mapping[str, str], problems: list[Problem], *, per_broker: bool
) -> dict[str, str]:
    refused = _refused(settings, per_broker=per_broker)
    problems += refused
    bad = [problem.key for problem in refused]
    return {key: text for key, text in settings.items() if key not in bad}


def _refused(settings: Mapping[str, str], *, per_broker: bool) -> list[Problem]:
    problems = []
    for key, text in settings.items():
        reason = _refuse_change(key, per_broker=per_broker)
        if reason is not None:
            problems.append(Problem(key, presentable(key, text), reason))
    return problems


# Keys that are dynamic by their definition, because other keys of listeners are.
_LISTENER_KEYS: Final = ("listeners", "listener.security.protocol.map")
_LISTENERS_STAY: Final = (
    "would change the listeners of a running node; set it in its file and restart"
)
# Certificates and keys, which belong to a listener.
_STORES: Final = ("ssl.keystore.", "ssl.truststore.", "ssl.key.")


def _refuse_change(key: str, *, per_broker: bool) -> str | None:
    mode = update_mode(key)
    if mode is UpdateMode.READ_ONLY:
        return "can't be changed while the broker runs; set it in its file and restart"
    if mode is UpdateMode.PER_BROKER and not per_broker:
        return "can be changed for single brokers only"
    if key.startswith(_STORES):
        return f"must be set for a listener: listener.name.<name>.{key}"
    return None
