"""Brokers and a real controller: they register, catch up, are unfenced, and are let go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from controller_rig import CLUSTER_ID, RealController, no_error, real_controller

from kraftpy.broker.lifecycle import BrokerLifecycle
from kraftpy.broker.lifecycle_core import (
    BrokerIdentity,
    BrokerState,
    LifecycleCore,
    LifecycleSettings,
    RegistrationTimedOut,
)
from kraftpy.metadata.features import supported_features
from kraftpy.metadata.records import Endpoint
from kraftpy.observe.metrics import Gauge, MetricName, MetricRegistry
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.world import World
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_rng import MemoryRng
from kraftpy.world.real_network import RealNetwork


def a_world() -> World:
    return World(MemoryClock(), MemoryRng(1), RealNetwork(), MemoryDisk())


class Broker:
    """The part of a broker that the controller sees."""

    def __init__(
        self, controller: RealController, broker_id: int, *, incarnation: int = 1, **settings: Any
    ) -> None:
        self.registry = MetricRegistry()
        self.channel = controller.channel()
        identity = BrokerIdentity(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=Uuid(bytes([incarnation] * 15 + [broker_id])),
            endpoints=(Endpoint("PLAINTEXT", f"b{broker_id}", 9092, 0),),
            features=supported_features(),
            # Who holds the directories of the process before has its place at once.
            directory_ids=(Uuid(bytes([incarnation] * 14 + [99, broker_id])),),
        )
        core = LifecycleCore(
            identity,
            LifecycleSettings(**settings),
            metadata_offset=lambda: controller.image.provenance.last_offset,
        )
        self.lifecycle = BrokerLifecycle(
            core, self.channel, MemoryClock(), self.registry, answer_timeout_ms=2_000
        )
        self.has_ended = False

    async def run(self) -> None:
        await self.lifecycle.run()
        self.has_ended = True

    async def start(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self.run)
        await self.lifecycle.caught_up.wait()
        self.lifecycle.set_ready()
        await self.lifecycle.unfenced.wait()


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[RealController, trio.Nursery]]:
    async with real_controller(a_world()) as controller, trio.open_nursery() as nursery:
        yield controller, nursery
        nursery.cancel_scope.cancel()


async def create(controller: RealController, name: str, *replicas: list[int]) -> None:
    """A topic with these replicas for its partitions."""
    request = k19.CreateTopicsRequest(
        topics=[
            k19.CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    k19.CreatableReplicaAssignment(partition_index=number, broker_ids=each)
                    for number, each in enumerate(replicas)
                ],
            )
        ],
        timeout_ms=10_000,
    )
    [result] = (await controller.ask(request)).topics
    no_error(result)


async def test_a_broker_is_unfenced_when_it_is_ready(autojump_clock: object) -> None:
    """CTL-58, KRF-114: fenced in the image until it says that it is ready."""
    async with cluster() as (controller, nursery):
        broker = Broker(controller, 1)
        nursery.start_soon(broker.run)
        await broker.lifecycle.caught_up.wait()
        await trio.sleep(10)
        assert controller.image.brokers[1].fenced
        assert broker.lifecycle.state is BrokerState.RECOVERY
        assert not broker.lifecycle.unfenced.is_set()
        began = trio.current_time()
        broker.lifecycle.set_ready()
        await broker.lifecycle.unfenced.wait()
        assert trio.current_time() - began < 0.1
        assert not controller.image.brokers[1].fenced
        assert controller.image.brokers[1].broker_epoch == broker.lifecycle.broker_epoch
        gauge = broker.registry.get(MetricName("kafka.server", "KafkaServer", "BrokerState"))
        assert isinstance(gauge, Gauge)
        assert gauge.read() == 3


async def test_its_leaderships_are_handed_over_before_it_stops(autojump_clock: object) -> None:
    """CTL-73, CTL-76, CTL-81: the others know it before the broker is let go."""
    async with cluster() as (controller, nursery):
        brokers = [Broker(controller, number) for number in (1, 2)]
        for broker in brokers:
            await broker.start(nursery)
        await create(controller, "t", [1, 2], [2, 1])
        began = trio.current_time()
        brokers[0].lifecycle.begin_shutdown()
        assert brokers[0].lifecycle.is_stopping
        while not brokers[0].has_ended:  # noqa: ASYNC110 (nobody says when)
            await trio.sleep(0.01)
        assert [each.leader for each in controller.image.topics["t"].partitions] == [2, 2]
        assert controller.image.brokers[1].in_controlled_shutdown
        # Within two heartbeats of the other one.
        assert trio.current_time() - began < 4.1


async def test_a_hurry_waits_for_no_answer(autojump_clock: object) -> None:
    """Nobody is left to consent: a second signal ends the broker now, not after a time-out."""
    async with cluster() as (controller, nursery):
        broker = Broker(controller, 1)
        await broker.start(nursery)
        controller.is_reachable = False
        broker.lifecycle.begin_shutdown()
        await trio.sleep(0.5)
        assert not broker.has_ended
        broker.lifecycle.stop_without_consent()
        await trio.testing.wait_all_tasks_blocked()
        assert broker.has_ended


async def test_without_a_controller_the_process_ends(autojump_clock: object) -> None:
    """CTL-59."""
    async with cluster() as (controller, _):
        controller.is_reachable = False
        broker = Broker(controller, 1)
        began = trio.current_time()
        with pytest.raises(RegistrationTimedOut):
            await broker.run()
        assert 60 <= trio.current_time() - began <= 62


async def test_a_broker_that_was_away_comes_back(autojump_clock: object) -> None:
    """Fenced for its silence, it is unfenced by its next heartbeat."""
    async with cluster() as (controller, nursery):
        broker = Broker(controller, 1)
        await broker.start(nursery)
        controller.is_reachable = False
        await trio.sleep(20)
        assert controller.image.brokers[1].fenced
        controller.is_reachable = True
        await trio.sleep(12)
        assert not controller.image.brokers[1].fenced


async def test_another_process_waits_for_the_session_of_the_one_before(
    autojump_clock: object,
) -> None:
    """CTL-50, CTL-59: refused while the old one may live, then registered with a higher epoch."""
    async with cluster() as (controller, nursery):
        first = Broker(controller, 1)
        with trio.CancelScope() as process:
            async with trio.open_nursery() as inner:
                await first.start(inner)
                process.cancel()
        began = trio.current_time()
        second = Broker(controller, 1, incarnation=2)
        await second.start(nursery)
        assert 7 < trio.current_time() - began < 12
        assert second.lifecycle.broker_epoch > first.lifecycle.broker_epoch
