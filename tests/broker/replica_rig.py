"""A broker's replicas with everything below them real, on a disk in memory.

The metadata is made of records; the controller, and the leaders that are fetched from, answer as
the test tells them to.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from kraftpy.broker.directory_assignments import DirectoryAssignments
from kraftpy.broker.hosted import HostedPartitions
from kraftpy.broker.isr_sender import IsrSender
from kraftpy.broker.partition import Partition
from kraftpy.broker.replica_metrics import ReplicaMetrics
from kraftpy.broker.replicas import ReplicaManager, ReplicaSettings
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.log_config import LogConfig
from kraftpy.log.manager import LogManager
from kraftpy.log.manager_settings import LogManagerSettings
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.features import DIRECTORIES_LEVEL
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kraftpy.metadata.publisher import Manifest, Publisher, Source
from kraftpy.metadata.records import (
    DIRECTORY_UNASSIGNED,
    METADATA_VERSION,
    Endpoint,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kraftpy.observe.metrics import Gauge, Meter, MetricName, MetricRegistry
from kraftpy.observe.topic_metrics import TopicMetrics
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.records.builder import BatchBuilder
from kraftpy.world import World
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_rng import MemoryRng
from kraftpy.world.real_network import RealNetwork

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
LISTENER = "PLAINTEXT"
ME = 1
CONFIG = LogConfig(segment_bytes=1 << 20, segment_index_bytes=4800, file_delete_delay_ms=60_000)


def topic_id(name: str, generation: int = 0) -> Uuid:
    return Uuid(f"{generation}{name}".encode().rjust(16, b".")[-16:])


def batch(*values: bytes) -> bytearray:
    builder = BatchBuilder()
    for value in values:
        builder.append(None, value, timestamp_ms=1_000)
    return builder.build()


class Metadata:
    """The metadata log, from which publishers are told."""

    def __init__(self) -> None:
        self.image = EMPTY_IMAGE
        self.publishers: list[Publisher] = []
        self._offset = -1

    def write(self, *records: MetadataRecord) -> MetadataImage:
        """Let records happen, and publish the image."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self._offset += len(records)
        provenance = Provenance(self._offset, 1, 0)
        before, self.image = self.image, delta.apply(provenance)
        manifest = Manifest(Source.LOG, provenance, 1, len(records), 0)
        for publisher in self.publishers:
            publisher.publish(ImageChanges(before, self.image), self.image, manifest)
        return self.image

    def begin(self, *broker_ids: int, log_dirs: Sequence[Uuid] = ()) -> None:
        """A cluster of these brokers, all of them unfenced."""
        self.write(
            FeatureLevelRecord(METADATA_VERSION, DIRECTORIES_LEVEL),
            *[
                RegisterBrokerRecord(
                    broker_id,
                    Uuid(bytes(15) + bytes([broker_id])),
                    100 + broker_id,
                    (Endpoint(LISTENER, f"b{broker_id}", 9092, 0),),
                    fenced=False,
                    log_dirs=tuple(log_dirs),
                )
                for broker_id in broker_ids
            ],
        )

    def change(self, name: str, partition_id: int, **changes: Any) -> MetadataImage:
        """Change one partition of a topic."""
        topic = self.image.topics[name]
        return self.write(PartitionChangeRecord(partition_id, topic.topic_id, **changes))

    def remove(self, name: str) -> MetadataImage:
        return self.write(RemoveTopicRecord(self.image.topics[name].topic_id))


def topic(
    name: str,
    *leaders: int,
    replicas: tuple[int, ...] = (1, 2, 3),
    generation: int = 0,
    directory: Uuid = DIRECTORY_UNASSIGNED,
) -> list[MetadataRecord]:
    """A topic with one partition for each leader."""
    identity = topic_id(name, generation)
    return [
        TopicRecord(name, identity),
        *[
            PartitionRecord(
                number,
                identity,
                replicas,
                replicas,
                leader=leader,
                directories=tuple([directory] * len(replicas)),
            )
            for number, leader in enumerate(leaders)
        ],
    ]


@dataclass
class NotedFetchers:
    """Fetchers that fetch nothing and note who is followed."""

    followed: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    added: list[TopicPartition] = field(default_factory=list)
    calls: list[tuple[str, list[TopicPartition]]] = field(default_factory=list)

    def add(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            name = partition.topic_partition
            self.followed[name] = (partition.leader_id, partition.leader_epoch)
            self.added.append(name)

    async def remove(self, partitions: Sequence[TopicPartition]) -> None:
        self.discard(partitions)

    def discard(self, partitions: Sequence[TopicPartition]) -> None:
        for name in partitions:
            self.followed.pop(name, None)

    async def run(self) -> None:
        await trio.sleep_forever()


class Channel:
    """A controller that answers with what `answer` says; it notes what it was asked."""

    def __init__(self, answer: Callable[[Any], Awaitable[Any]]) -> None:
        self._answer = answer
        self.asked: list[Any] = []

    async def request(
        self, message: Any, *, timeout_ms: int | None = None, max_version: int | None = None
    ) -> Any:
        self.asked.append(message)
        return await self._answer(message)

    def close(self) -> None:
        pass


async def silence(_: Any) -> Any:
    await trio.sleep_forever()


class Rig:
    """One broker. Lives begin with `running`, and share the disk."""

    def __init__(
        self, disk: MemoryDisk | None = None, *, broker_id: int = ME, directories: int = 1
    ) -> None:
        self.disk = disk or MemoryDisk()
        self.broker_id = broker_id
        self.paths = tuple([f"/data/{letter}" for letter in "abcd"[:directories]])
        self.metadata = Metadata()
        self.fetchers: Any = NotedFetchers()
        self.settings = ReplicaSettings(broker_id=broker_id)
        self.config = CONFIG
        self.min_isr = 1
        self.alteration_answer: Callable[[Any], Awaitable[Any]] = silence
        self.assignment_answer: Callable[[Any], Awaitable[Any]] = silence
        self.is_stopping = False
        self.lost_directories: list[Uuid] = []
        self.registry = MetricRegistry()
        self.topic_metrics = TopicMetrics(self.registry)
        self.hosted = HostedPartitions()
        self._lives = 0

    @asynccontextmanager
    async def running(
        self, *, make_fetchers: Callable[[Rig], Any] | None = None
    ) -> AsyncIterator[ReplicaManager]:
        self._lives += 1
        self.world = World(
            clock=MemoryClock(),
            rng=MemoryRng(self._lives),
            network=RealNetwork(),
            disk=self.disk,
        )
        settings = LogManagerSettings(
            directories=self.paths, cluster_id=CLUSTER_ID, node_id=self.broker_id
        )
        self.logs = LogManager(self.world, settings, config_of=lambda _: self.config)
        self.hosted = HostedPartitions()
        self.fetchers = NotedFetchers() if make_fetchers is None else make_fetchers(self)
        async with self.logs.running():
            self.replicas = self._assemble()
            self.metadata.publishers = [self.replicas]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.replicas.run)
                yield self.replicas
                nursery.cancel_scope.cancel()

    def _assemble(self) -> ReplicaManager:
        clock = self.world.clock
        hosted = self.hosted
        metrics = ReplicaMetrics(self.registry, hosted, clock, self.topic_metrics)
        self.alterations = Channel(self.alteration_answer)
        self.assigning = Channel(self.assignment_answer)
        channels: Any = self.alterations, self.assigning
        return ReplicaManager(
            self.settings,
            clock,
            self.registry,
            hosted=hosted,
            logs=self.logs,
            fetchers=self.fetchers,
            isr_sender=IsrSender(self.broker_id, lambda: 101, channels[0], clock, metrics),
            assignments=DirectoryAssignments(self.broker_id, lambda: 101, channels[1], clock),
            metrics=metrics,
            min_insync_replicas=lambda _: self.min_isr,
            directory_lost=self.lost_directories.append,
            is_stopping=lambda: self.is_stopping,
        )

    async def apply(self, *records: MetadataRecord) -> None:
        """Write records and wait until the replicas follow."""
        self.metadata.write(*records)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(1_000):
            if self.replicas.applied is self.metadata.image:
                return
            await trio.sleep(0.001)
        raise AssertionError("the image was not applied within a second")

    def partition(self, name: str, partition_id: int = 0) -> Partition:
        found = self.replicas.lookup((name, partition_id))
        assert isinstance(found, Partition), found
        return found

    def error(self, name: str, partition_id: int = 0) -> ErrorCode:
        found = self.replicas.lookup((name, partition_id))
        assert isinstance(found, ErrorCode), found
        return found

    def metric(self, name: str) -> float:
        found = self.registry.get(MetricName("kafka.server", "ReplicaManager", name))
        if isinstance(found, Meter):
            return found.count
        assert isinstance(found, Gauge)
        return found.read()

    def change_settings(self, **changes: Any) -> None:
        self.settings = replace(self.settings, **changes)
