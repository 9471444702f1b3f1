"""A node's configuration: every key has its value, and the whole has been found consistent.

Made once from layers of settings, or again when dynamic settings change; never altered. Looking a
key up is one dictionary access. What people wrote stays known, so that DescribeConfigs can tell
where a value comes from.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftpy.config.definition import REQUIRED, Value, parse, render
from kraftpy.config.definitions import (
    NODE,
    NODE_DEFAULTS,
    REMOVED,
    find_node_key,
    nearest_node_key,
    presentable,
)
from kraftpy.config.layers import Layer, Setting, Source, stack
from kraftpy.config.problems import BadValueError, ConfigurationError, Problem
from kraftpy.config.rules import check_rules
from kraftpy.config.topology import Topology, derive_topology

__all__ = ["NodeConfig"]


class NodeConfig:
    """Look keys up with `config["log.segment.bytes"]`, or typed with `config.get_int(...)`."""

    __slots__ = ("_settings", "_values", "topology", "warnings")

    def __init__(self, *layers: Layer) -> None:
        """Stack layers, the strongest last; ConfigurationError holds everything that is wrong."""
        settings = stack(*layers)
        _fill_node_id(settings)
        self._settings: Mapping[str, Setting] = settings
        self._values: dict[str, Value] = dict(NODE_DEFAULTS)
        problems: list[Problem] = []
        warnings: list[str] = []

        def refuse(key: str, reason: str) -> None:
            problem = Problem(key, self._as_given(key), reason, self.origin(key))
            if problem not in problems:
                problems.append(problem)

        unusable = []
        for key, setting in settings.items():
            found = find_node_key(key)
            if found is None:
                warnings.append(_unknown(key, setting))
                continue
            try:
                self._values[key] = parse(found.definition, setting.text)
            except BadValueError as error:
                refuse(key, str(error))
                unusable.append(key)
                # A key that must be set has no default to go on with.
                self._values.setdefault(key, None)
        for name, definition in NODE.items():
            if definition.default is REQUIRED and name not in settings:
                problems.append(Problem(name, None, f"must be set. {definition.doc}"))
                unusable.append(name)
                self._values[name] = None
        self.topology: Topology = derive_topology(self._values.__getitem__, self.is_given, refuse)
        if not unusable:
            # With a key missing or unreadable, rules about several would only repeat that.
            check_rules(self, refuse, warnings.append)
        if problems:
            raise ConfigurationError(problems, warnings)
        self.warnings = tuple(warnings)

    def __getitem__(self, key: str) -> Value:
        return self._values[key]

    def get(self, key: str) -> Value:
        """The value of a key that may be unknown or prefixed; None without one."""
        return self._values.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def get_int(self, key: str) -> int:
        value = self._values[key]
        if type(value) is not int:
            raise TypeError(f"{key} is no whole number but {value!r}")
        return value

    def get_float(self, key: str) -> float:
        value = self._values[key]
        if not isinstance(value, float):
            raise TypeError(f"{key} is no number but {value!r}")
        return value

    def get_bool(self, key: str) -> bool:
        value = self._values[key]
        if not isinstance(value, bool):
            raise TypeError(f"{key} is not true or false but {value!r}")
        return value

    def get_str(self, key: str) -> str:
        value = self._values[key]
        if not isinstance(value, str):
            raise TypeError(f"{key} is no text but {value!r}")
        return value

    def get_list(self, key: str) -> tuple[str, ...]:
        value = self._values[key]
        if not isinstance(value, tuple):
            raise TypeError(f"{key} is no list but {value!r}")
        return value

    def for_listener(self, listener_name: str, key: str) -> Value:
        """A key's value for one listener: its own where it has one, the node's otherwise."""
        prefixed = f"listener.name.{listener_name.lower()}.{key}"
        return self._values[prefixed if prefixed in self._values else key]

    @property
    def super_users(self) -> tuple[str, ...]:
        """Those of `super.users`, whose list is separated by semicolons: names may have commas."""
        users = (user.strip() for user in self.get_str("super.users").split(";"))
        return tuple(user for user in users if user)

    def is_given(self, key: str) -> bool:
        """Whether someone has set the key."""
        return key in self._settings

    def origin(self, key: str) -> str:
        """Where a key was set, for people; empty for a default."""
        setting = self._settings.get(key)
        return setting.origin if setting is not None else ""

    def source(self, key: str) -> Source:
        setting = self._settings.get(key)
        return setting.source if setting is not None else Source.DEFAULT

    @property
    def settings(self) -> Mapping[str, Setting]:
        """What was set, as text."""
        return self._settings

    @property
    def node_id(self) -> int:
        return self.get_int("node.id")

    @property
    def is_broker(self) -> bool:
        return "broker" in self.topology.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.topology.roles

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """Data directories: those of log.dirs, otherwise those of log.dir."""
        dirs = self._values["log.dirs"]
        return dirs if isinstance(dirs, tuple) else self.get_list("log.dir")

    @property
    def metadata_log_dir(self) -> str:
        directory = self._values["metadata.log.dir"]
        return directory if isinstance(directory, str) else self.log_dirs[0]

    @property
    def log_retention_ms(self) -> int:
        """Of milliseconds, minutes and hours the finest that is set; -1 keeps records for ever."""
        in_ms = self._first_ms(
            ("log.retention.ms", 1),
            ("log.retention.minutes", 60_000),
            ("log.retention.hours", 3_600_000),
        )
        return max(in_ms, -1)

    @property
    def log_roll_ms(self) -> int:
        return self._first_ms(("log.roll.ms", 1), ("log.roll.hours", 3_600_000))

    @property
    def log_roll_jitter_ms(self) -> int:
        return self._first_ms(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000))

    @property
    def log_flush_ms(self) -> int:
        return self._first_ms(("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1))

    @property
    def max_connections_per_ip_overrides(self) -> dict[str, int]:
        """Limits by host; check_rules has seen that they can be read."""
        overrides = {}
        for item in filter(None, self.get_str("max.connections.per.ip.overrides").split(",")):
            host, _, count = item.rpartition(":")
            overrides[host.strip()] = int(count)
        return overrides

    def _first_ms(self, *keys: tuple[str, int]) -> int:
        for key, unit_ms in keys:
            value = self._values[key]
            if isinstance(value, int):
                return value * unit_ms
        raise TypeError(f"none of {', '.join(key for key, _ in keys)} has a value")

    def _as_given(self, key: str) -> str | None:
        setting = self._settings.get(key)
        if setting is None:
            return render(self._values.get(key))
        return presentable(key, setting.text)


def _fill_node_id(settings: dict[str, Setting]) -> None:
    """node.id and broker.id name one thing; either gives the other its value."""
    for given, missing in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if given in settings and missing not in settings:
            settings[missing] = settings[given]


def _unknown(key: str, setting: Setting) -> str:
    if key in REMOVED:
        return f"{key} ({setting.origin}) has no effect: {REMOVED[key]}"
    nearest = nearest_node_key(key)
    hint = f"; did you mean {nearest}?" if nearest else ""
    return f"{key} ({setting.origin}) is not a known key{hint}"
