"""A node's world with faults, and the connection on which it is told of them.

world = FaultyWorld(real_world(), node_id, switchboard, die=...)
await nursery.start(world.obey)
Node(config, world.world, ..., decorate=world.decorate)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import trio

from kraftpy.api.handler import Handler
from kraftpy.faults.answers import failing
from kraftpy.faults.clock import FaultyClock
from kraftpy.faults.disk import FaultyDisk
from kraftpy.faults.exchange import WELCOME, read_line, send_all
from kraftpy.faults.language import Heal, NodeFault, parse_fault
from kraftpy.faults.routing import RoutedNetwork
from kraftpy.faults.state import NodeFaults
from kraftpy.world import Address, Network, Stream, World

__all__ = ["FaultyWorld"]

log = logging.getLogger(__name__)


class FaultyWorld:
    """What wraps the world of one node."""

    def __init__(
        self,
        world: World,
        node_id: int,
        switchboard: Address,
        *,
        die: Callable[[], None],
        is_routed: bool = True,
    ) -> None:
        """`is_routed`: connections to others go through the switchboard, which can cut them."""
        self._network: Network = world.network
        self._node_id = node_id
        self._switchboard = switchboard
        self._faults = NodeFaults(die)
        self._disk = FaultyDisk(world.disk, self._faults, world.clock)
        network = RoutedNetwork(world.network, node_id, switchboard) if is_routed else world.network
        self.world = replace(
            world,
            clock=FaultyClock(world.clock, self._faults),
            network=network,
            disk=self._disk,
        )
        self.decorate: Callable[[Handler], Handler] = failing(self._faults)

    async def obey(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry out what the switchboard says; `started` when what it began with is in force.

        Ends when the switchboard does: the node goes on with what it has.
        """
        stream = await self._network.connect(*self._switchboard)
        try:
            await send_all(stream, f"control {self._node_id}\n".encode())
            while (line := await read_line(stream)) != WELCOME:
                await self._carry_out(line, stream)
            task_status.started()
            while True:
                await self._carry_out(await read_line(stream), stream)
        except ConnectionError as error:
            log.info("no more faults from the switchboard: %s", error)
        finally:
            stream.close()

    def end(self) -> None:
        """For a node that shares its process with others: what it still tries fails from now on."""
        self._faults.fail_everything()

    def release(self) -> None:
        """Give back what a node that has ended did not."""
        self._disk.close_all()

    def _lose_power(self) -> None:
        """Nothing may be written between the loss and the end."""
        self._disk.lose_unsynced()
        self._faults.fail_everything()
        self._faults.die()

    async def _carry_out(self, line: str, stream: Stream) -> None:
        log.info("fault: %s", line)
        reply = ""
        try:
            fault = parse_fault(line)
            if isinstance(fault, Heal):
                self._faults.heal()
            elif isinstance(fault, NodeFault):
                self._faults.apply(fault)
            else:
                reply = f"{fault.name} does not happen inside of a node"
        except ValueError as error:
            reply = str(error)
        if self._faults.is_powerless:
            self._lose_power()
        await send_all(stream, f"{reply}\n".encode())
