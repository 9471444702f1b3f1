"""What an admin client can do to the cluster itself: leaders, replicas, brokers and features.

Operations for AdminCore, as in admin_operations.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kraftpy.client.admin_core import Ask, Operation
from kraftpy.client.calls import TopicPartition
from kraftpy.client.errors import KafkaError, failure_of
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k43_elect_leaders import ElectLeadersRequest
from kraftpy.protocol.schema.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kraftpy.protocol.schema.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from kraftpy.protocol.schema.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kraftpy.protocol.schema.k64_unregister_broker import UnregisterBrokerRequest

__all__ = [
    "alter_reassignments",
    "elect_preferred_leaders",
    "list_reassignments",
    "unregister_broker",
    "update_features",
]

_TIMEOUT_MS = 30_000
_PREFERRED = 0
_UPGRADE = 1


def elect_preferred_leaders() -> Operation[list[TopicPartition]]:
    """Let every partition be led by its first replica; those that are now and were not before."""
    request = ElectLeadersRequest(
        election_type=_PREFERRED, topic_partitions=None, timeout_ms=_TIMEOUT_MS
    )
    answer = yield Ask(request, lambda answer: [answer.error_code])
    _raise(answer.error_code, None)
    return [
        TopicPartition(topic.topic, each.partition_id)
        for topic in answer.replica_election_results
        for each in topic.partition_result
        if each.error_code == ErrorCode.NONE
    ]


def alter_reassignments(
    targets: Mapping[TopicPartition, Sequence[int] | None],
) -> Operation[dict[TopicPartition, KafkaError | None]]:
    """Begin to move partitions to these replicas, or with None put an end to their move."""
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=_TIMEOUT_MS,
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(
                        partition_index=where.partition,
                        replicas=None if replicas is None else list(replicas),
                    )
                    for where, replicas in targets.items()
                    if where.topic == name
                ],
            )
            for name in dict.fromkeys(where.topic for where in targets)
        ],
    )
    answer = yield Ask(request, lambda answer: [answer.error_code])
    _raise(answer.error_code, answer.error_message)
    return {
        TopicPartition(topic.name, each.partition_index): failure_of(
            each.error_code, each.error_message
        )
        for topic in answer.responses
        for each in topic.partitions
    }


def list_reassignments() -> Operation[list[TopicPartition]]:
    """The partitions that are on their way."""
    answer = yield Ask(
        ListPartitionReassignmentsRequest(timeout_ms=_TIMEOUT_MS),
        lambda answer: [answer.error_code],
    )
    _raise(answer.error_code, answer.error_message)
    return [
        TopicPartition(topic.name, each.partition_index)
        for topic in answer.topics
        for each in topic.partitions
    ]


def unregister_broker(broker_id: int) -> Operation[None]:
    """Let the cluster forget a broker that does not run."""
    answer = yield Ask(
        UnregisterBrokerRequest(broker_id=broker_id), lambda answer: [answer.error_code]
    )
    _raise(answer.error_code, answer.error_message)


def update_features(levels: Iterable[tuple[str, int]]) -> Operation[None]:
    """Raise features to these levels."""
    request = UpdateFeaturesRequest(
        timeout_ms=_TIMEOUT_MS,
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=_UPGRADE)
            for name, level in levels
        ],
    )
    answer = yield Ask(request, lambda answer: [answer.error_code])
    _raise(answer.error_code, answer.error_message)
    for each in answer.results:
        _raise(each.error_code, each.error_message)


def _raise(code: int, message: str | None) -> None:
    failure = failure_of(code, message)
    if failure is not None:
        raise failure
