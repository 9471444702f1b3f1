"""LeaveGroup (13): members leave a classic group; before version 3 one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftpy.api.group_requests import GroupHandler
from kraftpy.api.handler import ApiError, RequestContext
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["LeaveGroupHandler"]

_FIRST_VERSION_WITH_MEMBERS: Final = 3


class LeaveGroupHandler(GroupHandler):
    api_key = 13

    def handle(self, request: LeaveGroupRequest, context: RequestContext) -> None:
        context.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        if context.api_version < _FIRST_VERSION_WITH_MEMBERS:
            request.members = [MemberIdentity(member_id=request.member_id)]

        def reply(answer: LeaveGroupResponse | CoordinatorError) -> None:
            if isinstance(answer, CoordinatorError):
                context.respond_error(answer.code, answer.message)
            else:
                context.respond(_for_version(answer, context.api_version))

        self.write(request.group_id, lambda machine: machine.classic.leave(request), reply)

    def error_answer(
        self, request: LeaveGroupRequest, context: RequestContext, code: ErrorCode, message: str
    ) -> LeaveGroupResponse:
        if code is not ErrorCode.UNKNOWN_MEMBER_ID:
            return LeaveGroupResponse(error_code=code)
        # There is no such group, so there are no such members.
        answer = LeaveGroupResponse(
            members=[
                MemberResponse(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    error_code=code,
                )
                for each in request.members
            ]
        )
        return _for_version(answer, context.api_version)

    def error_codes(self, response: LeaveGroupResponse) -> Iterator[int]:
        yield response.error_code
        for member in response.members:
            yield member.error_code


def _for_version(answer: LeaveGroupResponse, api_version: int) -> LeaveGroupResponse:
    if api_version >= _FIRST_VERSION_WITH_MEMBERS:
        return answer
    (member,) = answer.members
    return LeaveGroupResponse(error_code=member.error_code)
