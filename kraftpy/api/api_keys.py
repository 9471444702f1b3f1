"""Which APIs are served, on which kind of listener, by their keys.

Apart from the handlers, so that whoever only wants to name them doesn't load a node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraftpy.protocol.registry import API

__all__ = [
    "API_VERSIONS_KEY",
    "ASKED_BY_NODES",
    "BROKER_LISTENER_APIS",
    "CONTROLLER_APIS",
    "CONTROLLER_LISTENER_APIS",
    "COORDINATOR_APIS",
    "DATA_APIS",
    "FORWARDABLE_APIS",
    "KAFKA_RELEASE",
    "METADATA_APIS",
    "served_ranges",
]

KAFKA_RELEASE: Final = "4.3"

API_VERSIONS_KEY: Final = 18

_ASKED_BY_USERS: Final = (19, 20, 30, 31, 33, 37, 43, 44, 45, 46, 49, 51, 57, 64)
ASKED_BY_NODES: Final = (56, 62, 67, 70, 73)
"""What only nodes ask of the controller, beside heartbeats."""
CONTROLLER_APIS: Final = (*_ASKED_BY_USERS, *ASKED_BY_NODES)
"""All that the controller serves but for heartbeats, which have a handler of their own."""

FORWARDABLE_APIS: Final = (*_ASKED_BY_USERS, 55, 80, 81)
"""What brokers take from clients for the quorum's leader; nothing else may be in an envelope."""

METADATA_APIS: Final = (3, 29, 32, 48, 50, 60, 74, 75, *FORWARDABLE_APIS)
"""A broker's share in metadata."""

DATA_APIS: Final = (0, 1, 2, 21, 23, 34, 35, 61)
"""A broker's share in data."""

_GROUP_APIS: Final = (8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47, 68, 69)
_TRANSACTION_APIS: Final = (22, 24, 25, 26, 27, 28, 65, 66)
COORDINATOR_APIS: Final = (*_GROUP_APIS, *_TRANSACTION_APIS)
"""What brokers do for groups and for producers."""

BROKER_LISTENER_APIS: Final = (
    API_VERSIONS_KEY,
    *METADATA_APIS,
    *DATA_APIS,
    *COORDINATOR_APIS,
)
"""Everything on a broker's listener."""

_RAFT_APIS: Final = (1, 52, 53, 54, 55, 59, 80, 81, 82)
CONTROLLER_LISTENER_APIS: Final = (29, 32, 58, 60, 63, *CONTROLLER_APIS, *_RAFT_APIS)
"""Everything on a controller's listener."""


def served_ranges() -> Iterable[tuple[str, int, int]]:
    """Name, lowest and highest version of every API that some listener serves."""
    for key in sorted({*BROKER_LISTENER_APIS, *CONTROLLER_LISTENER_APIS}):
        yield API[key].name, API[key].min_version, API[key].max_version
