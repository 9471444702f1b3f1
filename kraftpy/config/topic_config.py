"""Settings of a topic, over the defaults that its broker gives.

A topic's key usually has a broker's key behind it, under another name and sometimes in another
unit: retention.ms is log.retention.ms, else log.retention.minutes, else log.retention.hours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kraftpy.config.definition import REQUIRED, Definition, Value, parse
from kraftpy.config.definitions import GROUP, TOPIC
from kraftpy.config.node_config import NodeConfig
from kraftpy.config.problems import BadValueError, ConfigurationError, Problem

__all__ = ["TopicConfig", "check_group_settings", "check_topic_settings"]

# Topic keys whose default is put together from several broker keys.
_DERIVED: Final[Mapping[str, Callable[[NodeConfig], int]]] = {
    "retention.ms": lambda node: node.log_retention_ms,
    "segment.ms": lambda node: node.log_roll_ms,
    "segment.jitter.ms": lambda node: node.log_roll_jitter_ms,
    "flush.ms": lambda node: node.log_flush_ms,
}


class TopicConfig:
    """Every topic key with its value for one topic."""

    __slots__ = ("_values", "settings")

    def __init__(self, settings: Mapping[str, str], node: NodeConfig) -> None:
        """`settings` are the topic's own; ConfigurationError if they are not all in order."""
        self.settings = settings
        self._values = _parsed(settings, TOPIC, "topic")
        for name, definition in TOPIC.items():
            if name not in self._values:
                self._values[name] = _inherited(definition, node)

    def __getitem__(self, key: str) -> Value:
        return self._values[key]

    def get_int(self, key: str) -> int:
        value = self._values[key]
        if type(value) is not int:
            raise TypeError(f"{key} is no whole number but {value!r}")
        return value

    def get_list(self, key: str) -> tuple[str, ...]:
        value = self._values[key]
        if not isinstance(value, tuple):
            raise TypeError(f"{key} is no list but {value!r}")
        return value

    @property
    def is_compacted(self) -> bool:
        policy = self._values["cleanup.policy"]
        return isinstance(policy, tuple) and "compact" in policy

    @property
    def segment_bytes(self) -> int:
        """Size of a segment; tests may go below Kafka's lower bound with the internal key."""
        internal = self._values["internal.segment.bytes"]
        return internal if isinstance(internal, int) else self.get_int("segment.bytes")


def check_topic_settings(settings: Mapping[str, str], node: NodeConfig) -> None:
    """Whether a topic may have these settings; ConfigurationError says why not.

    Kafka judges the topic's settings together with the broker's defaults.
    """
    topic = TopicConfig(settings, node)
    problems = []
    lag_ms, max_lag_ms = (
        topic.get_int("min.compaction.lag.ms"),
        topic.get_int("max.compaction.lag.ms"),
    )
    if lag_ms > max_lag_ms:
        problems.append(
            Problem(
                "min.compaction.lag.ms",
                str(lag_ms),
                f"must be at most max.compaction.lag.ms={max_lag_ms}",
            )
        )
    if topic["remote.storage.enable"]:
        problems.append(Problem("remote.storage.enable", "true", "there is no tiered storage"))
    if problems:
        raise ConfigurationError(problems)


def check_group_settings(settings: Mapping[str, str], node: NodeConfig) -> None:
    """Whether a group may have these settings, within the bounds that its brokers set."""
    values = _parsed(settings, GROUP, "group")
    problems = []
    for name, value in values.items():
        kind, _, what = name.partition(".")
        low, high = f"group.{kind}.min.{what}", f"group.{kind}.max.{what}"
        if name == "streams.num.standby.replicas":
            low, high = "", "group.streams.max.standby.replicas"
        if not isinstance(value, int) or high not in node:
            continue
        if value > node.get_int(high) or (low and value < node.get_int(low)):
            at_least = f"at least {low}={node[low]} and " if low else ""
            problems.append(
                Problem(name, str(value), f"must be {at_least}at most {high}={node[high]}")
            )
    problems += [
        problem
        for kind in ("consumer", "share", "streams")
        if (problem := _heartbeat_problem(kind, values, node))
    ]
    if problems:
        raise ConfigurationError(problems)


def _heartbeat_problem(kind: str, values: Mapping[str, Value], node: NodeConfig) -> Problem | None:
    heartbeat, session = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
    heartbeat_ms = values.get(heartbeat, node[f"group.{heartbeat}"])
    session_ms = values.get(session, node[f"group.{session}"])
    if isinstance(heartbeat_ms, int) and isinstance(session_ms, int) and heartbeat_ms >= session_ms:
        return Problem(heartbeat, str(heartbeat_ms), f"must be less than {session}={session_ms}")
    return None


def _parsed(
    settings: Mapping[str, str], definitions: Mapping[str, Definition], kind: str
) -> dict[str, Value]:
    values: dict[str, Value] = {}
    problems = []
    for name, text in settings.items():
        definition = definitions.get(name)
        if definition is None:
            problems.append(Problem(name, text, f"is no key of a {kind}"))
            continue
        try:
            values[name] = parse(definition, text)
        except BadValueError as error:
            problems.append(Problem(name, text, str(error)))
    if problems:
        raise ConfigurationError(problems)
    return values


def _inherited(definition: Definition, node: NodeConfig) -> Value:
    derive = _DERIVED.get(definition.name)
    if derive is not None:
        return derive(node)
    if definition.synonyms:
        return node[definition.synonyms[0]]
    return None if definition.default is REQUIRED else definition.default
