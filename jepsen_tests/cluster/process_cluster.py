"""A cluster of processes in the hands of a nemesis.

`apply` has one fault of `kraftpy.faults.language` happen and returns when it has; a node that is
started need not serve then, because it may not be able to before `heal`. `heal` ends all of them
and returns when every node serves again. What the cluster refuses is a `FaultRefusedError`, what
this machine can't do a `NotHereError`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio

from jepsen_tests.cluster import files
from jepsen_tests.cluster.changes import Changes
from jepsen_tests.cluster.errors import HarnessError, NotHereError
from jepsen_tests.cluster.inspection import Inspection, inspect
from jepsen_tests.cluster.lossy_disk import LossyDisk, open_lossy_disks
from jepsen_tests.cluster.networks import Links, open_links
from jepsen_tests.cluster.options import ClusterOptions, NetworkKind, settings_of, shape_of
from jepsen_tests.cluster.pressure import Pressure
from jepsen_tests.cluster.reaper import Reaper, open_reaper
from jepsen_tests.cluster.shim import Shim, build_shim, find_compiler
from kraftpy.cli.failure import EXIT_INVARIANT
from kraftpy.client.admin import Admin, open_admin
from kraftpy.client.admin_operations import describe_cluster
from kraftpy.client.errors import KafkaError
from kraftpy.client.settings import AdminSettings, ClientSettings
from kraftpy.faults.language import (
    AdministrativeFault,
    BusyMachine,
    CutTail,
    Decommission,
    DiskError,
    DiskFull,
    FailNext,
    Fault,
    FileFault,
    FlipBits,
    Heal,
    Kill,
    LinkFault,
    NodeFault,
    NoDescriptors,
    Pause,
    PowerLoss,
    ProcessFault,
    Restart,
    Resume,
    RollingRestart,
    Stop,
    StrayWrite,
    SwitchVersion,
    TornWrite,
    format_fault,
)
from kraftpy.faults.switchboard import FaultRefusedError, Switchboard
from kraftpy.launch.cluster import Cluster, ClusterSpec, NodeDeath
from kraftpy.launch.cluster import open_cluster as open_processes
from kraftpy.launch.errors import LaunchError
from kraftpy.launch.plan import NodePlan, Place
from kraftpy.launch.preparation import check_settings, prepare
from kraftpy.testing.backend import owner_at
from kraftpy.world import Address, World
from kraftpy.world.real_processes import RealProcesses

__all__ = ["JepsenCluster", "open_cluster"]

_POLL_SECONDS = 0.05
_STOP_SECONDS = 15.0
HEAL_SECONDS = 60.0


class _Events:
    """What processes do: deaths that no fault explains are for the verdict."""

    def __init__(self, reaper: Reaper) -> None:
        self._reaper = reaper
        self.deaths: list[NodeDeath] = []
        # Nodes with a fault that they may die of, until they are started again.
        self.doomed: dict[int, None] = {}

    def warned(self, warning: str) -> None:
        pass

    def formatted(self, node_ids: Sequence[int]) -> None:
        pass

    def started(self, node_id: int, pid: int) -> None:
        self._reaper.note_process(pid)

    def moved(self, node_id: int) -> None:
        pass

    def ready(self, node_id: int, seconds: float) -> None:
        pass

    def died(self, death: NodeDeath) -> None:
        if death.node_id not in self.doomed or death.exit_code == EXIT_INVARIANT:
            self.deaths.append(death)

    def killed(self, node_id: int, seconds: float) -> None:
        pass


class JepsenCluster:
    """Made by `open_cluster`."""

    def __init__(
        self,
        options: ClusterOptions,
        world: World,
        cluster: Cluster,
        *,
        links: Links,
        board: Switchboard,
        shim: Shim | None,
        pressure: Pressure,
        admin: Admin,
        events: _Events,
        disks: Mapping[int, LossyDisk],
    ) -> None:
        self.options = options
        self._disks = disks
        self._power_losses = 0
        self.links = links
        self.switchboard = board
        self.shim = shim
        self.pressure = pressure
        self.processes = cluster
        self._world = world
        self._admin = admin
        self._events = events
        self._paused: dict[int, None] = {}
        self._changes = Changes(self, world, admin)
        # Unregistered nodes; they come back with empty disks.
        self.away: dict[int, None] = {}

    @property
    def bootstrap_servers(self) -> str:
        return self.processes.bootstrap

    @property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(self.processes.nodes)

    @property
    def controller_ids(self) -> tuple[int, ...]:
        """Of nodes that may vote."""
        nodes = self.processes.nodes.values()
        return tuple(plan.node_id for plan in nodes if "controller" in plan.roles)

    @property
    def running(self) -> tuple[int, ...]:
        """The nodes that have a process, paused or not."""
        return tuple(sorted(self.processes.running))

    @property
    def awake(self) -> tuple[int, ...]:
        """Those that run and are not paused."""
        return tuple(node for node in self.running if node not in self._paused)

    @property
    def network(self) -> NetworkKind:
        return self.links.kind

    @property
    def has_lossy_disks(self) -> bool:
        """Whether a loss of power may take names and single sectors, too."""
        return bool(self._disks)

    @property
    def deaths(self) -> Sequence[NodeDeath]:
        """Of nodes that ended by themselves, and no fault of theirs explains it: a broken invariant
        always, the death of a node whose disk fails never.
        """
        return self._events.deaths

    @property
    def admin(self) -> Admin:
        return self._admin

    async def apply(self, fault: Fault) -> None:
        """Have it happen. Raises FaultRefusedError or NotHereError; then it has not."""
        if isinstance(fault, Heal):
            await self.heal()
        elif isinstance(fault, LinkFault):
            await self.links.apply(fault)
        elif isinstance(fault, ProcessFault):
            await self._apply_to_process(fault)
        elif isinstance(fault, NodeFault):
            await self._apply_inside(fault)
        elif isinstance(fault, FileFault):
            await self._damage(fault)
        else:
            await self._administer(fault)

    async def heal(self, *, seconds: float = HEAL_SECONDS) -> None:
        """End everything. Raises HarnessError if the cluster is not well again in time."""
        for node in list(self._paused):
            await self.apply(Resume(node))
        await self.heal_inside()
        await self.heal_links()
        await self.pressure.heal()
        await self.bring_back()
        for node in self.other_nodes:
            with suppress(LaunchError):
                await self._switch(node)
        with self._world.clock.move_on_after(seconds):
            while not await self._is_well():
                await self._world.clock.sleep(_POLL_SECONDS)
            self._events.doomed.clear()
            return
        raise HarnessError(f"not well again {seconds:g} s after healing\n{self.describe()}")

    async def heal_links(self) -> None:
        """All links are whole; nodes need time to notice."""
        await self.links.heal()

    async def heal_inside(self) -> None:
        """Disks, clocks and requests of nodes that run are well; others begin so."""
        if self.shim is not None:
            self.shim.heal()
        await self.switchboard.heal_nodes()

    async def bring_back(self) -> None:
        """Nodes that were taken out of the cluster begin anew."""
        for node in list(self.away):
            await self.reformat(node)
            del self.away[node]
            await self.processes.begin_node(node)

    async def bring_back_voters(self) -> None:
        """Raises FaultRefusedError."""
        try:
            await self._changes.bring_back_voters()
        except (KafkaError, ConnectionError, HarnessError) as error:
            raise FaultRefusedError(f"a voter does not come back: {error}") from error

    async def transactional_ids(self) -> list[str]:
        """Of transactions that are open now."""
        try:
            return await self._changes.transactional_ids()
        except HarnessError as error:
            raise FaultRefusedError(f"nobody tells who has a transaction: {error}") from error

    @property
    def now(self) -> float:
        """Seconds, on the harness's monotonic clock."""
        return self._world.clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._world.clock.sleep(seconds)

    async def inspect(self, *, seconds: float = 5.0) -> Inspection | None:
        """What the cluster says about itself; None if nobody answers in that time."""
        with self._world.clock.move_on_after(seconds), suppress(KafkaError, ConnectionError):
            return await inspect(self._admin)
        return None

    def describe(self) -> str:
        """The state of each node, and the last lines of those that do not serve."""
        lines = []
        for node, plan in self.processes.nodes.items():
            state = "serves" if self.processes.is_ready(node) else "does not serve"
            lines.append(f"node {node} {state if node in self.running else 'has ended'}")
            if not self.processes.is_ready(node):
                path = Path(plan.log_path)
                text = path.read_text(errors="replace") if path.exists() else ""
                lines += [f"    {line}" for line in text.splitlines()[-15:]]
        return "\n".join(lines)

    def plan(self, node: int) -> NodePlan:
        return self.processes.nodes[node]

    async def reformat(self, node: int) -> None:
        """Give a node that does not run an empty disk."""
        plan = self.plan(node)
        if Path(plan.data_dir).exists():
            files.wipe(plan.data_dir)
        configs = check_settings([plan], settings_of(self.options))
        await prepare(self._world, [plan], configs, cluster_id=self.processes.cluster_id)

    async def _is_well(self) -> bool:
        """All nodes serve, and the cluster has taken them all back."""
        for node in self.node_ids:
            if node not in self.running:
                with suppress(LaunchError):
                    await self.processes.begin_node(node)
        if not all(self.processes.is_ready(node) for node in self.node_ids):
            return False
        try:
            known = await self._admin.run(describe_cluster())
        except (KafkaError, ConnectionError):
            return False
        brokers = [node for node in self.node_ids if "broker" in self.plan(node).roles]
        if [each.node_id for each in known.brokers] != brokers:
            return False
        try:
            await self.bring_back_voters()
        except FaultRefusedError:
            return False
        return True

    async def _apply_to_process(self, fault: ProcessFault) -> None:
        match fault:
            case BusyMachine(count):
                await self.pressure.keep_busy(count)
            case NoDescriptors(node):
                self._events.doomed[node] = None
                self.pressure.take_descriptors(self.processes.pid(self._running(node, fault)))
            case RollingRestart(nodes):
                for node in nodes:
                    await self.processes.restart(node)
            case SwitchVersion(node):
                await self._switch(node)
            case Pause(node):
                self.processes.pause(self._running(node, fault))
                self._paused[node] = None
            case Resume(node):
                self.processes.resume(self._running(node, fault))
                self._paused.pop(node, None)
            case Kill(node):
                self._paused.pop(node, None)
                await self.processes.kill(self._running(node, fault))
            case Stop(node) | Restart(node):
                self._paused.pop(node, None)
                await self.processes.stop_node(node)
                if isinstance(fault, Restart):
                    self._events.doomed.pop(node, None)
                    await self.processes.begin_node(node)

    @property
    def other_nodes(self) -> tuple[int, ...]:
        """Those that run the other version of the software, or will when they are started."""
        return tuple(self.processes.commands)

    async def _switch(self, node: int) -> None:
        """Returns when it serves. Raises LaunchError if it does not."""
        if self.options.other_command is None:
            raise NotHereError("there is no other version (--other-command)")
        self._paused.pop(node, None)
        if node in self.processes.commands:
            del self.processes.commands[node]
        else:
            arguments = self.links.node_arguments
            self.processes.commands[node] = (*self.options.other_command, *arguments)
        await self.processes.restart(node)

    async def _apply_inside(self, fault: NodeFault) -> None:
        if isinstance(fault, FailNext) and fault.node is None:
            for node in self.awake:
                await self.switchboard.tell(node, fault)
            return
        target = fault.node
        assert target is not None
        if isinstance(fault, DiskFull | DiskError | TornWrite | PowerLoss):
            self._events.doomed[target] = None
        if self.shim is not None and self.shim.takes(fault):
            self.shim.apply(fault)
            return
        if target not in self.awake:
            raise FaultRefusedError(f"node {target} does not run: {format_fault(fault)}")
        if isinstance(fault, PowerLoss):
            await self._cut_power(fault)
        else:
            await self.switchboard.tell(target, fault)

    async def _cut_power(self, fault: PowerLoss) -> None:
        if fault.node in self._disks:
            await self.processes.kill(fault.node)
            self._power_losses += 1
            seed = self.options.seed * 1_000_003 + self._power_losses
            await self._disks[fault.node].lose(fault.policy, seed)
            return
        with suppress(FaultRefusedError):
            # It has no time to answer.
            await self.switchboard.tell(fault.node, fault)
        await self.processes.kill(fault.node)

    async def _damage(self, fault: FileFault) -> None:
        if fault.node in self.running:
            raise FaultRefusedError(f"node {fault.node} runs: {format_fault(fault)}")
        data_dir = self.plan(fault.node).data_dir
        match fault:
            case FlipBits(_, count, seed):
                files.flip_bits(data_dir, count, seed)
            case CutTail(_, count, seed):
                files.cut_tail(data_dir, count, seed)
            case StrayWrite(_, seed):
                files.stray_write(data_dir, seed)
            case _:
                await self.reformat(fault.node)

    async def _administer(self, fault: AdministrativeFault) -> None:
        if isinstance(fault, Decommission) and fault.node in self.controller_ids:
            raise NotHereError("a node that votes can't be taken away; take a broker of five nodes")
        try:
            await self._changes.make(fault)
        except (KafkaError, ConnectionError, HarnessError) as error:
            raise FaultRefusedError(f"{format_fault(fault)}: {error}") from error

    def _running(self, node: int, fault: Fault) -> int:
        if node not in self.running:
            raise FaultRefusedError(f"node {node} does not run: {format_fault(fault)}")
        return node


@asynccontextmanager
async def open_cluster(world: World, options: ClusterOptions) -> AsyncIterator[JepsenCluster]:
    """A cluster that serves; its nodes are killed at the end. Raises HarnessError, LaunchError."""
    directory = Path(options.directory).resolve()
    shape = shape_of(options)
    opened: list[Cluster] = []

    def plans() -> list[NodePlan]:
        return list(opened[0].nodes.values()) if opened else []

    def address_of(node: int) -> Address:
        plan = opened[0].nodes[node]
        assert plan.port is not None
        return (plan.host, plan.port)

    processes = RealProcesses()
    board = Switchboard(world.clock, world.network, lambda address: owner_at(plans(), address))
    async with (
        open_reaper(directory, processes) as reaper,
        open_links(
            options.network,
            list(shape),
            [node for node, roles in shape.items() if "broker" in roles],
            world=world,
            board=board,
            address_of=address_of,
            reaper=reaper,
        ) as links,
        _disks(options, directory, list(shape)) as disks,
    ):
        shim = await _shim(options, directory, list(shape))
        pressure = Pressure(processes, str(directory / "pressure.log"))
        spec = ClusterSpec(
            directory=str(directory),
            shape=shape,
            prefers_usual_ports=False,
            settings=settings_of(options),
            ready_timeout_seconds=options.ready_timeout_seconds,
            stop_timeout_seconds=_STOP_SECONDS,
            command=(*options.command, *links.node_arguments),
            places=_places(links, shim, list(shape)),
        )
        events = _Events(reaper)
        async with open_processes(spec, world=world, processes=processes, events=events) as cluster:
            opened.append(cluster)
            try:
                await cluster.start()
                async with open_admin(world, _addresses(cluster), _admin_settings()) as admin:
                    yield JepsenCluster(
                        options,
                        world,
                        cluster,
                        links=links,
                        board=board,
                        shim=shim,
                        pressure=pressure,
                        admin=admin,
                        events=events,
                        disks=disks,
                    )
            finally:
                cluster.kill_all()
                with trio.CancelScope(shield=True):
                    await pressure.heal()


@asynccontextmanager
async def _disks(
    options: ClusterOptions, directory: Path, nodes: Sequence[int]
) -> AsyncIterator[dict[int, LossyDisk]]:
    """By node, where there are any; where a plan has the node's data. Raises NotHereError."""
    wanted = nodes if options.has_lossy_disks else []
    paths = [directory / f"node-{node}" / "data" for node in wanted]
    async with open_lossy_disks(paths) as disks:
        yield dict(zip(wanted, disks, strict=True))


async def _shim(options: ClusterOptions, directory: Path, nodes: list[int]) -> Shim | None:
    if not options.uses_shim or find_compiler() is None:
        return None
    return await build_shim(directory / "shim", nodes)


def _places(links: Links, shim: Shim | None, nodes: Sequence[int]) -> dict[int, Place]:
    """Where the network has each node, with the shim loaded there."""
    places = {}
    for node in nodes:
        place = links.places.get(node, Place())
        loaded = () if shim is None else shim.prefix(node)
        places[node] = Place(place.host, place.advertised, (*place.prefix, *loaded))
    return places


def _addresses(cluster: Cluster) -> list[Address]:
    found = []
    for each in cluster.bootstrap.split(","):
        host, _, port = each.rpartition(":")
        found.append((host, int(port)))
    return found


def _admin_settings() -> AdminSettings:
    """A node that does not answer is left for another soon."""
    client = ClientSettings(
        client_id="harness",
        request_timeout_ms=2_000,
        socket_connection_setup_timeout_ms=2_000,
    )
    return AdminSettings(client=client, default_api_timeout_ms=8_000)
