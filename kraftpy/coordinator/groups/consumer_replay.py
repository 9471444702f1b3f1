"""Records of consumer groups, taken over into the groups of a shard.

Compaction may have removed any record that a later one replaces. So a record of something unknown
makes it, a tombstone of something unknown means nothing, and when a log is loaded the order in
which things vanish is not looked at. Of records that were just made it is: there, a member that
goes while it holds something, or a group that goes while it has members, is a mistake of ours, and
the shard refuses the write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from kraftpy.coordinator.groups.consumer_group import NO_ASSIGNMENT, ConsumerGroup
from kraftpy.coordinator.groups.consumer_member import (
    NO_EPOCH,
    ConsumerMember,
    CurrentAssignment,
)
from kraftpy.coordinator.groups.consumer_records import (
    read_current,
    read_profile,
    read_regex,
    read_target,
)
from kraftpy.coordinator.groups.consumer_topics import ConsumerTopics
from kraftpy.coordinator.groups.directory import GroupDirectory
from kraftpy.coordinator.groups.group import GroupType
from kraftpy.coordinator.outcome import CoordinatorRecord
from kraftpy.coordinator.timeline import Timeline
from kraftpy.protocol.schema.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

__all__ = ["ConsumerReplay", "ReplayError"]


class ReplayError(Exception):
    """A record contradicts the state that it is to be replayed into."""


class ConsumerReplay:
    __slots__ = ("_by_key", "_directory", "_timeline", "_topics", "is_loading")

    def __init__(
        self, directory: GroupDirectory, timeline: Timeline, topics: ConsumerTopics
    ) -> None:
        self._directory = directory
        self._timeline = timeline
        self._topics = topics
        self.is_loading = True
        self._by_key: Final[dict[type, Callable[[Any, Any], None]]] = {
            ConsumerGroupMetadataKey: self._replay_group,
            ConsumerGroupPartitionMetadataKey: self._replay_legacy_metadata,
            ConsumerGroupMemberMetadataKey: self._replay_profile,
            ConsumerGroupTargetAssignmentMetadataKey: self._replay_target_epoch,
            ConsumerGroupTargetAssignmentMemberKey: self._replay_target,
            ConsumerGroupCurrentMemberAssignmentKey: self._replay_current,
            ConsumerGroupRegularExpressionKey: self._replay_regex,
        }

    def replay(self, record: CoordinatorRecord) -> None:
        self._by_key[type(record.key)](record.key, record.value)

    def _replay_group(
        self, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None
    ) -> None:
        if value is not None:
            group = self._made(key.group_id)
            group.epoch.value = value.epoch
            group.metadata_hash.value = value.metadata_hash
            return
        known = self._known(key.group_id)
        if known is None:
            return
        if not known.is_empty and not self.is_loading:
            raise ReplayError(f"group {key.group_id} was to go with {len(known.members)} members")
        self._directory.remove(key.group_id)

    def _replay_legacy_metadata(
        self,
        key: ConsumerGroupPartitionMetadataKey,
        value: ConsumerGroupPartitionMetadataValue | None,
    ) -> None:
        if value is not None:
            self._made(key.group_id).has_legacy_metadata.value = True
        elif (group := self._known(key.group_id)) is not None:
            group.has_legacy_metadata.value = False

    def _replay_profile(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        if value is not None:
            group = self._made(key.group_id)
            member = group.members.get(key.member_id) or ConsumerMember(key.member_id)
            self._put(group, replace(member, profile=read_profile(value)))
            return
        known, old = self._member(key.group_id, key.member_id)
        if known is None or old is None:
            return
        if not self.is_loading and (
            old.current.member_epoch != NO_EPOCH or key.member_id in known.targets
        ):
            raise ReplayError(f"member {key.member_id} of group {key.group_id} was to go too soon")
        known.remove_member(old)

    def _replay_target_epoch(
        self,
        key: ConsumerGroupTargetAssignmentMetadataKey,
        value: ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        if value is not None:
            group = self._made(key.group_id)
            group.assignment_epoch.value = value.assignment_epoch
            group.assignment_timestamp_ms.value = value.assignment_timestamp
        elif (known := self._known(key.group_id)) is not None:
            known.assignment_epoch.value = NO_ASSIGNMENT
            known.assignment_timestamp_ms.value = 0

    def _replay_target(
        self,
        key: ConsumerGroupTargetAssignmentMemberKey,
        value: ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> None:
        if value is not None:
            self._made(key.group_id).targets[key.member_id] = read_target(value)
        elif (group := self._known(key.group_id)) is not None:
            group.targets.pop(key.member_id)

    def _replay_current(
        self,
        key: ConsumerGroupCurrentMemberAssignmentKey,
        value: ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        if value is not None:
            group = self._made(key.group_id)
            member = group.members.get(key.member_id) or ConsumerMember(key.member_id)
            self._put(group, replace(member, current=read_current(value)))
            return
        known, old = self._member(key.group_id, key.member_id)
        if known is not None and old is not None:
            self._put(known, replace(old, current=CurrentAssignment()))

    def _replay_regex(
        self,
        key: ConsumerGroupRegularExpressionKey,
        value: ConsumerGroupRegularExpressionValue | None,
    ) -> None:
        if value is not None:
            resolved = self._made(key.group_id).resolved_regexes
            resolved[key.regular_expression] = read_regex(value)
        elif (group := self._known(key.group_id)) is not None:
            group.resolved_regexes.pop(key.regular_expression)

    # Where it goes.

    def _made(self, group_id: str) -> ConsumerGroup:
        """The consumer group of that id, made if need be."""
        group = self._directory.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        # An empty group of another kind may be there for its offsets alone, without a record.
        if group is not None and not group.is_empty:
            raise ReplayError(f"group {group_id} is {group.group_type}, not {GroupType.CONSUMER}")
        made = ConsumerGroup(group_id, self._timeline, self._topics, needs_refresh=self.is_loading)
        self._directory.put(made)
        return made

    def _known(self, group_id: str) -> ConsumerGroup | None:
        group = self._directory.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def _member(
        self, group_id: str, member_id: str
    ) -> tuple[ConsumerGroup | None, ConsumerMember | None]:
        group = self._known(group_id)
        return group, None if group is None else group.members.get(member_id)

    def _put(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        group.put_member(member, is_loading=self.is_loading)
