"""What the group coordinator writes into `__consumer_offsets`: offsets and groups of consumers.

A record of a coordinator is a key of one type and, unless it is a tombstone, the value of the same
type. On the wire the type stands before the key and the version before the value, each as an int16.

A tagged field that may be null need not be null when it is left out: the default of
`classic_member_metadata` and of `assignment_epochs` is an empty struct and an empty list, and null
is written. Kafka's own records are like this.
"""

from __future__ import annotations

from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.tables import (
    ALL,
    RecordKey,
    RecordValue,
    Struct,
    array,
    binary,
    int8,
    int32,
    int64,
    string,
    struct,
    uuid,
)


class LegacyOffsetCommitKey(RecordKey, key=0, versions="0", flexible="none"):
    """An older form, which is still read."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class LegacyOffsetCommitValue(RecordValue, key=0, versions="0", flexible="none"):
    """The offset alone."""

    offset: int = int64()
    metadata: str = string()
    commit_timestamp: int = int64()


class OffsetCommitKey(RecordKey, key=1, versions="0", flexible="none"):
    """Whose offset, and of which partition."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(RecordValue, key=1, versions="0-4", flexible="4+"):
    """A committed offset."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: Uuid = uuid("4+", tag=0, ignorable=True)


class GroupMetadataKey(RecordKey, key=2, versions="0", flexible="none"):
    """A classic group."""

    group: str = string()


class MemberMetadata(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = binary()
    assignment: bytes = binary()


class GroupMetadataValue(RecordValue, key=2, versions="0-4", flexible="4+"):
    """A classic group after a rebalance: generation, protocol, members."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable=ALL)
    leader: str | None = string(nullable=ALL)
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)


class ConsumerGroupMetadataKey(RecordKey, key=3, versions="0", flexible="none"):
    """A consumer group."""

    group_id: str = string()


class ConsumerGroupMetadataValue(RecordValue, key=3, versions="0", flexible="0+"):
    """The epoch of a consumer group, and a hash of the topics that it reads."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


class ConsumerGroupPartitionMetadataKey(RecordKey, key=4, versions="0", flexible="none"):
    """A consumer group."""

    group_id: str = string()


class PartitionMetadata(Struct):
    partition: int = int32()
    racks: list[str] = array(string)


class TopicMetadata(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


class ConsumerGroupPartitionMetadataValue(RecordValue, key=4, versions="0", flexible="0+"):
    """The topics that a group reads, as it was written before Kafka 4.1."""

    topics: list[TopicMetadata] = array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(RecordKey, key=5, versions="0", flexible="none"):
    """A member of a consumer group."""

    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Struct):
    name: str = string()
    metadata: bytes = binary()


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(RecordValue, key=5, versions="0", flexible="0+"):
    """What a member brings to the group."""

    instance_id: str | None = string(nullable=ALL)
    rack_id: str | None = string(nullable=ALL)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable=ALL)
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable=ALL)
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, nullable=ALL, tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(RecordKey, key=6, versions="0", flexible="none"):
    """A consumer group."""

    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(RecordValue, key=6, versions="0", flexible="0+"):
    """The group epoch that the target assignment was made for."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(RecordKey, key=7, versions="0", flexible="none"):
    """A member of a consumer group."""

    group_id: str = string()
    member_id: str = string()


class TargetTopicPartition(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupTargetAssignmentMemberValue(RecordValue, key=7, versions="0", flexible="0+"):
    """What the member is to have."""

    topic_partitions: list[TargetTopicPartition] = array(TargetTopicPartition)


class ConsumerGroupCurrentMemberAssignmentKey(RecordKey, key=8, versions="0", flexible="none"):
    """A member of a consumer group."""

    group_id: str = string()
    member_id: str = string()


class CurrentTopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, nullable=ALL, tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(RecordValue, key=8, versions="0", flexible="0+"):
    """What the member has now, and what it is to give up."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)
    partitions_pending_revocation: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)


class ConsumerGroupRegularExpressionKey(RecordKey, key=16, versions="0", flexible="none"):
    """An expression that members of a group subscribe to."""

    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(RecordValue, key=16, versions="0", flexible="0+"):
    """The topics that the expression was resolved to."""

    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()
