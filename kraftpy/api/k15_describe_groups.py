"""DescribeGroups (15): state and members of classic groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftpy.api.group_requests import GroupHandler
from kraftpy.api.handler import RequestContext
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k15_describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["DescribeGroupsHandler"]

_FIRST_VERSION_WITH_MESSAGES: Final = 6


class DescribeGroupsHandler(GroupHandler):
    api_key = 15

    def handle(
        self, request: DescribeGroupsRequest, context: RequestContext
    ) -> DescribeGroupsResponse:
        groups = [self._describe(group_id, context) for group_id in request.groups]
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = context.access.operations(
                        ResourceType.GROUP, group.group_id
                    )
        return DescribeGroupsResponse(groups=groups)

    def _describe(self, group_id: str, context: RequestContext) -> DescribedGroup:
        api_version = context.api_version
        if not context.access.may(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            return _failed(group_id, code, code.message, api_version)
        try:
            (group,) = self.read(
                group_id, lambda machine: machine.listing.describe([group_id], api_version)
            )
        except CoordinatorError as error:
            return _failed(group_id, error.code, error.message, api_version)
        return group

    def error_answer(
        self, request: DescribeGroupsRequest, context: RequestContext, code: ErrorCode, message: str
    ) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(
            groups=[
                _failed(group_id, code, message, context.api_version) for group_id in request.groups
            ]
        )

    def error_codes(self, response: DescribeGroupsResponse) -> Iterator[int]:
        for group in response.groups:
            yield group.error_code


def _failed(group_id: str, code: ErrorCode, message: str, api_version: int) -> DescribedGroup:
    group = DescribedGroup(group_id=group_id, error_code=code)
    if api_version >= _FIRST_VERSION_WITH_MESSAGES:
        group.error_message = message
    return group
