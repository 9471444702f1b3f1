"""OffsetForLeaderEpoch (23): where an epoch ends in the leader's log (KIP-101, KIP-320).

Followers and consumers find out by it whether what they have is still in the log.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.broker.hosted_replicas import HostedReplicas
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["OffsetForLeaderEpochHandler"]


class OffsetForLeaderEpochHandler(Handler):
    api_key = 23

    def __init__(self, replicas: HostedReplicas) -> None:
        self._replicas = replicas

    def handle(
        self, request: OffsetForLeaderEpochRequest, context: RequestContext
    ) -> OffsetForLeaderEpochResponse:
        # Nodes may ask for everything, consumers for what they may know of.
        access = context.access
        is_of_node = access.may_cluster(AclOperation.CLUSTER_ACTION, is_probe=True)
        response = OffsetForLeaderEpochResponse()
        for topic in request.topics:
            name = topic.topic
            if is_of_node or access.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
                ends = [self._end(name, wanted) for wanted in topic.partitions]
            else:
                ends = _refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            response.topics.append(OffsetForLeaderTopicResult(topic=name, partitions=ends))
        return response

    def _end(self, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
        answer = EpochEndOffset(partition=wanted.partition)
        partition = self._replicas.lookup((topic, wanted.partition))
        if isinstance(partition, ErrorCode):
            answer.error_code = partition
            return answer
        answer.error_code = partition.check_epoch(wanted.current_leader_epoch)
        if answer.error_code == ErrorCode.NONE:
            if partition.is_leader:
                answer.leader_epoch, answer.end_offset = partition.log.end_offset_for_epoch(
                    wanted.leader_epoch
                )
            else:
                answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return answer

    def error_answer(
        self,
        request: OffsetForLeaderEpochRequest,
        context: RequestContext,
        code: ErrorCode,
        message: str,
    ) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(topic=topic.topic, partitions=_refused(topic, code))
                for topic in request.topics
            ]
        )

    def error_codes(self, response: OffsetForLeaderEpochResponse) -> Iterator[int]:
        for topic in response.topics:
            for answer in topic.partitions:
                yield answer.error_code


def _refused(topic: OffsetForLeaderTopic, code: ErrorCode) -> list[EpochEndOffset]:
    return [
        EpochEndOffset(partition=wanted.partition, error_code=code) for wanted in topic.partitions
    ]
