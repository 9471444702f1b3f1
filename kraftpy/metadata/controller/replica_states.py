"""The states of replicas, derived from the image and from what brokers have acknowledged.

A replica is Online if its broker is registered, unfenced, not shutting down, and its directory
works; otherwise it is Offline. Before, it is New: until its broker has replayed the record that
created it, and, if it is being added by a reassignment, until it has joined the ISR. A replica of a
removed topic, or one that a reassignment removed, is in deletion: Started, or Ineligible while its
broker is fenced or its directory offline.

Nearly all of this is a function of the image, computed when asked for. Remembered are exceptions:

- replicas that are New because their broker has not acknowledged them. Heartbeats, which carry
  what a broker has replayed, reach the active controller only; so others, and a new controller
  for records older than its activation, take New from the image alone;
- replicas being added that are New no more, because they have been Offline since, or in the ISR:
  what went offline, or out of the ISR, comes back Online;
- replicas removed by reassignments, until their brokers have replayed that. Removed topics are in
  the image until their files are gone, and the removal of a topic takes over from these.

Moves are checked against the legal ways (transitions.py). The image is the truth, so an illegal
move can't undo it; the one freedom that a derived state has is whether an online replica is New,
and an illegal move there is logged and not followed.

Invariants: `is_online` is a function of the image alone; going back to an older image restores the
exceptions that it had; an acknowledged record is committed, hence is never taken back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from kraftpy.metadata.changes import ImageChanges, PartitionChange
from kraftpy.metadata.controller.partition_index import PartitionIndex
from kraftpy.metadata.controller.replica_marks import ReplicaMarks
from kraftpy.metadata.controller.transitions import REPLICA_WAYS, ReplicaState
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage
from kraftpy.metadata.records import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    PartitionRecord,
    PendingReplica,
    RegisterBrokerRecord,
)
from kraftpy.protocol.ids import Uuid

__all__ = ["ReplicaState", "ReplicaStateMachine", "can_delete", "has_online_directory"]

_log = logging.getLogger(__name__)


class _Removal(NamedTuple):
    """A replica that a reassignment removed: by which record, and where its files were."""

    offset: int
    directory: Uuid


class ReplicaStateMachine:
    """Follows the image; the index that it is given must be told of changes first."""

    __slots__ = (
        "_acknowledged",
        "_activation_offset",
        "_image",
        "_partitions",
        "_removed",
        "_seasoned",
        "_unacknowledged",
    )

    def __init__(self, partitions: PartitionIndex) -> None:
        self._partitions = partitions
        self._image = EMPTY_IMAGE
        # None while this controller isn't active.
        self._activation_offset: int | None = None
        # What brokers have replayed, as far as they have told.
        self._acknowledged: dict[int, int] = {}
        # Offsets of the records that added replicas which are New for that reason.
        self._unacknowledged: ReplicaMarks[int] = ReplicaMarks()
        # Replicas being added that are New no more.
        self._seasoned: ReplicaMarks[bool] = ReplicaMarks()
        self._removed: ReplicaMarks[_Removal] = ReplicaMarks()

    # What others ask for.

    def state(self, topic_id: Uuid, partition_id: int, broker_id: int) -> ReplicaState:
        partition = self._image.partition(topic_id, partition_id)
        if partition is not None and broker_id in partition.replicas:
            return self._present_state(self._image, partition, broker_id)
        pending = self._image.pending_deletions.get(topic_id)
        if pending is not None and PendingReplica(partition_id, broker_id) in pending.replicas:
            return _deletion_state(self._image, broker_id)
        removal = self._removed.get(broker_id, (topic_id, partition_id))
        if removal is not None:
            return _deletion_state(self._image, broker_id, removal.directory)
        return ReplicaState.NON_EXISTENT

    def topic_states(self, topic_id: Uuid) -> Iterator[tuple[PendingReplica, ReplicaState]]:
        """The states of all replicas that a topic has, or had when it was removed."""
        topic = self._image.topic_by_id(topic_id)
        for partition in topic.partitions if topic is not None else ():
            for broker_id in partition.replicas:
                state = self._present_state(self._image, partition, broker_id)
                yield PendingReplica(partition.partition_id, broker_id), state
        pending = self._image.pending_deletions.get(topic_id)
        for replica in pending.replicas if pending is not None else ():
            yield replica, _deletion_state(self._image, replica.broker_id)

    def is_online(self, partition: PartitionRecord, broker_id: int) -> bool:
        """Whether the broker could lead: it and its directory are there, and it isn't leaving.

        A broker that has no replica of the partition could not.
        """
        return _is_online(self._image, partition, broker_id)

    # What changes the states.

    def update(self, changes: ImageChanges) -> None:
        offset = changes.after.provenance.last_offset
        self._image = changes.after
        if offset < changes.before.provenance.last_offset:
            self._go_back(offset)
            return
        for change in changes.partitions():
            if change.after is None:
                self._forget_partition(change, offset)
            else:
                self._follow_partition(changes.before, change, change.after, offset)
        for broker in changes.brokers:
            self._follow_broker(broker.key, is_registered=broker.after is not None, offset=offset)

    def acknowledge(self, broker_id: int, metadata_offset: int) -> None:
        """The broker has replayed the committed log up to this offset."""
        if metadata_offset <= self._acknowledged.get(broker_id, -1):
            return
        self._acknowledged[broker_id] = metadata_offset
        for key, offset in self._unacknowledged.on(broker_id):
            if offset <= metadata_offset:
                self._unacknowledged.put_for_good(broker_id, key, None)
        for key, removal in self._removed.on(broker_id):
            if removal.offset <= metadata_offset:
                self._removed.put_for_good(broker_id, key, None)

    def forget_acknowledgements(self, activation_offset: int | None) -> None:
        """Begin anew: heard are brokers from now on, for what lies after `activation_offset`.

        With None this controller isn't active, and nobody will be heard.
        """
        self._activation_offset = activation_offset
        self._acknowledged.clear()
        self._unacknowledged.clear()

    def settle(self, committed_offset: int) -> None:
        """The image will not go back behind this offset."""
        for marks in (self._unacknowledged, self._seasoned, self._removed):
            marks.settle(committed_offset)

    # Inside.

    def _present_state(
        self, image: MetadataImage, partition: PartitionRecord, broker_id: int
    ) -> ReplicaState:
        if not _is_online(image, partition, broker_id):
            return ReplicaState.OFFLINE
        key = (partition.topic_id, partition.partition_id)
        if self._unacknowledged.get(broker_id, key) is not None:
            return ReplicaState.NEW
        if _is_joining(partition, broker_id) and self._seasoned.get(broker_id, key) is None:
            return ReplicaState.NEW
        return ReplicaState.ONLINE

    def _go_back(self, offset: int) -> None:
        for marks in (self._unacknowledged, self._seasoned, self._removed):
            marks.go_back(offset)
        # A mark that came back may have been acknowledged in the meantime.
        for broker_id, acknowledged in list(self._acknowledged.items()):
            del self._acknowledged[broker_id]
            self.acknowledge(broker_id, acknowledged)

    def _forget_partition(self, change: PartitionChange, offset: int) -> None:
        """A removed topic's partition: any state may become Offline, and then a deletion's."""
        key = (change.topic.topic_id, change.partition_id)
        for broker_id in change.before.replicas if change.before else ():
            self._unacknowledged.put(broker_id, key, None, offset)
            self._seasoned.put(broker_id, key, None, offset)
        for broker_id in self._removed.brokers():
            self._removed.put(broker_id, key, None, offset)

    def _follow_partition(
        self, old: MetadataImage, change: PartitionChange, after: PartitionRecord, offset: int
    ) -> None:
        before = change.before
        if before is not None and _is_same_placement(before, after):
            return
        key = (after.topic_id, after.partition_id)
        for broker_id in after.replicas:
            if before is not None and broker_id in before.replicas:
                state = self._present_state(old, before, broker_id)
                was_adding = broker_id in before.adding_replicas
                self._stay(state, after, broker_id, offset, was_adding=was_adding)
            else:
                self._removed.put(broker_id, key, None, offset)
                self._add(before, after, broker_id, offset)
        if before is None:
            return
        for broker_id in before.replicas:
            if broker_id not in after.replicas:
                self._remove(before, broker_id, offset)

    def _add(
        self,
        before: PartitionRecord | None,
        after: PartitionRecord,
        broker_id: int,
        offset: int,
    ) -> None:
        """A replica that wasn't there: New, and if its broker isn't there, Offline at once."""
        key = (after.topic_id, after.partition_id)
        is_new = _is_online(self._image, after, broker_id)
        if before is not None and after.leader == broker_id:
            # Its leadership says that it has what it is only now being given.
            self._refuse(ReplicaState.NON_EXISTENT, ReplicaState.NEW, after, broker_id, offset)
            is_new = False
        if is_new and self._activation_offset is not None and offset > self._activation_offset:
            self._unacknowledged.put(broker_id, key, offset, offset)
        if not is_new and _is_joining(after, broker_id):
            self._seasoned.put(broker_id, key, True, offset)

    def _stay(
        self,
        state: ReplicaState,
        after: PartitionRecord,
        broker_id: int,
        offset: int,
        *,
        was_adding: bool,
    ) -> None:
        """A replica that was there: by its old state, where it goes."""
        key = (after.topic_id, after.partition_id)
        wanted = self._present_state(self._image, after, broker_id)
        if was_adding and (state, wanted) == (ReplicaState.ONLINE, ReplicaState.NEW):
            # It has been in the ISR and left it before its reassignment was over.
            wanted = ReplicaState.ONLINE
        if wanted != state and (state, wanted) not in REPLICA_WAYS:
            self._refuse(state, wanted, after, broker_id, offset)
            wanted = ReplicaState.ONLINE
        if wanted is not ReplicaState.NEW:
            self._unacknowledged.put(broker_id, key, None, offset)
        is_seasoned = wanted is not ReplicaState.NEW and _is_joining(after, broker_id)
        self._seasoned.put(broker_id, key, is_seasoned or None, offset)

    def _remove(self, before: PartitionRecord, broker_id: int, offset: int) -> None:
        """A reassignment took the replica away; a broker that isn't registered never tells."""
        key = (before.topic_id, before.partition_id)
        self._unacknowledged.put(broker_id, key, None, offset)
        self._seasoned.put(broker_id, key, None, offset)
        if broker_id in self._image.brokers:
            directory = before.directory_of(broker_id) or DIRECTORY_UNASSIGNED
            self._removed.put(broker_id, key, _Removal(offset, directory), offset)

    def _follow_broker(self, broker_id: int, *, is_registered: bool, offset: int) -> None:
        for key, _ in self._unacknowledged.on(broker_id):
            partition = self._image.partition(*key)
            if partition is None or not _is_online(self._image, partition, broker_id):
                self._unacknowledged.put(broker_id, key, None, offset)
        for _, partition in self._partitions.reassigning(broker_id):
            key = (partition.topic_id, partition.partition_id)
            if _is_joining(partition, broker_id) and not self.is_online(partition, broker_id):
                self._seasoned.put(broker_id, key, True, offset)
        if not is_registered:
            for key, _ in self._removed.on(broker_id):
                self._removed.put(broker_id, key, None, offset)

    def _refuse(
        self,
        state: ReplicaState,
        wanted: ReplicaState,
        partition: PartitionRecord,
        broker_id: int,
        offset: int,
    ) -> None:
        _log.error(
            "offset %d: the replica of %s-%d on broker %d can't go from %s to %s",
            offset,
            self._image.topic_names[partition.topic_id],
            partition.partition_id,
            broker_id,
            state.name,
            wanted.name,
        )


def can_delete(
    image: MetadataImage, broker_id: int, directory: Uuid = DIRECTORY_UNASSIGNED
) -> bool:
    """Whether the broker can be expected to delete files, from a directory if known, now."""
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced and _is_directory_online(broker, directory)


def _deletion_state(
    image: MetadataImage, broker_id: int, directory: Uuid = DIRECTORY_UNASSIGNED
) -> ReplicaState:
    """For a removed topic the image doesn't say where the files are: no directory is judged."""
    if can_delete(image, broker_id, directory):
        return ReplicaState.DELETION_STARTED
    return ReplicaState.DELETION_INELIGIBLE


def _is_joining(partition: PartitionRecord, broker_id: int) -> bool:
    return broker_id in partition.adding_replicas and broker_id not in partition.isr


def _is_same_placement(before: PartitionRecord, after: PartitionRecord) -> bool:
    """Whether nothing differs that any replica's state depends on, as after most changes."""
    return (
        before.replicas == after.replicas
        and before.directories == after.directories
        and not before.adding_replicas
        and not after.adding_replicas
    )


def _is_online(image: MetadataImage, partition: PartitionRecord, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return (
        broker is not None
        and not broker.fenced
        and not broker.in_controlled_shutdown
        and has_online_directory(broker, partition)
    )


def has_online_directory(broker: RegisterBrokerRecord, partition: PartitionRecord) -> bool:
    """Whether the directory of this broker's replica works; False if it has none."""
    directory = partition.directory_of(broker.broker_id)
    return directory is not None and _is_directory_online(broker, directory)


def _is_directory_online(broker: RegisterBrokerRecord, directory: Uuid) -> bool:
    """A replica not placed yet is fine; a broker that named no directories isn't judged by them."""
    if directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING):
        return True
    if directory == DIRECTORY_LOST:
        return False
    return not broker.log_dirs or directory in broker.log_dirs
