"""A Kafka cluster in the hands of a test.

    with open_kafka_cluster(ClusterOptions(nodes=3), directory) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.kill(1)

Its methods return when what they do is done: after `partition` nothing passes, after `restart` the
node serves. They may be called from any thread, also from one with a loop, which they hold up.

Every fault is a value of `kraftpy.faults.language` and goes through `apply`, which also notes it:
the journal of a test that fails is part of its report. Everything that is drawn at random is drawn
from `random`, which hangs on the seed alone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path

import trio

from kraftpy.client.blocking import BlockingConnection
from kraftpy.faults.drawing import DRAWN, draw_fault
from kraftpy.faults.language import (
    ClockJump,
    ClockStrobe,
    Delay,
    DiskError,
    DiskFull,
    FailNext,
    Fault,
    Heal,
    Hold,
    Kill,
    NodeFault,
    Nodes,
    OneWay,
    Partition,
    Pause,
    PowerLoss,
    Reset,
    Restart,
    Resume,
    RollingRestart,
    SlowDisk,
    Stop,
    TornWrite,
    format_fault,
    parse_fault,
)
from kraftpy.faults.switchboard import FaultRefusedError
from kraftpy.protocol.schema.k03_metadata import MetadataRequest, MetadataRequestTopic
from kraftpy.testing.backend import Backend
from kraftpy.testing.loop_thread import LoopThread
from kraftpy.testing.options import ClusterOptions

__all__ = ["ClusterOptions", "KafkaCluster", "open_kafka_cluster"]


# The others need more than a test has: doors for clients, files that nobody else wants, ...
_HERE = (
    *(Kill, Stop, Restart, Pause, Resume, RollingRestart),
    *(Partition, OneWay, Delay, Reset, Hold),
    *(FailNext, DiskFull, DiskError, TornWrite, SlowDisk, PowerLoss, ClockJump, ClockStrobe),
    Heal,
)


class KafkaCluster:
    """Made by the fixtures, or by `open_kafka_cluster`."""

    def __init__(self, loop: LoopThread[Backend], seed: str) -> None:
        self._loop = loop
        self._backend = loop.value
        # Of nodes that run but hang.
        self._paused: dict[int, None] = {}
        self.begin(seed)

    def begin(self, seed: str) -> None:
        """Draw from this seed, and have an empty journal: a test begins."""
        self.seed = seed
        self.random = random.Random(seed)
        self.journal: list[tuple[float, str]] = []
        self._begun_at = time.monotonic()

    @property
    def bootstrap_servers(self) -> str:
        return self._backend.bootstrap

    @property
    def nodes(self) -> tuple[int, ...]:
        """Their ids, from 1 on."""
        return tuple(plan.node_id for plan in self._backend.plans)

    @property
    def brokers(self) -> dict[int, str]:
        """The address of each, by its id."""
        return {
            plan.node_id: plan.address for plan in self._backend.plans if plan.address is not None
        }

    @property
    def running(self) -> tuple[int, ...]:
        """The nodes that have not ended, paused or not."""
        return self._loop.call(self._find_running)

    async def _find_running(self) -> tuple[int, ...]:
        """In the loop: a process is nobody's business but its own loop's."""
        return tuple(self._backend.running)

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The node that leads it now, as the first broker that answers knows it. Raises
        LookupError.
        """
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        for node, address in self.brokers.items():
            if node not in self.running or node in self._paused:
                continue
            host, _, port = address.rpartition(":")
            with BlockingConnection((host, int(port))) as connection:
                answer = connection.request(request)
            for each in (each for found in answer.topics for each in found.partitions):
                if each.partition_index == partition and each.leader_id >= 0:
                    return int(each.leader_id)
        raise LookupError(f"nobody leads {topic}-{partition}")

    def kill(self, node: int) -> None:
        """End it at once, as a crash does."""
        self.apply(Kill(node))

    def stop(self, node: int) -> None:
        """End it in good order."""
        self.apply(Stop(node))

    def restart(self, node: int) -> None:
        """Start it, after stopping it in good order if it runs."""
        self.apply(Restart(node))

    def pause(self, node: int) -> None:
        """Let it hang, with all its connections, until `resume`."""
        self.apply(Pause(node))

    def resume(self, node: int) -> None:
        self.apply(Resume(node))

    def partition(self, a: int | Iterable[int], b: int | Iterable[int]) -> None:
        """Cut all links between these nodes and those. Clients reach both sides."""
        self.apply(Partition(_nodes(a), _nodes(b)))

    def one_way(self, a: int | Iterable[int], b: int | Iterable[int]) -> None:
        """What `a` sends does not reach `b`; what `b` sends does reach `a`."""
        self.apply(OneWay(_nodes(a), _nodes(b)))

    def delay(self, a: int | Iterable[int], b: int | Iterable[int], milliseconds: int) -> None:
        """Everything between these nodes and those takes so much longer."""
        self.apply(Delay(_nodes(a), _nodes(b), milliseconds))

    def fail_next(self, api: str, error: str, times: int = 1, *, node: int | None = None) -> None:
        """Answer the next requests of clients with an error: those of one broker, or of each."""
        self.apply(FailNext(api, error, times, node))

    def disk_full(self, node: int) -> None:
        """Nothing more fits on its disk. What a node can't write it can't keep: it ends."""
        self.apply(DiskFull(node))

    def disk_error(self, node: int, operation: str = "write") -> None:
        """Its disk fails to read, write or sync from now on."""
        self.apply(DiskError(node, operation))

    def torn_write(self, node: int) -> None:
        """Kill it in the middle of its next write."""
        self.apply(TornWrite(node))

    def slow_disk(self, node: int, milliseconds: int, operation: str = "sync") -> None:
        """Its disk takes so much longer to sync, or to read."""
        self.apply(SlowDisk(node, milliseconds, operation))

    def power_loss(self, node: int) -> None:
        """Kill it, and take from its files what it has not synced."""
        self.apply(PowerLoss(node))

    def clock_jump(self, node: int, milliseconds: int) -> None:
        """Set its wall clock ahead, or back if negative. Monotonic time goes on as it was."""
        self.apply(ClockJump(node, milliseconds))

    def clock_strobe(self, node: int, milliseconds: int, period_ms: int) -> None:
        """Let its wall clock jump ahead and back again, over and over."""
        self.apply(ClockStrobe(node, milliseconds, period_ms))

    def reset(self, a: int | Iterable[int], b: int | Iterable[int]) -> None:
        """Reset all connections between these nodes and those, once."""
        self.apply(Reset(_nodes(a), _nodes(b)))

    def hold(self, node: int, api: str, direction: str = "request", *, times: int = 1) -> None:
        """Stop the next requests of other nodes to this one on their way, or its responses."""
        self.apply(Hold(node, api, direction, times))

    def rolling_restart(self) -> None:
        """Restart every node in good order, one after the other."""
        self.apply(RollingRestart(self.nodes))

    def heal(self) -> None:
        """End all faults, start nodes that don't run; returns when all serve."""
        self.apply(Heal())

    def strike(self, names: Sequence[str] = DRAWN) -> Fault:
        """Draw a fault of one of these names from the seed, and have it happen."""
        fault = draw_fault(self.random, self.nodes, names)
        self.apply(fault)
        return fault

    def apply(self, fault: Fault | str) -> None:
        """Have it happen. Raises ValueError for a fault that makes no sense here."""
        value = parse_fault(fault) if isinstance(fault, str) else fault
        self._check(value)
        self.journal.append((time.monotonic() - self._begun_at, format_fault(value)))
        self._loop.call(self._apply, value)

    def describe(self) -> str:
        """The seed, what has happened, and what the nodes said last: for the report of a test."""
        lines = [f"seed: {self.seed}", f"bootstrap.servers: {self.bootstrap_servers}"]
        lines += [f"{seconds:8.3f} s  {text}" for seconds, text in self.journal]
        try:
            running = self.running
        except RuntimeError as error:
            running = ()
            lines.append(f"{error}: {error.__cause__!r}")
        for node in self.nodes:
            state = "paused" if node in self._paused else "runs"
            lines.append(f"node {node} {state if node in running else 'has ended'}")
            lines += [f"    {line}" for line in self._backend.last_words(node)]
        return "\n".join(lines)

    def close(self) -> None:
        """Idempotent."""
        self._loop.close()

    def _check(self, fault: Fault) -> None:
        """Whether it can happen now."""
        named = _named(fault)
        unknown = [node for node in named if node not in self.nodes]
        if unknown:
            raise ValueError(f"there is no node {unknown[0]}; there are {self.nodes}")
        if not isinstance(fault, _HERE):
            raise ValueError(f"{fault.name} does not happen in a cluster for tests")
        if isinstance(fault, FailNext) or not isinstance(fault, Kill | Pause | Resume | NodeFault):
            return
        [node] = named
        if node not in self.running:
            raise ValueError(f"node {node} does not run: {format_fault(fault)}")
        if node in self._paused and isinstance(fault, NodeFault):
            raise ValueError(f"node {node} is paused: {format_fault(fault)}")

    async def _apply(self, fault: Fault) -> None:
        switchboard = self._backend.switchboard
        match fault:
            case Kill(node) | Stop(node) | Restart(node) | Pause(node) | Resume(node):
                await self._apply_to_process(fault.name, node)
            case RollingRestart(nodes):
                for node in nodes:
                    await self._apply_to_process("restart", node)
            case Partition() | OneWay() | Delay() | Reset() | Hold():
                switchboard.apply(fault)
            case FailNext():
                brokers = [fault.node] if fault.node is not None else list(self.brokers)
                for node in brokers:
                    if node in self._backend.running and node not in self._paused:
                        await switchboard.tell(node, fault)
            case PowerLoss(node):
                with suppress(FaultRefusedError):
                    # It has no time to answer.
                    await switchboard.tell(node, fault)
                await self._backend.kill(node)
            case DiskFull(node) | DiskError(node) | TornWrite(node) | SlowDisk(node):
                await switchboard.tell(node, fault)
            case ClockJump(node) | ClockStrobe(node):
                await switchboard.tell(node, fault)
            case Heal():
                await self._heal()

    async def _apply_to_process(self, name: str, node: int) -> None:
        backend = self._backend
        if name == "pause":
            backend.pause(node)
            self._paused[node] = None
            return
        if node in self._paused:
            # SIGKILL reaches a paused process too, but a node that is to stop has to go on.
            backend.resume(node)
            del self._paused[node]
        if name == "kill":
            await backend.kill(node)
        elif name in ("stop", "restart"):
            if node in backend.running:
                await backend.stop(node)
            if name == "restart":
                await backend.start(node)

    async def _heal(self) -> None:
        for node in list(self._paused):
            await self._apply_to_process("resume", node)
        await self._backend.switchboard.heal()
        # All at once: one alone may not be a quorum, and would wait for the others.
        async with trio.open_nursery() as nursery:
            for node in self.nodes:
                if node not in self._backend.running:
                    nursery.start_soon(self._backend.start, node)


@contextmanager
def open_kafka_cluster(
    options: ClusterOptions, directory: Path, *, seed: str = "0"
) -> Iterator[KafkaCluster]:
    """A cluster that serves; its files are in `directory`, which is the caller's to remove."""
    cluster = KafkaCluster(LoopThread(partial(_open, options, directory)), seed)
    try:
        yield cluster
    finally:
        cluster.close()


def _open(options: ClusterOptions, directory: Path) -> AbstractAsyncContextManager[Backend]:
    """A test process whose nodes are elsewhere need not import one."""
    if options.one_process:
        from kraftpy.testing.one_process import open_one_process

        return open_one_process(options, directory)
    from kraftpy.testing.processes import open_processes

    return open_processes(options, directory)


def _nodes(given: int | Iterable[int]) -> Nodes:
    return (given,) if isinstance(given, int) else tuple(given)


def _named(fault: Fault) -> Nodes:
    """The nodes that a fault names."""
    match fault:
        case Partition(a, b) | Delay(a, b) | OneWay(a, b) | Reset(a, b):
            return (*a, *b)
        case RollingRestart(nodes):
            return nodes
    node = getattr(fault, "node", None)
    return () if node is None else (node,)
