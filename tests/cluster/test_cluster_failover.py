"""Partitions whose nodes are killed, stopped or paused under load, and what is there then."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from clusterkit import create, eventually, partitions_of, real_cluster
from load import Load, consume_all, under_load
from support.promises import promised

from kraftpy.client.admin_operations import NewTopic
from kraftpy.client.cluster import PartitionInfo
from kraftpy.launch.cluster import Cluster

TOPIC = NewTopic("load", partitions=1, replication_factor=3, configs={"min.insync.replicas": "2"})
# Longest gaps between acknowledgements.
KILL_GAP_SECONDS = 1.5
STOP_GAP_SECONDS = 0.3
SESSION_SECONDS = 3.0
# By this librdkafka notices a silent node, and by nothing else.
SOCKET_TIMEOUT_SECONDS = 1.0


async def partition_seen_by(cluster: Cluster, node_id: int) -> PartitionInfo:
    return (await partitions_of(cluster, node_id, TOPIC.name))[0]


async def everybody_is_in_sync(cluster: Cluster) -> None:
    async def is_so() -> bool:
        return len((await partition_seen_by(cluster, cluster.running[0])).isr) == 3

    await eventually(is_so)


async def nothing_is_lost(cluster: Cluster, loads: list[Load], *, is_exact: bool) -> None:
    """What was acknowledged is there where it was said to be; with `is_exact` in the order of its
    sending, once, and with nothing between.
    """
    found = await consume_all(cluster.bootstrap, TOPIC.name)
    assert [offset for offset, _ in found] == list(range(len(found)))
    for load in loads:
        assert load.missing_in(found) == []
        assert load.failures == []
    if is_exact:
        assert [value for _, value in found] == [
            v for load in loads for v in range(load.sent_count)
        ]


@pytest.mark.parametrize("is_idempotent", [True, False])
async def test_the_leader_of_a_partition_is_killed(tmp_path: Path, is_idempotent: bool) -> None:
    """Nothing acknowledged is lost; an idempotent producer's records stay in order."""
    async with real_cluster(tmp_path) as cluster:
        await cluster.start()
        await create(cluster, TOPIC)
        loads = []
        for _ in range(2):
            options = {"enable.idempotence": is_idempotent}
            async with under_load(cluster.bootstrap, TOPIC.name, **options) as load:
                leader_id = (await partition_seen_by(cluster, 1)).leader_id
                await cluster.kill(leader_id)
                await load.wait_acknowledged(200)
            loads.append(load)
            gap = load.longest_gap_seconds
            promised("leader killed: longest gap", gap, most_seconds=KILL_GAP_SECONDS)
            await cluster.start_node(leader_id)
            await everybody_is_in_sync(cluster)
        await nothing_is_lost(cluster, loads, is_exact=is_idempotent)


async def test_the_leader_of_a_partition_is_stopped(tmp_path: Path) -> None:
    """SIGTERM: it hands over its leadership first."""
    async with real_cluster(tmp_path) as cluster:
        await cluster.start()
        await create(cluster, TOPIC)
        loads = []
        for _ in range(2):
            async with under_load(cluster.bootstrap, TOPIC.name) as load:
                leader_id = (await partition_seen_by(cluster, 1)).leader_id
                await cluster.stop_node(leader_id)
                await load.wait_acknowledged(200)
            loads.append(load)
            gap = load.longest_gap_seconds
            promised("leader stopped: longest gap", gap, most_seconds=STOP_GAP_SECONDS)
            await cluster.start_node(leader_id)
            await everybody_is_in_sync(cluster)
        await nothing_is_lost(cluster, loads, is_exact=False)


async def test_the_leader_of_a_partition_is_paused(tmp_path: Path) -> None:
    """It is fenced when its session is over, and accepts nothing as a leader when it goes on."""
    settings = {"broker.session.timeout.ms": str(round(SESSION_SECONDS * 1000))}
    async with real_cluster(tmp_path, settings=settings) as cluster:
        await cluster.start()
        await create(cluster, TOPIC)
        options = {"socket.timeout.ms": round(SOCKET_TIMEOUT_SECONDS * 1000)}
        async with under_load(cluster.bootstrap, TOPIC.name, **options) as load:
            leader_id = (await partition_seen_by(cluster, 1)).leader_id
            other_id = next(each for each in cluster.running if each != leader_id)

            async def has_another_leader() -> bool:
                return (await partition_seen_by(cluster, other_id)).leader_id != leader_id

            paused = trio.current_time()
            cluster.pause(leader_id)
            await eventually(has_another_leader)
            until_led_seconds = trio.current_time() - paused
            await load.wait_acknowledged(200)
            cluster.resume(leader_id)
            await load.wait_acknowledged(200)
        gap = load.longest_gap_seconds
        promised("leader paused: another", until_led_seconds, most_seconds=SESSION_SECONDS)
        most_seconds = SESSION_SECONDS + SOCKET_TIMEOUT_SECONDS
        promised("leader paused: longest gap", gap, most_seconds=most_seconds)
        await everybody_is_in_sync(cluster)
        await nothing_is_lost(cluster, [load], is_exact=False)
