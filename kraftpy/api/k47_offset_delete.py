"""OffsetDelete (47): forget offsets of a group, of topics that it does not read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kraftpy.api.access import Access
from kraftpy.api.group_requests import GroupHandler, GroupRuntime
from kraftpy.api.handler import ApiError, RequestContext
from kraftpy.broker.coordinator_lookup import CoordinatorLookup
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["OffsetDeleteHandler"]


class OffsetDeleteHandler(GroupHandler):
    api_key = 47

    def __init__(
        self, runtime: GroupRuntime, lookup: CoordinatorLookup, cluster: BrokerMetadata
    ) -> None:
        super().__init__(runtime, lookup)
        self._cluster = cluster

    def handle(self, request: OffsetDeleteRequest, context: RequestContext) -> None:
        context.require(AclOperation.DELETE, ResourceType.GROUP, request.group_id)
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        failed = self._take_failed(request, context.access)

        def reply(answer: OffsetDeleteResponse | CoordinatorError) -> None:
            if isinstance(answer, CoordinatorError):
                context.respond_error(answer.code, answer.message)
            else:
                answer.topics += failed
                context.respond(answer)

        self.write(request.group_id, lambda machine: machine.offsets.delete(request), reply)

    def _take_failed(
        self, request: OffsetDeleteRequest, access: Access
    ) -> list[OffsetDeleteResponseTopic]:
        """Take partitions that may not be read, or do not exist, out of the request; returns the
        answers for them.
        """
        failed, known = [], []
        for topic in request.topics:
            if not access.may(AclOperation.READ, ResourceType.TOPIC, topic.name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                failed.append(_failed(topic.name, topic.partitions, code))
                continue
            image = self._cluster.image.topics.get(topic.name)
            indexes = range(0 if image is None else len(image.partitions))
            there = [each for each in topic.partitions if each.partition_index in indexes]
            missing = [each for each in topic.partitions if each.partition_index not in indexes]
            if there:
                known.append(OffsetDeleteRequestTopic(name=topic.name, partitions=there))
            if missing:
                failed.append(_failed(topic.name, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        request.topics = known
        return failed

    def error_codes(self, response: OffsetDeleteResponse) -> Iterator[int]:
        yield response.error_code
        for topic in response.topics:
            for partition in topic.partitions:
                yield partition.error_code


def _failed(
    topic: str, partitions: Iterable[OffsetDeleteRequestPartition], code: ErrorCode
) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in partitions
        ],
    )
