"""What kind of cluster a run has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from kraftpy.launch.cluster import NODE_COMMAND
from kraftpy.launch.plan import BROKER, COMBINED, Shape
from kraftpy.testing.options import TEST_SETTINGS

__all__ = ["MAX_CONTROLLERS", "ClusterOptions", "NetworkKind", "settings_of", "shape_of"]

NetworkKind: TypeAlias = Literal["namespaces", "proxy", "auto"]
MAX_CONTROLLERS: Final = 3


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    nodes: int = 3
    """Ids from 1 on; of more than three, the others are brokers only."""
    network: NetworkKind = "auto"
    """How nodes reach each other: `namespaces` needs root, `proxy` works everywhere."""
    seed: int = 0
    directory: str = ""
    """An absolute path, for the files of all nodes."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Kafka's keys, for every node, on top of those for tests."""
    uses_shim: bool = True
    """Where there is a C compiler: clocks and disks fail beneath the node, not inside of it."""
    has_lossy_disks: bool = False
    """Every node's data is on a file system that can lose its power (`lossy_disk`)."""
    command: Sequence[str] = NODE_COMMAND
    """What runs a node, as it is or with something wrong in it."""
    other_command: Sequence[str] | None = None
    """What runs a node of the other version, for faults that switch between the two."""
    ready_timeout_seconds: float = 120.0


def shape_of(options: ClusterOptions) -> Shape:
    """Three nodes are a quorum; more voters would only make it slower."""
    return {
        node: COMBINED if node <= MAX_CONTROLLERS else BROKER
        for node in range(1, options.nodes + 1)
    }


def settings_of(options: ClusterOptions) -> dict[str, str]:
    """The safe configuration: what was acknowledged is on a majority of three replicas."""
    in_sync = "2" if options.nodes >= 3 else "1"
    return {
        **TEST_SETTINGS,
        "min.insync.replicas": in_sync,
        "unclean.leader.election.enable": "false",
        "auto.create.topics.enable": "false",
        **options.settings,
    }
