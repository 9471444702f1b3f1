"""A cluster whose nodes are tasks of one loop, each in a world of its own.

They share a process and nothing else: connections between them are real ones, through the same
switchboard, and their files are real too. A node that is killed is cancelled; from that moment its
connections are reset, and nothing that it still tries reaches its disk.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import trio

from kraftpy.config import NodeConfig
from kraftpy.faults.control import FaultyWorld
from kraftpy.faults.mortal import MortalNetwork
from kraftpy.faults.switchboard import Switchboard
from kraftpy.launch.errors import LaunchError
from kraftpy.launch.plan import NodePlan, plan_nodes, ports_needed
from kraftpy.launch.ports import choose_ports
from kraftpy.launch.preparation import check_settings, prepare
from kraftpy.metadata.directories import directory_paths
from kraftpy.node import Node, NodeAddresses
from kraftpy.protocol.ids import format_uuid, random_uuid
from kraftpy.testing.backend import HOST, owner_at, shape_of
from kraftpy.testing.options import TEST_SETTINGS, ClusterOptions
from kraftpy.world import Address, World
from kraftpy.world.real import real_world

__all__ = ["OneProcessCluster", "open_one_process"]

log = logging.getLogger(__name__)

_STOP_SECONDS = 5.0


@dataclass(eq=False)
class _Life:
    """One run of a node, from its start to its end."""

    node: Node
    network: MortalNetwork
    faulty: FaultyWorld
    scope: trio.CancelScope
    is_up: trio.Event = field(default_factory=trio.Event)
    ended: trio.Event = field(default_factory=trio.Event)
    failure: BaseException | None = None

    def started(self, addresses: NodeAddresses) -> None:
        """The part of trio's TaskStatus that a node uses."""
        self.is_up.set()

    def end(self) -> None:
        self.faulty.end()
        self.network.end()
        self.scope.cancel()


class OneProcessCluster:
    """A Backend. Made by `open_one_process`."""

    def __init__(
        self,
        nodes: Sequence[tuple[NodePlan, NodeConfig]],
        world: World,
        switchboard: Switchboard,
        address: Address,
        nursery: trio.Nursery,
        *,
        ready_timeout_seconds: float,
    ) -> None:
        self.switchboard = switchboard
        self._nodes = {plan.node_id: (plan, config) for plan, config in nodes}
        self._clock = world.clock
        self._address = address
        self._nursery = nursery
        self._ready_timeout_seconds = ready_timeout_seconds
        self._lives: dict[int, _Life] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(plan.address for plan in self.plans if plan.address is not None)

    @property
    def plans(self) -> Sequence[NodePlan]:
        return [plan for plan, _ in self._nodes.values()]

    @property
    def running(self) -> Sequence[int]:
        return [node_id for node_id, life in self._lives.items() if not life.ended.is_set()]

    async def kill(self, node_id: int) -> None:
        life = self._lives[node_id]
        life.end()
        await life.ended.wait()

    async def stop(self, node_id: int) -> None:
        life = self._lives[node_id]
        life.network.resume()
        life.node.stop()
        with self._clock.move_on_after(_STOP_SECONDS):
            await life.ended.wait()
            return
        # There may be nobody left to hand over to.
        life.node.stop()
        with self._clock.move_on_after(_STOP_SECONDS):
            await life.ended.wait()
            return
        await self.kill(node_id)

    async def start(self, node_id: int) -> None:
        await self.start_all([node_id])

    async def start_all(self, node_ids: Sequence[int]) -> None:
        """Returns when all serve. Raises LaunchError."""
        lives = [self._begin(node_id) for node_id in node_ids]
        with self._clock.move_on_after(self._ready_timeout_seconds):
            for node_id, life in zip(node_ids, lives, strict=True):
                await _first(life.is_up, life.ended)
                if life.ended.is_set():
                    raise LaunchError(f"node {node_id} ended before it was ready") from life.failure
            return
        raise LaunchError(f"not ready after {self._ready_timeout_seconds:g} s")

    def pause(self, node_id: int) -> None:
        self._lives[node_id].network.pause()

    def resume(self, node_id: int) -> None:
        self._lives[node_id].network.resume()

    def last_words(self, node_id: int) -> Sequence[str]:
        """Nodes log where the test does; only how one ended is worth repeating."""
        life = self._lives.get(node_id)
        return () if life is None or life.failure is None else (repr(life.failure),)

    def end_all(self) -> None:
        for life in self._lives.values():
            life.end()

    def _begin(self, node_id: int) -> _Life:
        _, config = self._nodes[node_id]
        machine = real_world()
        network = MortalNetwork(machine.network)
        faulty = FaultyWorld(
            replace(machine, network=network),
            node_id,
            self._address,
            die=lambda: self._lives[node_id].end(),  # noqa: PLW0108 (made below)
        )
        node = Node(
            config,
            faulty.world,
            directory_paths(config, "/"),
            host_name=HOST,
            decorate=faulty.decorate,
        )
        life = self._lives[node_id] = _Life(node, network, faulty, trio.CancelScope())
        self._nursery.start_soon(self._live, life, name=f"node-{node_id}")
        return life

    async def _live(self, life: _Life) -> None:
        try:
            with life.scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(life.faulty.obey)
                    await life.node.run(task_status=cast("trio.TaskStatus[NodeAddresses]", life))
                    nursery.cancel_scope.cancel()
        except* Exception as group:
            # As with a process: its end is its own, and the others go on.
            life.failure = group
            log.info("a node has ended", exc_info=group)
        finally:
            life.network.end()
            life.faulty.release()
            life.ended.set()


async def _first(*events: trio.Event) -> None:
    """Return when one of them is set."""

    async def wait(event: trio.Event) -> None:
        await event.wait()
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for each in events:
            nursery.start_soon(wait, each)


@asynccontextmanager
async def open_one_process(
    options: ClusterOptions, directory: Path
) -> AsyncIterator[OneProcessCluster]:
    """Every node serves. At the end they are killed: nobody needs what they have."""
    world = real_world()
    shape = shape_of(options)
    settings = {**TEST_SETTINGS, **options.settings}
    ports = await choose_ports(
        world.network,
        world.rng.stream("ports"),
        host=HOST,
        count=ports_needed(shape),
        base=None,
        prefers_usual=False,
    )
    plans = plan_nodes(shape, ports, host=HOST, directory=str(directory), settings=settings)
    configs = check_settings(plans, settings)
    await prepare(
        world, plans, configs, cluster_id=format_uuid(random_uuid(world.rng.stream("uuid")))
    )
    switchboard = Switchboard(world.clock, world.network, lambda address: owner_at(plans, address))
    async with trio.open_nursery() as nursery:
        address = await nursery.start(switchboard.run, HOST)
        cluster = OneProcessCluster(
            list(zip(plans, configs, strict=True)),
            world,
            switchboard,
            address,
            nursery,
            ready_timeout_seconds=options.ready_timeout_seconds,
        )
        try:
            await cluster.start_all([plan.node_id for plan in plans])
            yield cluster
        finally:
            cluster.end_all()
            nursery.cancel_scope.cancel()
