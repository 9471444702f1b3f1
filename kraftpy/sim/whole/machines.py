"""The nodes of a simulated cluster: processes that run, hang, die and come back, on their machines.

A fault is a value of `kraftpy.faults.language`, as everywhere. What begins a state (a cut, a pause,
a node that is down) returns the end of it, so that several faults may overlap: a link is whole when
every cut of it has ended, and a node that was killed twice is started once.

Node 3 is the machine `n3`; clients are on machines of their own.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

import trio

from kraftpy.api.handler import Handler
from kraftpy.config import NodeConfig, from_mapping
from kraftpy.faults.answers import failing
from kraftpy.faults.language import (
    ClockJump,
    CutClients,
    Delay,
    DiskError,
    DiskFull,
    FailNext,
    Fault,
    FlipBits,
    Kill,
    OneWay,
    Partition,
    Pause,
    PowerLoss,
    RemoveVoter,
    Reset,
    Restart,
    SlowDisk,
    Stop,
    StrayWrite,
    TornWrite,
)
from kraftpy.faults.state import NodeFaults
from kraftpy.metadata.directories import directory_paths
from kraftpy.metadata.format import FormatRequest, format_storage
from kraftpy.node import Node
from kraftpy.sim.simulation import Simulation
from kraftpy.sim.whole.more_faults import Voters, damage_log
from kraftpy.world import World
from kraftpy.world import memory_disk_faults as disks
from kraftpy.world.memory_disk_crash import CrashPolicy

__all__ = [
    "CLUSTER_ID",
    "PORT",
    "Machines",
    "Observer",
    "Running",
    "formatted_node",
    "machine_name",
    "node_settings",
]

CLUSTER_ID = "c2ltdWxhdGVkLW5vZGVzLQ"
PORT = 9092
_CONTROLLER_PORT = 9093
# A node that is asked to stop and finds nobody to hand over to is asked again, and then killed.
_PATIENCE_SECONDS = 20.0

End = Callable[[], None]


def machine_name(node_id: int) -> str:
    return f"n{node_id}"


def node_settings(
    node_id: int, controllers: Sequence[int], brokers: Sequence[int], settings: Mapping[str, str]
) -> NodeConfig:
    """The configuration of one node among these; an empty value leaves a setting out."""
    name = machine_name(node_id)
    voters = ",".join(f"{each}@{machine_name(each)}:{_CONTROLLER_PORT}" for each in controllers)
    roles, listeners = [], []
    if node_id in brokers:
        roles.append("broker")
        listeners.append(f"PLAINTEXT://{name}:{PORT}")
    if node_id in controllers:
        roles.append("controller")
        listeners.append(f"CONTROLLER://{name}:{_CONTROLLER_PORT}")
    base = {
        "process.roles": ",".join(roles),
        "node.id": str(node_id),
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join(listeners),
        "log.dirs": "/data",
    }
    merged = {key: value for key, value in {**base, **settings}.items() if value}
    return NodeConfig(from_mapping(merged, "the simulation"))


async def formatted_node(
    config: NodeConfig,
    world: World,
    *,
    host_name: str = "localhost",
    request: FormatRequest | None = None,
    decorate: Callable[[Handler], Handler] | None = None,
) -> Node:
    """A node that can run: new directories are formatted. They have absolute paths."""
    paths = directory_paths(config, "/")
    request = request or FormatRequest(CLUSTER_ID, ignores_formatted=True)
    await format_storage(config, request, paths, world)
    return Node(config, world, paths, host_name=host_name, decorate=decorate)


class Observer:
    """What is told of the nodes' lives. This one does not care."""

    def note(self, node_id: int, text: str) -> None:
        """Something happens to a node, in words."""

    def made(self, node_id: int, node: Node) -> None:
        """A process is about to run."""

    def dies(self, node_id: int, *, was_up: bool, policy: CrashPolicy | None) -> None:
        """A process is about to end; without a policy it does so by itself."""

    def is_excused(self, node_id: int, error: BaseException) -> bool:
        """Whether a node may end with this."""
        return False

    def may_damage(self) -> bool:
        """Whether one node's log may be damaged: all that it has must be with others, too."""
        return True


class Running:
    """One process of a node, from its start to its end."""

    __slots__ = ("ended", "faults", "is_paused", "is_up", "node", "scope", "was_told_to_stop")

    def __init__(self, die: Callable[[], None]) -> None:
        self.scope = trio.CancelScope()
        self.node: Node | None = None
        self.faults = NodeFaults(die)
        self.ended = trio.Event()
        self.is_up = False
        self.is_paused = False
        self.was_told_to_stop = False

    def started(self, _: object) -> None:
        """The part of trio's TaskStatus that a node uses."""
        self.is_up = True


class Machines:
    """All nodes, and what can befall them."""

    def __init__(
        self,
        simulation: Simulation,
        nursery: trio.Nursery,
        configs: Mapping[int, NodeConfig],
        clients: Sequence[str],
        *,
        format_request: FormatRequest | None = None,
        buggify: bool = False,
        watch: Callable[[int], Callable[[Handler], Handler]] | None = None,
        observer: Observer | None = None,
    ) -> None:
        """`watch` gives what is put in front of a node's handlers."""
        self.simulation = simulation
        self.configs = dict(configs)
        self.clients = tuple(clients)
        self._nursery = nursery
        self._request = format_request
        self._buggify = buggify
        self._watch = watch
        self._observer = observer or Observer()
        self.running: dict[int, Running] = {}
        # Of each direction, how many faults cut it.
        self._cuts: dict[tuple[str, str], int] = {}
        self._delays: dict[tuple[str, str], int] = {}

    @property
    def node_ids(self) -> list[int]:
        return list(self.configs)

    def nodes(self) -> Iterator[tuple[int, Node]]:
        """Those that run, hanging or not."""
        for node_id, running in self.running.items():
            if running.node is not None:
                yield node_id, running.node

    # Processes.

    def start(self, node_id: int) -> None:
        if node_id not in self.running:
            running = self.running[node_id] = Running(lambda: self._tear(node_id))
            self._observer.note(node_id, "starts")
            name = machine_name(node_id)
            # Here, so that it can be killed before it has done anything.
            world = self.simulation.world(name, buggify=self._buggify)
            self._nursery.start_soon(self._run, node_id, running, world, name=name)

    async def _run(self, node_id: int, running: Running, world: World) -> None:
        name = machine_name(node_id)
        try:
            with running.scope:
                running.node = await formatted_node(
                    self.configs[node_id],
                    world,
                    host_name=name,
                    request=self._request,
                    decorate=self._decorator(node_id, running),
                )
                self._observer.made(node_id, running.node)
                await running.node.run(task_status=running)  # type: ignore[arg-type]
        except Exception as error:
            # What a process says that was killed while it formatted its disk, nobody hears.
            is_heard = running.node is not None or self.running.get(node_id) is running
            if is_heard and not self._observer.is_excused(node_id, error):
                raise
            self._observer.note(node_id, f"gives up: {_first_words(error)}")
        finally:
            self.simulation.record("ended", name)
            if self.running.get(node_id) is running:
                # By itself: whatever else ends a process has forgotten it before.
                del self.running[node_id]
                self._observer.dies(node_id, was_up=running.is_up, policy=None)
                self._observer.note(node_id, "has ended")
                self.simulation.kill(name)
            running.ended.set()

    def _decorator(self, node_id: int, running: Running) -> Callable[[Handler], Handler]:
        fails = failing(running.faults)
        if self._watch is None:
            return fails
        watched = self._watch(node_id)
        return lambda handler: fails(watched(handler))

    def _die(self, node_id: int, policy: CrashPolicy | None) -> Running | None:
        """End the process, or with a policy the machine's power; None if it isn't running."""
        running = self.running.pop(node_id, None)
        if running is None:
            return None
        name = machine_name(node_id)
        self._observer.dies(node_id, was_up=running.is_up, policy=policy or CrashPolicy.KEEP_ALL)
        if policy is None:
            self._observer.note(node_id, "is killed")
            self.simulation.kill(name)
        else:
            self._observer.note(node_id, f"loses power ({policy.value})")
            self.simulation.vanish(name, policy)
        running.scope.cancel()
        return running

    def _tear(self, node_id: int) -> None:
        self._die(node_id, CrashPolicy.TORN_LAST)

    async def kill(self, node_id: int, policy: CrashPolicy | None = None) -> None:
        """Returns when nothing of the process is left."""
        running = self._die(node_id, policy)
        if running is not None:
            await running.ended.wait()

    async def stop(self, node_id: int) -> None:
        """In good order, as far as the others let it."""
        running = self.running.get(node_id)
        if running is None:
            return
        self._resume(node_id, running)
        self._observer.note(node_id, "is told to stop")
        running.was_told_to_stop = True
        for _ in range(2):
            if running.node is None:
                break
            running.node.stop()
            with trio.move_on_after(_PATIENCE_SECONDS):
                await running.ended.wait()
                return
        if self.running.get(node_id) is running:
            await self.kill(node_id)
        else:
            await running.ended.wait()

    def _resume(self, node_id: int, running: Running) -> None:
        if running.is_paused and self.running.get(node_id) is running:
            running.is_paused = False
            self._observer.note(node_id, "goes on")
            self.simulation.resume(machine_name(node_id))

    # Faults.

    async def apply(self, fault: Fault) -> End | None:
        """Have it happen. Returns what ends it, or None if there is nothing to end."""
        match fault:
            case Kill() | PowerLoss() | TornWrite():
                await self.kill(fault.node, _policy(fault))
                return lambda: self.start(fault.node)
            case Stop():
                await self.stop(fault.node)
                return lambda: self.start(fault.node)
            case Restart(node):
                await self.stop(node)
                self.start(node)
                return None
            case Pause(node):
                return self._pause(node)
            case Partition(a, b):
                return self._cut([*product(a, b), *product(b, a)])
            case OneWay(senders, receivers):
                return self._cut(list(product(senders, receivers)))
            case CutClients(nodes):
                return self._cut_clients(nodes)
            case Delay(a, b, milliseconds):
                return self._delay([*product(a, b), *product(b, a)], milliseconds)
            case Reset(a, b):
                for source, target in product(a, b):
                    self.simulation.fabric.reset(machine_name(source), machine_name(target))
                return None
            case FailNext(node=node):
                for node_id, running in self.running.items():
                    if node in (None, node_id):
                        running.faults.apply(fault)
                return None
            case ClockJump(node, milliseconds):
                return self._jump(node, milliseconds)
            case DiskFull(node) | DiskError(node) | SlowDisk(node):
                return self._spoil(node, fault)
            case FlipBits(node) | StrayWrite(node):
                return await self._damage(node, fault)
            case RemoveVoter(node):
                return await self._remove_voter(node)
        raise ValueError(f"{fault.name} can't be simulated")

    def _pause(self, node_id: int) -> End | None:
        running = self.running.get(node_id)
        if running is None or running.is_paused:
            return None
        running.is_paused = True
        self._observer.note(node_id, "hangs")
        self.simulation.pause(machine_name(node_id))
        return lambda: self._resume(node_id, running)

    def _cut(self, pairs: Sequence[tuple[int, int]]) -> End:
        return self._cut_links([(machine_name(a), machine_name(b)) for a, b in pairs])

    def _cut_clients(self, nodes: Sequence[int]) -> End:
        names = [machine_name(each) for each in nodes]
        return self._cut_links([*product(names, self.clients), *product(self.clients, names)])

    def _cut_links(self, links: Sequence[tuple[str, str]]) -> End:
        for link in links:
            self._cuts[link] = self._cuts.get(link, 0) + 1
            self.simulation.fabric.cut(*link)

        def end() -> None:
            for link in links:
                if self._cuts.get(link, 0) > 0:
                    self._cuts[link] -= 1
                    if self._cuts[link] == 0:
                        self.simulation.fabric.heal(*link)

        return end

    def _delay(self, pairs: Sequence[tuple[int, int]], milliseconds: int) -> End:
        links = [(machine_name(a), machine_name(b)) for a, b in pairs]
        for link in links:
            self._set_delay(link, milliseconds)

        def end() -> None:
            for link in links:
                self._set_delay(link, -milliseconds)

        return end

    def _set_delay(self, link: tuple[str, str], more_ms: int) -> None:
        self._delays[link] = self._delays.get(link, 0) + more_ms
        self.simulation.fabric.link(*link).extra_seconds = self._delays[link] / 1000

    def _jump(self, node_id: int, milliseconds: int) -> End:
        clock = self.simulation.machine(machine_name(node_id)).clock
        clock.jump_wall(milliseconds)
        self._observer.note(node_id, f"clock jumps by {milliseconds} ms")
        return lambda: clock.jump_wall(-milliseconds)

    def _spoil(self, node_id: int, fault: DiskFull | DiskError | SlowDisk) -> End:
        disk = self.simulation.machine(machine_name(node_id)).disk
        injected = disk.inject(_disk_fault(fault))

        def end() -> None:
            """A node that could not go on without its disk is started by whoever repaired it."""
            disk.heal(injected)
            self.start(node_id)

        return end

    async def _damage(self, node_id: int, fault: FlipBits | StrayWrite) -> End | None:
        if not self._observer.may_damage():
            self._observer.note(node_id, "is spared: others are not well")
            return None
        await self.kill(node_id)
        done = damage_log(self.simulation.machine(machine_name(node_id)).disk, fault)
        self._observer.note(node_id, done or "has nothing to damage")
        return lambda: self.start(node_id)

    async def _remove_voter(self, node_id: int) -> End | None:
        controllers = {
            each: (machine_name(each), _CONTROLLER_PORT)
            for each, config in self.configs.items()
            if config.is_controller
        }
        servers = [
            (machine_name(each), PORT) for each, config in self.configs.items() if config.is_broker
        ]
        voters = Voters(self.simulation.world(self.clients[0]), servers, controllers)

        def end() -> None:
            self._nursery.start_soon(self._bring_back, voters, node_id)

        try:
            is_removed = await voters.remove(node_id)
        except BaseException:
            # Cancelled, alone or in a group: the time of faults is over, and it may be out by now.
            end()
            raise
        self._observer.note(node_id, "votes no more" if is_removed else "may vote no more")
        # Whatever came of it: an answer may have been lost.
        return end

    async def _bring_back(self, voters: Voters, node_id: int) -> None:
        await voters.bring_back(node_id)
        self._observer.note(node_id, "votes")

    def heal_links(self) -> None:
        """Every link is whole, whoever cut it."""
        self._cuts.clear()
        self._delays.clear()
        for source, target in product((*map(machine_name, self.configs), *self.clients), repeat=2):
            if source != target:
                self.simulation.fabric.heal(source, target)
                self.simulation.fabric.link(source, target).extra_seconds = 0.0

    async def heal_node(self, node_id: int) -> None:
        """It runs, and nothing of what was done to it from inside is left."""
        self.simulation.machine(machine_name(node_id)).disk.heal()
        running = self.running.get(node_id)
        if running is not None:
            running.faults.heal()
            self._resume(node_id, running)
            if running.was_told_to_stop:
                await self.stop(node_id)
        self.start(node_id)


def _first_words(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return repr(error)


def _policy(fault: Kill | PowerLoss | TornWrite) -> CrashPolicy | None:
    if isinstance(fault, PowerLoss):
        return CrashPolicy(fault.policy)
    return CrashPolicy.TORN_LAST if isinstance(fault, TornWrite) else None


def _disk_fault(fault: DiskFull | DiskError | SlowDisk) -> disks.DiskFault:
    match fault:
        case DiskFull():
            return disks.WriteError(error=errno.ENOSPC)
        case DiskError(operation="read"):
            return disks.ReadError()
        case DiskError(operation="sync"):
            return disks.SyncError()
        case DiskError():
            return disks.WriteError(error=errno.EIO)
        case SlowDisk(milliseconds=milliseconds):
            return disks.SlowDisk(mean_more_seconds=milliseconds / 1000)
