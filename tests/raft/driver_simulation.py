"""Members of a quorum on simulated machines, in the hand of a test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio
from driver_rig import Member, Places, config_at

from kraftpy.log.errors import StorageError
from kraftpy.sim.runner import SimulationResult, run_simulation
from kraftpy.sim.simulation import Simulation
from kraftpy.world.memory_disk import MemoryDisk, PowerLost
from kraftpy.world.memory_disk_crash import CrashPolicy

T = TypeVar("T")

SEED = 20
PORT = 9093
LIMIT_SECONDS = 60.0


def machine(node_id: int) -> str:
    return f"node-{node_id}"


class Quorum:
    """Members on machines of the simulation, started, killed and started again by the test."""

    def __init__(self, simulation: Simulation, nursery: trio.Nursery, count: int) -> None:
        self.simulation = simulation
        self.places: Places = {each: (machine(each), PORT) for each in range(1, count + 1)}
        self.members: dict[int, Member] = {}
        self.changes: dict[str, object] = {}
        self._nursery = nursery
        self._scopes: dict[int, trio.CancelScope] = {}
        self._changed = trio.Event()

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids or tuple(self.places):
            world = self.simulation.world(machine(node_id))
            config = config_at(node_id, self.places, **self.changes)
            member = Member(world, config, "/data", changed=self._tell)
            self.members[node_id] = member
            self._nursery.start_soon(self._run, node_id, member)

    def start_missing(self) -> None:
        missing = [each for each in self.places if each not in self.members]
        if missing:
            self.start(*missing)

    async def _run(self, node_id: int, member: Member) -> None:
        with trio.CancelScope() as scope:
            self._scopes[node_id] = scope
            try:
                # As `storage format` leaves it: the metadata directory itself is there to stay.
                await member.world.disk.make_directory("/data")
                await member.world.disk.sync_directory("/")
                await member.run()
            except* (StorageError, PowerLost):
                # A ghost's disk fails; whose scope is not cancelled is no ghost.
                if not scope.cancel_called:
                    raise

    def disk(self, node_id: int) -> MemoryDisk:
        return self.simulation.machine(machine(node_id)).disk

    def kill(self, node_id: int) -> None:
        self.simulation.kill(machine(node_id))
        self._end(node_id)

    def vanish(self, node_id: int) -> None:
        self.simulation.vanish(machine(node_id), CrashPolicy.DROP_ALL)
        self._end(node_id)

    def _end(self, node_id: int) -> None:
        self._scopes[node_id].cancel()
        del self.members[node_id]

    def _tell(self) -> None:
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that the state machines hear of."""
        while not condition():
            self._changed = trio.Event()
            await self._changed.wait()

    @property
    def leaders(self) -> list[Member]:
        """Those whose state machine knows that it leads, and has not heard otherwise."""
        return [member for member in self.members.values() if member.knows_that_it_leads]

    async def leader(self) -> Member:
        await self.until(lambda: bool(self.leaders))
        return self.leaders[0]

    async def committed(self, name: str, value: str, *node_ids: int) -> None:
        """Until every member, or each of these, has this setting in its image."""
        ids = node_ids or tuple(self.members)
        await self.until(
            lambda: all(self.members[each].settings.get(name) == value for each in ids)
        )

    def record(self) -> None:
        for node_id, member in self.members.items():
            text = f"{member.driver.describe()} {member.heard} {member.settings}"
            self.simulation.record("member", machine(node_id), text.encode())


def simulate(
    scenario: Callable[[Quorum], Awaitable[T]], *, count: int = 3, seed: int = SEED
) -> SimulationResult[T]:
    print(f"seed {seed}")

    async def main(simulation: Simulation) -> T:
        async with trio.open_nursery() as nursery:
            quorum = Quorum(simulation, nursery, count)
            outcome = await scenario(quorum)
            quorum.record()
            nursery.cancel_scope.cancel()
        return outcome

    return run_simulation(main, seed=seed, time_limit_seconds=LIMIT_SECONDS)
