"""All keys: of nodes, topics, groups and client-metrics subscriptions, by name.

A node's key may be set for one listener alone, as `listener.name.<name>.<key>`, and a SASL key for
one mechanism of a listener, as `listener.name.<name>.<mechanism>.<key>`; `find_node_key` knows both
forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kraftpy.config import (
    keys_client_metrics,
    keys_group,
    keys_groups,
    keys_log,
    keys_metrics,
    keys_network,
    keys_node,
    keys_oauth,
    keys_own,
    keys_quorum,
    keys_quotas,
    keys_remote,
    keys_replication,
    keys_security,
    keys_share,
    keys_tls,
    keys_topic,
    keys_transactions,
)
from kraftpy.config.definition import REQUIRED, Definition, Password, UpdateMode, Value

__all__ = [
    "CLIENT_METRICS",
    "CLUSTER_LISTENER_KEYS",
    "GROUP",
    "NODE",
    "NODE_DEFAULTS",
    "REMOVED",
    "SECTIONS",
    "TOPIC",
    "FoundKey",
    "find_node_key",
    "nearest_node_key",
    "node_synonyms",
    "presentable",
    "update_mode",
]


def _by_name(*tables: Iterable[Definition]) -> Mapping[str, Definition]:
    return {definition.name: definition for table in tables for definition in table}


SECTIONS: Final = (
    ("Node", keys_node),
    ("Network", keys_network),
    ("Quorum and controller", keys_quorum),
    ("Log", keys_log),
    ("Replication", keys_replication),
    ("Groups", keys_groups),
    ("Share groups", keys_share),
    ("Transactions", keys_transactions),
    ("Quotas", keys_quotas),
    ("Metrics", keys_metrics),
    ("Security", keys_security),
    ("OAuth", keys_oauth),
    ("TLS", keys_tls),
    ("Tiered storage", keys_remote),
    ("kraftpy's own", keys_own),
)
"""The tables of a node's keys, in the order of docs/configuration.md."""

NODE: Final = _by_name(*(module.KEYS for _, module in SECTIONS))
TOPIC: Final = _by_name(keys_topic.KEYS)
GROUP: Final = _by_name(keys_group.KEYS)
CLIENT_METRICS: Final = _by_name(keys_client_metrics.KEYS)

NODE_DEFAULTS: Final[Mapping[str, Value]] = {
    name: definition.default
    for name, definition in NODE.items()
    if definition.default is not REQUIRED
}

REMOVED: Final = {
    "zookeeper.connect": "there is no ZooKeeper; name the quorum in controller.quorum.voters",
    "inter.broker.protocol.version": "the metadata version has taken its place",
    "log.message.format.version": "every log is in the one format",
    "log.message.downconversion.enable": "no log is in an old format",
    "log.message.timestamp.difference.max.ms": "set log.message.timestamp.before.max.ms and "
    "log.message.timestamp.after.max.ms",
    "reserved.broker.max.id": "no broker id is generated; set node.id",
    "broker.id.generation.enable": "no broker id is generated; set node.id",
}
"""Keys that Kafka once had and people still set, with what to do instead."""

# Each of these falls back to the next when it is not set: the same thing in a coarser unit.
_FALLBACKS: Final = {
    "log.roll.ms": ("log.roll.hours",),
    "log.roll.jitter.ms": ("log.roll.jitter.hours",),
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms",),
    "log.retention.ms": ("log.retention.minutes", "log.retention.hours"),
}

_LISTENER_PREFIX: Final = r"(listener\.name\.([^.]+)\.)(.+)"
_PRINCIPAL_KEY: Final = "kraftpy.principal"
CLUSTER_LISTENER_KEYS: Final = (
    "max.connections",
    "max.connection.creation.rate",
    "num.network.threads",
)
"""What the network reads for each listener, and may be set for that listener of all brokers."""
_LISTENER_KEYS: Final = (
    *CLUSTER_LISTENER_KEYS,
    "connections.max.reauth.ms",
    "principal.builder.class",
    _PRINCIPAL_KEY,
)


class FoundKey(NamedTuple):
    definition: Definition
    listener: str = ""
    """The listener's name in lower case where the key was set for one alone."""
    mechanism: str = ""


def update_mode(name: str) -> UpdateMode:
    """Who may change a key at run time. What nobody knows may be changed, as in Kafka."""
    plain = NODE.get(name)
    if plain is not None:
        return plain.mode
    found = re.fullmatch(_LISTENER_PREFIX, name)
    if found is None or found[3] in CLUSTER_LISTENER_KEYS:
        return UpdateMode.CLUSTER_WIDE
    if found[3] == _PRINCIPAL_KEY:
        return UpdateMode.READ_ONLY
    # Brokers differ in their listeners, and in what they need for each.
    return UpdateMode.PER_BROKER


def find_node_key(name: str) -> FoundKey | None:
    """The definition behind a node's key, prefixed or not; None for a key that nobody knows."""
    plain = NODE.get(name)
    if plain is not None:
        return FoundKey(plain)
    found = re.fullmatch(_LISTENER_PREFIX, name)
    if found is None:
        return None
    listener, key = found[2], found[3]
    if key in NODE and (key in _LISTENER_KEYS or key.startswith(("ssl.", "sasl."))):
        return FoundKey(NODE[key], listener)
    mechanism, _, mechanism_key = key.partition(".")
    if mechanism_key in NODE and mechanism_key.startswith(("sasl.", "connections.max.reauth")):
        return FoundKey(NODE[mechanism_key], listener, mechanism)
    return None


def presentable(name: str, text: str) -> str:
    """The text of a node's setting as an error message may show it."""
    found = find_node_key(name)
    return Password.HIDDEN if found is not None and found.definition.sensitive else text


def node_synonyms(name: str) -> tuple[str, ...]:
    """The keys that may give a node's key its value, the strongest first, itself included."""
    found = re.fullmatch(_LISTENER_PREFIX, name)
    if found is not None and find_node_key(name) is not None:
        return name, found[3]
    return name, *_FALLBACKS.get(name, ())


def nearest_node_key(name: str) -> str | None:
    """The known key that was probably meant; None when nothing is near."""
    # difflib costs milliseconds and is needed only where someone mistyped.
    import difflib

    prefix, base = "", name
    if found := re.fullmatch(_LISTENER_PREFIX, name):
        prefix, base = found[1], found[3]
    near = difflib.get_close_matches(base, NODE, n=1, cutoff=0.75)
    if not near or prefix + near[0] == name:
        return None
    return prefix + near[0]
