"""ListGroups (16): the groups that this broker coordinates."""

from __future__ import annotations

from kraftpy.api.group_requests import GroupRuntime
from kraftpy.api.handler import Handler, RequestContext
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["ListGroupsHandler"]


class ListGroupsHandler(Handler):
    api_key = 16

    def __init__(self, runtime: GroupRuntime) -> None:
        self._runtime = runtime

    def handle(self, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
        """While some are being loaded, those that are there, and an error.

        Who may not describe the cluster sees the groups that he may describe (NET-75).
        """
        answer = ListGroupsResponse()
        for shard in self._runtime.shards():
            try:
                answer.groups += shard.read(
                    lambda machine: machine.listing.listed(
                        request.states_filter, request.types_filter
                    )
                )
            except CoordinatorError as error:
                if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    answer.error_code = error.code
        access = context.access
        if not access.may_cluster(AclOperation.DESCRIBE, is_probe=True):
            answer.groups = [
                group
                for group in answer.groups
                if access.may(
                    AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id, is_probe=True
                )
            ]
        return answer
