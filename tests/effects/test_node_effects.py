"""Keys of a node that have an effect: each is changed, and the effect is seen."""

from __future__ import annotations

import pytest
import trio
from effects.coordinator_effects import COORDINATOR_DYNAMIC_EFFECTS, COORDINATOR_STATIC_EFFECTS
from effects.node_effects import DYNAMIC_EFFECTS, NODES, STATIC_EFFECTS
from effects.throttle_effects import (
    FOLLOWERS,
    LEADERS,
    SLOW,
    THROTTLE_DYNAMIC_EFFECTS,
    THROTTLE_STATIC_EFFECTS,
    takes_long,
)
from support.simulated_nodes import SimulatedNodes, run_nodes

from kraftpy.client.admin_operations import ConfigKind
from kraftpy.protocol.errors import ErrorCode

STATIC = {**STATIC_EFFECTS, **COORDINATOR_STATIC_EFFECTS, **THROTTLE_STATIC_EFFECTS}
DYNAMIC = {**DYNAMIC_EFFECTS, **COORDINATOR_DYNAMIC_EFFECTS, **THROTTLE_DYNAMIC_EFFECTS}


@pytest.mark.parametrize("key", STATIC)
def test_two_nodes_with_different_settings(key: str) -> None:
    effect = STATIC[key]
    seen: list[object] = []
    for settings in ({}, {key: effect.value}):

        async def scenario(rig: SimulatedNodes, settings: dict[str, str] = settings) -> None:
            seen.append(await effect.observe(rig, {**effect.node, **settings}))

        run_nodes(scenario)
    before, after = seen
    assert after == effect.expected
    assert before != after


@pytest.mark.parametrize("key", DYNAMIC)
def test_a_setting_changes_while_nodes_run(key: str) -> None:
    """By IncrementalAlterConfigs; when it is taken back, all is as before."""
    effect = DYNAMIC[key]

    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start(*effect.names, settings=effect.node)
        resource = "1" if effect.per_broker else ""
        before = await effect.observe(rig, 0)
        await rig.alter(ConfigKind.BROKER, resource, {key: effect.value})
        after = await effect.observe(rig, 1)
        assert after == effect.expected
        assert before != after
        await rig.alter(ConfigKind.BROKER, resource, {key: None})
        assert await effect.observe(rig, 2) == before

    run_nodes(scenario)


@pytest.mark.parametrize(("side", "broker"), [(LEADERS, 1), (FOLLOWERS, 2)])
def test_throttled_replicas(side: str, broker: int) -> None:
    """leader.replication.throttled.replicas, follower.replication.throttled.replicas: those that
    are named, by the numbers of partition and broker.
    """

    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start("n1", "n2")
        await rig.alter(ConfigKind.BROKER, "", {f"{side}.rate": SLOW})
        key = f"{side}.replicas"
        assert not await takes_long(rig, "none", {})
        assert not await takes_long(rig, "other", {key: f"0:{3 - broker},1:{broker}"})
        assert await takes_long(rig, "this", {key: f"7:9,0:{broker}"})

    run_nodes(scenario)


@pytest.mark.parametrize("resource", [ConfigKind.TOPIC, ConfigKind.BROKER])
def test_min_insync_replicas(resource: ConfigKind) -> None:
    """min.insync.replicas, of a topic or as the brokers' default: with one of three away."""

    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start(*NODES)
        await rig.create("t", replicas=3)
        await rig.stop("n3")
        leader = f"n{(await rig.describe('t')).partitions[0].leader_id}"
        name = "t" if resource is ConfigKind.TOPIC else ""

        async def outcome() -> str:
            await trio.sleep(0.5)
            answer = await rig.produce("t", rig.batch(b"v"), of=leader)
            return ErrorCode(answer.error_code).name

        assert await outcome() == "NONE"
        await rig.alter(resource, name, {"min.insync.replicas": "3"})
        assert await outcome() == "NOT_ENOUGH_REPLICAS"
        await rig.alter(resource, name, {"min.insync.replicas": "1"})
        assert await outcome() == "NONE"

    run_nodes(scenario)


@pytest.mark.parametrize("resource", [ConfigKind.TOPIC, ConfigKind.BROKER])
def test_unclean_leader_election(resource: ConfigKind) -> None:
    """unclean.leader.election.enable, of a topic or as the brokers' default: it brings a partition
    back whose only replica in sync is gone. unclean.leader.election.interval.ms says when.
    """

    async def scenario(rig: SimulatedNodes) -> None:
        settings = {"unclean.leader.election.interval.ms": "5000"}
        await rig.start(*NODES, settings=settings)
        await rig.create("t", replicas=2)
        [before] = (await rig.describe("t")).partitions
        leader = f"n{before.leader_id}"
        [follower] = [f"n{each}" for each in before.replica_nodes if f"n{each}" != leader]
        [witness] = [each for each in NODES if each not in (leader, follower)]
        rig.kill(follower)
        await trio.sleep(15)
        rig.kill(leader)
        await rig.start_with(follower, rig.config(follower, NODES, settings))
        await trio.sleep(15)
        [offline] = (await rig.describe("t", of=witness)).partitions
        assert offline.leader_id == -1
        name = "t" if resource is ConfigKind.TOPIC else ""
        change = {"unclean.leader.election.enable": "true"}
        await rig.alter(resource, name, change, of=witness)
        await trio.sleep(6)
        [online] = (await rig.describe("t", of=witness)).partitions
        assert f"n{online.leader_id}" == follower

    run_nodes(scenario)


def test_listeners_do_not_change_while_a_node_runs() -> None:
    """As in Kafka without ZooKeeper: others know the node by what it has registered."""

    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start("n1")
        change = {"listeners": "PLAINTEXT://n1:9999,CONTROLLER://n1:9093"}
        result = await rig.try_to_alter(ConfigKind.BROKER, "1", change)
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert "set it in its file and restart" in result.error_message

    run_nodes(scenario)


def test_a_broker_without_an_open_directory_gets_no_replicas() -> None:
    """cordoned.log.dirs reaches the controller, by the heartbeats, and so does its end."""

    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start("n1", "n2")

        async def brokers_of(topic: str) -> set[int]:
            await rig.create(topic, partitions=6)
            partitions = (await rig.describe(topic)).partitions
            return {each for partition in partitions for each in partition.replica_nodes}

        assert await brokers_of("before") == {1, 2}
        await rig.alter(ConfigKind.BROKER, "2", {"cordoned.log.dirs": "*"}, of="n2")
        await trio.sleep(0.5)
        assert await brokers_of("during") == {1}
        await rig.alter(ConfigKind.BROKER, "2", {"cordoned.log.dirs": None}, of="n2")
        await trio.sleep(0.5)
        assert await brokers_of("after") == {1, 2}

    run_nodes(scenario)
