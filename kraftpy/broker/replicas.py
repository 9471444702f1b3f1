"""The replicas of a broker: which there are, what they do, and who is told of it.

A Publisher: each new image is noted at once, and acted upon by one task, in order. That task looks
at the difference between the image it has carried out and the newest one, so that it never falls
behind by more than one, however long the disk takes. `applied` is the image that holds for the
replicas; heartbeats report its offset, since the controller lets a broker go when all others have
stopped to think that it leads something.

The manager hears of everything that happens to its replicas (PartitionEvents) and to their
directories (DirectoryEvents), and has those who wait looked at again (purgatories.py). It runs what
belongs to replicas: the task that carries images out, the check of the ISRs, the sender of their
proposals, directory assignments, fetchers, reapers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import trio

from kraftpy.broker.deleted_topics import DeletedTopics
from kraftpy.broker.directory_assignments import DirectoryAssignments
from kraftpy.broker.hosted import HostedPartitions
from kraftpy.broker.hosted_replicas import log_of
from kraftpy.broker.isr_sender import IsrSender
from kraftpy.broker.partition import Partition
from kraftpy.broker.purgatories import PurgatorySettings, ReplicaPurgatories
from kraftpy.broker.replica_metrics import ReplicaMetrics
from kraftpy.broker.role_changes import Fetchers, RoleChanges
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.errors import StorageError
from kraftpy.log.manager import LogManager
from kraftpy.log.pacing import Pace
from kraftpy.log.partition_log import PartitionLog
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage
from kraftpy.metadata.publisher import Manifest
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.world import LATE_SECONDS, Buggify, Clock, InternalInvariant, never

__all__ = ["CommitListener", "ReplicaManager", "ReplicaSettings", "RoleListener"]

log = logging.getLogger(__name__)

# Partitions that are looked at before others may run.
_PARTITIONS_IN_A_PIECE: Final = 200

RoleListener: TypeAlias = Callable[[int, Partition | None], None]
# The partition, and how far it is committed now.
CommitListener: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    broker_id: int
    lag_time_max_ms: int = 30_000
    """`replica.lag.time.max.ms`"""
    purgatories: PurgatorySettings = PurgatorySettings()  # noqa: RUF009 (frozen)


class ReplicaManager:
    """`run` it as a task while the log manager runs."""

    def __init__(
        self,
        settings: ReplicaSettings,
        clock: Clock,
        registry: MetricRegistry,
        *,
        hosted: HostedPartitions,
        logs: LogManager,
        fetchers: Fetchers,
        isr_sender: IsrSender,
        assignments: DirectoryAssignments,
        metrics: ReplicaMetrics,
        min_insync_replicas: Callable[[str], int],
        directory_lost: Callable[[Uuid], None],
        is_stopping: Callable[[], bool],
        buggify: Buggify = never,
    ) -> None:
        """`min_insync_replicas` of a topic. `directory_lost` is told the id of a directory that has
        failed, for the heartbeats.
        """
        self._settings = settings
        self._clock = clock
        self._buggify = buggify
        self._hosted = hosted
        self._logs = logs
        self._fetchers = fetchers
        self._isr_sender = isr_sender
        self._assignments = assignments
        self._metrics = metrics
        self._min_insync_replicas = min_insync_replicas
        self._directory_lost = directory_lost
        self._deleted = DeletedTopics(settings.broker_id, logs)
        self._changes = RoleChanges(
            settings.broker_id,
            clock,
            hosted=hosted,
            logs=logs,
            fetchers=fetchers,
            assignments=assignments,
            make=self._make_partition,
            leads=self._leads,
            gone=self._gone,
            is_stopping=is_stopping,
        )
        self._purgatories = ReplicaPurgatories(
            settings.broker_id, settings.purgatories, clock, registry
        )
        self.produce_purgatory = self._purgatories.produce
        self.fetch_purgatory = self._purgatories.fetch
        self.delete_records_purgatory = self._purgatories.delete_records
        self.elect_leader_purgatory = self._purgatories.elect_leader
        self.applied = EMPTY_IMAGE
        # Set when the first image is carried out: logs are made, roles are taken.
        self.first_applied = trio.Event()
        self._published = trio.Event()
        self._no_directory_left = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._flushing: dict[Partition, None] = {}
        self._role_listeners: dict[str, RoleListener] = {}
        # To be called when the newest image, or a later one, is carried out.
        self._awaiting: list[Callable[[], None]] = []
        self._commit_listeners: dict[str, CommitListener] = {}
        # Topics whose min.insync.replicas is lower in the newest settings than it is held here, and
        # how often settings had changed by then: one may be lowered to the same value twice.
        self._lowered: dict[str, tuple[int, int]] = {}
        self._reconfigured_count = 0

    # What there is.

    def lookup(self, topic_partition: TopicPartition) -> Partition | ErrorCode:
        return self._hosted.lookup(topic_partition)

    def lookup_by_id(self, topic_id: Uuid, partition_id: int) -> Partition | ErrorCode:
        return self._hosted.lookup_by_id(topic_id, partition_id)

    def await_leader(
        self, topic: str, topic_id: Uuid, partition_id: int, then: Callable[[], None]
    ) -> bool:
        """See HostedReplicas."""
        if self.applied is self._hosted.image or not self._hosted.is_awaited(
            topic, topic_id, partition_id, self._settings.broker_id
        ):
            return False
        self._awaiting.append(then)
        return True

    @property
    def hosted(self) -> HostedPartitions:
        return self._hosted

    @property
    def applied_offset(self) -> int:
        """Everything up to here holds for the replicas."""
        return self.applied.provenance.last_offset

    def deleted_topics(self) -> list[Uuid]:
        """What the heartbeats tell of deletions."""
        return self._deleted.finished(self.applied)

    @property
    def told_deletions(self) -> list[Uuid]:
        """What `deleted_topics` gave the last time, for those who look and must change nothing."""
        return self._deleted.told

    def listen(self, topic: str, roles: RoleListener, commits: CommitListener) -> None:
        """Tell when something changes in a topic: for coordinators, of their internal topics.

        `roles` is told of a partition what the newest metadata makes it, perhaps in a new epoch
        only; None if it is not, or no longer, online here. `commits` hears of high watermarks.
        """
        self._role_listeners[topic] = roles
        self._commit_listeners[topic] = commits

    # Settings.

    def reconfigure(self, topics: Sequence[str]) -> None:
        """The settings of topics have changed.

        A minimum of in-sync replicas that was lowered waits for the image that it came with: the
        ISR that it is for may have changed at the same time, and beside too small an ISR there are
        others who may be elected. Until then the higher one holds.
        """
        self._logs.reconfigure(*topics)
        self._reconfigured_count += 1
        minima = {topic: self._min_insync_replicas(topic) for topic in topics}
        for topic in minima:
            self._lowered.pop(topic, None)
        for partition in self._hosted.partitions():
            topic = partition.topic_partition[0]
            minimum = minima.get(topic, 0)
            if minimum >= partition.min_insync_replicas:
                partition.min_insync_replicas = minimum
            elif minimum > 0:
                self._lowered[topic] = minimum, self._reconfigured_count
                self._published.set()

    def _lower_minima(self, lowered: dict[str, tuple[int, int]]) -> None:
        """The image is carried out: lower what nobody has set anew meanwhile."""
        due = {
            topic: found for topic, found in lowered.items() if self._lowered.get(topic) == found
        }
        for partition in self._hosted.partitions():
            topic = partition.topic_partition[0]
            if topic in due:
                partition.min_insync_replicas = due[topic][0]
                partition.commit_further(self._clock.monotonic_ms())
        for topic in due:
            del self._lowered[topic]

    def change_settings(self, settings: ReplicaSettings) -> None:
        """For what may change at run time."""
        self._settings = settings
        for partition in self._hosted.partitions():
            partition.lag_time_max_ms = settings.lag_time_max_ms

    # Publisher.

    @property
    def name(self) -> str:
        return "ReplicaManager"

    def publish(self, changes: ImageChanges, image: MetadataImage, manifest: Manifest) -> None:
        self._hosted.image = image
        self._published.set()
        if self.elect_leader_purgatory.purgatory_size:
            for change in changes.partitions():
                self._purgatories.leader_shown((change.topic.name, change.partition_id))

    # BrokerStates.

    def is_alive(self, broker_id: int) -> bool:
        broker = self._hosted.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def eligible_epoch(self, broker_id: int) -> int | None:
        broker = self._hosted.image.brokers.get(broker_id)
        if broker is None or broker.fenced or broker.in_controlled_shutdown:
            return None
        return broker.broker_epoch

    # PartitionEvents.

    def appended(self, partition: Partition) -> None:
        if partition.awaits_flush:
            self._flush_soon(partition)
        self._purgatories.appended(partition.topic_partition)

    def high_watermark_moved(self, partition: Partition) -> None:
        topic, partition_id = partition.topic_partition
        self._purgatories.high_watermark_moved(partition.topic_partition)
        listener = self._commit_listeners.get(topic)
        if listener is not None:
            listener(partition_id, partition.log.high_watermark)

    def log_start_moved(self, partition: Partition) -> None:
        self._purgatories.log_start_moved(partition.topic_partition)

    def isr_wanted(self, partition: Partition) -> None:
        self._isr_sender.submit(partition)

    def role_changed(self, partition: Partition) -> None:
        if partition.awaits_flush:
            self._flush_soon(partition)
        self._purgatories.role_changed(partition.topic_partition)

    def _flush_soon(self, partition: Partition) -> None:
        """Have a leader's log flushed, so that what was appended counts. One flush at a time."""
        if partition not in self._flushing and self._nursery is not None:
            self._flushing[partition] = None
            self._nursery.start_soon(self._flush, partition, name=f"flush[{partition!r}]")

    async def _flush(self, partition: Partition) -> None:
        try:
            while partition.awaits_flush:
                if self._buggify("leader-flushes-late"):
                    await self._clock.sleep(LATE_SECONDS)
                replica_log = log_of(partition)
                try:
                    await replica_log.flush()
                except StorageError as error:
                    if partition.log is replica_log:
                        log.warning("%r was not flushed: %s", partition, error)
                        return
                # What lies in another directory by now has to be flushed there.
                if partition.log is replica_log:
                    partition.flushed(replica_log.recovery_point, self._clock.monotonic_ms())
                    self._purgatories.flushed(partition.topic_partition)
        finally:
            del self._flushing[partition]

    # DirectoryEvents.

    def directory_failed(self, path: str, lost: Sequence[TopicPartition]) -> None:
        """Its replicas are offline, and the controller shall know (REP-11)."""
        self._fetchers.discard(lost)
        for name in lost:
            topic_id = self._hosted.topic_id(name)
            if topic_id is not None:
                self._hosted.take_offline(name, topic_id)
                self._gone(name)
        self._tell(lost)
        self._note_lost_directories()

    def partition_unlinked(self, topic_partition: TopicPartition, topic_id: Uuid | None) -> None:
        self._deleted.unlinked(topic_partition, topic_id)

    def _note_lost_directories(self) -> None:
        directories = self._logs.directories
        for directory in directories:
            if not directory.is_online and directory.directory_id != ZERO_UUID:
                self._directory_lost(directory.directory_id)
        if not any(directory.is_online for directory in directories):
            self._no_directory_left.set()

    # Work.

    async def run(self) -> None:
        """Until cancelled. Raises StorageError when no data directory is left."""
        self._logs.listen(self)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._note_lost_directories()
                self._purgatories.start(nursery)
                nursery.start_soon(self._isr_sender.run, name="isr-sender")
                nursery.start_soon(self._assignments.run, name="directory-assignments")
                nursery.start_soon(self._fetchers.run, name="fetchers")
                nursery.start_soon(self._check_isrs, name="isr-expiration")
                nursery.start_soon(self._fail_without_directory, name="directory-watch")
                await self._apply_images()
        finally:
            self._nursery = None
            self._purgatories.shutdown()
            self._metrics.close()

    async def _apply_images(self) -> None:
        while True:
            await self._published.wait()
            self._published = trio.Event()
            if self._buggify("roles-taken-late"):
                await self._clock.sleep(LATE_SECONDS)
            image = self._hosted.image
            lowered = dict(self._lowered)
            started = self._clock.monotonic()
            if not self.first_applied.is_set():
                await self._changes.clear_strays(image)
            concerned = await self._changes.apply(self.applied, image)
            if ImageChanges(self.applied, image).brokers:
                await self._each_partition(self._brokers_changed)
            if lowered:
                self._lower_minima(lowered)
            self.applied = image
            self.first_applied.set()
            if concerned:
                self._metrics.roles_changed(concerned)
                self._tell(concerned)
                log.info(
                    "replicas follow the metadata offset=%d replicas=%d ms=%d",
                    self.applied_offset,
                    len(concerned),
                    (self._clock.monotonic() - started) * 1000,
                )
            await self._let_go_on()

    async def _let_go_on(self) -> None:
        """Those who have awaited leaders that there are now: each is a request."""
        awaiting, self._awaiting = self._awaiting, []
        pace = Pace(self._clock)
        pace.begin()
        for then in awaiting:
            then()
            await pace.rest(0)

    def _tell(self, concerned: Sequence[TopicPartition]) -> None:
        for name in concerned:
            listener = self._role_listeners.get(name[0])
            if listener is not None:
                listener(name[1], self._hosted.online(name))

    async def _check_isrs(self) -> None:
        """Every half of the lag time, so that who is late leaves after at most one and a half."""
        while True:
            await self._clock.sleep(self._settings.lag_time_max_ms / 2000)
            await self._each_partition(
                lambda partition: partition.shrink_isr(self._clock.monotonic_ms())
            )

    def _brokers_changed(self, partition: Partition) -> None:
        """A leader may have waited for a follower that is no longer there."""
        partition.commit_further(self._clock.monotonic_ms())
        self._purgatories.follower_gone(partition.topic_partition)

    async def _each_partition(self, look: Callable[[Partition], None]) -> None:
        """One that can't be looked at must not keep the others from it (REP-12)."""
        for number, partition in enumerate(self._hosted.partitions(), 1):
            if self._hosted.online(partition.topic_partition) is partition:
                try:
                    look(partition)
                except InternalInvariant:
                    raise
                except Exception:
                    log.exception("%r was not looked at", partition)
            if number % _PARTITIONS_IN_A_PIECE == 0:
                await trio.lowlevel.checkpoint()

    async def _fail_without_directory(self) -> None:
        await self._no_directory_left.wait()
        raise StorageError("no data directory is left to this broker")

    def _make_partition(
        self, topic_partition: TopicPartition, topic_id: Uuid, replica_log: PartitionLog
    ) -> Partition:
        return Partition(
            topic_partition,
            topic_id,
            self._settings.broker_id,
            replica_log,
            brokers=self,
            events=self,
            lag_time_max_ms=self._settings.lag_time_max_ms,
            min_insync_replicas=self._min_insync_replicas(topic_partition[0]),
        )

    def _leads(self, topic_partition: TopicPartition) -> None:
        self._purgatories.leads(topic_partition)

    def _gone(self, topic_partition: TopicPartition) -> None:
        """Whoever waits for the replica need not wait any longer."""
        self._purgatories.role_changed(topic_partition)
