"""One kind of fault: how it is drawn, begun and ended, and what has to be there for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from jepsen_tests.cluster import Inspection, JepsenCluster
from jepsen_tests.cluster.errors import NotHereError
from kraftpy.client.calls import TopicPartition
from kraftpy.faults.language import Fault, format_fault

__all__ = ["INTERNAL", "Kind", "Scene"]

INTERNAL: Final = "__"
# A cluster that is ill answers nobody, and its faults go on meanwhile.
_PATIENCE_SECONDS: Final = 2.0


@dataclass(slots=True)
class Scene:
    """Where a fault takes place: the cluster, and what is drawn for it."""

    cluster: JepsenCluster
    random: Random
    faults: list[str] = field(default_factory=list)
    """What has been done, in the words of the language."""
    doubtful: list[str] = field(default_factory=list)
    """What was tried and failed: nobody knows how much of it was done."""
    effects: list[str] = field(default_factory=list)
    """What has been seen of it."""
    count_before: int = 0
    """Of messages that the switchboard had held or delayed when it began."""

    @property
    def nodes(self) -> tuple[int, ...]:
        return self.cluster.node_ids

    async def do(self, fault: Fault) -> None:
        text = format_fault(fault)
        self.doubtful.append(text)
        await self.cluster.apply(fault)
        self.faults.append(self.doubtful.pop())

    async def inspect(self) -> Inspection | None:
        return await self.cluster.inspect(seconds=_PATIENCE_SECONDS)

    async def require_whole(self) -> None:
        """Raises NotHereError unless all replicas are there, and in sync: what is taken from one
        node must still be with the others, or acknowledged records are lost by our own doing.
        """
        cluster = self.cluster
        is_up = all(cluster.processes.is_ready(node) for node in cluster.node_ids)
        found = await self.inspect() if is_up and cluster.awake == cluster.node_ids else None
        if found is None or any(
            len(state.isr) < len(state.replicas) for state in found.partitions.values()
        ):
            raise NotHereError("another replica is missing already")

    async def partitions(self) -> list[TopicPartition]:
        """Of users' topics. Raises NotHereError when there are none."""
        found = await self.inspect()
        wheres = [] if found is None else list(found.partitions)
        users = [where for where in wheres if not where.topic.startswith(INTERNAL)]
        if not users:
            raise NotHereError("there is no topic, or nobody tells")
        return users


@dataclass(frozen=True, slots=True)
class Kind:
    """`begin` has it happen and may leave notes in the scene; `end` undoes it."""

    name: str
    id: str
    summary: str
    begin: Callable[[Scene], Awaitable[Any]]
    end: Callable[[Scene], Awaitable[Any]]
    needs_proxy: bool = False
    """Only the proxy can do that to connections."""
    needs_other_version: bool = False
    min_nodes: int = 1
