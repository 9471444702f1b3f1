"""OffsetCommit (8): store how far a group has read.

Partitions that do not exist fail for themselves; the group's coordinator never hears of them. Since
version 10 topics are named by their ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftpy.api.group_requests import GroupHandler, GroupRuntime
from kraftpy.api.handler import RequestContext
from kraftpy.broker.coordinator_lookup import CoordinatorLookup
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.metadata.image import MetadataImage, TopicImage
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["OffsetCommitHandler"]

_FIRST_VERSION_WITH_IDS: Final = 10


class OffsetCommitHandler(GroupHandler):
    api_key = 8

    def __init__(
        self, runtime: GroupRuntime, lookup: CoordinatorLookup, cluster: BrokerMetadata
    ) -> None:
        super().__init__(runtime, lookup)
        self._cluster = cluster

    def handle(
        self, request: OffsetCommitRequest, context: RequestContext
    ) -> OffsetCommitResponse | None:
        version = context.api_version
        context.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
        answer = _answer(request, ErrorCode.NONE)
        topics, pending = self._sort_out(request, answer, context)
        if not pending:
            return answer
        existing = OffsetCommitRequest(
            group_id=request.group_id,
            generation_id_or_member_epoch=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            retention_time_ms=request.retention_time_ms,
            topics=topics,
        )

        def reply(committed: OffsetCommitResponse | CoordinatorError) -> None:
            if isinstance(committed, CoordinatorError):
                for partition in pending:
                    partition.error_code = committed.code
            else:
                for partition, done in zip(pending, _partitions(committed), strict=True):
                    partition.error_code = done.error_code
            context.respond(answer)

        self.write(
            request.group_id, lambda machine: machine.offsets.commit(existing, version), reply
        )
        return None

    def _sort_out(
        self, request: OffsetCommitRequest, answer: OffsetCommitResponse, context: RequestContext
    ) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitResponsePartition]]:
        """What exists of the request and may be read, and the places of that in the answer."""
        image = self._cluster.image
        has_ids = context.api_version >= _FIRST_VERSION_WITH_IDS
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if has_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        pending: list[OffsetCommitResponsePartition] = []
        kept = []
        for asked, answered in zip(request.topics, answer.topics, strict=True):
            topic = _topic(image, asked, has_ids)
            name = asked.name if topic is None else topic.name
            # Of an id that is not known there is no name to ask for.
            may_read = (has_ids and topic is None) or context.access.may(
                AclOperation.READ, ResourceType.TOPIC, name
            )
            partitions = []
            for wanted, result in zip(asked.partitions, answered.partitions, strict=True):
                if not may_read:
                    result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif topic is None:
                    result.error_code = unknown
                elif not 0 <= wanted.partition_index < len(topic.partitions):
                    result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    partitions.append(wanted)
                    pending.append(result)
            if topic is not None and partitions:
                kept.append(
                    OffsetCommitRequestTopic(
                        name=topic.name, topic_id=asked.topic_id, partitions=partitions
                    )
                )
        return kept, pending

    def error_answer(
        self, request: OffsetCommitRequest, context: RequestContext, code: ErrorCode, message: str
    ) -> OffsetCommitResponse:
        return _answer(request, code)

    def error_codes(self, response: OffsetCommitResponse) -> Iterator[int]:
        for partition in _partitions(response):
            yield partition.error_code


def _topic(
    image: MetadataImage, asked: OffsetCommitRequestTopic, has_ids: bool
) -> TopicImage | None:
    return image.topic_by_id(asked.topic_id) if has_ids else image.topics.get(asked.name)


def _partitions(response: OffsetCommitResponse) -> Iterator[OffsetCommitResponsePartition]:
    for topic in response.topics:
        yield from topic.partitions


def _answer(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
