"""DeleteRecords (21): raise the log start of partitions, on all of their replicas.

The leader does it at once; followers learn of it by their next fetch, and say so by the one after
that. The answer waits for them (delayed_delete_records.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.api.partition_view import INTERNAL_TOPICS
from kraftpy.broker.delayed_delete_records import DelayedDeleteRecords, PendingDeletion
from kraftpy.broker.hosted_replicas import HostedReplicas
from kraftpy.broker.partition import ReplicaError
from kraftpy.log.errors import LogError
from kraftpy.log.offsets import UNKNOWN
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["DeleteRecordsHandler"]

# Everything that is committed.
_UP_TO_HIGH_WATERMARK: Final = -1


class DeleteRecordsHandler(Handler):
    api_key = 21

    def __init__(self, replicas: HostedReplicas) -> None:
        self._replicas = replicas

    def handle(
        self, request: DeleteRecordsRequest, context: RequestContext
    ) -> DeleteRecordsResponse | None:
        response = DeleteRecordsResponse()
        pending = []
        for topic in request.topics:
            results = []
            may_delete = context.access.may(AclOperation.DELETE, ResourceType.TOPIC, topic.name)
            for wanted in topic.partitions:
                result = DeleteRecordsPartitionResult(
                    partition_index=wanted.partition_index, low_watermark=UNKNOWN
                )
                results.append(result)
                if not may_delete:
                    result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    continue
                try:
                    deletion = self._delete(topic.name, wanted, result)
                except (ReplicaError, LogError) as error:
                    result.error_code = error.error_code
                    continue
                if not deletion.is_decided(self._replicas):
                    pending.append(deletion)
            response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
        if not pending:
            return response
        operation = DelayedDeleteRecords(
            request.timeout_ms, pending, self._replicas, respond=lambda: context.respond(response)
        )
        keys = list(dict.fromkeys(each.partition.topic_partition for each in pending))
        self._replicas.delete_records_purgatory.try_complete_else_watch(operation, keys)
        return None

    def _delete(
        self, topic: str, wanted: DeleteRecordsPartition, result: DeleteRecordsPartitionResult
    ) -> PendingDeletion:
        if topic in INTERNAL_TOPICS:
            raise ReplicaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
        partition = self._replicas.lookup((topic, wanted.partition_index))
        if isinstance(partition, ErrorCode):
            raise ReplicaError(partition, partition.message)
        partition.check_leader()
        if not partition.log.config.is_deleted:
            raise ReplicaError(
                ErrorCode.POLICY_VIOLATION, f"the cleanup.policy of {topic} does not delete"
            )
        offset = wanted.offset
        if offset == _UP_TO_HIGH_WATERMARK:
            offset = partition.log.high_watermark
        if offset < 0:
            raise ReplicaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}")
        partition.raise_log_start(offset)
        return PendingDeletion(partition, offset, result)

    def error_answer(
        self, request: DeleteRecordsRequest, context: RequestContext, code: ErrorCode, message: str
    ) -> DeleteRecordsResponse:
        return DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=[
                        DeleteRecordsPartitionResult(
                            partition_index=wanted.partition_index,
                            low_watermark=UNKNOWN,
                            error_code=code,
                        )
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def error_codes(self, response: DeleteRecordsResponse) -> Iterator[int]:
        for topic in response.topics:
            for result in topic.partitions:
                yield result.error_code
