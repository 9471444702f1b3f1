"""A consumer group: its members, what they are to have, and who holds what (KIP-848).

All of it is replayed from the log and lies in the shard's timeline. What is counted here could also
be computed from the members, at each heartbeat of each of them; instead `put_member` and
`remove_member` keep it, and nothing else changes members.

Invariants:
- `holders` has for each partition the member whose current assignment has it, assigned or pending
  revocation; there is one at most.
- `static_members` has the member of each instance id; `topic_readers` and `regex_readers` count
  members, and have no entry for none.
- assignment_epoch <= epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

from kraftpy.coordinator.assignors.assignor import Partitions
from kraftpy.coordinator.groups.consumer_member import ConsumerMember, CurrentAssignment
from kraftpy.coordinator.groups.consumer_records import (
    ResolvedRegex,
    current_tombstone,
    group_tombstone,
    legacy_metadata_tombstone,
    profile_tombstone,
    regex_tombstone,
    target_epoch_tombstone,
    target_tombstone,
)
from kraftpy.coordinator.groups.consumer_topics import ConsumerTopics
from kraftpy.coordinator.groups.group import CommitCheck, Group, GroupType
from kraftpy.coordinator.outcome import CoordinatorError, CoordinatorRecord
from kraftpy.coordinator.timeline import Timeline, TimelineMap, TimelineValue
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID, Uuid

__all__ = ["ConsumerGroup", "ConsumerGroupState", "HolderConflictError"]

NO_ASSIGNMENT: Final = -1
# From this version on OffsetCommit knows member epochs.
_COMMIT_VERSION_WITH_EPOCHS: Final = 9


class ConsumerGroupState(StrEnum):
    """As Kafka's tools print it."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class HolderConflictError(Exception):
    """A record gives a partition to a member although another one holds it."""


class ConsumerGroup(Group):
    __slots__ = (
        "_topics",
        "assignment_epoch",
        "assignment_timestamp_ms",
        "classic_count",
        "epoch",
        "has_legacy_metadata",
        "holders",
        "members",
        "metadata_hash",
        "needs_refresh",
        "regex_readers",
        "resolved_regexes",
        "static_members",
        "targets",
        "topic_readers",
    )

    group_type = GroupType.CONSUMER

    def __init__(
        self,
        group_id: str,
        timeline: Timeline,
        topics: ConsumerTopics,
        *,
        needs_refresh: bool = False,
    ) -> None:
        super().__init__(group_id)
        self._topics = topics
        self.epoch = TimelineValue(timeline, 0)
        self.metadata_hash = TimelineValue(timeline, 0)
        self.has_legacy_metadata = TimelineValue(timeline, False)
        self.members: TimelineMap[str, ConsumerMember] = TimelineMap(timeline)
        self.static_members: TimelineMap[str, str] = TimelineMap(timeline)
        self.topic_readers: TimelineMap[str, int] = TimelineMap(timeline)
        self.regex_readers: TimelineMap[str, int] = TimelineMap(timeline)
        self.resolved_regexes: TimelineMap[str, ResolvedRegex] = TimelineMap(timeline)
        self.classic_count = TimelineValue(timeline, 0)
        self.targets: TimelineMap[str, Partitions] = TimelineMap(timeline)
        self.assignment_epoch = TimelineValue(timeline, NO_ASSIGNMENT)
        self.assignment_timestamp_ms = TimelineValue(timeline, 0)
        self.holders: TimelineMap[tuple[Uuid, int], str] = TimelineMap(timeline)
        # Soft state: whether the topics may have changed since the hash was computed.
        self.needs_refresh = needs_refresh

    # What others want to know of any group.

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        return _state(self.members.values(), self.epoch.value, self.assignment_epoch.value)

    @property
    def committed_state_name(self) -> str:
        members = (member for _, member in self.members.committed_items())
        return _state(members, self.epoch.committed, self.assignment_epoch.committed)

    @property
    def protocol_type(self) -> str:
        return "consumer"

    def is_subscribed_to(self, topic: str) -> bool:
        if topic in self.topic_readers:
            return True
        return any(topic in resolved.topics for resolved in self.resolved_regexes.values())

    def validate_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        *,
        is_transactional: bool,
        api_version: int,
    ) -> CommitCheck | None:
        if epoch < 0:
            if self.is_empty:
                return None
            if is_transactional and not member_id and instance_id is None:
                return None
        member = self.find_member(member_id)
        if (
            not is_transactional
            and not member.is_classic
            and api_version < _COMMIT_VERSION_WITH_EPOCHS
        ):
            raise CoordinatorError(
                ErrorCode.UNSUPPORTED_VERSION,
                "Members of the consumer protocol must use OffsetCommit version 9 or newer.",
            )
        current = member.current
        if epoch == current.member_epoch:
            return None
        refusal = ErrorCode.STALE_MEMBER_EPOCH
        if is_transactional or member.is_classic:
            refusal = ErrorCode.ILLEGAL_GENERATION
        if epoch > current.member_epoch:
            raise CoordinatorError(refusal)

        def check(topic: str, topic_id: Uuid, partition: int) -> None:
            # Most versions of a commit know topics by their names alone.
            known_id = self._topics.id_of(topic) if topic_id == ZERO_UUID else topic_id
            assigned_in = current.assignment_epoch(known_id, partition)
            if assigned_in is None or epoch < assigned_in:
                raise CoordinatorError(refusal)

        return check

    def validate_committed_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.members.committed_get(member_id or "")
        if member is None:
            raise _unknown_member(member_id or "", self.group_id)
        if epoch != member.current.member_epoch:
            raise CoordinatorError(
                ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
            )

    def validate_offset_delete(self) -> None:
        """Offsets of topics that nobody subscribes to may always be deleted."""

    def validate_delete(self) -> None:
        if not self.is_empty:
            raise CoordinatorError(ErrorCode.NON_EMPTY_GROUP)

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """In an order in which each thing goes before what it belongs to."""
        group_id, member_ids = self.group_id, list(self.members)
        records = [current_tombstone(group_id, member_id) for member_id in member_ids]
        records += [target_tombstone(group_id, member_id) for member_id in self.targets]
        records.append(target_epoch_tombstone(group_id))
        records += [profile_tombstone(group_id, member_id) for member_id in member_ids]
        records += [regex_tombstone(group_id, regex) for regex in self.resolved_regexes]
        if self.has_legacy_metadata.value:
            records.append(legacy_metadata_tombstone(group_id))
        records.append(group_tombstone(group_id))
        return records

    def offset_retention_base_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    # Members.

    def find_member(self, member_id: str) -> ConsumerMember:
        """Raises UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise _unknown_member(member_id, self.group_id)
        return member

    def find_static_member(self, instance_id: str, member_id: str) -> ConsumerMember:
        """Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the instance id."""
        holder_id = self.static_members.get(instance_id)
        if holder_id is None:
            raise CoordinatorError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Instance id {instance_id} is unknown in group {self.group_id}.",
            )
        if holder_id != member_id:
            raise CoordinatorError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Member {member_id} does not have instance id {instance_id}: {holder_id} does.",
            )
        return self.members[holder_id]

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id) or {}

    def reads_any_of(self, topics: set[str]) -> bool:
        if not topics.isdisjoint(self.topic_readers):
            return True
        return any(
            not topics.isdisjoint(resolved.topics) for resolved in self.resolved_regexes.values()
        )

    # For replay.

    def put_member(self, member: ConsumerMember, *, is_loading: bool) -> None:
        """Add a member, or replace it. Raises HolderConflictError, but not while loading."""
        old = self.members.get(member.member_id)
        if old is None or old.profile is not member.profile:
            self._count(old, -1)
            self._count(member, 1)
            if old is not None:
                self._forget_instance(old)
            if member.profile.instance_id is not None:
                self.static_members[member.profile.instance_id] = member.member_id
        old_current = CurrentAssignment() if old is None else old.current
        if old_current is not member.current:
            self._hold(member.member_id, old_current, member.current, is_loading=is_loading)
        self.members[member.member_id] = member

    def remove_member(self, member: ConsumerMember) -> None:
        self._count(member, -1)
        self._forget_instance(member)
        self._hold(member.member_id, member.current, CurrentAssignment(), is_loading=True)
        self.members.pop(member.member_id)

    def _forget_instance(self, member: ConsumerMember) -> None:
        """Another member may have taken the place already."""
        instance_id = member.profile.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            self.static_members.pop(instance_id)

    def _count(self, member: ConsumerMember | None, change: int) -> None:
        if member is None:
            return
        profile = member.profile
        for name in profile.topic_names:
            _add(self.topic_readers, name, change)
        if profile.topic_regex:
            _add(self.regex_readers, profile.topic_regex, change)
        if profile.classic is not None:
            self.classic_count.value += change

    def _hold(
        self, member_id: str, old: CurrentAssignment, new: CurrentAssignment, *, is_loading: bool
    ) -> None:
        """What a log that was compacted says last holds, whoever held the partition before."""
        holders = self.holders
        for key in old.partitions():
            if holders.get(key) == member_id and not new.holds(*key):
                holders.pop(key)
        for key in new.partitions():
            holder = holders.get(key)
            if holder == member_id:
                continue
            if holder is not None and not is_loading:
                raise HolderConflictError(
                    f"partition {key[1]} of topic {key[0].hex()} is held by {holder}, and was to"
                    f" be given to {member_id}, in group {self.group_id}"
                )
            holders[key] = member_id


def _state(members: Iterable[ConsumerMember], epoch: int, assignment_epoch: int) -> str:
    all_members = list(members)
    if not all_members:
        return ConsumerGroupState.EMPTY
    if epoch > assignment_epoch:
        return ConsumerGroupState.ASSIGNING
    if all(member.current.is_stable_at(assignment_epoch) for member in all_members):
        return ConsumerGroupState.STABLE
    return ConsumerGroupState.RECONCILING


def _add(counts: TimelineMap[str, int], key: str, change: int) -> None:
    count = (counts.get(key) or 0) + change
    if count:
        counts[key] = count
    else:
        counts.pop(key)


def _unknown_member(member_id: str, group_id: str) -> CoordinatorError:
    return CoordinatorError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}."
    )
