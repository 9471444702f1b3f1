"""Replicas on three nodes: all of them crash at once, one falls behind, or there are many."""

from __future__ import annotations

import re
from pathlib import Path

import trio
from clusterkit import (
    Recorder,
    create,
    eventually,
    memory_bytes,
    partitions_of,
    real_cluster,
    run_on,
)
from load import consume_all, under_load, write_to_all
from support.promises import promised

from kraftpy.client.admin_operations import NewTopic, create_topics, require
from kraftpy.launch.cluster import Cluster

TOPIC = NewTopic("load", partitions=1, replication_factor=3, configs={"min.insync.replicas": "2"})
PARTITION_COUNT = 1_000
# Until all take records.
CREATION_SECONDS = 3.0


async def test_all_nodes_are_killed_at_once(tmp_path: Path) -> None:
    """What was acknowledged is there after the restart, and the replicas have the same bytes.

    The processes die, the machine does not: what was written is in its page cache.
    """
    async with real_cluster(tmp_path, settings={"log.roll.ms": "300"}) as cluster:
        await cluster.start()
        await create(cluster, TOPIC)
        loads = []
        for _ in range(2):
            # One at a time: of what a segment before has of a producer, its snapshot knows the last
            # batch only, and with these short segments the others in flight are often there.
            options = {"enable.idempotence": True, "max.in.flight": 1}
            async with under_load(cluster.bootstrap, TOPIC.name, **options) as load:
                await load.wait_acknowledged(300)
                cluster.kill_all()
                await cluster.wait_all_gone()
                await cluster.start()
                await load.wait_acknowledged(300)
            assert load.failures == []
            print(f"all killed: longest gap {load.longest_gap_seconds:.3f} s")
            loads.append(load)
        found = await consume_all(cluster.bootstrap, TOPIC.name)
        assert [offset for offset, _ in found] == list(range(len(found)))
        assert [load.missing_in(found) for load in loads] == [[], []]
        # Nothing is there twice, for the producer was idempotent.
        assert len(found) == sum(len(load.acknowledged) for load in loads)
        await have_all_in_sync(cluster, TOPIC)
    replicas = [segments(Path(plan.data_dir) / "load-0") for plan in cluster.nodes.values()]
    assert len(replicas[0]) > 3
    assert replicas[0] == replicas[1] == replicas[2]


async def have_all_in_sync(cluster: Cluster, topic: NewTopic, *, node_id: int = 1) -> None:
    """As that node sees it. Then all replicas end at the same offset, if nobody writes."""

    async def is_so() -> bool:
        partitions = (await partitions_of(cluster, node_id, topic.name)).values()
        return all(len(each.isr) == len(each.replicas) for each in partitions)

    await eventually(is_so)


def segments(directory: Path) -> bytes:
    """The records of a replica: its segments, joined. Where one ends is each node's own affair."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


async def test_a_follower_falls_behind_and_catches_up(tmp_path: Path) -> None:
    """The ISR shrinks without it and grows again; the others go on meanwhile."""
    settings = {"replica.lag.time.max.ms": "1000", "broker.session.timeout.ms": "60000"}
    async with real_cluster(tmp_path, settings=settings) as cluster:
        await cluster.start()
        await create(cluster, TOPIC)
        leader_id = (await partitions_of(cluster, 1, TOPIC.name))[0].leader_id
        follower_id = next(node_id for node_id in cluster.nodes if node_id != leader_id)
        in_sync = set(cluster.nodes)

        async def is_behind() -> bool:
            [partition] = (await partitions_of(cluster, leader_id, TOPIC.name)).values()
            return set(partition.isr) == in_sync - {follower_id}

        async with under_load(cluster.bootstrap, TOPIC.name) as load:
            cluster.pause(follower_id)
            paused_at = trio.current_time()
            await eventually(is_behind)
            print(f"out of the ISR after {trio.current_time() - paused_at:.3f} s")
            await load.wait_acknowledged(300)
            cluster.resume(follower_id)
            resumed_at = trio.current_time()
            await have_all_in_sync(cluster, TOPIC, node_id=leader_id)
            print(f"in the ISR again after {trio.current_time() - resumed_at:.3f} s")
        assert load.failures == []
    replicas = [segments(Path(plan.data_dir) / "load-0") for plan in cluster.nodes.values()]
    assert replicas[0] == replicas[1] == replicas[2]


async def test_a_thousand_partitions_in_one_call(tmp_path: Path) -> None:
    events = Recorder()
    # So that only the creation changes roles, on a machine that does other work too.
    settings = {
        "broker.session.timeout.ms": "120000",
        "controller.quorum.fetch.timeout.ms": "60000",
        "replica.lag.time.max.ms": "120000",
    }
    async with real_cluster(tmp_path, events, settings=settings) as cluster:
        await cluster.start()
        before = sum(map(memory_bytes, events.pids.values()))
        topic = NewTopic("wide", partitions=PARTITION_COUNT, replication_factor=3)
        started_at = trio.current_time()
        require(await run_on(cluster, 1, create_topics([topic])))
        answered_after = trio.current_time() - started_at

        async def are_all_served() -> bool:
            fetched = [served(Path(plan.log_path)) for plan in cluster.nodes.values()]
            return fetched == [PARTITION_COUNT] * 3

        await eventually(are_all_served, poll_seconds=0.1)
        await have_all_in_sync(cluster, topic)
        took = trio.current_time() - started_at
        grown = sum(map(memory_bytes, events.pids.values())) - before
        replica_kilobytes = grown / (3 * PARTITION_COUNT) / 1024
        # Led, followed by all, and taking records: what the metadata says of them is true.
        await write_to_all(cluster.bootstrap, topic)
        written_after = trio.current_time() - started_at
        print(
            f"{PARTITION_COUNT} partitions: answered after {answered_after:.2f} s, served by all "
            f"after {took:.2f} s, {replica_kilobytes:.1f} KiB for each replica, written to all "
            f"after {written_after:.2f} s"
        )
        promised("a thousand partitions", took, most_seconds=CREATION_SECONDS)


def served(log_path: Path) -> int:
    """How many replicas the node has said to host."""
    counts = re.findall(r"replicas follow the metadata .*replicas=(\d+)", log_path.read_text())
    return sum(map(int, counts))
