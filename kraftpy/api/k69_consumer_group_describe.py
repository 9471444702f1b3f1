"""ConsumerGroupDescribe (69): state, epochs and members of consumer groups (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterator

from kraftpy.api.access import Access
from kraftpy.api.group_requests import GroupHandler
from kraftpy.api.handler import RequestContext
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["ConsumerGroupDescribeHandler"]


class ConsumerGroupDescribeHandler(GroupHandler):
    api_key = 69

    def handle(
        self, request: ConsumerGroupDescribeRequest, context: RequestContext
    ) -> ConsumerGroupDescribeResponse:
        groups = [self._describe(group_id, context.access) for group_id in request.group_ids]
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = context.access.operations(
                        ResourceType.GROUP, group.group_id
                    )
        return ConsumerGroupDescribeResponse(groups=groups)

    def _describe(self, group_id: str, access: Access) -> DescribedGroup:
        if not access.may(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            return _failed(group_id, code, code.message)
        if not group_id:
            return _failed(group_id, ErrorCode.INVALID_GROUP_ID, None)
        try:
            (group,) = self.read(group_id, lambda machine: machine.consumers.describe([group_id]))
        except CoordinatorError as error:
            return _failed(group_id, error.code, error.message)
        if access.is_limited and not _may_describe_topics(group, access):
            reason = "the group reads topics that the asker may not describe"
            return _failed(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, reason)
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


def _may_describe_topics(group: DescribedGroup, access: Access) -> bool:
    """Whether all topics may be described that the members have, or are to have."""
    names = {
        each.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for each in assignment.topic_partitions
    }
    return all(
        access.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in sorted(names)
    )


def _failed(group_id: str, code: ErrorCode, message: str | None) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=code, error_message=message)
