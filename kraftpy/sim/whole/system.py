"""One run of a whole cluster: boot, safety, liveness, the end, each with its own obligations.

- *Safety*: clients work while the planned faults happen. Anything may be slow or fail; nothing may
  be wrong.
- *Liveness*: the faults are over, but for the node that stays behind if the world has one. Every
  partition must take and give records again, with all replicas that run in sync, in bounded time.
- *The end*: everybody is healed, replicas become equal, and everything is read and compared.

A run fails with the first violation of an invariant, with a deadlock (SimDeadlock), with an
exception that the product logs, or with an obligation that is not met in time (NotLive).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from functools import partial

import trio

from kraftpy.faults.language import FailNext
from kraftpy.metadata.features import ELIGIBLE_LEADER_REPLICAS
from kraftpy.metadata.format import FormatRequest
from kraftpy.metadata.records import NO_LEADER, PartitionRecord
from kraftpy.node import Node
from kraftpy.sim.error_log import ErrorLog
from kraftpy.sim.quorum_invariants import InvariantViolated
from kraftpy.sim.simulation import Simulation
from kraftpy.sim.whole.answers import watched
from kraftpy.sim.whole.hosts import WholeHost
from kraftpy.sim.whole.load import Load, open_load
from kraftpy.sim.whole.machines import (
    CLUSTER_ID,
    PORT,
    Machines,
    Observer,
    machine_name,
    node_settings,
)
from kraftpy.sim.whole.notes import Note
from kraftpy.sim.whole.schedule import PlannedFault
from kraftpy.sim.whole.swarm import WholeSwarm
from kraftpy.sim.whole.watch import Watch
from kraftpy.world import memory_disk_faults as disks
from kraftpy.world.alarms import Alarm
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk_crash import CrashPolicy

__all__ = ["WholeOutcome", "WholeSystem"]

CLIENT = "client"
_LOOK_SECONDS = 0.01
_QUIET_SECONDS = 0.5
# What the specification allows for getting well, and some more: its bounds are for one fault.
_RECOVERY_SECONDS = 120.0
_BOOT_SECONDS = 120.0


def _plain(error: BaseException) -> BaseException:
    """What one task has failed with, rather than the nest of groups that it came in."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@dataclass(slots=True)
class WholeOutcome:
    """What is known when a run is over, however it ended."""

    notes: list[Note] = field(default_factory=list)
    messages: int = 0
    checks: int = 0
    operations: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    delivered: int = 0
    faults: int = 0
    # Of each place in the product that was asked for a rare choice, how often it was made.
    buggified: dict[str, int] = field(default_factory=dict)


class WholeSystem(Observer):
    """`run` it as the main function of one simulation."""

    def __init__(
        self,
        swarm: WholeSwarm,
        plan: Collection[PlannedFault],
        *,
        seconds: float,
        messages: int | None = None,
    ) -> None:
        """The safety phase takes so many virtual seconds, or as long as messages are delivered."""
        self.swarm = swarm
        self.plan = sorted(plan, key=lambda each: each.at_seconds)
        self.outcome = WholeOutcome()
        self._seconds = seconds
        self._messages = messages
        self._errors = ErrorLog()
        self._spoiled: dict[int, None] = {}
        self._phase_scope: trio.CancelScope | None = None
        # Of each way on which bytes were delivered, the node at its end; None if it is a client.
        self._receivers: dict[str, int | None] = {}
        # Of each node, the turn of deliveries in which it was looked at last.
        self._looked_in: dict[int, int | None] = {}
        self._load: Load | None = None
        self._last_seconds = 0.0
        self._next_look = Alarm(self._look)
        # Whether a look is due soon, whatever happens until then.
        self._looks_soon = False

    # Putting the world together.

    async def run(self, simulation: Simulation) -> WholeOutcome:
        self.simulation = simulation
        self._set_the_stage(simulation)
        logger = logging.getLogger("kraftpy")
        logger.addHandler(self._errors)
        try:
            async with trio.open_nursery() as nursery:
                await self._run(simulation, nursery)
                nursery.cancel_scope.cancel()
        except BaseException as error:
            # Whatever follows a violation is of no interest.
            if self.watch.violation is None:
                raise _plain(error)  # noqa: B904 (it is the same one)
        finally:
            self._last_seconds = trio.current_time()
            logger.removeHandler(self._errors)
            self._sum_up()
        if self.watch.violation is not None:
            raise self.watch.violation
        if self._errors.messages:
            raise InvariantViolated("unforeseen", self._errors.messages[0])
        return self.outcome

    def _set_the_stage(self, simulation: Simulation) -> None:
        swarm = self.swarm
        names = [machine_name(each) for each in swarm.node_ids]
        places = (*names, CLIENT)
        for source in places:
            for target in places:
                if source != target:
                    simulation.fabric.set_profile(source, target, swarm.link)
        for node_id, name in zip(swarm.node_ids, names, strict=True):
            clock = MemoryClock(
                rate=swarm.clock_rates.get(node_id, 1.0),
                wall_offset_ms=swarm.wall_offsets_ms.get(node_id, 0),
                true_time=simulation.true_time,
            )
            machine = simulation.machine(name, clock)
            if swarm.disk_seconds:
                machine.disk.inject(disks.SlowDisk(mean_more_seconds=swarm.disk_seconds))
        machines = {
            node_id: simulation.machine(machine_name(node_id)) for node_id in swarm.node_ids
        }
        self._hosts = {
            node_id: WholeHost(node_id, machine.disk, machine.clock)
            for node_id, machine in machines.items()
        }
        self.watch = Watch(
            self._hosts, flushes=swarm.flushes, has_elr=swarm.has_elr, failed=self._fail
        )

    def _fail(self) -> None:
        """The run ends here: what follows a violation is of no interest."""
        if self._phase_scope is not None:
            self._phase_scope.cancel()

    def _sum_up(self) -> None:
        outcome, watch = self.outcome, self.watch
        outcome.checks = watch.checks
        outcome.acknowledged = watch.data.acknowledged
        outcome.delivered = watch.data.delivered
        outcome.buggified = dict(self.simulation.buggify.fired)
        if self._load is not None:
            outcome.operations = self._load.counts

    def note(self, node_id: int, text: str) -> None:
        self.outcome.notes.append(Note(trio.current_time(), node_id, text))

    @property
    def last_seconds(self) -> float:
        """The virtual time at which the run was seen last."""
        return self._last_seconds

    def machine_at(self, address: str) -> str:
        host = self.simulation.fabric.find(address)
        return address if host is None else host.name

    # The phases.

    async def _run(self, simulation: Simulation, nursery: trio.Nursery) -> None:
        swarm = self.swarm
        features = {} if swarm.has_elr else {ELIGIBLE_LEADER_REPLICAS: 0}
        configs = {
            each: node_settings(each, swarm.controllers, swarm.brokers, swarm.node_settings)
            for each in swarm.node_ids
        }
        machines = self.machines = Machines(
            simulation,
            nursery,
            configs,
            [CLIENT],
            format_request=FormatRequest(CLUSTER_ID, features=features, ignores_formatted=True),
            buggify=swarm.buggify,
            watch=lambda node_id: watched(self.watch, node_id),
            observer=self,
        )
        simulation.on_delivery = self._delivered
        nursery.start_soon(self._look_all_the_time)
        with trio.CancelScope() as self._phase_scope:
            for node_id in configs:
                machines.start(node_id)
            bootstrap = [(machine_name(each), PORT) for each in swarm.brokers]
            world = simulation.world(CLIENT)
            await self._until("the start", partial(self._is_well, ()), _BOOT_SECONDS)
            async with open_load(simulation, world, bootstrap, swarm) as load:
                self._load = load
                await load.boot()
                async with trio.open_nursery() as working:
                    working.start_soon(load.run, self._seconds)
                    await self._safety(load)
                    load.end_soon()
                    self.note(0, "the faults are over")
                await self._liveness()
                await load.finish()
                await self._until("the last replication", partial(self._is_well, ()), 60)
            self.watch.look_at_all()
            self.watch.check_end()
            load.judge()

    async def _safety(self, load: Load) -> None:
        began = trio.current_time()
        with trio.move_on_after(self._seconds):
            async with trio.open_nursery() as nursery:
                if self._messages is not None:
                    nursery.start_soon(self._end_at, self._messages, nursery.cancel_scope)
                for planned in self.plan:
                    await trio.sleep_until(began + planned.at_seconds)
                    if self.swarm.overlaps:
                        nursery.start_soon(self._befall, planned, load)
                    else:
                        await self._befall(planned, load)
                await trio.sleep_forever()

    async def _end_at(self, messages: int, scope: trio.CancelScope) -> None:
        while self.outcome.messages < messages:  # noqa: ASYNC110 (in virtual time)
            await trio.sleep(0.1)
        scope.cancel()

    async def _befall(self, planned: PlannedFault, load: Load) -> None:
        fault = planned.fault
        self.outcome.faults += 1
        self.note(getattr(fault, "node", None) or 0, str(planned))
        if not isinstance(fault, FailNext) and fault.name.startswith("disk-"):
            self._spoiled[getattr(fault, "node", 0)] = None
        load.befall(fault.name, "start")
        end = await self.machines.apply(fault)
        try:
            await trio.sleep(planned.seconds)
        finally:
            load.befall(fault.name, "end")
            if end is not None:
                end()
                self.note(getattr(fault, "node", None) or 0, f"#{planned.number} is over")

    async def _liveness(self) -> None:
        """First without the one that stays behind, then with everybody."""
        left_behind = self.swarm.left_behind
        for node_id in (left_behind, 0) if left_behind else (0,):
            self.machines.heal_links()
            if node_id:
                await self.machines.kill(node_id)
                self.note(node_id, "stays behind")
            async with trio.open_nursery() as healing:
                for each in self.machines.node_ids:
                    if each != node_id:
                        healing.start_soon(self._heal_node, each)
            # Longer than any session: whoever thinks that it still leads has learnt better.
            await trio.sleep(10)
            away = (node_id,) if node_id else ()
            await self._until("recovery", partial(self._is_well, away), _RECOVERY_SECONDS)

    async def _heal_node(self, node_id: int) -> None:
        await self.machines.heal_node(node_id)
        if self.swarm.disk_seconds:
            disk = self.simulation.machine(machine_name(node_id)).disk
            disk.inject(disks.SlowDisk(mean_more_seconds=self.swarm.disk_seconds))

    async def _is_well(self, away: Collection[int]) -> str | None:
        """None if every partition is led, everybody votes or is in sync, and all is alike."""
        self.watch.look_at_all()
        running = self.machines.running
        for each in self.machines.node_ids:
            if each not in away and (each not in running or not running[each].is_up):
                return f"node {each} does not serve"
        for each in self.swarm.controllers:
            node = running[each].node if each in running else None
            if node is not None and node.quorum is not None:
                voters = node.quorum.driver.quorum.voters.latest.ids
                if any(voter not in voters for voter in self.swarm.controllers):
                    return f"node {each} knows no other voters than {voters}"
        for topic in self.watch.truth.image.topics.values():
            for record in topic.partitions:
                ailment = self._ailment(record, away)
                if ailment is not None:
                    return f"{topic.name}: {ailment}"
        return None

    def _ailment(self, record: PartitionRecord, away: Collection[int]) -> str | None:
        if record.leader == NO_LEADER:
            # Who may lead it is away, perhaps, and with it what the others don't have.
            may_wait = any(each in away for each in record.replicas) and self.swarm.min_isr == 1
            return None if may_wait else f"no leader: {record}"
        if any(each not in record.isr for each in record.replicas if each not in away):
            return f"not in sync: {record}"
        key = (record.topic_id, record.partition_id)
        return None if away else self.watch.data.disorder(key, record)

    async def _until(
        self, what: str, ailment: Callable[[], Awaitable[str | None]], seconds: float
    ) -> None:
        """Wait until there is none. Raises InvariantViolated after so many virtual seconds."""
        found: str | None = None
        with trio.move_on_after(seconds):
            while (found := await ailment()) is not None:  # noqa: ASYNC110 (in virtual time)
                await trio.sleep(0.5)
            return
        raise InvariantViolated("not-live", f"{what} takes more than {seconds:g} s: {found}")

    # What is seen.

    def made(self, node_id: int, node: Node) -> None:
        self.watch.started(node_id, node)

    def dies(self, node_id: int, *, was_up: bool, policy: CrashPolicy | None) -> None:
        self.watch.dies(node_id, was_up=was_up, policy=policy)

    def expect_to_stop(self, node_id: int) -> None:
        """Its disk is going to fail."""
        self._spoiled[node_id] = None

    def is_excused(self, node_id: int, error: BaseException) -> bool:
        """A node that has lost its disk must stop."""
        return node_id in self._spoiled

    def may_damage(self) -> bool:
        running = self.machines.running
        return all(
            each in running and running[each].is_up and not running[each].is_paused
            for each in self.machines.node_ids
        ) and all(
            all(each in record.isr for each in record.replicas)
            for topic in self.watch.truth.image.topics.values()
            for record in topic.partitions
        )

    def _delivered(self, way: str) -> None:
        self.outcome.messages += 1
        if not self._looks_soon:
            self._looks_soon = True
            self._next_look.ring_by(self.simulation.true_time.now + _LOOK_SECONDS)
        if way not in self._receivers:
            self._receivers[way] = self._receiver(way)
        node_id = self._receivers[way]
        turn = self.simulation.fabric.turn
        # What is delivered along with something else finds the node as that did.
        if node_id is not None and (turn is None or self._looked_in.get(node_id) != turn):
            self._looked_in[node_id] = turn
            self.watch.look_at(node_id)

    def _receiver(self, way: str) -> int | None:
        name = self.machine_at(way[way.index(">") + 1 : way.rindex(":")])
        found = [each for each in self.swarm.node_ids if machine_name(each) == name]
        return found[0] if found else None

    async def _look_all_the_time(self) -> None:
        """Soon after anything was delivered, and now and then when nothing is."""
        moment = trio.current_time() + _QUIET_SECONDS
        while True:
            await self._next_look.wait_until(moment)
            moment = self._look()

    def _look(self) -> float:
        """Look at everybody; when to look again, should nothing be delivered until then."""
        self._looks_soon = False
        self.watch.look_at_all()
        return self.simulation.true_time.now + _QUIET_SECONDS
