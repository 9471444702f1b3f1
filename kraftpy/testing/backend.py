"""What clusters of processes and clusters in one process have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kraftpy.faults.switchboard import Switchboard
from kraftpy.launch.plan import NodePlan, Shape, combined_shape, split_shape
from kraftpy.testing.options import ClusterOptions
from kraftpy.world import Address

__all__ = ["HOST", "Backend", "owner_at", "shape_of"]

HOST = "127.0.0.1"


class Backend(Protocol):
    """A running cluster, for its own loop only."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def plans(self) -> Sequence[NodePlan]: ...

    @property
    def running(self) -> Sequence[int]:
        """The nodes that have not ended, paused or not."""
        ...

    @property
    def switchboard(self) -> Switchboard: ...

    async def kill(self, node_id: int) -> None: ...

    async def stop(self, node_id: int) -> None:
        """In good order."""
        ...

    async def start(self, node_id: int) -> None:
        """One that does not run; returns when it serves."""
        ...

    def pause(self, node_id: int) -> None: ...

    def resume(self, node_id: int) -> None: ...

    def last_words(self, node_id: int) -> Sequence[str]:
        """The end of what the node has logged."""
        ...


def shape_of(options: ClusterOptions) -> Shape:
    if options.controllers:
        return split_shape(controllers=options.controllers, brokers=options.nodes)
    return combined_shape(options.nodes)


def owner_at(plans: Sequence[NodePlan], address: Address) -> int | None:
    """Which node listens there."""
    port = address[1]
    for plan in plans:
        if port in (plan.port, plan.controller_port):
            return plan.node_id
    return None
