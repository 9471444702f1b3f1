"""DescribeTopicPartitions (75): topics in pages, for administrators of many (KIP-966).

Topics come in the order of their names, those that are asked for or all of them. A page holds so
many partitions at most, and may end within a topic; its cursor says where the next page begins.
The cursor is a place in the order of names, so that it stays good when its topic is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kraftpy.api.handler import ApiError, Handler, RequestContext
from kraftpy.api.partition_view import INTERNAL_TOPICS, ListenerView, PartitionView
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.metadata.controller.topic_names import wrong_name
from kraftpy.metadata.image import MetadataImage, TopicImage
from kraftpy.metadata.records import PartitionRecord
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["DescribeTopicPartitionsHandler"]


class DescribeTopicPartitionsHandler(Handler):
    api_key = 75

    def __init__(self, cluster: BrokerMetadata, max_partitions: Callable[[], int]) -> None:
        """`max_partitions` is max.request.partition.size.limit, of this moment."""
        self._cluster = cluster
        self._max_partitions = max_partitions

    def handle(
        self, request: DescribeTopicPartitionsRequest, context: RequestContext
    ) -> DescribeTopicPartitionsResponse:
        cursor = request.cursor
        if cursor is not None and cursor.partition_index < 0:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"a cursor at partition {cursor.partition_index}"
            )
        image = self._cluster.image
        view = ListenerView(image, context.channel.listener_name, self._cluster.suspected())
        room = max(1, min(self._max_partitions(), request.response_partition_limit))
        answer = DescribeTopicPartitionsResponse(topics=[])
        access = context.access
        refused = []
        for name in _names(image, request):
            if not access.may(
                AclOperation.DESCRIBE, ResourceType.TOPIC, name, is_probe=not request.topics
            ):
                refused.append(name)
                continue
            if room == 0:
                answer.next_cursor = Cursor(topic_name=name, partition_index=0)
                break
            topic = image.topics.get(name)
            if topic is None:
                answer.topics.append(_missing(name))
                continue
            start = 0
            if cursor is not None and cursor.topic_name == name:
                start = cursor.partition_index
            page = topic.partitions[start : start + room]
            described = _describe(view, topic, page)
            described.topic_authorized_operations = access.operations(ResourceType.TOPIC, name)
            answer.topics.append(described)
            room -= len(page)
            if start + len(page) < len(topic.partitions):
                next_index = start + len(page)
                answer.next_cursor = Cursor(topic_name=name, partition_index=next_index)
                break
        if request.topics:
            # They take no room, since nothing is said of them; not even whether they exist.
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            answer.topics += [
                DescribeTopicPartitionsResponseTopic(error_code=code, name=name) for name in refused
            ]
        return answer

    def error_answer(
        self,
        request: DescribeTopicPartitionsRequest,
        context: RequestContext,
        code: ErrorCode,
        message: str,
    ) -> DescribeTopicPartitionsResponse:
        """The answer has no place for an error but the topics that were asked for."""
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name)
                for topic in request.topics
            ]
        )

    def error_codes(self, response: DescribeTopicPartitionsResponse) -> Iterator[int]:
        for topic in response.topics:
            yield topic.error_code


def _names(image: MetadataImage, request: DescribeTopicPartitionsRequest) -> Iterator[str]:
    """The topics to describe from the cursor on, each once, in order."""
    first = "" if request.cursor is None else request.cursor.topic_name
    asked: Iterable[str] = image.topics
    if request.topics:
        asked = sorted(dict.fromkeys(topic.name for topic in request.topics))
    return (name for name in asked if name >= first)


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    is_possible = wrong_name(name) is None
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_possible
        else ErrorCode.INVALID_TOPIC_EXCEPTION,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
    )


def _describe(
    view: ListenerView, topic: TopicImage, partitions: Iterable[PartitionRecord]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_describe_partition(view.of(each), each) for each in partitions],
    )


def _describe_partition(
    view: PartitionView, partition: PartitionRecord
) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=view.error_code,
        partition_index=partition.partition_id,
        leader_id=view.leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=view.offline_replicas,
    )
