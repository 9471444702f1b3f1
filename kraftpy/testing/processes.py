"""A cluster of processes, as `kraftpy up` makes it, with a switchboard between its nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from kraftpy.faults.switchboard import Switchboard
from kraftpy.launch.cluster import NODE_COMMAND, Cluster, ClusterSpec, NodeDeath, open_cluster
from kraftpy.launch.plan import NodePlan
from kraftpy.testing.backend import HOST, owner_at, shape_of
from kraftpy.testing.options import TEST_SETTINGS, ClusterOptions
from kraftpy.world import Address
from kraftpy.world.real import real_world
from kraftpy.world.real_processes import RealProcesses

__all__ = ["ProcessCluster", "open_processes"]

_LAST_LINES = 15


class ProcessCluster:
    """A Backend. Made by `open_processes`."""

    def __init__(self, cluster: Cluster, switchboard: Switchboard) -> None:
        self._cluster = cluster
        self.switchboard = switchboard

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    @property
    def plans(self) -> Sequence[NodePlan]:
        return list(self._cluster.nodes.values())

    @property
    def running(self) -> Sequence[int]:
        return self._cluster.running

    async def kill(self, node_id: int) -> None:
        await self._cluster.kill(node_id)

    async def stop(self, node_id: int) -> None:
        await self._cluster.stop_node(node_id)

    async def start(self, node_id: int) -> None:
        await self._cluster.start_node(node_id)

    def pause(self, node_id: int) -> None:
        self._cluster.pause(node_id)

    def resume(self, node_id: int) -> None:
        self._cluster.resume(node_id)

    def last_words(self, node_id: int) -> Sequence[str]:
        path = Path(self._cluster.nodes[node_id].log_path)
        text = path.read_text(errors="replace") if path.exists() else ""
        return text.splitlines()[-_LAST_LINES:]


class _Silence:
    """Nobody is told: faults are asked for, and a report has the nodes' last words."""

    def warned(self, warning: str) -> None:
        pass

    def formatted(self, node_ids: Sequence[int]) -> None:
        pass

    def started(self, node_id: int, pid: int) -> None:
        pass

    def moved(self, node_id: int) -> None:
        pass

    def ready(self, node_id: int, seconds: float) -> None:
        pass

    def died(self, death: NodeDeath) -> None:
        pass

    def killed(self, node_id: int, seconds: float) -> None:
        pass


@asynccontextmanager
async def open_processes(options: ClusterOptions, directory: Path) -> AsyncIterator[ProcessCluster]:
    """Every node serves. At the end they are killed: nobody needs what they have."""
    world = real_world()
    opened: list[Cluster] = []

    def owner_of(address: Address) -> int | None:
        return owner_at(list(opened[0].nodes.values()), address) if opened else None

    switchboard = Switchboard(world.clock, world.network, owner_of)
    async with trio.open_nursery() as nursery:
        host, port = await nursery.start(switchboard.run, HOST)
        spec = ClusterSpec(
            directory=str(directory),
            shape=shape_of(options),
            host=HOST,
            prefers_usual_ports=False,
            settings={**TEST_SETTINGS, **options.settings},
            ready_timeout_seconds=options.ready_timeout_seconds,
            command=(*NODE_COMMAND, "--faults", f"{host}:{port}"),
        )
        async with open_cluster(
            spec, world=world, processes=RealProcesses(), events=_Silence()
        ) as cluster:
            opened.append(cluster)
            await cluster.start()
            try:
                yield ProcessCluster(cluster, switchboard)
            finally:
                cluster.kill_all()
        nursery.cancel_scope.cancel()
