"""What the group coordinator writes about streams groups into `__consumer_offsets`."""

from __future__ import annotations

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
    struct,
    uint16,
)


class StreamsGroupMetadataKey(RecordKey, key=17, versions="0", flexible="none"):
    """A streams group."""

    group_id: str = string()


class LastAssignmentConfig(Struct):
    key: str = string()
    value: str = string()


class StreamsGroupMetadataValue(RecordValue, key=17, versions="0", flexible="0+"):
    """The epochs of a streams group, and what its assignment was made from."""

    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32(tag=0, default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = array(
        LastAssignmentConfig, nullable=ALL, tag=1
    )


class StreamsGroupMemberMetadataKey(RecordKey, key=19, versions="0", flexible="none"):
    """A member of a streams group."""

    group_id: str = string()
    member_id: str = string()


class Endpoint(Struct):
    host: str = string()
    port: int = uint16()


class KeyValue(Struct):
    key: str = string()
    value: str = string()


class StreamsGroupMemberMetadataValue(RecordValue, key=19, versions="0", flexible="0+"):
    """What a member brings to the group."""

    instance_id: str | None = string(nullable=ALL)
    rack_id: str | None = string(nullable=ALL)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct(Endpoint, nullable=ALL, default=None)
    client_tags: list[KeyValue] = array(KeyValue)


class StreamsGroupTargetAssignmentMetadataKey(RecordKey, key=20, versions="0", flexible="none"):
    """A streams group."""

    group_id: str = string()


class StreamsGroupTargetAssignmentMetadataValue(RecordValue, key=20, versions="0", flexible="0+"):
    """The group epoch that the target assignment was made for."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(RecordKey, key=21, versions="0", flexible="none"):
    """A member of a streams group."""

    group_id: str = string()
    member_id: str = string()


class TargetTaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array(int32)


class StreamsGroupTargetAssignmentMemberValue(RecordValue, key=21, versions="0", flexible="0+"):
    """The tasks that the member is to have."""

    active_tasks: list[TargetTaskIds] = array(TargetTaskIds)
    standby_tasks: list[TargetTaskIds] = array(TargetTaskIds)
    warmup_tasks: list[TargetTaskIds] = array(TargetTaskIds)


class StreamsGroupCurrentMemberAssignmentKey(RecordKey, key=22, versions="0", flexible="none"):
    """A member of a streams group."""

    group_id: str = string()
    member_id: str = string()


class CurrentTaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, nullable=ALL, tag=0)


class StreamsGroupCurrentMemberAssignmentValue(RecordValue, key=22, versions="0", flexible="0+"):
    """The tasks that the member has now, and what it is to give up."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: list[CurrentTaskIds] = array(CurrentTaskIds)
    standby_tasks: list[CurrentTaskIds] = array(CurrentTaskIds)
    warmup_tasks: list[CurrentTaskIds] = array(CurrentTaskIds)
    active_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds)
    standby_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds)
    warmup_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds)


class StreamsGroupTopologyKey(RecordKey, key=23, versions="0", flexible="none"):
    """A streams group."""

    group_id: str = string()


class TopicConfig(Struct):
    key: str = string()
    value: str = string()


class TopicInfo(Struct):
    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[TopicConfig] = array(TopicConfig)


class CopartitionGroup(Struct):
    source_topics: list[int] = array(int16)
    source_topic_regex: list[int] = array(int16)
    repartition_source_topics: list[int] = array(int16)


class Subtopology(Struct):
    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    source_topic_regex: list[str] = array(string)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = array(string)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


class StreamsGroupTopologyValue(RecordValue, key=23, versions="0", flexible="0+"):
    """The topology that the members run."""

    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)
