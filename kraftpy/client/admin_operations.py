"""What an admin client can do: create, describe, change and delete.

Each operation is a generator for AdminCore. Those on several items give each item its own outcome,
None or a KafkaError, because the cluster decides item by item too; `require` raises the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeAlias

from kraftpy.client.admin_core import Ask, Operation
from kraftpy.client.calls import TopicPartition
from kraftpy.client.cluster import Broker, TopicInfo, topic_info
from kraftpy.client.errors import KafkaError, failure_of
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kraftpy.protocol.schema.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kraftpy.protocol.schema.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from kraftpy.protocol.schema.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kraftpy.protocol.schema.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kraftpy.protocol.schema.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kraftpy.protocol.schema.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kraftpy.protocol.schema.k55_describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from kraftpy.protocol.schema.k60_describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)

__all__ = [
    "ClusterInfo",
    "ConfigEntry",
    "ConfigKind",
    "NewTopic",
    "Outcomes",
    "alter_configs",
    "create_partitions",
    "create_topics",
    "delete_records",
    "delete_topics",
    "describe_cluster",
    "describe_configs",
    "describe_quorum",
    "describe_topics",
    "list_topics",
    "require",
]

Outcomes: TypeAlias = dict[str, KafkaError | None]

_TIMEOUT_MS = 30_000
_METADATA_TOPIC = "__cluster_metadata"
_SET = 0
_DELETE = 1


class ConfigKind(IntEnum):
    TOPIC = 2
    BROKER = 4
    GROUP = 32


@dataclass(frozen=True, slots=True)
class NewTopic:
    """-1 leaves a number to the cluster. With `assignment` both follow from it."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    cluster_id: str
    controller_id: int
    brokers: list[Broker]


def require(outcomes: Outcomes) -> None:
    """Raise the first failure among the outcomes."""
    for failure in outcomes.values():
        if failure is not None:
            raise failure


def create_topics(
    topics: Iterable[NewTopic], *, validate_only: bool = False
) -> Operation[Outcomes]:
    request = CreateTopicsRequest(
        topics=[_creatable(topic) for topic in topics],
        timeout_ms=_TIMEOUT_MS,
        validate_only=validate_only,
    )
    answer = yield Ask(request, lambda answer: [each.error_code for each in answer.topics])
    return {each.name: failure_of(each.error_code, each.error_message) for each in answer.topics}


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.assignment else topic.partitions,
        replication_factor=-1 if topic.assignment else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in topic.assignment.items()
        ],
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()
        ],
    )


def delete_topics(names: Iterable[str]) -> Operation[Outcomes]:
    names = list(names)
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names],
        topic_names=names,
        timeout_ms=_TIMEOUT_MS,
    )
    answer = yield Ask(request, lambda answer: [each.error_code for each in answer.responses])
    return {
        each.name or "": failure_of(each.error_code, each.error_message)
        for each in answer.responses
    }


def create_partitions(counts: Mapping[str, int]) -> Operation[Outcomes]:
    """Let topics grow to these numbers of partitions."""
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name=name, count=count, assignments=None)
            for name, count in counts.items()
        ],
        timeout_ms=_TIMEOUT_MS,
    )
    answer = yield Ask(request, lambda answer: [each.error_code for each in answer.results])
    return {each.name: failure_of(each.error_code, each.error_message) for each in answer.results}


def list_topics(*, include_internal: bool = False) -> Operation[dict[str, TopicInfo]]:
    answer = yield Ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), _no_codes)
    topics = _topics(answer)
    return {
        name: topic
        for name, topic in sorted(topics.items())
        if include_internal or not topic.is_internal
    }


def describe_topics(names: Iterable[str]) -> Operation[dict[str, TopicInfo]]:
    """Raises KafkaError for the first topic that can't be described."""
    topics = yield from _find_topics(names)
    for name, topic in topics.items():
        if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise KafkaError(topic.error, f"there is no topic {name}")
        if topic.error != ErrorCode.NONE:
            raise KafkaError(topic.error, f"topic {name}: {topic.error.message}")
    return topics


def delete_records(
    before: Mapping[TopicPartition, int],
) -> Operation[dict[TopicPartition, int | KafkaError]]:
    """Delete what lies before these offsets (-1: all); the new starts of the logs."""
    topics = yield from describe_topics({where.topic: None for where in before})
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    outcomes: dict[TopicPartition, int | KafkaError] = {}
    for where, offset in before.items():
        info = topics[where.topic].partitions.get(where.partition)
        if info is None or info.leader_id < 0:
            code = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if info is None
                else ErrorCode.LEADER_NOT_AVAILABLE
            )
            outcomes[where] = KafkaError(code, f"{where}: {code.message}")
        else:
            by_leader.setdefault(info.leader_id, {})[where] = offset
    for leader_id, offsets in by_leader.items():
        of_topics: dict[str, DeleteRecordsTopic] = {}
        for (name, partition), offset in offsets.items():
            topic = of_topics.setdefault(name, DeleteRecordsTopic(name=name))
            topic.partitions.append(
                DeleteRecordsPartition(partition_index=partition, offset=offset)
            )
        request = DeleteRecordsRequest(topics=list(of_topics.values()), timeout_ms=_TIMEOUT_MS)
        answer = yield Ask(request, _no_codes, leader_id)
        for topic in answer.topics:
            for each in topic.partitions:
                where = TopicPartition(topic.name, each.partition_index)
                outcomes[where] = failure_of(each.error_code) or each.low_watermark
    return outcomes


def describe_configs(
    kind: ConfigKind, name: str, keys: Iterable[str] | None = None
) -> Operation[list[ConfigEntry]]:
    """The configuration of one resource; a broker is asked itself."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind,
                resource_name=name,
                configuration_keys=None if keys is None else list(keys),
            )
        ]
    )
    node_id = int(name) if kind is ConfigKind.BROKER and name else None
    answer = yield Ask(
        request, lambda answer: [each.error_code for each in answer.results], node_id
    )
    for result in answer.results:
        failure = failure_of(result.error_code, result.error_message)
        if failure is not None:
            raise failure
    return [
        ConfigEntry(each.name, each.value, each.config_source, each.read_only, each.is_sensitive)
        for result in answer.results
        for each in result.configs
    ]


def alter_configs(
    kind: ConfigKind, name: str, changes: Mapping[str, str | None]
) -> Operation[None]:
    """Set keys, or with None put them back to what they are by default."""
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    AlterableConfig(
                        name=key, config_operation=_DELETE if value is None else _SET, value=value
                    )
                    for key, value in changes.items()
                ],
            )
        ]
    )
    answer = yield Ask(request, lambda answer: [each.error_code for each in answer.responses])
    for each in answer.responses:
        failure = failure_of(each.error_code, each.error_message)
        if failure is not None:
            raise failure


def describe_cluster() -> Operation[ClusterInfo]:
    answer: DescribeClusterResponse = yield Ask(
        DescribeClusterRequest(), lambda answer: [answer.error_code]
    )
    failure = failure_of(answer.error_code, answer.error_message)
    if failure is not None:
        raise failure
    brokers = [Broker(each.broker_id, each.host, each.port, each.rack) for each in answer.brokers]
    return ClusterInfo(
        answer.cluster_id, answer.controller_id, sorted(brokers, key=lambda each: each.node_id)
    )


def describe_quorum() -> Operation[ResponsePartitionData]:
    """The metadata quorum: its leader, its voters and observers, and how far each of them is."""
    request = DescribeQuorumRequest(
        topics=[
            RequestTopicData(
                topic_name=_METADATA_TOPIC, partitions=[RequestPartitionData(partition_index=0)]
            )
        ]
    )
    answer = yield Ask(request, lambda answer: [answer.error_code])
    failure = failure_of(answer.error_code, answer.error_message)
    if failure is not None:
        raise failure
    partition: ResponsePartitionData = answer.topics[0].partitions[0]
    failure = failure_of(partition.error_code, partition.error_message)
    if failure is not None:
        raise failure
    return partition


def _find_topics(names: Iterable[str]) -> Operation[dict[str, TopicInfo]]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )
    answer = yield Ask(request, _no_codes)
    return _topics(answer)


def _topics(answer: MetadataResponse) -> dict[str, TopicInfo]:
    return {
        topic.name: topic_info(topic.name, topic)
        for topic in answer.topics
        if topic.name is not None
    }


def _no_codes(answer: Any) -> Sequence[int]:
    """Its items are judged one by one."""
    return ()
