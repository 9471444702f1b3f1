"""A consumer group as an operation is about to make it, and the records that make it so.

Operations change nothing; replay does, when they have returned. But their later steps build on the
earlier ones: the target depends on the member that has just joined. A draft answers questions as if
the records so far had been replayed, and each change that is made to it is a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from kraftpy.coordinator.assignors.assignor import Partitions
from kraftpy.coordinator.groups.consumer_group import ConsumerGroup
from kraftpy.coordinator.groups.consumer_member import (
    JOIN_EPOCH,
    ConsumerMember,
    CurrentAssignment,
    MemberProfile,
)
from kraftpy.coordinator.groups.consumer_records import (
    ResolvedRegex,
    current_record,
    current_tombstone,
    epoch_record,
    legacy_metadata_tombstone,
    profile_record,
    profile_tombstone,
    regex_record,
    regex_tombstone,
    target_epoch_record,
    target_record,
    target_tombstone,
)
from kraftpy.coordinator.outcome import CoordinatorError, CoordinatorRecord
from kraftpy.protocol.ids import Uuid

__all__ = ["Conversion", "GroupDraft"]


class Conversion(Protocol):
    """The soft state of a group that changes its kind: what waits for it, and its timers."""

    def begun(self) -> None:
        """The records are on their way."""
        ...

    def undone(self, error: CoordinatorError) -> None:
        """They are lost, and the group is what it was."""
        ...


class GroupDraft:
    __slots__ = (
        "_holders",
        "_members",
        "_regexes",
        "_targets",
        "assignment_epoch",
        "conversion",
        "epoch",
        "group",
        "is_refreshed",
        "metadata_hash",
        "records",
    )

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: list[CoordinatorRecord] = []
        self.epoch = group.epoch.value
        self.metadata_hash = group.metadata_hash.value
        self.assignment_epoch = group.assignment_epoch.value
        # What differs from the group; None for what is gone.
        self._members: dict[str, ConsumerMember | None] = {}
        self._targets: dict[str, Partitions] = {}
        self._regexes: dict[str, ResolvedRegex | None] = {}
        self._holders: dict[tuple[Uuid, int], str | None] = {}
        # Whether the topics were looked at, because they might have changed.
        self.is_refreshed = False
        # If the group changes its kind by this.
        self.conversion: Conversion | None = None

    # Questions.

    def member(self, member_id: str) -> ConsumerMember | None:
        if member_id in self._members:
            return self._members[member_id]
        return self.group.members.get(member_id)

    def members(self) -> list[ConsumerMember]:
        drafted = self._members
        if not drafted:
            return list(self.group.members.values())
        kept = [member for member in self.group.members.values() if member.member_id not in drafted]
        return kept + [member for member in drafted.values() if member is not None]

    def member_count(self) -> int:
        members = self.group.members
        return len(members) + sum(
            (member is not None) - (member_id in members)
            for member_id, member in self._members.items()
        )

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        for member in self._members.values():
            if member is not None and member.profile.instance_id == instance_id:
                return member
        member_id = self.group.static_members.get(instance_id)
        return None if member_id is None else self.member(member_id)

    def target(self, member_id: str) -> Partitions:
        if member_id in self._targets:
            return self._targets[member_id]
        return self.group.target(member_id)

    def is_free(self, topic_id: Uuid, partition: int, member_id: str) -> bool:
        """Whether nobody holds the partition, or only that member."""
        key = topic_id, partition
        holder_id = self._holders[key] if key in self._holders else self.group.holders.get(key)
        return holder_id is None or holder_id == member_id

    def resolved(self, regex: str) -> ResolvedRegex | None:
        if regex in self._regexes:
            return self._regexes[regex]
        return self.group.resolved_regexes.get(regex)

    def regexes(self) -> list[str]:
        """Those that members subscribe to, in alphabetical order."""
        known = dict.fromkeys(self.group.regex_readers)
        for member in self._members.values():
            if member is not None and member.profile.topic_regex:
                known[member.profile.topic_regex] = None
        return sorted(regex for regex in known if self.has_readers(regex))

    def has_readers(self, regex: str) -> bool:
        count = self.group.regex_readers.get(regex) or 0
        for member_id, member in self._members.items():
            before = self.group.members.get(member_id)
            count -= before is not None and before.profile.topic_regex == regex
            count += member is not None and member.profile.topic_regex == regex
        return count > 0

    def subscription(self, profile: MemberProfile) -> tuple[str, ...]:
        """Names of topics; those of a pattern that is not resolved yet are none."""
        if not profile.topic_regex:
            return profile.topic_names
        resolved = self.resolved(profile.topic_regex)
        if resolved is None or not resolved.topics:
            return profile.topic_names
        return tuple(sorted({*profile.topic_names, *resolved.topics}))

    def topic_names(self) -> set[str]:
        """Of all members together."""
        names: set[str] = set()
        for subscribed in {self.subscription(member.profile): None for member in self.members()}:
            names.update(subscribed)
        return names

    def changed_members(
        self,
    ) -> list[tuple[str, ConsumerMember | None, ConsumerMember | None]]:
        """Ids of members, and each of them before and after."""
        return [
            (member_id, self.group.members.get(member_id), member)
            for member_id, member in self._members.items()
        ]

    # Changes.

    def set_profile(self, member_id: str, profile: MemberProfile) -> None:
        """Add a member, which is in no epoch yet, or change what it brings."""
        member = self.member(member_id) or ConsumerMember(
            member_id, current=CurrentAssignment(JOIN_EPOCH, JOIN_EPOCH)
        )
        self._members[member_id] = replace(member, profile=profile)
        self.records.append(profile_record(self.group.group_id, member_id, profile))

    def set_current(self, member_id: str, current: CurrentAssignment) -> None:
        member = self.member(member_id) or ConsumerMember(member_id)
        self._members[member_id] = replace(member, current=current)
        self._holders.update(dict.fromkeys(member.current.partitions()))
        self._holders.update(dict.fromkeys(current.partitions(), member_id))
        self.records.append(current_record(self.group.group_id, member_id, current))

    def set_target(self, member_id: str, target: Partitions) -> None:
        self._targets[member_id] = target
        self.records.append(target_record(self.group.group_id, member_id, target))

    def set_targets(self, targets: Mapping[str, Partitions], timestamp_ms: int) -> None:
        """A new target for the group's epoch, of which only the differences are written."""
        for member_id, target in targets.items():
            if target != self.target(member_id) or not self._has_target(member_id):
                self.set_target(member_id, target)
        self.assignment_epoch = self.epoch
        self.records.append(target_epoch_record(self.group.group_id, self.epoch, timestamp_ms))

    def _has_target(self, member_id: str) -> bool:
        return member_id in self._targets or member_id in self.group.targets

    def remove_member(self, member_id: str) -> None:
        group_id = self.group.group_id
        member = self.member(member_id)
        if member is not None:
            self._holders.update(dict.fromkeys(member.current.partitions()))
        self._members[member_id] = None
        self._targets[member_id] = {}
        self.records += (
            current_tombstone(group_id, member_id),
            target_tombstone(group_id, member_id),
            profile_tombstone(group_id, member_id),
        )

    def set_regex(self, regex: str, resolved: ResolvedRegex) -> None:
        self._regexes[regex] = resolved
        self.records.append(regex_record(self.group.group_id, regex, resolved))

    def drop_orphaned(self, regex: str) -> None:
        """Forget what a pattern was resolved to if nobody subscribes to it any more."""
        if regex and self.resolved(regex) is not None and not self.has_readers(regex):
            self._regexes[regex] = None
            self.records.append(regex_tombstone(self.group.group_id, regex))

    def bump(self, metadata_hash: int) -> None:
        self.set_epoch(self.epoch + 1, metadata_hash)

    def set_epoch(self, epoch: int, metadata_hash: int) -> None:
        group_id = self.group.group_id
        self.epoch = epoch
        self.metadata_hash = metadata_hash
        self.records.append(epoch_record(group_id, self.epoch, metadata_hash))
        if self.group.has_legacy_metadata.value:
            self.records.append(legacy_metadata_tombstone(group_id))
