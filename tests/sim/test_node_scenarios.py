"""Three whole nodes, told as stories: who is cut off from whom, and what each of them says then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from kraftpy.client.connection import connect
from kraftpy.client.settings import ClientSettings
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k03_metadata as k03
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.protocol.schema import k55_describe_quorum as k55
from kraftpy.protocol.tables import Request
from kraftpy.sim.runner import run_simulation
from kraftpy.sim.simulation import Simulation
from kraftpy.sim.whole.machines import PORT, Machines, machine_name, node_settings
from kraftpy.world.memory_link import LinkProfile

CLIENT = "client"
IDS = (1, 2, 3)
NODES = tuple(map(machine_name, IDS))
QUICK = ClientSettings(request_timeout_ms=3_000, reconnect_backoff_max_ms=200)
WEATHER = LinkProfile(latency_mean_seconds=0.002, tail_probability=0.005)
SETTINGS = {
    "replica.lag.time.max.ms": "2000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
METADATA_PARTITION = k55.RequestTopicData(
    topic_name="__cluster_metadata", partitions=[k55.RequestPartitionData(partition_index=0)]
)


class Story:
    """The cluster, and what a client asks of single nodes."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation

    async def ask(self, node: str, request: Request, seconds: float = 5) -> Any:
        """This node's answer and nobody else's; ConnectionLost if there is none in time."""
        world = self.simulation.world(CLIENT)
        async with trio.open_nursery() as nursery:
            connection = await connect(world, nursery, (node, PORT), QUICK)
            answer = await connection.request(request, timeout_ms=int(seconds * 1000))
            connection.close()
        return answer

    async def create(self, name: str, *, through: str) -> ErrorCode:
        topic = k19.CreatableTopic(name=name, num_partitions=3, replication_factor=3)
        request = k19.CreateTopicsRequest(topics=[topic], timeout_ms=3_000)
        [result] = (await self.ask(through, request)).topics
        return ErrorCode(result.error_code)

    async def topics(self, node: str) -> dict[str, list[tuple[int, int, list[int]]]]:
        """Leader, leader epoch and ISR of each partition, as a node sees them."""
        answer = await self.ask(node, k03.MetadataRequest(topics=None))
        return {
            topic.name: [
                (each.leader_id, each.leader_epoch, sorted(each.isr_nodes))
                for each in sorted(topic.partitions, key=lambda each: each.partition_index)
            ]
            for topic in answer.topics
        }

    async def brokers(self, node: str) -> list[int]:
        answer = await self.ask(node, k03.MetadataRequest(topics=[]))
        return sorted(each.node_id for each in answer.brokers)

    async def controller(self, node: str) -> tuple[str, int]:
        """The active one and its epoch, as a node's forwarding finds it."""
        request = k55.DescribeQuorumRequest(topics=[METADATA_PARTITION])
        [topic] = (await self.ask(node, request)).topics
        [partition] = topic.partitions
        return f"n{partition.leader_id}", partition.leader_epoch

    def part(self, name: str, *others: str) -> None:
        for other in others:
            self.simulation.fabric.cut(name, other)
            self.simulation.fabric.cut(other, name)

    def rejoin(self, name: str, *others: str) -> None:
        for other in others:
            self.simulation.fabric.heal(name, other)
            self.simulation.fabric.heal(other, name)

    async def until(self, condition: Callable[[], Awaitable[bool]], seconds: float) -> None:
        deadline = trio.current_time() + seconds
        while True:
            holds = False
            try:
                holds = await condition()
            except* OSError:
                pass
            if holds:
                return
            assert trio.current_time() < deadline, "it did not come to pass"
            await trio.sleep(0.1)


def tell(story: Callable[[Story], Awaitable[None]], seed: int) -> None:
    async def main(simulation: Simulation) -> None:
        for source in (*NODES, CLIENT):
            for target in (*NODES, CLIENT):
                simulation.fabric.set_profile(source, target, WEATHER)
        async with trio.open_nursery() as nursery:
            configs = {each: node_settings(each, IDS, IDS, SETTINGS) for each in IDS}
            machines = Machines(simulation, nursery, configs, [CLIENT])
            for node_id in IDS:
                machines.start(node_id)
            told = Story(simulation)

            async def is_whole() -> bool:
                return await told.brokers("n1") == [1, 2, 3]

            await told.until(is_whole, 30)
            await story(told)
            nursery.cancel_scope.cancel()

    print(f"seed {seed}")
    run_simulation(main, seed=seed, time_limit_seconds=300)


def others_than(name: str) -> list[str]:
    return [each for each in NODES if each != name]


@pytest.mark.parametrize("seed", range(3))
def test_a_broker_without_its_controller(seed: int) -> None:
    """CTL-148: it is fenced and its leaderships move. CTL-39: nobody waits for it. CTL-37, CTL-38,
    CTL-40, CTL-62: when it is back, it gets all that it missed, in order, from where it was.
    """

    async def story(told: Story) -> None:
        assert await told.create("before", through="n1") is ErrorCode.NONE
        active, _ = await told.controller("n1")
        lost = others_than(active)[0]
        number = int(lost.removeprefix("n"))
        told.part(lost, *others_than(lost))
        assert await told.create("during", through=active) is ErrorCode.NONE

        async def is_fenced() -> bool:
            partitions = (await told.topics(active))["before"]
            away = number not in await told.brokers(active)
            return away and all(leader not in (-1, number) for leader, _, _ in partitions)

        await told.until(is_fenced, 15)
        assert "during" not in await told.topics(lost)
        told.rejoin(lost, *others_than(lost))

        async def is_back() -> bool:
            seen, elsewhere = await told.topics(lost), await told.topics(active)
            return "during" in seen and seen == elsewhere

        await told.until(is_back, 20)

    tell(story, seed)


@pytest.mark.parametrize("seed", range(3))
def test_a_controller_without_its_quorum(seed: int) -> None:
    """CTL-149: the majority elects another with a larger epoch; the old one commits nothing and
    steps down.
    """

    async def story(told: Story) -> None:
        active, epoch = await told.controller("n1")
        majority = others_than(active)
        told.part(active, *majority)
        try:
            assert await told.create("nowhere", through=active) is not ErrorCode.NONE
        except* OSError:
            pass

        async def is_replaced() -> bool:
            found, newer = await told.controller(majority[0])
            return found != active and newer > epoch

        await told.until(is_replaced, 15)
        assert await told.create("here", through=majority[0]) is ErrorCode.NONE
        told.rejoin(active, *majority)

        async def is_healed() -> bool:
            views = [await told.topics(name) for name in NODES]
            return all(list(view) == ["here"] for view in views)

        await told.until(is_healed, 20)

    tell(story, seed)
