"""Small things to do with a cluster of the process suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from jepsen_tests.cluster import ClusterOptions, Inspection, JepsenCluster, open_cluster
from jepsen_tests.cluster.options import NetworkKind
from kraftpy.client.admin_operations import NewTopic, create_topics, require
from kraftpy.client.calls import TopicPartition
from kraftpy.client.errors import KafkaError
from kraftpy.faults.language import Fault
from kraftpy.faults.switchboard import FaultRefusedError
from kraftpy.world.real import real_world

# How long something may take that has to happen: only a guard against hanging.
PATIENCE_SECONDS = 120.0
TOPIC = "events"
FIRST = TopicPartition(TOPIC, 0)


@asynccontextmanager
async def opened_cluster(
    directory: Path, *, nodes: int = 3, network: NetworkKind = "auto"
) -> AsyncIterator[JepsenCluster]:
    options = ClusterOptions(nodes=nodes, network=network, directory=str(directory / "cluster"))
    failure: Exception | None = None
    async with open_cluster(real_world(), options) as cluster:
        try:
            yield cluster
        except Exception as error:
            # With what the nodes say, and not inside of groups of groups.
            error.add_note(cluster.describe())
            failure = error
    if failure is not None:
        raise failure


async def create_topic(cluster: JepsenCluster, replicas: list[int]) -> None:
    topic = NewTopic(TOPIC, assignment={0: replicas})
    require(await cluster.admin.run(create_topics([topic])))
    await eventually(cluster, lambda view: view.partitions[FIRST].leader == replicas[0])


async def eventually(cluster: JepsenCluster, condition: Callable[[Inspection], object]) -> None:
    """Wait for what the cluster says about itself."""

    async def holds() -> bool:
        view = await cluster.inspect()
        try:
            return view is not None and bool(condition(view))
        except KeyError:
            return False

    await until(holds)


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        while not await condition():  # noqa: ASYNC110 (of another process)
            await trio.sleep(0.05)


async def insist(cluster: JepsenCluster, fault: Fault) -> None:
    """Ask until it is not refused: an election may be under way."""

    async def is_done() -> bool:
        try:
            await cluster.apply(fault)
        except (FaultRefusedError, KafkaError):
            return False
        return True

    await until(is_done)
