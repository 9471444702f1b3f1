"""JoinGroup (11): become a member of a classic group, or of its next generation.

The answer comes when the others have joined too.
"""

from __future__ import annotations

from typing import Final

from kraftpy.api.group_requests import GroupHandler, client_host
from kraftpy.api.handler import ApiError, RequestContext
from kraftpy.coordinator.groups.classic_member import JoinCall
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k11_join_group import JoinGroupRequest, JoinGroupResponse
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["JoinGroupHandler"]

# Since this version no protocol is said by null, and by an empty name before.
_NULL_IS_NO_PROTOCOL: Final = 7


class JoinGroupHandler(GroupHandler):
    api_key = 11

    def handle(self, request: JoinGroupRequest, context: RequestContext) -> None:
        context.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)

        def reply(answer: JoinGroupResponse | CoordinatorError) -> None:
            if isinstance(answer, CoordinatorError):
                context.respond_error(answer.code, answer.message)
            else:
                context.respond(_for_version(answer, context.api_version))

        call = JoinCall(
            request, context.api_version, context.client_id or "", client_host(context), reply
        )
        self.write(request.group_id, lambda machine: machine.classic.join(call), reply)

    def error_answer(
        self, request: JoinGroupRequest, context: RequestContext, code: ErrorCode, message: str
    ) -> JoinGroupResponse:
        answer = JoinGroupResponse(error_code=code, member_id=request.member_id)
        return _for_version(answer, context.api_version)


def _for_version(answer: JoinGroupResponse, api_version: int) -> JoinGroupResponse:
    if not answer.protocol_name:
        answer.protocol_name = None if api_version >= _NULL_IS_NO_PROTOCOL else ""
    return answer
