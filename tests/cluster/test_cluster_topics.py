"""Topics come and go while controllers are killed in turn; and where there is no quorum."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
from clusterkit import (
    active_controller,
    all_agree,
    ask_node,
    eventually,
    insist_on,
    real_cluster,
    run_over,
    topics_of,
)

from kraftpy.client.admin_operations import NewTopic, create_topics, delete_topics
from kraftpy.client.connection import Peer
from kraftpy.client.errors import ConnectionLost
from kraftpy.client.settings import ClientSettings
from kraftpy.launch.cluster import Cluster
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k19_create_topics import CreatableTopic, CreateTopicsRequest
from kraftpy.world.real import real_world

WORKERS_OF_A_NODE = 3
KILLS = 3
ACKNOWLEDGED_BETWEEN = 20


@dataclass
class Churn:
    """Topics that one client after the other creates and deletes, and what it was told."""

    partitions: dict[str, int] = field(default_factory=dict)
    """Of all topics that anybody tried to create."""
    created: set[str] = field(default_factory=set)
    """Acknowledged, and nobody tried to delete them."""
    deleted: set[str] = field(default_factory=set)
    """Acknowledged."""
    failures: list[str] = field(default_factory=list)
    is_stopped: bool = False

    @property
    def acknowledged_count(self) -> int:
        return len(self.created) + 2 * len(self.deleted)

    async def goes_on(self) -> None:
        """Wait until some more are acknowledged."""
        goal = self.acknowledged_count + ACKNOWLEDGED_BETWEEN

        async def is_there() -> bool:
            return self.acknowledged_count >= goal

        await eventually(is_there)

    async def work(self, peer: Peer, prefix: str) -> None:
        """Two of three topics are deleted at some later time."""
        number = 0
        while not self.is_stopped:
            name = f"{prefix}-{number}"
            old = f"{prefix}-{number - 4}"
            number += 1
            try:
                await self._create(peer, name, 1 + number % 3)
                if old in self.created and number % 3:
                    await self._delete(peer, old)
            except ConnectionLost as error:
                self.failures.append(str(error))
                await trio.sleep(0.02)

    async def _create(self, peer: Peer, name: str, partitions: int) -> None:
        self.partitions[name] = partitions
        topic = NewTopic(name, partitions=partitions, replication_factor=2)
        [failure] = (await run_over(peer, create_topics([topic]))).values()
        if failure is None:
            self.created.add(name)
        else:
            self.failures.append(str(failure))

    async def _delete(self, peer: Peer, name: str) -> None:
        self.created.remove(name)
        [failure] = (await run_over(peer, delete_topics([name]))).values()
        if failure is None:
            self.deleted.add(name)
        else:
            self.failures.append(str(failure))


async def test_topics_come_and_go_while_controllers_are_killed(tmp_path: Path) -> None:
    """Whatever was acknowledged holds, nothing is there by halves, and all nodes say the same."""
    settings = {"log.segment.delete.delay.ms": "100"}
    async with real_cluster(tmp_path, settings=settings) as cluster:
        await cluster.start()
        churn = Churn()
        started_at = trio.current_time()
        async with trio.open_nursery() as nursery:
            for plan in cluster.nodes.values():
                assert plan.port is not None
                for worker in range(WORKERS_OF_A_NODE):
                    address = (plan.host, plan.port)
                    peer = Peer(real_world(), nursery, address, ClientSettings())
                    nursery.start_soon(churn.work, peer, f"churn-{plan.node_id}-{worker}")
            for _ in range(KILLS):
                term = await active_controller(cluster)
                await churn.goes_on()
                await cluster.kill(term.leader_id)
                others = [node_id for node_id in cluster.nodes if node_id != term.leader_id]
                await active_controller(cluster, above_epoch=term.epoch, among=others)
                await churn.goes_on()
                await cluster.start_node(term.leader_id)
            churn.is_stopped = True
            took = trio.current_time() - started_at
            # A request to a node that has just been killed is answered by its end.
            await eventually(lambda: is_alone(nursery))
            nursery.cancel_scope.cancel()
        print(
            f"{churn.acknowledged_count} creations and deletions in {took:.1f} s with {KILLS} kills"
            f" ({churn.acknowledged_count / took:.0f}/s); {len(churn.failures)} of unknown outcome:"
            f" {sorted(set(churn.failures))[:5]}"
        )
        await all_agree(cluster)
        await holds(cluster, churn)


async def is_alone(nursery: trio.Nursery) -> bool:
    """No worker is left: the connections' readers are."""
    return not any("work" in task.name for task in nursery.child_tasks)


def directories(data_dir: str) -> list[str]:
    """Of replicas, those too that wait to be deleted."""
    return sorted(path.name for path in Path(data_dir).glob("churn-*"))


async def holds(cluster: Cluster, churn: Churn) -> None:
    topics = await topics_of(cluster, 1)
    assert churn.created - topics.keys() == set()
    assert churn.deleted & topics.keys() == set()
    assert topics.keys() - churn.partitions.keys() == set()
    for name, topic in topics.items():
        assert sorted(topic.partitions) == list(range(churn.partitions[name]))
    wanted = {
        node_id: sorted(
            f"{name}-{index}"
            for name, topic in topics.items()
            for index, partition in topic.partitions.items()
            if node_id in partition.replicas
        )
        for node_id in cluster.nodes
    }

    async def are_directories_right() -> bool:
        return wanted == {
            node_id: directories(plan.data_dir) for node_id, plan in cluster.nodes.items()
        }

    await eventually(are_directories_right)


@pytest.mark.parametrize("is_active", [True, False], ids=["active", "follower"])
async def test_a_minority_creates_nothing(tmp_path: Path, is_active: bool) -> None:
    """Also if it has the controller that was active; when the others return, nothing is lost."""
    async with real_cluster(tmp_path) as cluster:
        await cluster.start()
        before = [NewTopic(f"before-{n}", partitions=2, replication_factor=3) for n in range(5)]
        for topic in before:
            await insist_on(cluster, 1, topic)
        term = await active_controller(cluster)
        followers = [node_id for node_id in cluster.nodes if node_id != term.leader_id]
        left_id = term.leader_id if is_active else followers[0]
        others = [node_id for node_id in cluster.nodes if node_id != left_id]
        for node_id in others:
            await cluster.kill(node_id)
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name="meanwhile", num_partitions=1, replication_factor=1)],
            timeout_ms=2_000,
        )
        answer = await ask_node(cluster, left_id, request)
        print(f"alone: {ErrorCode(answer.topics[0].error_code).name}")
        assert answer.topics[0].error_code != ErrorCode.NONE
        assert "meanwhile" not in await topics_of(cluster, left_id)
        async with trio.open_nursery() as nursery:
            for node_id in others:
                nursery.start_soon(cluster.start_node, node_id)
        # The leader that was left alone may still lead, if the others were back in time.
        assert (await active_controller(cluster)).epoch >= term.epoch
        await all_agree(cluster)
        names = (await topics_of(cluster, left_id)).keys()
        assert names - {"meanwhile"} == {topic.name for topic in before}
        after = NewTopic("after", partitions=1, replication_factor=3)
        await insist_on(cluster, left_id, after)
