"""Nodes in the test's own interpreter, on directories that are formatted when they are new."""

from __future__ import annotations

from kraftpy.config import NodeConfig
from kraftpy.metadata.directories import directory_paths
from kraftpy.metadata.format import FormatRequest, format_storage
from kraftpy.node import Node
from kraftpy.world import World

CLUSTER_ID = "Zm9yLXRlc3RzLW9ubHktMA"


async def formatted_node(config: NodeConfig, world: World, *, host_name: str = "localhost") -> Node:
    """A node that can run. Its data directories have absolute paths."""
    paths = directory_paths(config, "/")
    request = FormatRequest(CLUSTER_ID, ignores_formatted=True)
    await format_storage(config, request, paths, world)
    return Node(config, world, paths, host_name=host_name)
