"""FindCoordinator (10): who looks after a group, or after a transactional id. Nobody, so far.

There are no coordinators yet, and clients are told so in the words for a coordinator that is not
there at the moment. It is served all the same, because librdkafka tells brokers apart by it: where
it is missing, batches that should be compressed with LZ4 are sent uncompressed, without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

__all__ = ["FindCoordinatorHandler"]

_FIRST_VERSION_WITH_KEYS: Final = 4
# Groups, transactional ids, share groups.
_KEY_TYPES: Final = (0, 1, 2)
_NOBODY: Final = -1


class FindCoordinatorHandler(Handler):
    api_key = 10

    def handle(
        self, request: FindCoordinatorRequest, context: RequestContext
    ) -> FindCoordinatorResponse:
        is_known = request.key_type in _KEY_TYPES
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if is_known else ErrorCode.INVALID_REQUEST
        return self.error_answer(request, context, code, code.message)

    def error_answer(
        self,
        request: FindCoordinatorRequest,
        context: RequestContext,
        code: ErrorCode,
        message: str,
    ) -> FindCoordinatorResponse:
        if context.api_version < _FIRST_VERSION_WITH_KEYS:
            return FindCoordinatorResponse(
                error_code=code, error_message=message, node_id=_NOBODY, host="", port=_NOBODY
            )
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(
                    key=key,
                    node_id=_NOBODY,
                    host="",
                    port=_NOBODY,
                    error_code=code,
                    error_message=message,
                )
                for key in request.coordinator_keys
            ]
        )

    def error_codes(self, response: FindCoordinatorResponse) -> Iterator[int]:
        if not response.coordinators:
            yield response.error_code
        for coordinator in response.coordinators:
            yield coordinator.error_code
