"""SyncGroup (14): get one's assignment; the leader brings everybody's."""

from __future__ import annotations

from typing import Final

from kraftpy.api.group_requests import GroupHandler, reply_to
from kraftpy.api.handler import ApiError, RequestContext
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["SyncGroupHandler"]

_FIRST_VERSION_WITH_PROTOCOL: Final = 5


class SyncGroupHandler(GroupHandler):
    api_key = 14

    def handle(self, request: SyncGroupRequest, context: RequestContext) -> None:
        is_unsaid = request.protocol_type is None or request.protocol_name is None
        if is_unsaid and context.api_version >= _FIRST_VERSION_WITH_PROTOCOL:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        context.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        reply = reply_to(context)
        self.write(request.group_id, lambda machine: machine.classic.sync(request, reply), reply)

    def error_answer(
        self, request: SyncGroupRequest, context: RequestContext, code: ErrorCode, message: str
    ) -> SyncGroupResponse:
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The rebalance that this belongs to is lost, and joining again is all that helps.
            code = ErrorCode.REBALANCE_IN_PROGRESS
        return SyncGroupResponse(error_code=code)
