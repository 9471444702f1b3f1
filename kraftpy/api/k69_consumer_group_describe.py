"""ConsumerGroupDescribe (69): state, epochs and members of consumer groups (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterator

from kraftpy.api.cluster import GROUP_OPERATIONS
from kraftpy.api.group_requests import GroupHandler
from kraftpy.api.handler import RequestContext
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

__all__ = ["ConsumerGroupDescribeHandler"]


class ConsumerGroupDescribeHandler(GroupHandler):
    api_key = 69

    def handle(
        self, request: ConsumerGroupDescribeRequest, context: RequestContext
    ) -> ConsumerGroupDescribeResponse:
        groups = [self._describe(group_id) for group_id in request.group_ids]
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = GROUP_OPERATIONS
        return ConsumerGroupDescribeResponse(groups=groups)

    def _describe(self, group_id: str) -> DescribedGroup:
        if not group_id:
            return _failed(group_id, ErrorCode.INVALID_GROUP_ID, None)
        try:
            (group,) = self.read(group_id, lambda machine: machine.consumers.describe([group_id]))
        except CoordinatorError as error:
            return _failed(group_id, error.code, error.message)
        return group

    def error_answer(
        self,
        request: ConsumerGroupDescribeRequest,
        context: RequestContext,
        code: ErrorCode,
        message: str,
    ) -> ConsumerGroupDescribeResponse:
        return ConsumerGroupDescribeResponse(
            groups=[_failed(group_id, code, message) for group_id in request.group_ids]
        )

    def error_codes(self, response: ConsumerGroupDescribeResponse) -> Iterator[int]:
        for group in response.groups:
            yield group.error_code


def _failed(group_id: str, code: ErrorCode, message: str | None) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=code, error_message=message)
