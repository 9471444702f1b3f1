"""The data of a simulated broker: the product's partitions and fetchers, on logs in memory.

The shell does what the replica manager in trio does: it follows the metadata from the moment on at
which the controller says that this process has caught up (deletions, then leaders, then
followers), steps one fetcher for each leader, serves the fetches of followers, flushes what has to
be flushed, and answers producers. Logs outlive the process. What a machine that fails keeps of them
is what was flushed, and any part of the rest.

A request is a piece of a stream: it comes late or never, but not twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kraftpy.broker.delayed_produce import PendingAppend
from kraftpy.broker.fetcher_steps import Restart, Truncate
from kraftpy.broker.isr import IsrProposal
from kraftpy.broker.memory_replica_log import MemoryReplicaLog
from kraftpy.broker.partition import Partition, ReplicaError
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.errors import LogError
from kraftpy.log.log_config import LogConfig
from kraftpy.log.offsets import UNKNOWN, Isolation
from kraftpy.metadata.changes import ImageChanges, PartitionChange
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage
from kraftpy.metadata.local_changes import local_changes
from kraftpy.metadata.records import NO_LEADER
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k00_produce import PartitionProduceResponse
from kraftpy.protocol.schema.k01_fetch import FetchRequest
from kraftpy.protocol.schema.k02_list_offsets import ListOffsetsRequest
from kraftpy.records.validation import AppendOrigin
from kraftpy.sim.cluster_data_rules import DataRules, PartitionKey, records_from
from kraftpy.sim.cluster_fetch_server import FetchServer
from kraftpy.sim.cluster_fetcher import SimulatedFetcher
from kraftpy.sim.cluster_network import CLIENT, ClusterNetwork
from kraftpy.sim.cluster_producers import WALL_MS, OnProduced, Produced
from kraftpy.sim.cluster_rules import min_isr
from kraftpy.sim.cluster_swarm import ClusterSwarm
from kraftpy.world.memory_clock import MemoryClock

if TYPE_CHECKING:
    from kraftpy.broker.fetcher_steps import LogChange
    from kraftpy.sim.cluster_broker import SimulatedBroker

__all__ = ["BrokerReplicas"]

_READ_BYTES = 300
_SLOWER = 20
_CALM_FETCH_BYTES = 100_000
_TRANSACTION_VERSION = 1


class _StillClock(MemoryClock):
    """Logs ask for the wall time only, which means nothing here."""

    def wall_ms(self) -> int:
        return WALL_MS


class BrokerReplicas:
    """Fits ReplicaHost, BrokerStates and PartitionEvents."""

    __slots__ = (
        "_applied",
        "_broker",
        "_config",
        "_fetch_pause_us",
        "_fetchers",
        "_is_following",
        "_network",
        "_produces",
        "_random",
        "_rules",
        "_server",
        "_swarm",
        "hosted",
        "logs",
    )

    def __init__(
        self,
        broker: SimulatedBroker,
        rules: DataRules,
        network: ClusterNetwork,
        swarm: ClusterSwarm,
        random: Random,
    ) -> None:
        self._broker = broker
        self._rules = rules
        self._network = network
        self._swarm = swarm
        self._random = random
        self._config = LogConfig(flush_messages=swarm.flush_messages)
        is_slow = random.random() < swarm.slow
        self._fetch_pause_us = swarm.fetch_pause_us * (_SLOWER if is_slow else 1)
        self.logs: dict[PartitionKey, MemoryReplicaLog] = {}
        self._forget()
        rules.hosts[broker.node_id] = self
        network.replicas[broker.node_id] = self

    def _forget(self) -> None:
        """A process begins with nothing but the logs."""
        self._applied = EMPTY_IMAGE
        self._is_following = False
        self.hosted: dict[PartitionKey, Partition] = {}
        self._fetchers: dict[int, SimulatedFetcher] = {}
        self._server = FetchServer(self.hosted, self._rules)
        # Producers that wait, with where their records begin.
        self._produces: dict[PartitionKey, list[tuple[int, PendingAppend, OnProduced | None]]] = {}

    # What others see.

    @property
    def is_running(self) -> bool:
        return self._broker.node.is_up

    @property
    def broker_epoch(self) -> int:
        return self._broker.broker_epoch

    def is_alive(self, broker_id: int) -> bool:
        broker = self._broker.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def eligible_epoch(self, broker_id: int) -> int | None:
        broker = self._broker.image.brokers.get(broker_id)
        if broker is None or broker.fenced or broker.in_controlled_shutdown:
            return None
        return broker.broker_epoch

    def has_topic(self, topic_id: Uuid) -> bool:
        return any(key[0] == topic_id for key in self.logs)

    def _now_ms(self) -> int:
        return self._broker.node.now_ms()

    def _image(self) -> MetadataImage:
        """The truth of this moment."""
        self._broker.truth.advance()
        return self._broker.truth.image

    # Life.

    def stopped(self, *, is_clean: bool, is_killed: bool) -> None:
        """The process has ended: by itself, by a signal, or with its machine."""
        kept = self._random.choice((0.0, self._random.random(), 1.0))
        for key, log in self.logs.items():
            end = log.log_end_offset
            if is_clean:
                log.flush()
                log.checkpoint_high_watermark()
            unflushed = end - log.recovery_point
            log.crash(end if is_killed else log.recovery_point + int(unflushed * kept))
            if log.log_end_offset < end:
                self._rules.lost(key)
            self._rules.check_order(key, log)
        self._forget()

    def resumed(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.interrupted()
        for key in self.hosted:
            self._flush_soon(key)

    def follow_metadata(self) -> None:
        """From now on: the controller says that the process knows what it has to."""
        if not self._is_following:
            self._is_following = True
            image = self._broker.image
            for key in list(self.logs):
                record = image.partition(*key)
                if record is None or self._broker.node_id not in record.replicas:
                    del self.logs[key]
            self.published()

    # Roles.

    def published(self) -> None:
        if not self._is_following:
            return
        before, after = self._applied, self._broker.image
        changes = local_changes(ImageChanges(before, after), self._broker.node_id)
        self._applied = after
        for change in changes.deletions:
            key = (change.topic.topic_id, change.partition_id)
            self._stop_fetching((change.topic.name, change.partition_id))
            self.hosted.pop(key, None)
            self.logs.pop(key, None)
            self._produces.pop(key, None)
        has_settings = before.configs is not after.configs
        if has_settings:
            self._set_minima(after, only_raise=True)
        for change in changes.leaders:
            self._lead(change)
        for change in changes.followers:
            self._follow(change)
        if has_settings:
            self._set_minima(after)

    def _set_minima(self, image: MetadataImage, *, only_raise: bool = False) -> None:
        """While ISRs of one image meet settings of another, the higher minimum holds."""
        for partition in self.hosted.values():
            minimum = min_isr(image, partition.topic_partition[0])
            if not only_raise or minimum > partition.min_insync_replicas:
                partition.min_insync_replicas = minimum

    def _host(self, change: PartitionChange) -> Partition:
        name, key = change.topic.name, (change.topic.topic_id, change.partition_id)
        partition = self.hosted.get(key)
        if partition is None:
            if key not in self.logs:
                self.logs[key] = MemoryReplicaLog(_StillClock(), self._config)
            partition = self.hosted[key] = Partition(
                (name, change.partition_id),
                change.topic.topic_id,
                self._broker.node_id,
                self.logs[key],
                brokers=self,
                events=self,
                lag_time_max_ms=self._swarm.lag_time_max_ms,
                min_insync_replicas=min_isr(self._applied, name),
            )
        return partition

    def _lead(self, change: PartitionChange) -> None:
        if change.after is None:
            return
        partition = self._host(change)
        self._stop_fetching(partition.topic_partition)
        epoch = partition.leader_epoch
        partition.lead(change.after, self._now_ms())
        if partition.leader_epoch > epoch:
            self._rules.leads(self._broker.node_id, partition, self._image())

    def _follow(self, change: PartitionChange) -> None:
        record = change.after
        if record is None:
            return
        partition = self._host(change)
        if (partition.leader_id, partition.leader_epoch) != (record.leader, record.leader_epoch):
            self._stop_fetching(partition.topic_partition)
        if partition.follow(record) and record.leader != NO_LEADER:
            fetcher = self._fetchers.get(record.leader)
            if fetcher is None:
                fetcher = self._fetchers[record.leader] = SimulatedFetcher(
                    self._broker,
                    record.leader,
                    self._network,
                    pause_us=self._fetch_pause_us,
                    change_us=self._swarm.flush_us,
                    make=self._make,
                )
            fetcher.add(partition)

    def _stop_fetching(self, name: TopicPartition) -> None:
        for fetcher in self._fetchers.values():
            fetcher.remove(name)

    def _make(self, change: LogChange) -> None:
        """Change a log as a fetcher asks."""
        partition = change.partition
        key = (partition.topic_id, partition.topic_partition[1])
        log = self.logs[key]
        match change:
            case Truncate(offset=offset):
                log.truncate_to(offset)
            case Restart(offset=offset):
                log.truncate_fully_and_start_at(offset)
            case _:
                log.flush()
        self._rules.cut(key, self._image())
        self._rules.check_order(key, log)

    # PartitionEvents.

    def appended(self, partition: Partition) -> None:
        self._flush_soon((partition.topic_id, partition.topic_partition[1]))

    def high_watermark_moved(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.topic_partition[1])
        if key not in self.logs:
            # Deleted here while the controller's answer to its proposal was on its way.
            return
        self._rules.check_order(key, self.logs[key])
        if partition.is_leader:
            self._rules.high_watermark_moved(partition, self._image())
            self._broker.truth.note_event(
                self._broker.heap.now_us,
                "committed",
                self._broker.node_id,
                partition.log.high_watermark,
            )
            self._answer(key)

    def log_start_moved(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.topic_partition[1])
        self._rules.check_order(key, self.logs[key])
        self._rules.deleted(key, partition.log.log_start_offset)

    def isr_wanted(self, partition: Partition) -> None:
        """The broker looks for proposals by itself."""

    def role_changed(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.topic_partition[1])
        if partition.is_leader:
            self._flush_soon(key)
        else:
            self._produces.pop(key, None)

    def _flush_soon(self, key: PartitionKey) -> None:
        partition = self.hosted.get(key)
        if partition is not None and partition.awaits_flush:
            self._broker.plan(self._swarm.flush_us, partial(self._flush, partition, key))

    def _flush(self, partition: Partition, key: PartitionKey) -> None:
        if self.hosted.get(key) is partition and partition.awaits_flush:
            self.logs[key].flush()
            partition.flushed(partition.log.recovery_point, self._now_ms())
            self._answer(key)

    # In-sync replicas.

    def proposals(self) -> dict[PartitionKey, tuple[Partition, IsrProposal]]:
        """What the controller should be asked for."""
        found = {}
        for key, partition in self.hosted.items():
            partition.shrink_isr(self._now_ms())
            proposal = partition.proposal
            if proposal is not None:
                found[key] = (partition, proposal)
        if self._random.random() < self._swarm.high_watermark_written:
            for log in self.logs.values():
                log.checkpoint_high_watermark()
        return found

    # Clients.

    def produce(
        self,
        key: PartitionKey,
        records: bytes,
        acks: int,
        on_produced: OnProduced | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> None:
        partition = self.hosted.get(key)
        if partition is None or not self._is_listening:
            return
        try:
            info = partition.append(
                bytearray(records),
                required_acks=acks,
                now_ms=self._now_ms(),
                origin=origin,
                transaction_version=_TRANSACTION_VERSION,
            )
        except (ReplicaError, LogError) as error:
            self._tell(on_produced, partition, error.error_code)
            return
        pending = PendingAppend(
            partition, info.last_offset + 1, PartitionProduceResponse(), acks=acks
        )
        if acks != 1:
            self._produces.setdefault(key, []).append((info.first_offset, pending, on_produced))
            self._answer(key)

    def _tell(
        self,
        on_produced: OnProduced | None,
        partition: Partition,
        code: ErrorCode,
        first_offset: int = UNKNOWN,
    ) -> None:
        """Answer a producer that listens, with what is where the answer says that it is."""
        if on_produced is None:
            return
        key = (partition.topic_id, partition.topic_partition[1])
        is_judged = self._rules.is_judged_leader(partition, self._image())
        value = None
        if first_offset >= partition.log.log_start_offset:
            found = next(records_from(self.logs[key], first_offset, max_bytes=1), None)
            value = None if found is None else found[1][1]
        heard = partial(on_produced, Produced(code, value, is_judged))
        self._network.carry(self._broker.node_id, CLIENT, heard)

    def _answer(self, key: PartitionKey) -> None:
        """Answer the producers whose records are safe, or never will be."""
        partition = self.hosted[key]
        waiting = []
        for first_offset, pending, on_produced in self._produces.get(key, ()):
            verdict = pending.verdict_of(partition)
            if verdict is None:
                waiting.append((first_offset, pending, on_produced))
                continue
            if verdict is ErrorCode.NONE:
                self._rules.acked(partition, first_offset, pending.required_offset, self._image())
            self._tell(on_produced, partition, verdict, first_offset)
        self._produces[key] = waiting

    def consume(
        self, key: PartitionKey, back: int, isolation: Isolation, leader_epoch: int
    ) -> None:
        """Read from so many records below the high watermark on; from a follower too."""
        partition = self.hosted.get(key)
        if partition is None or not self._is_listening:
            return
        if partition.check_epoch(leader_epoch) is not ErrorCode.NONE:
            return
        self._rules.served(partition, leader_epoch)
        offset = max(partition.log.log_start_offset, partition.log.high_watermark - back)
        for each, record in records_from(self.logs[key], offset, isolation, _READ_BYTES):
            self._rules.shown(key, each, record)

    def delete_records(self, key: PartitionKey, back: int) -> None:
        """Up to so many records below the high watermark."""
        partition = self.hosted.get(key)
        if partition is None or not self._is_listening or not partition.is_leader:
            return
        offset = partition.log.high_watermark - back
        if offset > partition.log.log_start_offset:
            partition.raise_log_start(offset)

    # Followers.

    @property
    def _is_listening(self) -> bool:
        return self.is_running and not self._broker.node.paused

    def serve(
        self, request: FetchRequest | ListOffsetsRequest, reply: Callable[[object], None]
    ) -> None:
        """A paused process hears nothing, and its followers give up."""
        if not self._is_listening:
            return
        if isinstance(request, ListOffsetsRequest):
            reply(self._server.find_offsets(request))
        else:
            # Little at once while faults happen; then everybody should catch up soon.
            calm = self._broker.is_calm
            max_bytes = _CALM_FETCH_BYTES if calm else self._swarm.fetch_bytes
            reply(self._server.fetch(request, max_bytes, self._now_ms()))
