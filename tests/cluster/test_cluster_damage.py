"""Damaged files and strangers: a clear error each, and never a node that starts from nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from clusterkit import (
    Recorder,
    active_controller,
    all_agree,
    ask_node,
    eventually,
    insist_on,
    listens,
    node_says,
    real_cluster,
    topics_of,
)

from kraftpy.client.admin_operations import NewTopic
from kraftpy.launch.cluster import Cluster
from kraftpy.launch.errors import LaunchError
from kraftpy.launch.plan import combined_shape
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k52_vote import RequestPartitionData, RequestTopicData, VoteRequest

METADATA = "__cluster_metadata-0"
OTHER_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
# A machine that does other work may hold up a leader for the usual two seconds.
LEADERS_STAY = {"controller.quorum.fetch.timeout.ms": "60000"}


def garble_quorum_state(data: Path) -> None:
    (data / METADATA / "quorum-state").write_bytes(b'{"leaderEpoch": tw')


def empty_quorum_state(data: Path) -> None:
    (data / METADATA / "quorum-state").write_bytes(b"")


def garble_metadata_log(data: Path) -> None:
    """In its middle: what lies behind was committed."""
    path = data / METADATA / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def garble_bootstrap_snapshot(data: Path) -> None:
    path = data / "bootstrap.checkpoint"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (garble_quorum_state, "quorum-state"),
    (empty_quorum_state, "quorum-state"),
    (garble_metadata_log, METADATA),
    (garble_bootstrap_snapshot, "bootstrap.checkpoint"),
]


@pytest.mark.parametrize(("damage", "named"), DAMAGES, ids=[each[0].__name__ for each in DAMAGES])
async def test_a_node_refuses_a_damaged_directory(
    tmp_path: Path, damage: Callable[[Path], None], named: str
) -> None:
    """It ends with a code, names the file, and leaves everything as it is."""
    async with real_cluster(tmp_path, shape=combined_shape(1)) as cluster:
        await cluster.start()
        await make_topics(cluster)
    data = Path(cluster.nodes[1].data_dir)
    damage(data)
    before = contents(data)
    events = Recorder()
    with pytest.raises(LaunchError):
        async with real_cluster(tmp_path, events) as cluster:
            await cluster.start()
    [death] = events.deaths
    print(death.exit_code, *death.last_lines[-2:], sep="\n")
    assert death.exit_code > 0
    assert any(named in line for line in death.last_lines)
    assert not any("Traceback" in line for line in death.last_lines)
    assert contents(data) == before


async def test_a_node_of_another_cluster_does_not_join(tmp_path: Path) -> None:
    """It says why, never becomes ready, and the others go on without it."""
    async with real_cluster(tmp_path, settings=LEADERS_STAY) as cluster:
        move_to_other_cluster(Path(cluster.nodes[1].data_dir) / "meta.properties")
        async with trio.open_nursery() as nursery:
            for node_id in (2, 3):
                nursery.start_soon(cluster.start_node, node_id)
        term = await active_controller(cluster)

        async def stay_outside() -> None:
            with pytest.raises(LaunchError, match="ended before it was ready"):
                await cluster.start_node(1)

        async def says_why() -> str:
            return next((s for s in node_says(cluster, 1).splitlines() if "CLUSTER_ID" in s), "")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stay_outside)
            await listens(cluster, 1)
            print(await eventually(says_why))
            await cluster.kill(1)
        assert await active_controller(cluster) == term


def move_to_other_cluster(path: Path) -> None:
    text = re.sub(r"cluster\.id=.*", f"cluster.id={OTHER_CLUSTER}", path.read_text())
    assert OTHER_CLUSTER in text
    path.write_text(text)


async def make_topics(cluster: Cluster) -> None:
    for number in range(3):
        topic = NewTopic(f"topic-{number}", partitions=1, replication_factor=1)
        await insist_on(cluster, 1, topic)


def contents(data: Path) -> dict[str, bytes]:
    """Of the files that say who the node is and what the quorum has decided."""
    files = [data / "meta.properties", data / "bootstrap.checkpoint", *(data / METADATA).iterdir()]
    suffixes = (".log", ".checkpoint", ".properties", "quorum-state")
    return {path.name: path.read_bytes() for path in files if path.name.endswith(suffixes)}


def vote(*, epoch: int, cluster_id: str | None, pre_vote: bool) -> VoteRequest:
    """Of a node that nobody knows, with an empty log."""
    partition = RequestPartitionData(
        partition_index=0,
        replica_epoch=epoch,
        replica_id=77,
        last_offset_epoch=0,
        last_offset=0,
        pre_vote=pre_vote,
    )
    topic = RequestTopicData(topic_name="__cluster_metadata", partitions=[partition])
    return VoteRequest(cluster_id=cluster_id, topics=[topic])


@pytest.mark.parametrize("pre_vote", [True, False])
async def test_strangers_at_the_controllers_door(tmp_path: Path, pre_vote: bool) -> None:
    """Who has another cluster's id is refused. Who is no voter, and has less than the cluster, gets
    no vote, and the quorum goes on.
    """
    async with real_cluster(tmp_path, settings=LEADERS_STAY) as cluster:
        await cluster.start()
        await make_topics(cluster)
        term = await active_controller(cluster)
        other = vote(epoch=term.epoch + 5, cluster_id=OTHER_CLUSTER, pre_vote=pre_vote)
        for node_id in cluster.nodes:
            answer = await ask_node(cluster, node_id, other, is_for_controller=True)
            assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        assert await active_controller(cluster) == term
        stranger = vote(epoch=term.epoch + 1, cluster_id=None, pre_vote=pre_vote)
        for node_id in cluster.nodes:
            answer = await ask_node(cluster, node_id, stranger, is_for_controller=True)
            assert not answer.topics[0].partitions[0].vote_granted
        leader_id = (await active_controller(cluster)).leader_id
        topic = NewTopic("afterwards", partitions=1, replication_factor=3)
        await insist_on(cluster, leader_id, topic)
        await all_agree(cluster)
        assert len(await topics_of(cluster, leader_id)) == 4
