"""Whole nodes on the memory twins, with requests sent to them one by one.

    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start("n1")
        await rig.create("t")
        ...

    run_nodes(scenario)

Time is virtual: waiting for an hour costs nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import trio

from kraftpy.client.admin_operations import ConfigKind
from kraftpy.client.connection import Peer
from kraftpy.client.settings import ClientSettings
from kraftpy.config import NodeConfig
from kraftpy.node import Node
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from kraftpy.protocol.schema.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from kraftpy.protocol.schema.k03_metadata import MetadataRequest, MetadataRequestTopic
from kraftpy.protocol.schema.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kraftpy.protocol.schema.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kraftpy.protocol.schema.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestEntryData,
)
from kraftpy.protocol.tables import Request
from kraftpy.records.builder import BatchBuilder
from kraftpy.sim.runner import run_simulation
from kraftpy.sim.simulation import Simulation
from kraftpy.sim.whole.machines import PORT, formatted_node, node_settings
from kraftpy.world import Address, Network, Stream

__all__ = ["SimulatedNodes", "make_batch", "run_nodes"]

SEED = 2611
CLIENT = "client"
DELETE, SET = 1, 0
# By name rather than by topic id.
PRODUCE_VERSION = 12
FETCH_VERSION = 12


def make_batch(*values: bytes | None, timestamp_ms: int, **builder_options: Any) -> bytes:
    builder = BatchBuilder(**builder_options)
    for number, value in enumerate(values):
        builder.append(b"k%d" % number, value, timestamp_ms=timestamp_ms)
    return bytes(builder.build())


def run_nodes(scenario: Callable[[SimulatedNodes], Awaitable[None]], *, seed: int = SEED) -> None:
    """Run it with nodes that are there as long as it takes."""
    print(f"seed {seed}")

    async def system(simulation: Simulation) -> None:
        async with trio.open_nursery() as nursery:
            await scenario(SimulatedNodes(simulation, nursery))
            nursery.cancel_scope.cancel()

    run_simulation(system, seed=seed, time_limit_seconds=1_000_000)


class WatchedNetwork:
    """A machine's network, of which is known whom it connects to."""

    def __init__(self, name: str, network: Network, connects: list[tuple[str, Address]]) -> None:
        self._name = name
        self._network = network
        self._connects = connects
        self.listen = network.listen

    async def connect(self, host: str, port: int) -> Stream:
        self._connects.append((self._name, (host, port)))
        return await self._network.connect(host, port)


class SimulatedNodes:
    """Nodes are called n1, n2, ...; each has a machine of that name."""

    def __init__(self, simulation: Simulation, nursery: trio.Nursery) -> None:
        self.simulation = simulation
        self.nursery = nursery
        self.nodes: dict[str, Node] = {}
        self.ended: dict[str, trio.Event] = {}
        # Every attempt of a node to connect: from whom, and to whom.
        self.connects: list[tuple[str, Address]] = []
        self._scopes: dict[str, trio.CancelScope] = {}
        self._world = simulation.world(CLIENT)
        self._peers: dict[tuple[str, int], Peer] = {}

    # Nodes.

    def config(self, name: str, names: Sequence[str], settings: Mapping[str, str]) -> NodeConfig:
        ids = [int(each.removeprefix("n")) for each in names]
        return node_settings(int(name.removeprefix("n")), ids, ids, settings)

    async def start(self, *names: str, settings: Mapping[str, str] | None = None) -> None:
        """A cluster of these; returns when all of them serve clients."""
        async with trio.open_nursery() as starting:
            for name in names:
                config = self.config(name, names, settings or {})
                starting.start_soon(self.start_with, name, config)

    async def start_with(self, name: str, config: NodeConfig) -> None:
        """One node, which may be of another kind."""
        await self.nursery.start(self._run, name, config)

    async def _run(
        self, name: str, config: NodeConfig, *, task_status: trio.TaskStatus[object]
    ) -> None:
        self.ended[name] = trio.Event()
        with trio.CancelScope() as self._scopes[name]:
            world = self.simulation.world(name)
            network = WatchedNetwork(name, world.network, self.connects)
            node = await formatted_node(config, replace(world, network=network))
            self.nodes[name] = node
            await node.run(task_status=task_status)
        self.ended[name].set()

    async def stop(self, name: str) -> None:
        self.nodes[name].stop()
        await self.ended[name].wait()

    def kill(self, name: str) -> None:
        self.simulation.kill(name)
        self._scopes[name].cancel()

    # Requests.

    async def ask(
        self, request: Request, *, of: str = "n1", port: int = PORT, max_version: int | None = None
    ) -> Any:
        """The answer of one node. Raises ConnectionError."""
        peer = self._peers.get((of, port))
        if peer is None:
            peer = Peer(self._world, self.nursery, (of, port), ClientSettings())
            self._peers[of, port] = peer
        return await peer.request(request, max_version=max_version)

    async def create(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: int = 1,
        configs: Mapping[str, str] | None = None,
        of: str = "n1",
    ) -> Uuid:
        """The topic's id, when the node knows a leader of each partition."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replicas,
                    configs=[
                        CreatableTopicConfig(name=key, value=value)
                        for key, value in (configs or {}).items()
                    ],
                )
            ],
            timeout_ms=10_000,
        )
        [result] = (await self.ask(request, of=of)).topics
        assert result.error_code == ErrorCode.NONE, result.error_message
        while True:
            topic = await self.describe(name, of=of)
            if topic.error_code == ErrorCode.NONE and len(topic.partitions) == partitions:
                return result.topic_id
            await trio.sleep(0.01)

    async def describe(self, name: str, *, of: str = "n1") -> Any:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
        )
        [topic] = (await self.ask(request, of=of)).topics
        return topic

    async def alter(
        self, kind: ConfigKind, name: str, changes: Mapping[str, str | None], *, of: str = "n1"
    ) -> None:
        """IncrementalAlterConfigs; holds on n1 when this returns."""
        result = await self.try_to_alter(kind, name, changes, of=of)
        assert result.error_code == ErrorCode.NONE, result.error_message

    async def try_to_alter(
        self, kind: ConfigKind, name: str, changes: Mapping[str, str | None], *, of: str = "n1"
    ) -> Any:
        resource = AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                AlterableConfig(
                    name=key, config_operation=DELETE if value is None else SET, value=value
                )
                for key, value in changes.items()
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        [result] = (await self.ask(request, of=of)).responses
        await trio.sleep(0.05)
        return result

    async def set_quota(
        self, entity: Mapping[str, str | None], key: str, value: float | None
    ) -> None:
        """AlterClientQuotas; without a value it is taken away. Holds when this returns."""
        parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
        change = OpData(key=key, value=value or 0.0, remove=value is None)
        request = AlterClientQuotasRequest(entries=[RequestEntryData(entity=parts, ops=[change])])
        [result] = (await self.ask(request)).entries
        assert result.error_code == ErrorCode.NONE, result.error_message
        await trio.sleep(0.1)

    def batch(self, *values: bytes | None, age_ms: int = 0, **options: Any) -> bytes:
        now_ms = self._world.clock.wall_ms()
        return make_batch(*values, timestamp_ms=now_ms - age_ms, **options)

    async def produce(
        self,
        topic: str,
        records: bytes,
        *,
        partition: int = 0,
        acks: int = -1,
        of: str = "n1",
        transactional_id: str | None = None,
    ) -> PartitionProduceResponse:
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=1_000,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    partition_data=[PartitionProduceData(index=partition, records=records)],
                )
            ],
        )
        answer = await self.ask(request, of=of, max_version=PRODUCE_VERSION)
        result: PartitionProduceResponse = answer.responses[0].partition_responses[0]
        return result

    async def fetch(
        self,
        topic: str,
        *,
        offset: int = 0,
        partition: int = 0,
        max_wait_ms: int = 0,
        max_bytes: int = 2**31 - 1,
        of: str = "n1",
        **options: Any,
    ) -> Any:
        """The answer about the partition."""
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1 if max_wait_ms else 0,
            max_bytes=max_bytes,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=partition,
                            fetch_offset=offset,
                            partition_max_bytes=2**31 - 1,
                        )
                    ],
                )
            ],
            **options,
        )
        answer = await self.ask(request, of=of, max_version=FETCH_VERSION)
        return answer.responses[0].partitions[0]

    # What can be seen of a machine.

    async def files(self, directory: str, *, of: str = "n1") -> list[str]:
        disk = self.simulation.machine(of).disk
        return sorted(await disk.list_directory(directory))
