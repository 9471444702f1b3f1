"""DescribeProducers (61): who has lately written to a partition, as its log knows them."""

from __future__ import annotations

from collections.abc import Iterator

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.broker.hosted_replicas import HostedReplicas, log_of
from kraftpy.log.partition_log import PartitionLog
from kraftpy.metadata.controller.topic_names import wrong_name
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["DescribeProducersHandler"]


class DescribeProducersHandler(Handler):
    api_key = 61

    def __init__(self, replicas: HostedReplicas) -> None:
        self._replicas = replicas

    def handle(
        self, request: DescribeProducersRequest, context: RequestContext
    ) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    name=topic.name,
                    partitions=self._describe_all(topic, context),
                )
                for topic in request.topics
            ]
        )

    def _describe_all(
        self, topic: TopicRequest, context: RequestContext
    ) -> list[PartitionResponse]:
        if not context.access.may(AclOperation.READ, ResourceType.TOPIC, topic.name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return [_failed(index, code, code.message) for index in topic.partition_indexes]
        return [self._describe(topic.name, index) for index in topic.partition_indexes]

    def _describe(self, topic: str, index: int) -> PartitionResponse:
        partition = self._replicas.lookup((topic, index))
        if wrong_name(topic) is not None:
            partition = ErrorCode.INVALID_TOPIC_EXCEPTION
        if isinstance(partition, ErrorCode):
            return _failed(index, partition, partition.message)
        return PartitionResponse(
            partition_index=index, active_producers=_producers(log_of(partition))
        )

    def error_answer(
        self,
        request: DescribeProducersRequest,
        context: RequestContext,
        code: ErrorCode,
        message: str,
    ) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    name=topic.name,
                    partitions=[_failed(index, code, message) for index in topic.partition_indexes],
                )
                for topic in request.topics
            ]
        )

    def error_codes(self, response: DescribeProducersResponse) -> Iterator[int]:
        for topic in response.topics:
            for answer in topic.partitions:
                yield answer.error_code


def _failed(index: int, code: ErrorCode, message: str) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=code, error_message=message)


def _producers(log: PartitionLog) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp_ms,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.transaction_first_offset,
        )
        for entry in log.producers.producers.values()
    ]
