"""A running cluster: one process for each node, watched, and stopped whatever happens.

    async with open_cluster(spec, world=..., processes=..., events=...) as cluster:
        await cluster.start()
        await cluster.kill(2)
        await cluster.restart(2)

When the block is left, be it by an error or by being cancelled, every node is asked to stop, those
that don't in time are killed, and the directory is free for others.

Each process has a task that waits for its end. An end that nobody asked for is reported at once,
with the last lines that the node wrote, and the other nodes go on. A node is ready when it has
written its ready file: it is registered, unfenced and serves clients.

Ports are chosen before nodes take them, and somebody may be quicker, such as another cluster that
starts at the same moment. A node that can't listen ends at once; then, unless the ports were asked
for, all nodes stop, and the cluster starts on others.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import trio

from kraftpy.launch.directory import open_directory
from kraftpy.launch.errors import CANT_LISTEN, LaunchError, PortTakenError
from kraftpy.launch.plan import NodePlan, Place, Shape, combined_shape, plan_nodes, ports_needed
from kraftpy.launch.ports import choose_ports
from kraftpy.launch.preparation import check_settings, prepare, wait_until_unused
from kraftpy.launch.ready import Ready
from kraftpy.world import Clock, Disk, World
from kraftpy.world.processes import Process, Processes

__all__ = ["Cluster", "ClusterEvents", "ClusterSpec", "NodeDeath", "open_cluster"]

DEFAULT_NODES = 3
# -P: a file in the working directory must not stand in for one of Python's modules.
NODE_COMMAND = (sys.executable, "-P", "-m", "kraftpy.cli.main", "node", "--stop-with-parent")

_POLL_SECONDS = 0.01
_ASK_AGAIN_SECONDS = 0.5
_PORT_ATTEMPTS = 5
_LAST_LINES = 20
_LAST_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    directory: str
    """An absolute path; made if there is nothing."""
    shape: Shape | None = None
    """None: that of the cluster which is there, or three combined nodes."""
    host: str = "127.0.0.1"
    base_port: int | None = None
    prefers_usual_ports: bool = True
    """Without a base port: 9092 and following, if they are free."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """For every node, on top of settings for development."""
    ready_timeout_seconds: float = 60.0
    stop_timeout_seconds: float = 30.0
    command: Sequence[str] = NODE_COMMAND
    """What runs a node; CONFIG and --ready-file follow."""
    places: Mapping[int, Place] = field(default_factory=dict)
    """By node, for those that live elsewhere than on `host`."""


@dataclass(frozen=True, slots=True)
class NodeDeath:
    """An end that nobody asked for."""

    node_id: int
    exit_code: int
    """Negative: the number of the signal that ended it."""
    last_lines: tuple[str, ...]
    log_path: str


class ClusterEvents(Protocol):
    """What whoever runs a cluster is told, at once and in synchronous calls."""

    def warned(self, warning: str) -> None:
        """A setting is suspicious."""
        ...

    def formatted(self, node_ids: Sequence[int]) -> None: ...

    def started(self, node_id: int, pid: int) -> None: ...

    def moved(self, node_id: int) -> None:
        """Its port was taken before it could have it: all nodes start again, on others."""
        ...

    def ready(self, node_id: int, seconds: float) -> None: ...

    def died(self, death: NodeDeath) -> None: ...

    def killed(self, node_id: int, seconds: float) -> None:
        """It had not stopped after that time."""
        ...


@dataclass(slots=True)
class _Run:
    """One process of a node, from its start to its end."""

    plan: NodePlan
    process: Process
    started_at: float
    log_start: int
    """Where in its log file this run begins."""
    is_paused: bool = False
    is_end_expected: bool = False
    lost_its_port: bool = False
    ended: trio.Event = field(default_factory=trio.Event)
    """Set when the end has been reported and the ready file is gone."""

    @property
    def is_running(self) -> bool:
        return self.process.exit_code is None


@asynccontextmanager
async def open_cluster(
    spec: ClusterSpec, *, world: World, processes: Processes, events: ClusterEvents
) -> AsyncIterator[Cluster]:
    """Prepare everything but start nothing. Raises LaunchError."""
    directory = await open_directory(
        world, spec.directory, wanted=spec.shape, otherwise=combined_shape(DEFAULT_NODES)
    )
    try:
        plans = await _plan(spec, directory.shape, world, prefers_usual=spec.prefers_usual_ports)

        async def move() -> tuple[NodePlan, ...]:
            others = await _plan(spec, directory.shape, world, prefers_usual=False)
            configs = check_settings(others, spec.settings)
            await prepare(world, others, configs, cluster_id=directory.cluster_id)
            return others

        configs = check_settings(plans, spec.settings)
        for warning in configs[0].warnings:
            events.warned(warning)
        await wait_until_unused(
            world.disk, world.clock, plans, timeout_seconds=spec.stop_timeout_seconds
        )
        try:
            events.formatted(await prepare(world, plans, configs, cluster_id=directory.cluster_id))
        except OSError as error:
            raise LaunchError(f"{spec.directory} can't be written: {error}") from error
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            cluster = Cluster(
                spec,
                plans,
                cluster_id=directory.cluster_id,
                world=world,
                processes=processes,
                events=events,
                nursery=nursery,
                move=move if spec.base_port is None else None,
            )
            try:
                yield cluster
            except Exception as error:
                # Raised outside, as itself: the nursery would wrap it in a group.
                failure = error
            finally:
                with trio.CancelScope(shield=True):
                    await cluster.stop()
        if failure is not None:
            raise failure
    finally:
        directory.release()


async def _plan(
    spec: ClusterSpec, shape: Shape, world: World, *, prefers_usual: bool
) -> tuple[NodePlan, ...]:
    ports = await choose_ports(
        world.network,
        world.rng.stream("ports"),
        host=spec.host,
        count=ports_needed(shape),
        base=spec.base_port,
        prefers_usual=prefers_usual,
    )
    return plan_nodes(
        shape,
        ports,
        host=spec.host,
        directory=spec.directory,
        settings=spec.settings,
        places=spec.places,
    )


class Cluster:
    """Made by `open_cluster`."""

    def __init__(
        self,
        spec: ClusterSpec,
        plans: Sequence[NodePlan],
        *,
        cluster_id: str,
        world: World,
        processes: Processes,
        events: ClusterEvents,
        nursery: trio.Nursery,
        move: Callable[[], Awaitable[Sequence[NodePlan]]] | None,
    ) -> None:
        """`move` prepares the same nodes on other ports; None if they must not change."""
        self.cluster_id = cluster_id
        self.nodes = {plan.node_id: plan for plan in plans}
        self._spec = spec
        self._clock: Clock = world.clock
        self._disk: Disk = world.disk
        self._processes = processes
        self._events = events
        self._nursery = nursery
        self._move = move
        # Whether a port that was lost is no reason to give up, yet.
        self._may_move = False
        # What runs single nodes from their next start on, in place of what runs the others.
        self.commands: dict[int, Sequence[str]] = {}
        self._runs: dict[int, _Run] = {}
        # Set, and replaced by a new one, when a process has ended.
        self._next_end = trio.Event()

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`."""
        return ",".join(plan.address for plan in self.nodes.values() if plan.address is not None)

    @property
    def running(self) -> list[int]:
        """The nodes that have a process, paused or not."""
        return [node_id for node_id, run in self._runs.items() if run.is_running]

    def describe(self) -> Ready:
        """Of all nodes that were started."""
        return {
            "bootstrap": self.bootstrap,
            "cluster_id": self.cluster_id,
            "nodes": [
                {
                    "id": node_id,
                    "pid": run.process.pid,
                    "host": run.plan.host,
                    "port": run.plan.port,
                    "controller_port": run.plan.controller_port,
                    "http_port": run.plan.http_port,
                    "data_dir": run.plan.data_dir,
                }
                for node_id, run in self._runs.items()
            ],
        }

    async def start(self) -> None:
        """Start every node and wait until all are ready. Raises LaunchError."""
        for attempts_left in reversed(range(_PORT_ATTEMPTS)):
            self._may_move = self._move is not None and attempts_left > 0
            try:
                await self._wait_ready([await self._spawn(plan) for plan in self.nodes.values()])
                return
            except PortTakenError:
                await self.stop()
                if self._move is not None:
                    self.nodes = {plan.node_id: plan for plan in await self._move()}
            finally:
                self._may_move = False

    async def start_node(self, node_id: int) -> None:
        """Start one that does not run, and wait until it is ready. Raises LaunchError."""
        await self._wait_ready([await self._spawn(self.nodes[node_id])])

    async def begin_node(self, node_id: int) -> None:
        """Start one that does not run. Raises LaunchError."""
        await self._spawn(self.nodes[node_id])

    def is_ready(self, node_id: int) -> bool:
        """Whether it has served since it was started."""
        return node_id in self.running and self._exists(self.nodes[node_id].ready_path)

    def pid(self, node_id: int) -> int:
        """Of its process, which may have ended."""
        return self._runs[node_id].process.pid

    async def restart(self, node_id: int) -> None:
        """Stop the node if it runs, start it, and wait until it is ready. Raises LaunchError."""
        await self.stop_node(node_id)
        await self.start_node(node_id)

    async def stop_node(self, node_id: int) -> None:
        """Stop it in good order; kill it if that takes too long."""
        await self._stop([self._runs[node_id]] if node_id in self._runs else [])

    async def stop(self) -> None:
        """Stop all nodes: brokers first, while there are controllers to let them go."""
        runs = list(self._runs.values())
        await self._stop([run for run in runs if "controller" not in run.plan.roles])
        await self._stop([run for run in runs if "controller" in run.plan.roles])

    async def kill(self, node_id: int) -> None:
        """End its process at once, as a crash does."""
        run = self._runs[node_id]
        run.is_end_expected = True
        run.process.kill()
        await run.ended.wait()

    def kill_all(self) -> None:
        """End every process at once."""
        for run in self._runs.values():
            run.is_end_expected = True
            run.process.kill()

    def pause(self, node_id: int) -> None:
        """Let it hang until `resume`: its connections stay, and nothing is answered."""
        run = self._runs[node_id]
        run.is_paused = True
        run.process.pause()

    def resume(self, node_id: int) -> None:
        run = self._runs[node_id]
        run.is_paused = False
        run.process.resume()

    async def wait_all_gone(self) -> None:
        """Return when no node runs any more, and the end of each was told."""
        while left := [run for run in self._runs.values() if not run.ended.is_set()]:
            await left[0].ended.wait()

    async def _spawn(self, plan: NodePlan) -> _Run:
        previous = self._runs.get(plan.node_id)
        if previous is not None and previous.is_running:
            raise LaunchError(f"node {plan.node_id} runs already")
        if previous is not None:
            # Its end is noticed before everything that belongs to it is done.
            await previous.ended.wait()
        await self._forget_ready(plan)
        started_at = self._clock.monotonic()
        log_start = self._log_size(plan)
        process = await self._processes.spawn(
            [
                *(*plan.place.prefix, *self.commands.get(plan.node_id, self._spec.command)),
                *(plan.config_path, "--ready-file", plan.ready_path),
            ],
            environment=_without_settings(self._processes.environment),
            output_path=plan.log_path,
        )
        # No checkpoint lies between the process and here: it can't be lost.
        run = self._runs[plan.node_id] = _Run(plan, process, started_at, log_start)
        self._nursery.start_soon(self._watch, run, name=f"node-{plan.node_id}")
        self._events.started(plan.node_id, process.pid)
        return run

    async def _watch(self, run: _Run) -> None:
        """Report an end that nobody asked for. Shielded: whoever stops a node waits for it."""
        plan = run.plan
        with trio.CancelScope(shield=True):
            code = await run.process.wait()
            try:
                if not run.is_end_expected:
                    lines = self._last_lines(run)
                    if self._may_move and any(CANT_LISTEN in line for line in lines):
                        run.lost_its_port = True
                        self._events.moved(plan.node_id)
                    else:
                        self._events.died(NodeDeath(plan.node_id, code, lines, plan.log_path))
                await self._forget_ready(plan)
            finally:
                run.ended.set()
                self._next_end.set()
                self._next_end = trio.Event()

    async def _wait_ready(self, runs: Sequence[_Run]) -> None:
        waiting = list(runs)
        with self._clock.move_on_after(self._spec.ready_timeout_seconds):
            while waiting:
                for run in list(waiting):
                    if not run.is_running:
                        await run.ended.wait()
                        kind = PortTakenError if run.lost_its_port else LaunchError
                        raise kind(f"node {run.plan.node_id} ended before it was ready")
                    if self._exists(run.plan.ready_path):
                        waiting.remove(run)
                        seconds = self._clock.monotonic() - run.started_at
                        self._events.ready(run.plan.node_id, seconds)
                await self._clock.sleep(_POLL_SECONDS)
            return
        late = ", ".join(str(run.plan.node_id) for run in waiting)
        lines = "\n".join(f"  {line}" for line in self._last_lines(waiting[0]))
        raise LaunchError(
            f"not ready after {self._spec.ready_timeout_seconds:g} s: {late}\n"
            f"the last lines of {waiting[0].plan.log_path}:\n{lines}"
        )

    async def _stop(self, runs: Sequence[_Run]) -> None:
        """A node that is asked to stop hands over what it leads. Where there is no quorum it would
        wait for one; asked again, it doesn't.
        """
        timeout_seconds = self._spec.stop_timeout_seconds
        for run in runs:
            run.is_end_expected = True
            run.process.terminate()
            if run.is_paused:
                # It would not even notice.
                run.process.resume()
                run.is_paused = False
        with self._clock.move_on_after(timeout_seconds):
            while waiting := [run for run in runs if not run.ended.is_set()]:
                if not self._has_quorum():
                    for run in waiting:
                        run.process.terminate()
                # The system makes one signal of two that come too quickly, so it is repeated.
                with self._clock.move_on_after(_ASK_AGAIN_SECONDS):
                    await self._next_end.wait()
        for run in runs:
            if run.is_running:
                self._events.killed(run.plan.node_id, timeout_seconds)
                run.process.kill()
        for run in runs:
            await run.ended.wait()

    def _has_quorum(self) -> bool:
        controllers = [each.node_id for each in self.nodes.values() if "controller" in each.roles]
        awake = [run for run in self._runs.values() if run.is_running and not run.is_paused]
        return 2 * sum(run.plan.node_id in controllers for run in awake) > len(controllers)

    def _last_lines(self, run: _Run) -> tuple[str, ...]:
        """What the node said last, in this run."""
        try:
            file = self._disk.open(run.plan.log_path)
        except FileNotFoundError:
            return ()
        try:
            size = file.size()
            start = max(run.log_start, size - _LAST_BYTES)
            text = file.pread(size - start, start).decode(errors="replace")
        finally:
            file.close()
        return tuple(text.splitlines()[-_LAST_LINES:])

    def _log_size(self, plan: NodePlan) -> int:
        try:
            file = self._disk.open(plan.log_path)
        except FileNotFoundError:
            return 0
        try:
            return file.size()
        finally:
            file.close()

    def _exists(self, path: str) -> bool:
        try:
            self._disk.open(path).close()
        except FileNotFoundError:
            return False
        return True

    async def _forget_ready(self, plan: NodePlan) -> None:
        if self._exists(plan.ready_path):
            await self._disk.unlink(plan.ready_path)


def _without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """A variable that sets a key would set it for all nodes: only the configuration file counts."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("KAFKA_") and name != "CLUSTER_ID"
    }
