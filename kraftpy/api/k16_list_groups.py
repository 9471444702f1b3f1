"""ListGroups (16): the groups that this broker coordinates."""

from __future__ import annotations

from kraftpy.api.group_requests import GroupRuntime
from kraftpy.api.handler import Handler, RequestContext
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k16_list_groups import ListGroupsRequest, ListGroupsResponse

__all__ = ["ListGroupsHandler"]


class ListGroupsHandler(Handler):
    api_key = 16

    def __init__(self, runtime: GroupRuntime) -> None:
        self._runtime = runtime

    def handle(self, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
        """While some are being loaded, those that are there, and an error."""
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
        return answer
