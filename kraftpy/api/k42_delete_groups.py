"""DeleteGroups (42): groups without members, and their offsets."""

from __future__ import annotations

from collections.abc import Iterator

from kraftpy.api.group_requests import Gathering, GroupHandler
from kraftpy.api.handler import RequestContext
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["DeleteGroupsHandler"]


class DeleteGroupsHandler(GroupHandler):
    api_key = 42

    def handle(self, request: DeleteGroupsRequest, context: RequestContext) -> None:
        group_ids = list(dict.fromkeys(request.groups_names))
        results = {group_id: DeletableGroupResult(group_id=group_id) for group_id in group_ids}
        answer = DeleteGroupsResponse(results=list(results.values()))
        gathering = Gathering(len(group_ids), lambda: context.respond(answer))
        for group_id in group_ids:
            if context.access.may(AclOperation.DELETE, ResourceType.GROUP, group_id):
                self._delete(group_id, results[group_id], gathering)
            else:
                results[group_id].error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
                gathering.one_is_there()

    def _delete(self, group_id: str, result: DeletableGroupResult, gathering: Gathering) -> None:
        def reply(answer: list[DeletableGroupResult] | CoordinatorError) -> None:
            if isinstance(answer, CoordinatorError):
                result.error_code = answer.code
            else:
                (only,) = answer
                result.error_code = only.error_code
            gathering.one_is_there()

        self.write(group_id, lambda machine: machine.listing.delete([group_id]), reply)

    def error_answer(
        self, request: DeleteGroupsRequest, context: RequestContext, code: ErrorCode, message: str
    ) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id=group_id, error_code=code)
                for group_id in dict.fromkeys(request.groups_names)
            ]
        )

    def error_codes(self, response: DeleteGroupsResponse) -> Iterator[int]:
        for result in response.results:
            yield result.error_code
