"""Heartbeat (12): a member of a classic group is alive."""

from __future__ import annotations

from kraftpy.api.group_requests import GroupHandler, reply_to
from kraftpy.api.handler import ApiError, RequestContext
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["HeartbeatHandler"]


class HeartbeatHandler(GroupHandler):
    api_key = 12

    def handle(self, request: HeartbeatRequest, context: RequestContext) -> None:
        context.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        self.write(
            request.group_id,
            lambda machine: machine.classic.heartbeat(request),
            reply_to(context),
        )

    def error_answer(
        self, request: HeartbeatRequest, context: RequestContext, code: ErrorCode, message: str
    ) -> HeartbeatResponse:
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # Nobody's session is over before the groups are loaded, so all is well.
            code = ErrorCode.NONE
        return HeartbeatResponse(error_code=code)
