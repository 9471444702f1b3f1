"""A node that is told to stop: what its clients see, from the last answer to the closed port."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from support.simulated_nodes import SimulatedNodes, run_nodes

from kraftpy.client.errors import ConnectionLost
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kraftpy.protocol.schema.k55_describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)

NODES = ("n1", "n2", "n3")
LATEST = -1


async def list_offsets(rig: SimulatedNodes, partition: int, of: str) -> int:
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name="t",
                partitions=[ListOffsetsPartition(partition_index=partition, timestamp=LATEST)],
            )
        ],
    )
    answer = await rig.ask(request, of=of)
    code: int = answer.topics[0].partitions[0].error_code
    return code


def test_clients_are_served_until_they_are_closed_out() -> None:
    """They see that the leader is another one, or that the connection is gone, and nothing else:
    no storage error of a log that is closed, no answer that never comes.
    """
    seen: dict[str, list[str]] = {
        "produce": [],
        "fetch": [],
        "list offsets": [],
        "produce alone": [],
    }

    async def keep_asking(what: str, ask: Callable[[], Awaitable[int]]) -> None:
        while True:
            try:
                seen[what].append(ErrorCode(await ask()).name)
            except ConnectionLost as lost:
                seen[what].append(f"lost: {lost.evidence.value}")
                return
            await trio.sleep(0.001)

    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start(*NODES)
        # The one that takes longest between its last log and its last port.
        leader = await active_controller(rig)
        name = f"n{leader}"
        await rig.create("t", partitions=3, replicas=3, configs={"min.insync.replicas": "2"})
        led = await partition_led_by(rig, "t", leader)

        async def produce() -> int:
            return (await rig.produce("t", rig.batch(b"v"), partition=led, of=name)).error_code

        await rig.create("idle", partitions=3, replicas=3)
        await rig.create("alone", partitions=3)
        mine = await partition_led_by(rig, "idle", leader)
        alone = await partition_led_by(rig, "alone", leader)
        await trio.sleep(0.1)

        async def produce_alone() -> int:
            """Without another replica, nobody takes over."""
            answer = await rig.produce("alone", rig.batch(b"v"), partition=alone, of=name)
            return answer.error_code

        async def fetch() -> int:
            answer = await rig.fetch("idle", partition=mine, max_wait_ms=300, of=name)
            code: int = answer.error_code
            return code

        async with trio.open_nursery() as asking:
            asking.start_soon(keep_asking, "produce", produce)
            asking.start_soon(keep_asking, "produce alone", produce_alone)
            asking.start_soon(keep_asking, "fetch", fetch)
            asking.start_soon(keep_asking, "list offsets", lambda: list_offsets(rig, led, name))
            await trio.sleep(1)
            began = trio.current_time()
            await rig.stop(name)
            print(f"stopped after {trio.current_time() - began:.3f} s")
        others = [each for each in NODES if each != name]
        described = await rig.describe("t", of=others[0])
        assert described.partitions[led].leader_id != leader

    run_nodes(scenario)
    for what, codes in seen.items():
        print(what, dict.fromkeys(codes))
        kinds = list(dict.fromkeys(codes))
        assert kinds[0] == "NONE", what
        assert kinds[-1].startswith("lost: "), what
        assert set(kinds[1:-1]) <= {"NOT_LEADER_OR_FOLLOWER"}, what
    assert "NOT_LEADER_OR_FOLLOWER" in seen["produce"]


async def active_controller(rig: SimulatedNodes) -> int:
    request = DescribeQuorumRequest(
        topics=[
            RequestTopicData(
                topic_name="__cluster_metadata",
                partitions=[RequestPartitionData(partition_index=0)],
            )
        ]
    )
    leader_id: int = (await rig.ask(request)).topics[0].partitions[0].leader_id
    return leader_id


async def partition_led_by(rig: SimulatedNodes, topic: str, leader: int) -> int:
    partitions = (await rig.describe(topic)).partitions
    [found] = [each.partition_index for each in partitions if each.leader_id == leader]
    return int(found)


def test_the_last_node_stops_at_the_second_signal() -> None:
    """Nobody is left to consent, and nobody to elect another controller."""

    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start(*NODES)
        for name in ("n2", "n3"):
            rig.kill(name)
        await trio.sleep(0.1)
        rig.nodes["n1"].stop()
        await trio.sleep(1)
        began = trio.current_time()
        await rig.stop("n1")
        assert trio.current_time() - began < 0.2

    run_nodes(scenario)
