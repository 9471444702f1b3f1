"""What is committed in a partition of `__consumer_offsets`, folded from its bytes by other code.

Rules compare what coordinators hold and answer with this. It knows what the product need not: every
commit by its id, every member epoch that was ever committed, every assignment by its tag.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from kraftpy.protocol.coordinator_records import GROUP_RECORDS
from kraftpy.protocol.schema.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kraftpy.protocol.tables import RecordKey, RecordValue
from kraftpy.records.batch import RecordBatch
from kraftpy.records.control import EndTransactionMarker, read_control_record
from kraftpy.records.walker import records_of, walk_batches
from kraftpy.sim.quorum_invariants import InvariantViolated

__all__ = ["GroupTruth", "OffsetKey", "Stored", "tag_of"]

_MAX_BYTES = 1 << 24
OffsetKey: TypeAlias = tuple[str, int]


class Stored(NamedTuple):
    position: int
    offset: int
    commit_id: str


class GroupTruth:
    """Of one partition."""

    def __init__(self, stopped: Callable[[str, str], None]) -> None:
        """`stopped` is called with group and member that are no longer in a consumer group."""
        self.end = 0
        self.offsets: dict[OffsetKey, Stored] = {}
        self.pending: dict[int, dict[OffsetKey, Stored]] = {}
        # By the id of a commit, where it stands; in transactions from their markers on.
        self.positions: dict[str, int] = {}
        self.generations: dict[str, int] = {}
        self.tags: dict[str, None] = {}
        self.members: dict[tuple[str, str], None] = {}
        # The highest ever.
        self.member_epochs: dict[tuple[str, str], int] = {}
        self._group_epochs: dict[str, int] = {}
        self._producer_epochs: dict[int, int] = {}
        self._stopped = stopped

    def committed(self, data: bytes, end: int) -> None:
        for batch in walk_batches(data):
            if batch.last_offset < self.end or not isinstance(batch, RecordBatch):
                continue
            if batch.producer_id >= 0:
                self._check_epoch(batch.producer_id, batch.producer_epoch)
            for record in records_of(batch, max_bytes=_MAX_BYTES):
                if batch.is_control:
                    marker = read_control_record(record)
                    if isinstance(marker, EndTransactionMarker):
                        self._end_transaction(batch.producer_id, is_commit=marker.is_commit)
                    continue
                key = GROUP_RECORDS.decode_key(record.key or b"")
                value = None
                if record.value is not None:
                    value = GROUP_RECORDS.decode_value(key, record.value)[0]
                producer_id = batch.producer_id if batch.is_transactional else -1
                self._take(record.offset, producer_id, key, value)
        self.end = end

    def _check_epoch(self, producer_id: int, epoch: int) -> None:
        """Invariant 17."""
        if epoch < self._producer_epochs.get(producer_id, 0):
            raise InvariantViolated("epoch-of-the-past", f"producer {producer_id}, epoch {epoch}")
        self._producer_epochs[producer_id] = epoch

    def _end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        for key, stored in self.pending.pop(producer_id, {}).items():
            present = self.offsets.get(key)
            if is_commit and (present is None or stored.position > present.position):
                self.offsets[key] = stored
            if is_commit:
                self.positions[stored.commit_id] = stored.position

    def _take(
        self, position: int, producer_id: int, key: RecordKey, value: RecordValue | None
    ) -> None:
        if isinstance(key, OffsetCommitKey):
            self._take_offset(position, producer_id, key, value)
        elif isinstance(key, GroupMetadataKey):
            self._take_classic(key.group, value)
        elif isinstance(key, ConsumerGroupMetadataKey):
            epoch = value.epoch if isinstance(value, ConsumerGroupMetadataValue) else -1
            _never_back(self._group_epochs, key.group_id, epoch)
        elif isinstance(key, ConsumerGroupMemberMetadataKey):
            member = (key.group_id, key.member_id)
            if value is not None:
                self.members[member] = None
            elif member in self.members:
                del self.members[member]
                self._stopped(*member)
        elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
            member = (key.group_id, key.member_id)
            if isinstance(value, ConsumerGroupCurrentMemberAssignmentValue):
                known = self.member_epochs.get(member, -1)
                self.member_epochs[member] = max(known, value.member_epoch)

    def _take_offset(
        self, position: int, producer_id: int, key: OffsetCommitKey, value: RecordValue | None
    ) -> None:
        name = (key.group, key.partition)
        if not isinstance(value, OffsetCommitValue):
            self.offsets.pop(name, None)
            for pending in self.pending.values():
                pending.pop(name, None)
            return
        stored = Stored(position, value.offset, value.metadata)
        if producer_id >= 0:
            self.pending.setdefault(producer_id, {})[name] = stored
        else:
            self.offsets[name] = stored
            self.positions[value.metadata] = position

    def _take_classic(self, group_id: str, value: RecordValue | None) -> None:
        if not isinstance(value, GroupMetadataValue):
            self.generations.pop(group_id, None)
            return
        _never_back(self.generations, group_id, value.generation)
        for member in value.members:
            if member.assignment:
                self.tags[tag_of(member.assignment)] = None


def tag_of(assignment: bytes) -> str:
    """An assignment of a simulated leader is its tag, a bar and the partitions."""
    return bytes(assignment).partition(b"|")[0].decode()


def _never_back(known: dict[str, int], group_id: str, number: int) -> None:
    """Invariant 22: what numbers a group's assignments only grows, whoever coordinates it."""
    if number >= 0 and number < known.get(group_id, 0):
        raise InvariantViolated(
            "generation-went-back", f"{group_id}: {number} after {known[group_id]}"
        )
    if number < 0:
        known.pop(group_id, None)
    else:
        known[group_id] = number
