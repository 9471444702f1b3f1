"""The controllers' quorum as real processes: elections, kills, pauses, and what survives."""

from __future__ import annotations

from pathlib import Path

import trio
from clusterkit import (
    Recorder,
    active_controller,
    create,
    eventually,
    insist_on,
    listens,
    real_cluster,
    topics_of,
)
from support.promises import IS_QUIET_MACHINE, promised

from kraftpy.client.admin_operations import NewTopic
from kraftpy.launch.cluster import Cluster
from kraftpy.launch.plan import split_shape

# What the protocol allows after a crash.
KILL_SECONDS = 1.0
# The fetch timeout, with room that is far less than the election timeout which a split vote costs.
PAUSE_SECONDS = 2.0 + 0.6
FIRST_ELECTION_SECONDS = 1.0
# A machine that does other work may hold up a leader for the usual two seconds.
LEADERS_STAY = {"controller.quorum.fetch.timeout.ms": "60000"}


async def test_the_second_controller_makes_a_quorum(tmp_path: Path) -> None:
    events = Recorder()
    shape = split_shape(controllers=3, brokers=1)
    async with (
        real_cluster(tmp_path, events, shape=shape, settings=LEADERS_STAY) as cluster,
        trio.open_nursery() as tasks,
    ):
        tasks.start_soon(cluster.start_node, 2)
        await listens(cluster, 2)
        tasks.start_soon(cluster.start_node, 3)
        term = await active_controller(cluster, among=(2, 3))
        took = trio.current_time() - events.started_at[3]
        promised(
            "a controller is active after the start of the second process",
            took,
            most_seconds=FIRST_ELECTION_SECONDS,
        )
        tasks.start_soon(cluster.start_node, 4)
        await cluster.start_node(1)
        assert await active_controller(cluster) == term


async def test_a_killed_controller_is_replaced_within_a_second(tmp_path: Path) -> None:
    """Design, decision 14. Every topic that was acknowledged is there afterwards."""
    async with real_cluster(tmp_path) as cluster:
        await cluster.start()
        acknowledged = []
        for number in range(3):
            term = await active_controller(cluster)
            others = [node_id for node_id in cluster.nodes if node_id != term.leader_id]
            for node_id in cluster.nodes:
                name = f"before-{number}-{node_id}"
                topic = NewTopic(name, partitions=1, replication_factor=1)
                await insist_on(cluster, node_id, topic)
                acknowledged.append(name)
            killed_at = trio.current_time()
            await cluster.kill(term.leader_id)
            successor = await active_controller(cluster, above_epoch=term.epoch, among=others)
            took = trio.current_time() - killed_at
            topic = NewTopic(f"after-{number}", partitions=1, replication_factor=1)
            await insist_on(cluster, others[number % 2], topic)
            acknowledged.append(topic.name)
            promised(f"killed {term}: {successor} is active", took, most_seconds=KILL_SECONDS)
            await cluster.start_node(term.leader_id)
            await all_have(cluster, acknowledged)


async def test_a_paused_controller_is_replaced_within_the_fetch_timeout(tmp_path: Path) -> None:
    """Until a write is committed without it. Going on, it is no longer the active one, and learns.

    Its followers' timeouts end together, since one commit reached both; see `Elections.yield_to`.
    """
    async with real_cluster(tmp_path) as cluster:
        await cluster.start()
        await create(cluster, NewTopic("before", partitions=1, replication_factor=3))
        names = ["before"]
        for number in range(3):
            term = await active_controller(cluster)
            others = [node_id for node_id in cluster.nodes if node_id != term.leader_id]
            paused_at = trio.current_time()
            cluster.pause(term.leader_id)
            successor = await active_controller(cluster, above_epoch=term.epoch, among=others)
            elected_after = trio.current_time() - paused_at
            topic = NewTopic(f"meanwhile-{number}", partitions=1, replication_factor=1)
            await insist_on(cluster, others[number % 2], topic)
            took = trio.current_time() - paused_at
            names.append(topic.name)
            cluster.resume(term.leader_id)
            print(f"paused {term}: {successor} after {elected_after:.3f} s")
            promised("a write is committed", took, most_seconds=PAUSE_SECONDS)
            # One election, if no other node was held up for as long as the one that was paused.
            assert successor.epoch == term.epoch + 1 or not IS_QUIET_MACHINE
            await all_have(cluster, names)
            found = await active_controller(cluster)
            assert found == successor or (found.epoch > successor.epoch and not IS_QUIET_MACHINE)


async def all_have(cluster: Cluster, names: list[str]) -> None:
    """Each node serves these topics to clients, once it has caught up."""

    async def is_there() -> bool:
        seen = [await topics_of(cluster, node_id) for node_id in cluster.running]
        return all(each.keys() >= set(names) for each in seen)

    await eventually(is_there)
