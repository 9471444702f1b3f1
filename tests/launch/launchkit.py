"""What the tests of clusters share: events that are kept, and clusters of stub nodes."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from kraftpy.launch.cluster import Cluster, ClusterSpec, NodeDeath, open_cluster
from kraftpy.world.real import real_world
from kraftpy.world.real_processes import RealProcesses

STUB_COMMAND = (sys.executable, str(Path(__file__).with_name("stub_node.py")))
TIMEOUT_SECONDS = 150


@dataclass
class Recorder:
    """Keeps what it is told."""

    warnings: list[str] = field(default_factory=list)
    formattings: list[list[int]] = field(default_factory=list)
    pids: dict[int, int] = field(default_factory=dict)
    ready_nodes: list[int] = field(default_factory=list)
    deaths: list[NodeDeath] = field(default_factory=list)
    killed_nodes: list[int] = field(default_factory=list)
    moved_nodes: list[int] = field(default_factory=list)

    def warned(self, warning: str) -> None:
        self.warnings.append(warning)

    def formatted(self, node_ids: Sequence[int]) -> None:
        self.formattings.append(list(node_ids))

    def started(self, node_id: int, pid: int) -> None:
        self.pids[node_id] = pid

    def moved(self, node_id: int) -> None:
        self.moved_nodes.append(node_id)

    def ready(self, node_id: int, seconds: float) -> None:
        self.ready_nodes.append(node_id)

    def died(self, death: NodeDeath) -> None:
        self.deaths.append(death)

    def killed(self, node_id: int, seconds: float) -> None:
        self.killed_nodes.append(node_id)


@asynccontextmanager
async def stub_cluster(
    directory: Path,
    events: Recorder | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    **options: Any,
) -> AsyncIterator[Cluster]:
    """Not started yet. Everything in it has its time, which only ends what hangs."""
    spec = ClusterSpec(
        directory=str(directory), settings=settings or {}, command=STUB_COMMAND, **options
    )
    with trio.fail_after(TIMEOUT_SECONDS):
        async with open_cluster(
            spec, world=real_world(), processes=RealProcesses(), events=events or Recorder()
        ) as cluster:
            yield cluster


async def eventually(condition: Callable[[], object]) -> None:
    with trio.fail_after(TIMEOUT_SECONDS):
        while not condition():  # noqa: ASYNC110 (another process sets no event)
            await trio.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Also when it is a zombie: whoever has stopped a child has waited for it too."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def exists(path: str) -> bool:
    return Path(path).exists()
