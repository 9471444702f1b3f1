"""Which offsets are committed, and which will be if their transaction is.

An offset that is committed within a transaction is pending until the marker of the transaction
comes. Between the two, others may commit for the same partition: then the record that stands later
in the log wins, whichever becomes visible first. Compaction keeps that one, so that a coordinator
which reads the log again must come to the same result.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from kraftpy.coordinator.groups.offsets_table import OffsetTable, TopicPartition
from kraftpy.coordinator.timeline import Timeline, TimelineMap
from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.protocol.schema.group_records import LegacyOffsetCommitValue, OffsetCommitValue

__all__ = ["OffsetState", "StoredOffset"]


class StoredOffset(NamedTuple):
    # Where its record stands in the log.
    record_offset: int
    offset: int
    # -1 if not known.
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    # -1 if the retention of the broker applies, as for all newer clients.
    expire_timestamp_ms: int
    # Zero if the client did not say.
    topic_id: Uuid

    @classmethod
    def of_record(
        cls, record_offset: int, value: OffsetCommitValue | LegacyOffsetCommitValue
    ) -> StoredOffset:
        if isinstance(value, LegacyOffsetCommitValue):
            return cls(
                record_offset,
                value.offset,
                -1,
                value.metadata,
                value.commit_timestamp,
                -1,
                ZERO_UUID,
            )
        return cls(
            record_offset,
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
        )


_Pending: TypeAlias = TimelineMap[tuple[str, TopicPartition], StoredOffset]


class OffsetState:
    """Only replay calls `put`, `put_pending`, `remove` and `end_transaction`."""

    __slots__ = ("_open", "_pending", "_timeline", "committed")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.committed: OffsetTable[StoredOffset] = OffsetTable(timeline)
        # By producer id, what its transaction will commit; and for each partition, by whom.
        self._pending: TimelineMap[int, _Pending] = TimelineMap(timeline)
        self._open: OffsetTable[tuple[int, ...]] = OffsetTable(timeline)

    @property
    def count(self) -> int:
        """How many offsets there are, for the metric; by a look at each group."""
        return self.committed.count()

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction may change it."""
        return self._open.get(group_id, partition) is not None

    def has_pending(self, group_id: str) -> bool:
        return self._open.has_group(group_id)

    def group_ids(self) -> list[str]:
        """Of all groups that have offsets, or will have if transactions are committed."""
        return list(dict.fromkeys((*self.committed.group_ids(), *self._open.group_ids())))

    def partitions_of(self, group_id: str) -> list[TopicPartition]:
        """Those with an offset, committed or pending."""
        committed = [partition for partition, _ in self.committed.of_group(group_id)]
        pending = [partition for partition, _ in self._open.of_group(group_id)]
        return list(dict.fromkeys((*committed, *pending)))

    def newest_record_offset(self, group_id: str, partition: TopicPartition) -> int:
        """Where the last word on a partition stands in the log; -1 if there is none."""
        offsets = [
            self._pending[producer_id][group_id, partition].record_offset
            for producer_id in self._open.get(group_id, partition) or ()
        ]
        stored = self.committed.get(group_id, partition)
        if stored is not None:
            offsets.append(stored.record_offset)
        return max(offsets, default=-1)

    # For replay.

    def put(self, group_id: str, partition: TopicPartition, stored: StoredOffset) -> None:
        self.committed.put(group_id, partition, stored)

    def put_pending(
        self, producer_id: int, group_id: str, partition: TopicPartition, stored: StoredOffset
    ) -> None:
        pending = self._pending.get(producer_id)
        if pending is None:
            pending = self._pending[producer_id] = TimelineMap(self._timeline)
        pending[group_id, partition] = stored
        producer_ids = self._open.get(group_id, partition) or ()
        if producer_id not in producer_ids:
            self._open.put(group_id, partition, (*producer_ids, producer_id))

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        """A tombstone: also for what is pending."""
        self.committed.remove(group_id, partition)
        for producer_id in self._open.get(group_id, partition) or ():
            pending = self._pending[producer_id]
            pending.pop((group_id, partition))
            if not pending:
                self._pending.pop(producer_id)
        self._open.remove(group_id, partition)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Nothing happens if the producer has nothing pending here."""
        pending = self._pending.pop(producer_id)
        if pending is None:
            return
        for (group_id, partition), stored in pending.items():
            others = tuple(
                each for each in self._open.get(group_id, partition) or () if each != producer_id
            )
            if others:
                self._open.put(group_id, partition, others)
            else:
                self._open.remove(group_id, partition)
            present = self.committed.get(group_id, partition)
            is_newer = present is None or stored.record_offset > present.record_offset
            if is_commit and is_newer:
                self.put(group_id, partition, stored)
