"""Who fetches what from whom: one fetcher for each leader and share of its partitions.

A partition belongs to the fetcher of its leader with the number that its name gives (REP-52), so
that it is always the same one, and a fetcher serves all of its partitions with the same requests
(REP-51). Fetchers come with their first partition and go with their last.

When `num.replica.fetchers` changes, all partitions are handed out anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias
from zlib import crc32

import trio

from kraftpy.broker.fetcher import Fetcher
from kraftpy.broker.fetcher_core import FetcherCore
from kraftpy.broker.fetcher_steps import FetcherSettings, ReplicationTraffic
from kraftpy.broker.hosted import HostedPartitions
from kraftpy.broker.metadata_view import endpoint_of
from kraftpy.broker.partition import Partition
from kraftpy.broker.suspects import SuspectedBrokers
from kraftpy.client.settings import ClientSettings
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.manager import LogManager
from kraftpy.observe.metrics import MetricName, MetricRegistry
from kraftpy.world import Address, World

__all__ = ["FetcherManager", "fetcher_number"]

log = logging.getLogger(__name__)

_Key: TypeAlias = tuple[int, int]


def fetcher_number(topic_partition: TopicPartition, fetcher_count: int) -> int:
    topic, partition_id = topic_partition
    return (31 * crc32(topic.encode()) + partition_id) % fetcher_count


class FetcherManager:
    """`run` it as a task; the rest is called from anywhere in the same loop."""

    def __init__(
        self,
        settings: FetcherSettings,
        fetcher_count: int,
        world: World,
        registry: MetricRegistry,
        *,
        hosted: HostedPartitions,
        logs: LogManager,
        traffic: ReplicationTraffic,
        broker_epoch: Callable[[], int],
        listener_name: str,
        suspects: SuspectedBrokers,
        socket_timeout_ms: int = 30_000,
    ) -> None:
        """`fetcher_count` is `num.replica.fetchers`, `listener_name` the listener between brokers,
        `socket_timeout_ms` is `replica.socket.timeout.ms`.
        """
        self._settings = settings
        self._fetcher_count = fetcher_count
        self._world = world
        self._registry = registry
        self._hosted = hosted
        self._logs = logs
        self._traffic = traffic
        self._broker_epoch = broker_epoch
        self._listener_name = listener_name
        self._suspects = suspects
        self._socket_timeout_ms = socket_timeout_ms
        self._fetchers: dict[_Key, Fetcher] = {}
        self._owners: dict[TopicPartition, Fetcher] = {}
        # Those whose tasks run; some of them may have been stopped, and finish a change of a log.
        self._running: dict[Fetcher, None] = {}
        # Partitions that are between two fetchers.
        self._parked: dict[TopicPartition, Partition] = {}
        self._nursery: trio.Nursery | None = None
        self._gauges: dict[str, Callable[[], float]] = {
            "MaxLag": lambda: max([each.max_lag for each in self._fetchers.values()], default=0),
            "FailedPartitionsCount": lambda: sum(
                each.failed_count for each in self._fetchers.values()
            ),
            "MinFetchRate": lambda: min(
                [each.fetch_rate for each in self._fetchers.values()], default=0.0
            ),
        }

    @property
    def fetchers(self) -> list[Fetcher]:
        return list(self._fetchers.values())

    # Fetchers, for the changes of roles.

    def add(self, partitions: Sequence[Partition]) -> None:
        """Begin to follow the leader that each of them has now."""
        groups: dict[_Key, list[Partition]] = {}
        for partition in partitions:
            number = fetcher_number(partition.topic_partition, self._fetcher_count)
            groups.setdefault((partition.leader_id, number), []).append(partition)
        for key, group in groups.items():
            fetcher = self._fetcher(key)
            fetcher.add(group)
            for partition in group:
                self._owners[partition.topic_partition] = fetcher
                self._parked.pop(partition.topic_partition, None)
        self._stop_idle()

    def _fetcher(self, key: _Key) -> Fetcher:
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = self._make(*key)
            if self._nursery is not None:
                self._nursery.start_soon(self._run, fetcher, name=fetcher.name)
        return fetcher

    async def _run(self, fetcher: Fetcher) -> None:
        self._running[fetcher] = None
        try:
            await self._world.dawdle("fetcher-starts-late")
            await fetcher.run()
        finally:
            del self._running[fetcher]

    async def remove(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop; when this returns, nobody does anything to their logs."""
        self.discard(partitions)
        await self._settled(partitions)

    async def _settled(self, partitions: Sequence[TopicPartition]) -> None:
        for fetcher in tuple(self._running):
            await fetcher.settled(partitions)

    def discard(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop as soon as possible."""
        for name in partitions:
            self._parked.pop(name, None)
            fetcher = self._owners.pop(name, None)
            if fetcher is not None:
                fetcher.remove(name)

    def _make(self, leader_id: int, number: int) -> Fetcher:
        name = f"ReplicaFetcherThread-{number}-{leader_id}"
        return Fetcher(
            name,
            leader_id,
            FetcherCore(self._settings, self._traffic, self._broker_epoch),
            self._world,
            logs=self._logs,
            address_of=self._address_of,
            settings=ClientSettings(client_id=name, request_timeout_ms=self._socket_timeout_ms),
            suspects=self._suspects,
            registry=self._registry,
        )

    def _address_of(self, broker_id: int) -> Address | None:
        broker = self._hosted.image.brokers.get(broker_id)
        endpoint = None if broker is None else endpoint_of(broker.end_points, self._listener_name)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def _stop_idle(self) -> None:
        """After a change of roles: until then the same one may get others (REP-54)."""
        for key, fetcher in tuple(self._fetchers.items()):
            if not fetcher.partitions:
                fetcher.stop()
                del self._fetchers[key]

    async def run(self) -> None:
        """Fetch until cancelled."""
        for name, read in self._gauges.items():
            self._registry.gauge(_metric(name), read)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                for fetcher in self._fetchers.values():
                    nursery.start_soon(self._run, fetcher, name=fetcher.name)
                await trio.sleep_forever()
        finally:
            self._nursery = None
            for name in self._gauges:
                self._registry.remove(_metric(name))

    # Settings.

    async def change_settings(self, settings: FetcherSettings, fetcher_count: int) -> None:
        """Other settings from now on: everything is handed out anew."""
        if (settings, fetcher_count) == (self._settings, self._fetcher_count):
            return
        self._settings, self._fetcher_count = settings, fetcher_count
        parked = {name: fetcher.partitions[name] for name, fetcher in self._owners.items()}
        self.discard(list(parked))
        self._stop_idle()
        self._parked |= parked
        await self._settled(list(parked))
        # Without those that were removed, or added, by a change of roles meanwhile.
        self.add([self._parked.pop(name) for name in parked if name in self._parked])


def _metric(name: str) -> MetricName:
    return MetricName("kafka.server", "ReplicaFetcherManager", name, (("clientId", "Replica"),))
