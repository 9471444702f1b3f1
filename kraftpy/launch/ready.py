"""What a script needs to know about nodes that serve: the content of every ready file."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["Ready", "ReadyNode"]


class ReadyNode(TypedDict):
    id: int
    pid: int
    host: str | None
    # None where a node has not the role, or no HTTP.
    port: int | None
    controller_port: int | None
    http_port: int | None
    data_dir: str


class Ready(TypedDict):
    bootstrap: str
    """Where clients begin: host:port of every broker, comma-separated."""
    cluster_id: str
    nodes: list[ReadyNode]
