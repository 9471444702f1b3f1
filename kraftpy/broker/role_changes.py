"""Makes the hosted replicas what the metadata says: deleted, leaders, followers, in this order.

Deletions come first because a topic may have been made again under its name, leaders before
followers because they are waited for. Making and deleting logs waits for the disk, several at a
time; everything else about a replica changes at one moment.

What must not overlap:

- A replica's fetcher and its becoming a leader, or being deleted. A fetcher is removed before, and
  `Fetchers.remove` returns when it does nothing to the log any more.
- Two changes of one replica. Whoever calls `apply` does so one image after the other.

One replica's trouble is its own (REP-104): without its directory it is offline, and the others go
on.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar

import trio

from kraftpy.broker.directory_assignments import DirectoryAssignments
from kraftpy.broker.hosted import HostedPartitions
from kraftpy.broker.partition import Partition
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.errors import LogError, StorageError
from kraftpy.log.manager import LogManager
from kraftpy.log.partition_log import PartitionLog
from kraftpy.metadata.changes import ImageChanges, PartitionChange
from kraftpy.metadata.features import DIRECTORIES_LEVEL
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.local_changes import local_changes
from kraftpy.metadata.records import (
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    PartitionRecord,
)
from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.world import Clock, InternalInvariant

__all__ = ["Fetchers", "RoleChanges"]

log = logging.getLogger(__name__)

# Logs that are made or deleted at a time. Each waits for the disk most of its time.
_CONCURRENT_LOGS: Final = 64

_T = TypeVar("_T")
_Make: TypeAlias = Callable[[TopicPartition, Uuid, PartitionLog], Partition]


class Fetchers(Protocol):
    """Those who copy from leaders. FetcherManager is one."""

    def add(self, partitions: Sequence[Partition]) -> None:
        """Begin to follow the leader that each of them has now."""
        ...

    async def remove(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop; when this returns, nobody does anything to their logs."""
        ...

    def discard(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop as soon as possible: their logs refuse everything."""
        ...

    async def run(self) -> None:
        """Fetch until cancelled."""
        ...


class RoleChanges:
    def __init__(
        self,
        broker_id: int,
        clock: Clock,
        *,
        hosted: HostedPartitions,
        logs: LogManager,
        fetchers: Fetchers,
        assignments: DirectoryAssignments,
        make: _Make,
        leads: Callable[[TopicPartition], None],
        gone: Callable[[TopicPartition], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        """`leads` is told of each leader with new metadata, `gone` of replicas that are not, or no
        longer, online here.
        """
        self._broker_id = broker_id
        self._clock = clock
        self._hosted = hosted
        self._logs = logs
        self._fetchers = fetchers
        self._assignments = assignments
        self._make = make
        self._leads = leads
        self._gone = gone
        self._is_stopping = is_stopping

    async def clear_strays(self, image: MetadataImage) -> None:
        """Take logs out of use that are no replicas of this broker, by its first image.

        Those whose topic was removed while this broker was away are deleted: the metadata waits for
        that. So are those that this broker was about to make when its process ended. The others
        were reassigned, or the metadata has lost them (an old backup, a damaged quorum), and their
        data may be the last there is: it is kept, and somebody must decide.
        """
        removed: list[TopicPartition] = []
        unknown: list[TopicPartition] = []
        for each in self._logs.logs:
            name = each.topic_partition
            if self._is_stray(image, name):
                topic_id = self._logs.topic_id(name)
                is_half_made = topic_id is None and each.log_end_offset == 0
                is_removed = topic_id is not None and topic_id in image.pending_deletions
                (removed if is_removed or is_half_made else unknown).append(name)
        await self._each(removed, self._delete_log)
        await self._each(unknown, self._set_aside)

    async def _set_aside(self, name: TopicPartition) -> None:
        try:
            path = await self._logs.set_aside(name)
        except StorageError as error:
            # The directory is offline with it, or the next start finds it again.
            log.warning("the log of %s-%d was not set aside: %s", *name, error)
        else:
            log.warning(
                "%s-%d is no replica of this broker by the cluster's metadata; its files are kept "
                "in %s: delete that directory when you are sure that you don't need it",
                *name,
                path,
            )

    def _is_stray(self, image: MetadataImage, topic_partition: TopicPartition) -> bool:
        topic_id = self._logs.topic_id(topic_partition)
        if topic_id is None:
            return True
        record = image.partition(topic_id, topic_partition[1])
        return record is None or self._broker_id not in record.replicas

    async def apply(self, before: MetadataImage, after: MetadataImage) -> list[TopicPartition]:
        """Act on the difference; the replicas that were, or are, concerned."""
        changes = local_changes(ImageChanges(before, after), self._broker_id)
        await self._delete(changes.deletions)
        await self._lead(changes.leaders)
        await self._follow(changes.followers)
        if after.metadata_version >= DIRECTORIES_LEVEL:
            for change, assigned in changes.directories:
                self._report_directory(change, assigned)
        concerned = (*changes.deletions, *changes.leaders, *changes.followers)
        return list(dict.fromkeys(map(_name, concerned)))

    # Deletions.

    async def _delete(self, changes: Sequence[PartitionChange]) -> None:
        if changes:
            await self._fetchers.remove([_name(change) for change in changes])
            await self._each(changes, self._delete_one)

    async def _delete_one(self, change: PartitionChange) -> None:
        name, topic_id = _name(change), change.topic.topic_id
        self._assignments.forget(topic_id, change.partition_id)
        if self._hosted.topic_id(name) == topic_id:
            self._hosted.remove(name)
            self._gone(name)
        if self._logs.topic_id(name) == topic_id:
            await self._delete_log(name)

    async def _delete_log(self, name: TopicPartition) -> None:
        try:
            await self._logs.delete(name)
        except StorageError as error:
            # The directory is offline with it; the next start finds a stray.
            log.warning("the log of %s-%d was not deleted: %s", *name, error)

    # Leaders and followers.

    async def _lead(self, changes: Sequence[PartitionChange]) -> None:
        await self._fetchers.remove([_name(change) for change in changes])
        await self._each(changes, self._lead_one)

    async def _lead_one(self, change: PartitionChange) -> None:
        partition = await self._hosted_partition(change)
        if partition is None or change.after is None:
            return
        try:
            partition.lead(change.after, self._clock.monotonic_ms())
        except StorageError as error:
            # Its directory has just failed, and everybody was told.
            log.warning("%r does not lead: %s", partition, error)
        self._leads(partition.topic_partition)

    async def _follow(self, changes: Sequence[PartitionChange]) -> None:
        # Before the role changes: what an old leader answers must not be taken for the new one's.
        await self._fetchers.remove(
            [_name(each) for each in changes if self._leads_elsewhere(each)]
        )
        followers: list[Partition] = []

        async def follow(change: PartitionChange) -> None:
            partition = await self._hosted_partition(change)
            if (
                partition is not None
                and change.after is not None
                and partition.follow(change.after)
                and self._has_leader_to_follow(change.after)
            ):
                followers.append(partition)

        await self._each(changes, follow)
        # Without those whose directory has failed since.
        self._fetchers.add(
            [each for each in followers if self._hosted.online(each.topic_partition) is each]
        )

    def _leads_elsewhere(self, change: PartitionChange) -> bool:
        """Whether the fetcher, if there is one, is of another leadership."""
        partition, record = self._hosted.online(_name(change)), change.after
        return (
            partition is None
            or record is None
            or partition.leader_id != record.leader
            or partition.leader_epoch != record.leader_epoch
            or not self._has_leader_to_follow(record)
        )

    def _has_leader_to_follow(self, record: PartitionRecord) -> bool:
        """A stopping broker follows nobody who does not count on it any more."""
        if record.leader == NO_LEADER:
            return False
        return not self._is_stopping() or self._broker_id in record.isr

    async def _hosted_partition(self, change: PartitionChange) -> Partition | None:
        """The replica, made with its log if it is new here; None if it is offline."""
        name, topic_id = _name(change), change.topic.topic_id
        known = self._hosted.online(name)
        if known is not None or change.after is None or self._hosted.is_offline(name):
            return known
        try:
            made = await self._log(name, topic_id, change.after)
        except LogError as error:
            log.error("no log for %s-%d: %s", *name, error)
            self._hosted.take_offline(name, topic_id)
            self._gone(name)
            return None
        partition = self._make(name, topic_id, made)
        self._hosted.host(partition)
        return partition

    async def _log(
        self, name: TopicPartition, topic_id: Uuid, record: PartitionRecord
    ) -> PartitionLog:
        assigned = record.directory_of(self._broker_id)
        online = {each.directory_id: each.path for each in self._logs.directories if each.is_online}
        path = None if assigned is None else online.get(assigned)
        made = await self._logs.get_or_create(
            name,
            topic_id=topic_id,
            # It was never put anywhere, or would have to be here.
            is_new=assigned == DIRECTORY_UNASSIGNED or path is not None,
            directory=path,
            is_durable=False,
        )
        directory = self._logs.directory_of(name)
        if directory is None or not directory.is_online:
            raise StorageError(f"the directory of {made.directory} has failed")
        return made

    def _report_directory(self, change: PartitionChange, assigned: Uuid) -> None:
        """Tell the controller if the replica is somewhere else than it says."""
        directory = self._logs.directory_of(_name(change))
        if directory is None or directory.directory_id == ZERO_UUID:
            return
        replica = (change.topic.topic_id, change.partition_id)
        if directory.directory_id == assigned or not directory.is_online:
            self._assignments.forget(*replica)
        else:
            self._assignments.assign(*replica, directory.directory_id)

    async def _each(self, items: Sequence[_T], act: Callable[[_T], Awaitable[None]]) -> None:
        """Act on all of them, several at a time."""
        if not items:
            return
        rest = iter(items)

        async def work() -> None:
            for item in rest:
                try:
                    await act(item)
                except InternalInvariant:
                    raise
                except Exception:
                    log.exception("a replica does not follow the metadata: %s", item)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for _ in range(min(len(items), _CONCURRENT_LOGS)):
                nursery.start_soon(work)


def _name(change: PartitionChange) -> TopicPartition:
    return change.topic.name, change.partition_id
