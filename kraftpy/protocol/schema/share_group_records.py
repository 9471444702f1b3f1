"""What share groups leave behind: groups in `__consumer_offsets`, what was delivered in
`__share_group_state`.

The records of the two topics are numbered independently of each other.
"""

from __future__ import annotations

from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.tables import (
    ALL,
    RecordKey,
    RecordValue,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    string,
    uuid,
)


class ShareGroupMemberMetadataKey(RecordKey, key=10, versions="0", flexible="none"):
    """A member of a share group."""

    group_id: str = string()
    member_id: str = string()


class ShareGroupMemberMetadataValue(RecordValue, key=10, versions="0", flexible="0+"):
    """What a member brings to the group."""

    rack_id: str | None = string(nullable=ALL)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


class ShareGroupMetadataKey(RecordKey, key=11, versions="0", flexible="none"):
    """A share group."""

    group_id: str = string()


class ShareGroupMetadataValue(RecordValue, key=11, versions="0", flexible="0+"):
    """The epoch of a share group, and a hash of the topics that it reads."""

    epoch: int = int32()
    metadata_hash: int = int64()


class ShareGroupTargetAssignmentMetadataKey(RecordKey, key=12, versions="0", flexible="none"):
    """A share group."""

    group_id: str = string()


class ShareGroupTargetAssignmentMetadataValue(RecordValue, key=12, versions="0", flexible="0+"):
    """The group epoch that the target assignment was made for."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, ignorable=True)


class ShareGroupTargetAssignmentMemberKey(RecordKey, key=13, versions="0", flexible="none"):
    """A member of a share group."""

    group_id: str = string()
    member_id: str = string()


class TargetTopicPartition(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)


class ShareGroupTargetAssignmentMemberValue(RecordValue, key=13, versions="0", flexible="0+"):
    """What the member is to have."""

    topic_partitions: list[TargetTopicPartition] = array(TargetTopicPartition)


class ShareGroupCurrentMemberAssignmentKey(RecordKey, key=14, versions="0", flexible="none"):
    """A member of a share group."""

    group_id: str = string()
    member_id: str = string()


class CurrentTopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)


class ShareGroupCurrentMemberAssignmentValue(RecordValue, key=14, versions="0", flexible="0+"):
    """What the member has now."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)


class ShareGroupStatePartitionMetadataKey(RecordKey, key=15, versions="0", flexible="none"):
    """A share group."""

    group_id: str = string()


class TopicPartitionsInfo(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


class TopicInfo(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()


class ShareGroupStatePartitionMetadataValue(RecordValue, key=15, versions="0", flexible="0+"):
    """The partitions whose share state is being made, kept, removed."""

    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)


class ShareSnapshotKey(RecordKey, key=0, versions="0", flexible="none"):
    """A partition that a share group reads."""

    group_id: str = string()
    topic_id: Uuid = uuid()
    partition: int = int32()


class StateBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class ShareSnapshotValue(RecordValue, key=0, versions="0", flexible="0+"):
    """All of its share state."""

    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(tag=0, default=-1)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


class ShareUpdateKey(RecordKey, key=1, versions="0", flexible="none"):
    """A partition that a share group reads."""

    group_id: str = string()
    topic_id: Uuid = uuid()
    partition: int = int32()


class UpdatedStateBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class ShareUpdateValue(RecordValue, key=1, versions="0", flexible="0+"):
    """What has changed since the snapshot."""

    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(tag=0, default=-1)
    state_batches: list[UpdatedStateBatch] = array(UpdatedStateBatch)
