"""A few brokers with everything that replicas need, and a real controller, in a simulation.

Data goes over the memory network: fetchers ask the other brokers' own handlers. The controller is
asked without a network (controller_rig).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio
from controller_rig import CLUSTER_ID, RealController, no_error, real_controller

from kraftpy.api.data_handlers import DataSettings, data_handlers
from kraftpy.api.dispatch import Dispatcher
from kraftpy.broker.fetcher_steps import FetcherSettings
from kraftpy.broker.lifecycle import BrokerLifecycle
from kraftpy.broker.lifecycle_core import BrokerIdentity, LifecycleCore, LifecycleSettings
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.broker.partition import Partition
from kraftpy.broker.replica_parts import assemble_replicas
from kraftpy.broker.replicas import ReplicaSettings
from kraftpy.broker.suspects import SuspectedBrokers
from kraftpy.log.clean_shutdown import previous_broker_epoch
from kraftpy.log.log_config import LogConfig
from kraftpy.log.log_directory import random_id
from kraftpy.log.manager import LogManager
from kraftpy.log.manager_settings import LogManagerSettings
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.features import supported_features
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.publisher import Manifest
from kraftpy.metadata.records import Endpoint, PartitionRecord
from kraftpy.net.limits import NetworkLimits
from kraftpy.net.listener import ListenerSettings
from kraftpy.net.server import NetworkServer
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.observe.request_metrics import RequestMetrics
from kraftpy.observe.topic_metrics import TopicMetrics
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.protocol.schema import k20_delete_topics as k20
from kraftpy.protocol.schema import k43_elect_leaders as k43
from kraftpy.protocol.schema import k45_alter_partition_reassignments as k45
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.reader import read_records
from kraftpy.records.walker import walk_batches
from kraftpy.sim.simulation import Simulation

LISTENER = "PLAINTEXT"
PORT = 9092


class ClusterBroker:
    """One machine. `run` is a process on it."""

    def __init__(
        self, simulation: Simulation, controller: RealController, broker_id: int, **options: Any
    ) -> None:
        self.simulation = simulation
        self.controller = controller
        self.broker_id = broker_id
        self.host = f"b{broker_id}"
        self.paths = tuple([f"/data/{name}" for name in options.get("directories", "a")])
        self.config: LogConfig = options.get("config", LogConfig(segment_index_bytes=4800))
        self.lag_time_max_ms = options.get("lag_time_max_ms", 10_000)
        self.fetcher_count = options.get("fetcher_count", 1)
        self.scope = trio.CancelScope()
        self.unfenced = trio.Event()
        self.ended = trio.Event()

    # Publisher: all brokers share the controller's loader.

    @property
    def name(self) -> str:
        return self.host

    def publish(self, changes: ImageChanges, image: MetadataImage, manifest: Manifest) -> None:
        self.replicas.publish(changes, image, manifest)
        self.lifecycle.publish(changes, image, manifest)

    async def run(self) -> None:
        """A process, from its start until it may stop, or is killed."""
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        try:
            with self.scope:
                await self._live()
        finally:
            self.controller.loader.remove(self)
            self.ended.set()

    async def _live(self) -> None:
        world = self.world = self.simulation.world(self.host)
        self.registry = MetricRegistry()
        previous_epoch = await previous_broker_epoch(world.disk, self.paths)
        settings = LogManagerSettings(
            directories=self.paths, cluster_id=CLUSTER_ID, node_id=self.broker_id
        )
        self.logs = LogManager(world, settings, config_of=lambda _: self.config)
        async with self.logs.running(), trio.open_nursery() as nursery:
            self._assemble(previous_epoch)
            server = await self._listen(nursery)
            nursery.start_soon(self.replicas.run)
            self.controller.loader.install(self)
            self.controller.loader.publish()
            nursery.start_soon(self._become_ready)
            await self.lifecycle.run()
            self.logs.broker_epoch = self.lifecycle.broker_epoch
            await server.stop(grace_seconds=1)
            nursery.cancel_scope.cancel()

    async def _become_ready(self) -> None:
        await self.lifecycle.caught_up.wait()
        await self.replicas.first_applied.wait()
        self.lifecycle.set_ready()
        await self.lifecycle.unfenced.wait()
        self.unfenced.set()

    def _assemble(self, previous_epoch: int) -> None:
        world, clock = self.world, self.world.clock
        core = LifecycleCore(
            BrokerIdentity(
                broker_id=self.broker_id,
                cluster_id=CLUSTER_ID,
                incarnation_id=random_id(world),
                endpoints=(Endpoint(LISTENER, self.host, PORT, 0),),
                features=supported_features(),
                directory_ids=tuple([each.directory_id for each in self.logs.directories]),
                previous_broker_epoch=previous_epoch,
            ),
            LifecycleSettings(),
            metadata_offset=lambda: self.replicas.applied_offset,
            deleted_topics=self._deleted_topics,
        )
        self.lifecycle = BrokerLifecycle(
            core, self.controller.channel(), clock, self.registry, answer_timeout_ms=2_000
        )
        self.topic_metrics = TopicMetrics(self.registry)
        parts = assemble_replicas(
            ReplicaSettings(broker_id=self.broker_id, lag_time_max_ms=self.lag_time_max_ms),
            FetcherSettings(broker_id=self.broker_id),
            world,
            self.registry,
            fetcher_count=self.fetcher_count,
            listener_name=LISTENER,
            socket_timeout_ms=30_000,
            logs=self.logs,
            lifecycle=self.lifecycle,
            alterations=self.controller.channel(),
            assigning=self.controller.channel(),
            suspects=SuspectedBrokers(clock),
            topic_metrics=self.topic_metrics,
            min_insync_replicas=lambda _: 1,
        )
        self.replicas, self.fetchers = parts.replicas, parts.fetchers

    def _deleted_topics(self) -> list[Uuid]:
        return self.replicas.deleted_topics()

    async def _listen(self, nursery: trio.Nursery) -> NetworkServer:
        world = self.world
        server = NetworkServer(
            clock=world.clock,
            network=world.network,
            limits=NetworkLimits(),
            registry=self.registry,
        )
        await server.bind([ListenerSettings(LISTENER, self.host, PORT)])
        cluster = BrokerMetadata(cluster_id=CLUSTER_ID, random=world.rng.stream("controllers"))
        handlers = data_handlers(
            DataSettings(),
            world,
            replicas=self.replicas,
            logs=self.logs,
            cluster=cluster,
            spawn=nursery.start_soon,
            metrics=self.topic_metrics,
            registry=self.registry,
            moved=lambda *_: None,
        )
        dispatcher = Dispatcher(
            handlers, features=cluster, metrics=RequestMetrics(self.registry), clock=world.clock
        )
        await nursery.start(server.run)
        await server.enable({LISTENER: dispatcher})
        return server

    def partition(self, name: str, partition_id: int = 0) -> Partition:
        found = self.replicas.lookup((name, partition_id))
        assert isinstance(found, Partition), found
        return found

    def values(self, name: str, partition_id: int = 0) -> list[bytes]:
        """Everything in the log, as a copy of its file has it."""
        log = self.logs.get((name, partition_id))
        assert log is not None
        found = []
        for segment in log.segments:
            file = self.world.disk.open(segment.log_file.path)
            data = file.pread(file.size(), 0)
            file.close()
            for batch in walk_batches(data):
                found += [record.value or b"" for record in read_records(batch, max_bytes=1 << 20)]  # type: ignore[arg-type]
        return found


class Cluster:
    def __init__(
        self, simulation: Simulation, controller: RealController, nursery: trio.Nursery
    ) -> None:
        self.simulation = simulation
        self.controller = controller
        self.nursery = nursery
        self.brokers: dict[int, ClusterBroker] = {}

    async def start(self, *broker_ids: int, **options: Any) -> None:
        for broker_id in broker_ids:
            if broker_id not in self.brokers:
                self.brokers[broker_id] = ClusterBroker(
                    self.simulation, self.controller, broker_id, **options
                )
            self.brokers[broker_id].unfenced = trio.Event()
            self.nursery.start_soon(self.brokers[broker_id].run)
        for broker_id in broker_ids:
            await self.brokers[broker_id].unfenced.wait()

    async def kill(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        self.simulation.kill(broker.host)
        broker.scope.cancel()
        await broker.ended.wait()

    async def stop(self, broker_id: int) -> None:
        self.brokers[broker_id].lifecycle.begin_shutdown()
        await self.brokers[broker_id].ended.wait()

    def part(self, one: str, other: str) -> None:
        """Nothing gets through between two machines, either way."""
        self.simulation.fabric.cut(one, other)
        self.simulation.fabric.cut(other, one)

    def rejoin(self, one: str, other: str) -> None:
        self.simulation.fabric.heal(one, other)
        self.simulation.fabric.heal(other, one)

    async def create(self, name: str, *replicas: list[int]) -> None:
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
        [result] = (await self.controller.ask(request)).topics
        no_error(result)
        await self.settle()

    async def delete(self, name: str) -> None:
        request = k20.DeleteTopicsRequest(
            topics=[k20.DeleteTopicState(name=name)], timeout_ms=10_000
        )
        [result] = (await self.controller.ask(request)).responses
        no_error(result)
        await self.settle()

    async def elect(self, name: str, partition_id: int, leader: int) -> None:
        """Reorder the replicas, so that this one is preferred, and elect it if it is in sync."""
        others = [each for each in self.record(name, partition_id).replicas if each != leader]
        reassign = k45.AlterPartitionReassignmentsRequest(
            topics=[
                k45.ReassignableTopic(
                    name=name,
                    partitions=[
                        k45.ReassignablePartition(
                            partition_index=partition_id, replicas=[leader, *others]
                        )
                    ],
                )
            ]
        )
        no_error(await self.controller.ask(reassign))
        elect = k43.ElectLeadersRequest(
            election_type=0,
            topic_partitions=[k43.TopicPartitions(topic=name, partitions=[partition_id])],
        )
        no_error(await self.controller.ask(elect))

    async def settle(self) -> None:
        """Until all who live act on the newest metadata."""

        def is_settled() -> bool:
            return all(
                broker.replicas.applied is self.controller.image
                for broker in self.brokers.values()
                if not broker.ended.is_set()
            )

        await self.until(is_settled)

    async def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        deadline = trio.current_time() + seconds
        while not condition():
            assert trio.current_time() < deadline, "it did not come to pass"
            await trio.sleep(0.005)

    def record(self, name: str, partition_id: int = 0) -> PartitionRecord:
        return self.controller.image.topics[name].partitions[partition_id]

    def leader(self, name: str, partition_id: int = 0) -> Partition:
        return self.brokers[self.record(name, partition_id).leader].partition(name, partition_id)

    def append(self, name: str, *values: bytes, partition_id: int = 0) -> int:
        """At the leader; the offset that follows."""
        builder = BatchBuilder()
        for value in values:
            builder.append(None, value, timestamp_ms=1_000)
        partition = self.leader(name, partition_id)
        info = partition.append(builder.build(), required_acks=-1, now_ms=self._now_ms())
        return info.last_offset + 1

    def _now_ms(self) -> int:
        return int(trio.current_time() * 1000)

    async def commit(self, name: str, *values: bytes, partition_id: int = 0) -> None:
        end = self.append(name, *values, partition_id=partition_id)
        leader = self.leader(name, partition_id)
        await self.until(lambda: leader.log.high_watermark >= end)


def in_cluster(
    scenario: Callable[[Cluster], Awaitable[None]],
) -> Callable[[Simulation], Awaitable[None]]:
    """For `run_simulation`."""

    async def main(simulation: Simulation) -> None:
        world = simulation.world("controller")
        async with real_controller(world) as controller, trio.open_nursery() as nursery:
            await scenario(Cluster(simulation, controller, nursery))
            nursery.cancel_scope.cancel()

    return main
