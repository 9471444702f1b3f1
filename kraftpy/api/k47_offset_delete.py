"""OffsetDelete (47): forget offsets of a group, of topics that it does not read."""

from __future__ import annotations

from collections.abc import Iterator

from kraftpy.api.group_requests import GroupHandler, GroupRuntime
from kraftpy.api.handler import ApiError, RequestContext
from kraftpy.broker.coordinator_lookup import CoordinatorLookup
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

__all__ = ["OffsetDeleteHandler"]


class OffsetDeleteHandler(GroupHandler):
    api_key = 47

    def __init__(
        self, runtime: GroupRuntime, lookup: CoordinatorLookup, cluster: BrokerMetadata
    ) -> None:
        super().__init__(runtime, lookup)
        self._cluster = cluster

    def handle(self, request: OffsetDeleteRequest, context: RequestContext) -> None:
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        unknown = self._take_unknown(request)

        def reply(answer: OffsetDeleteResponse | CoordinatorError) -> None:
            if isinstance(answer, CoordinatorError):
                context.respond_error(answer.code, answer.message)
            else:
                answer.topics += unknown
                context.respond(answer)

        self.write(request.group_id, lambda machine: machine.offsets.delete(request), reply)

    def _take_unknown(self, request: OffsetDeleteRequest) -> list[OffsetDeleteResponseTopic]:
        """Take partitions that do not exist out of the request; returns the answers for them."""
        unknown, known = [], []
        for topic in request.topics:
            image = self._cluster.image.topics.get(topic.name)
            indexes = range(0 if image is None else len(image.partitions))
            there = [each for each in topic.partitions if each.partition_index in indexes]
            missing = [each for each in topic.partitions if each.partition_index not in indexes]
            if there:
                known.append(OffsetDeleteRequestTopic(name=topic.name, partitions=there))
            if missing:
                results = [
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    )
                    for each in missing
                ]
                unknown.append(OffsetDeleteResponseTopic(name=topic.name, partitions=results))
        request.topics = known
        return unknown

    def error_codes(self, response: OffsetDeleteResponse) -> Iterator[int]:
        yield response.error_code
        for topic in response.topics:
            for partition in topic.partitions:
                yield partition.error_code
