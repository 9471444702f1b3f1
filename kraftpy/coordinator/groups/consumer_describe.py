"""ConsumerGroupDescribe: what is committed of consumer groups, for administrators."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraftpy.coordinator.assignors.assignor import Partitions
from kraftpy.coordinator.groups.consumer_core import ConsumerCore
from kraftpy.coordinator.groups.consumer_group import ConsumerGroup
from kraftpy.coordinator.groups.consumer_member import ConsumerMember, partitions_of
from kraftpy.coordinator.groups.directory import no_such_group
from kraftpy.metadata.image import MetadataImage
from kraftpy.protocol.schema.k69_consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

__all__ = ["describe_groups"]

_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


def describe_groups(core: ConsumerCore, group_ids: Iterable[str]) -> list[DescribedGroup]:
    """Raises UNSUPPORTED_VERSION; a group that is not there is described by an error."""
    core.check_is_offered()
    return [_describe(core, group_id) for group_id in group_ids]


def _describe(core: ConsumerCore, group_id: str) -> DescribedGroup:
    group = core.directory.committed_get(group_id)
    if not isinstance(group, ConsumerGroup):
        error = no_such_group(group_id)
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    members = [member for _, member in group.members.committed_items()]
    image = core.topics.image
    return DescribedGroup(
        group_id=group_id,
        group_state=group.committed_state_name,
        group_epoch=group.epoch.committed,
        assignment_epoch=group.assignment_epoch.committed,
        assignor_name=core.assignors.chosen(members),
        members=[_described_member(group, member, image) for member in members],
    )


def _described_member(group: ConsumerGroup, member: ConsumerMember, image: MetadataImage) -> Member:
    profile, current = member.profile, member.current
    target = group.targets.committed_get(member.member_id) or {}
    return Member(
        member_id=member.member_id,
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        member_epoch=current.member_epoch,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=list(profile.topic_names),
        subscribed_topic_regex=profile.topic_regex or None,
        assignment=Assignment(
            topic_partitions=_named(partitions_of(current.assigned), image),
        ),
        target_assignment=Assignment(topic_partitions=_named(target, image)),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _named(partitions: Partitions, image: MetadataImage) -> list[TopicPartitions]:
    """By the topics' names; those that were deleted have none, and are left out."""
    named = []
    for topic_id, numbers in partitions.items():
        name = image.topic_names.get(topic_id)
        if name is not None:
            named.append(
                TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(numbers))
            )
    return sorted(named, key=lambda topic: topic.topic_name)
