"""The records of consumer groups: from members, targets and patterns to messages, and back.

Partitions are written in the order of topic ids and numbers, so that equal state is equal bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kraftpy.coordinator.assignors.assignor import Partitions
from kraftpy.coordinator.groups.consumer_member import (
    ClassicProfile,
    CurrentAssignment,
    Held,
    MemberProfile,
    MemberState,
)
from kraftpy.coordinator.outcome import CoordinatorRecord
from kraftpy.protocol.schema.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
    TargetTopicPartition,
)

__all__ = [
    "ResolvedRegex",
    "current_record",
    "current_tombstone",
    "epoch_record",
    "group_tombstone",
    "legacy_metadata_tombstone",
    "profile_record",
    "profile_tombstone",
    "read_current",
    "read_profile",
    "read_regex",
    "read_target",
    "regex_record",
    "regex_tombstone",
    "target_epoch_record",
    "target_epoch_tombstone",
    "target_record",
    "target_tombstone",
]


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a pattern matched, as of some metadata and some time."""

    # In alphabetical order.
    topics: tuple[str, ...]
    metadata_version: int
    timestamp_ms: int


# Type 3: the group.


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), value)


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id))


# Type 4: what was written before Kafka 4.1.


def legacy_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id))


# Type 5: what a member brings.


def profile_record(group_id: str, member_id: str, profile: MemberProfile) -> CoordinatorRecord:
    classic = profile.classic
    value = ConsumerGroupMemberMetadataValue(
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=list(profile.topic_names),
        subscribed_topic_regex=profile.topic_regex or None,
        rebalance_timeout_ms=profile.rebalance_timeout_ms,
        server_assignor=profile.server_assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in classic.protocols
            ],
        ),
    )
    return CoordinatorRecord(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), value
    )


def read_profile(value: ConsumerGroupMemberMetadataValue) -> MemberProfile:
    classic = value.classic_member_metadata
    # A record without the field reads as one with an empty struct; no classic member is empty.
    if classic is not None and not classic.supported_protocols:
        classic = None
    return MemberProfile(
        client_id=value.client_id,
        client_host=value.client_host,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topic_names=tuple(sorted(set(value.subscribed_topic_names))),
        topic_regex=value.subscribed_topic_regex or "",
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicProfile(
            classic.session_timeout_ms,
            tuple(
                (protocol.name, bytes(protocol.metadata))
                for protocol in classic.supported_protocols
            ),
        ),
    )


def profile_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id))


# Types 6 and 7: the target.


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp_ms
    )
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_epoch_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id))


def target_record(group_id: str, member_id: str, target: Partitions) -> CoordinatorRecord:
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TargetTopicPartition(topic_id=topic_id, partitions=sorted(target[topic_id]))
            for topic_id in sorted(target)
        ]
    )
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value
    )


def read_target(value: ConsumerGroupTargetAssignmentMemberValue) -> Partitions:
    return {
        topic.topic_id: frozenset(topic.partitions)
        for topic in value.topic_partitions
        if topic.partitions
    }


def target_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    )


# Type 8: what a member has.


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> CoordinatorRecord:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state,
        assigned_partitions=_written(current.assigned),
        partitions_pending_revocation=_written(current.pending_revocation),
    )
    return CoordinatorRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), value
    )


def read_current(value: ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    try:
        state = MemberState(value.state)
    except ValueError:
        state = MemberState.UNKNOWN
    return CurrentAssignment(
        member_epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=state,
        assigned=_read(value.assigned_partitions, value.member_epoch),
        pending_revocation=_read(value.partitions_pending_revocation, value.member_epoch),
    )


def current_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    )


def _written(held: Held) -> list[CurrentTopicPartitions]:
    topics = []
    for topic_id in sorted(held):
        epochs = held[topic_id]
        partitions = sorted(epochs)
        topics.append(
            CurrentTopicPartitions(
                topic_id=topic_id,
                partitions=partitions,
                assignment_epochs=[epochs[partition] for partition in partitions],
            )
        )
    return topics


def _read(topics: Sequence[CurrentTopicPartitions], member_epoch: int) -> Held:
    """Before Kafka 4.3 there were no epochs of partitions; the member's is the best guess."""
    held = {}
    for topic in topics:
        partitions, epochs = topic.partitions, topic.assignment_epochs
        if not partitions:
            continue
        if epochs is None or len(epochs) != len(partitions):
            held[topic.topic_id] = dict.fromkeys(partitions, member_epoch)
        else:
            held[topic.topic_id] = dict(zip(partitions, epochs, strict=True))
    return held


# Type 16: the topics of a pattern.


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    value = ConsumerGroupRegularExpressionValue(
        topics=list(resolved.topics),
        version=resolved.metadata_version,
        timestamp=resolved.timestamp_ms,
    )
    return CoordinatorRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value
    )


def read_regex(value: ConsumerGroupRegularExpressionValue) -> ResolvedRegex:
    return ResolvedRegex(tuple(sorted(set(value.topics))), value.version, value.timestamp)


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    )
