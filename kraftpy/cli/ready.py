"""The ready file: what a script needs to know about nodes that serve, as one JSON document.

It is written under another name and renamed, so that whoever finds it finds all of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kraftpy.launch.ready import Ready

if TYPE_CHECKING:
    from kraftpy.node import NodeAddresses
    from kraftpy.world import Address

__all__ = ["describe_ready", "write_ready_file"]


def describe_ready(
    addresses: NodeAddresses,
    *,
    node_id: int,
    pid: int,
    data_dir: str,
    http_port: int | None = None,
) -> Ready:
    """Where clients and other nodes find this one; a node of one role has half of it."""
    broker = _first(addresses.brokers.values())
    controller = _first(addresses.controllers.values())
    either = broker or controller
    return {
        "bootstrap": "" if broker is None else _text(broker),
        "cluster_id": addresses.cluster_id,
        "nodes": [
            {
                "id": node_id,
                "pid": pid,
                "host": either[0] if either else None,
                "port": broker[1] if broker else None,
                "controller_port": controller[1] if controller else None,
                "http_port": http_port,
                "data_dir": data_dir,
            }
        ],
    }


def write_ready_file(path: Path, ready: Ready) -> None:
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    unfinished.write_text(json.dumps(ready) + "\n", encoding="utf-8")
    unfinished.replace(path)


def _first(addresses: Iterable[Address]) -> Address | None:
    return next(iter(addresses), None)


def _text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
