"""What the tests of whole clusters share: real processes of `kraftpy node`, and questions to them.

Every wait is bounded, and generously: the bounds are there to end a broken test, on a machine that
does other work too. What a test measures it prints, and holds against a bound of its own.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import trio
from support.ports import unused_ports

from kraftpy.client.admin_core import Operation
from kraftpy.client.admin_operations import NewTopic, create_topics, list_topics
from kraftpy.client.cluster import PartitionInfo, TopicInfo
from kraftpy.client.connection import Peer, connect
from kraftpy.client.errors import ConnectionLost
from kraftpy.client.settings import ClientSettings
from kraftpy.launch.cluster import Cluster, ClusterSpec, NodeDeath, open_cluster
from kraftpy.launch.plan import Shape
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k55_describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from kraftpy.protocol.tables import Request
from kraftpy.world.real import real_world
from kraftpy.world.real_processes import RealProcesses

__all__ = [
    "Recorder",
    "Term",
    "active_controller",
    "all_agree",
    "ask_node",
    "create",
    "eventually",
    "insist_on",
    "listens",
    "memory_bytes",
    "node_says",
    "partitions_of",
    "real_cluster",
    "run_on",
    "run_over",
    "topics_of",
]

T = TypeVar("T")

TEST_SECONDS = 250
# A node gives its leaderships away when it stops, and a busy machine lets it wait.
STOP_SECONDS = 120
WAIT_SECONDS = 120
POLL_SECONDS = 0.02
_OF_ELECTIONS = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.INVALID_REPLICATION_FACTOR,
)
_SETTINGS = ClientSettings(request_timeout_ms=WAIT_SECONDS * 1000)


@dataclass
class Recorder:
    """Keeps what the launcher tells."""

    warnings: list[str] = field(default_factory=list)
    started_at: dict[int, float] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)
    deaths: list[NodeDeath] = field(default_factory=list)
    killed_nodes: list[int] = field(default_factory=list)

    def warned(self, warning: str) -> None:
        self.warnings.append(warning)

    def formatted(self, node_ids: Sequence[int]) -> None:
        pass

    def started(self, node_id: int, pid: int) -> None:
        self.started_at[node_id] = trio.current_time()
        self.pids[node_id] = pid

    def ready(self, node_id: int, seconds: float) -> None:
        pass

    def died(self, death: NodeDeath) -> None:
        self.deaths.append(death)

    def moved(self, node_id: int) -> None:
        pass

    def killed(self, node_id: int, seconds: float) -> None:
        self.killed_nodes.append(node_id)


@asynccontextmanager
async def real_cluster(
    directory: Path,
    events: Recorder | None = None,
    *,
    shape: Shape | None = None,
    settings: Mapping[str, str] | None = None,
    seconds: float = TEST_SECONDS,
) -> AsyncIterator[Cluster]:
    """Three combined nodes, not started yet. None may die, or need to be killed at the end."""
    events = events or Recorder()
    spec = ClusterSpec(
        directory=str(directory),
        shape=shape,
        base_port=unused_ports(),
        settings=settings or {},
        stop_timeout_seconds=STOP_SECONDS,
    )
    with trio.fail_after(seconds):
        async with open_cluster(
            spec, world=real_world(), processes=RealProcesses(), events=events
        ) as cluster:
            yield cluster
    assert events.deaths == []
    assert events.killed_nodes == []


async def eventually(
    condition: Callable[[], Awaitable[T]], *, poll_seconds: float = POLL_SECONDS
) -> T:
    """Ask until what comes is true, and return it."""
    last: T | None = None
    with trio.move_on_after(WAIT_SECONDS):
        while True:
            last = await condition()
            if last:
                return last
            await trio.sleep(poll_seconds)
    raise AssertionError(f"not within {WAIT_SECONDS} s; at last it was {last!r}")


async def run_on(cluster: Cluster, node_id: int, operation: Operation[T]) -> T:
    """Carry out an operation of the admin client through this node alone, without a second try."""

    async def ask(message: Request) -> Any:
        return await ask_node(cluster, node_id, message)

    return await _carry_out(ask, operation)


async def run_over(peer: Peer, operation: Operation[T]) -> T:
    """As run_on, over a connection that is kept. Raises ConnectionLost."""
    return await _carry_out(peer.request, operation)


async def _carry_out(ask: Callable[[Request], Awaitable[Any]], operation: Operation[T]) -> T:
    asked = next(operation)
    try:
        while True:
            asked = operation.send(await ask(asked.message))
    except StopIteration as end:
        result: T = end.value
        return result


async def insist_on(cluster: Cluster, node_id: int, topic: NewTopic) -> None:
    """Create it through this node. Asks again, like any client, where a busy machine has made the
    quorum elect meanwhile, or a broker be fenced. What is there already is its own: the broker,
    too, asks again.
    """

    async def is_there() -> bool:
        [failure] = (await run_on(cluster, node_id, create_topics([topic]))).values()
        if failure is None or failure.code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return True
        if failure.code not in _OF_ELECTIONS:
            raise failure
        return False

    await eventually(is_there)


async def create(cluster: Cluster, topic: NewTopic, *, through: int | None = None) -> None:
    """Create it and wait until all replicas are in sync and all nodes know it."""
    node_id = cluster.running[0] if through is None else through
    await insist_on(cluster, node_id, topic)

    async def is_known() -> bool:
        for each in cluster.running:
            partitions = (await partitions_of(cluster, each, topic.name)).values()
            if len(partitions) != max(topic.partitions, len(topic.assignment)):
                return False
            if any(sorted(p.isr) != sorted(p.replicas) or p.leader_id < 0 for p in partitions):
                return False
        return True

    await eventually(is_known)


async def ask_node(
    cluster: Cluster, node_id: int, message: Request, *, is_for_controller: bool = False
) -> Any:
    """The answer of one node to one request, on a connection of its own. Raises ConnectionLost."""
    plan = cluster.nodes[node_id]
    port = plan.controller_port if is_for_controller else plan.port
    assert port is not None
    failure: ConnectionLost | None = None
    answer: Any = None
    async with trio.open_nursery() as nursery:
        try:
            connection = await connect(real_world(), nursery, (plan.host, port), _SETTINGS)
            answer = await connection.request(message)
            connection.close()
        except ConnectionLost as error:
            # Raised outside, as itself: the nursery would wrap it in a group.
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return answer


async def topics_of(cluster: Cluster, node_id: int) -> dict[str, TopicInfo]:
    """What a client sees that asks this node."""
    return await run_on(cluster, node_id, list_topics(include_internal=True))


async def partitions_of(cluster: Cluster, node_id: int, topic: str) -> dict[int, PartitionInfo]:
    """Empty while the node does not know the topic."""
    info = (await topics_of(cluster, node_id)).get(topic)
    return {} if info is None else info.partitions


async def all_agree(cluster: Cluster) -> None:
    """Wait until all nodes tell the same, with each partition led and all its replicas in sync."""

    async def is_so() -> bool:
        views = [await topics_of(cluster, node_id) for node_id in cluster.nodes]
        partitions = [each for topic in views[0].values() for each in topic.partitions.values()]
        return all(view == views[0] for view in views) and all(
            each.leader_id >= 0 and len(each.isr) == len(each.replicas) for each in partitions
        )

    await eventually(is_so)


class Term(NamedTuple):
    """Whom the quorum has elected, and in which epoch."""

    epoch: int
    leader_id: int


_DESCRIBE_QUORUM = DescribeQuorumRequest(
    topics=[
        RequestTopicData(
            topic_name="__cluster_metadata", partitions=[RequestPartitionData(partition_index=0)]
        )
    ]
)


async def active_controller(
    cluster: Cluster, *, above_epoch: int = -1, among: Sequence[int] | None = None
) -> Term:
    """Wait for an active controller; only one that serves says that it is."""

    async def find() -> Term | None:
        for node_id in cluster.running if among is None else among:
            if cluster.nodes[node_id].controller_port is None:
                continue
            try:
                answer = await ask_node(cluster, node_id, _DESCRIBE_QUORUM, is_for_controller=True)
            except ConnectionLost:
                continue
            if answer.error_code != ErrorCode.NONE:
                continue
            partition = answer.topics[0].partitions[0]
            if partition.error_code == ErrorCode.NONE and partition.leader_epoch > above_epoch:
                return Term(partition.leader_epoch, partition.leader_id)
        return None

    return await eventually(find, poll_seconds=0.005)


async def listens(cluster: Cluster, node_id: int) -> None:
    """Wait until somebody listens on the node's port for controllers."""
    plan = cluster.nodes[node_id]

    async def is_reached() -> bool:
        try:
            stream = await trio.open_tcp_stream(plan.host, plan.controller_port)
        except OSError:
            return False
        await stream.aclose()
        return True

    await eventually(is_reached)


def node_says(cluster: Cluster, node_id: int) -> str:
    """Everything that the node has written to its log file."""
    return Path(cluster.nodes[node_id].log_path).read_text()


def memory_bytes(pid: int) -> int:
    """What the process occupies of the machine's memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
