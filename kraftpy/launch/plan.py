"""What a cluster on one machine consists of: nodes with their roles, ports, files and settings.

A cluster has one directory. In it lie `cluster.json`, which says what the cluster is, and for each
node a directory `node-<id>` with

- `node.properties`: its configuration, written anew at each start;
- `node.log`: what it prints; each start adds to it;
- `ready.json`: there while it serves;
- `data`: its data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from kraftpy.config.development import development_settings
from kraftpy.config.topology import Voter

__all__ = [
    "BROKER",
    "COMBINED",
    "CONTROLLER",
    "OWN_KEYS",
    "NodePlan",
    "Place",
    "Roles",
    "Shape",
    "combined_shape",
    "plan_nodes",
    "ports_needed",
    "split_shape",
]

Roles = tuple[str, ...]
Shape = Mapping[int, Roles]
"""The roles of each node, by its id."""

BROKER: Roles = ("broker",)
CONTROLLER: Roles = ("controller",)
COMBINED: Roles = ("broker", "controller")

# What tells one node from another, and is therefore nobody's to set for all of them.
OWN_KEYS = (
    "node.id",
    "process.roles",
    "listeners",
    "advertised.listeners",
    "controller.listener.names",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
    "kraftpy.http.host",
    "kraftpy.http.port",
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node lives that is not where the others are."""

    host: str | None = None
    advertised: str | None = None
    """HOST:PORT that clients and other brokers are told."""
    prefix: tuple[str, ...] = ()
    """What runs its command, as `ip netns exec NAME` does."""


def combined_shape(nodes: int) -> Shape:
    """Every node is broker and controller."""
    return dict.fromkeys(range(1, nodes + 1), COMBINED)


def split_shape(*, controllers: int, brokers: int) -> Shape:
    """Brokers come first, so that they have the first ids and ports."""
    first_controller = brokers + 1
    return dict.fromkeys(range(1, first_controller), BROKER) | dict.fromkeys(
        range(first_controller, first_controller + controllers), CONTROLLER
    )


def ports_needed(shape: Shape) -> int:
    """One for each role of a node, and one for HTTP."""
    return sum(len(roles) + 1 for roles in shape.values())


@dataclass(frozen=True, slots=True)
class NodePlan:
    node_id: int
    roles: Roles
    host: str
    # None where a node has not the role.
    port: int | None
    controller_port: int | None
    http_port: int
    directory: str
    settings: Mapping[str, str]
    place: Place = Place()

    @property
    def address(self) -> str | None:
        """Where clients find it."""
        if self.port is None:
            return None
        if self.place.advertised is not None:
            return self.place.advertised
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def config_path(self) -> str:
        return f"{self.directory}/node.properties"

    @property
    def log_path(self) -> str:
        return f"{self.directory}/node.log"

    @property
    def ready_path(self) -> str:
        return f"{self.directory}/ready.json"

    @property
    def data_dir(self) -> str:
        return f"{self.directory}/data"


def plan_nodes(
    shape: Shape,
    ports: Sequence[int],
    *,
    host: str,
    directory: str,
    settings: Mapping[str, str],
    places: Mapping[int, Place] = MappingProxyType({}),
) -> tuple[NodePlan, ...]:
    """Give out `ports` in their order: of each node those for clients, controllers and HTTP."""
    unused = iter(ports)
    hosts = {node_id: places.get(node_id, Place()).host or host for node_id in shape}
    bare = [_bare(node_id, roles, unused) for node_id, roles in shape.items()]
    voters = [
        Voter(node_id, hosts[node_id], controller_port)
        for node_id, _, _, controller_port, _ in bare
        if controller_port is not None
    ]
    broker_count = sum("broker" in roles for roles in shape.values())
    plans = []
    for node_id, roles, port, controller_port, http_port in bare:
        node_directory = f"{directory}/node-{node_id}"
        own = development_settings(
            node_id=node_id,
            roles=roles,
            voters=voters,
            host=hosts[node_id],
            port=port,
            data_dir=f"{node_directory}/data",
            broker_count=broker_count,
        )
        place = places.get(node_id, Place())
        if place.advertised is not None:
            own["advertised.listeners"] = f"PLAINTEXT://{place.advertised}"
        http = {"kraftpy.http.host": hosts[node_id], "kraftpy.http.port": str(http_port)}
        plans.append(
            NodePlan(
                node_id,
                roles,
                hosts[node_id],
                port,
                controller_port,
                http_port,
                node_directory,
                {**own, **http, **settings},
                place,
            )
        )
    return tuple(plans)


def _bare(
    node_id: int, roles: Roles, unused: Iterator[int]
) -> tuple[int, Roles, int | None, int | None, int]:
    port = next(unused) if "broker" in roles else None
    controller_port = next(unused) if "controller" in roles else None
    return node_id, roles, port, controller_port, next(unused)
