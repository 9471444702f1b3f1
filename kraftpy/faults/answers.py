"""Handlers whose next requests may be made to fail.

Only requests of clients count: a follower's fetch is not what somebody means who asks for the next
Fetch to fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kraftpy.api.handler import ApiError, Handler, RequestContext
from kraftpy.faults.state import NodeFaults
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.tables import Response

__all__ = ["FailingHandler", "WrappedHandler", "failing", "is_of_replica"]


def failing(faults: NodeFaults) -> Callable[[Handler], Handler]:
    """What puts these faults in front of a handler."""
    return partial(FailingHandler, faults)


class WrappedHandler(Handler):
    """As the handler inside, for subclasses that change what happens to requests."""

    def __init__(self, handler: Handler) -> None:
        self.api_key = handler.api_key
        self._handler = handler

    def handle(self, request: Any, context: RequestContext) -> Response | None:
        return self._handler.handle(request, context)

    def error_answer(
        self, request: Any, context: RequestContext, code: ErrorCode, message: str
    ) -> Response | None:
        return self._handler.error_answer(request, context, code, message)

    def versions(self) -> tuple[int, int] | None:
        return self._handler.versions()

    def second_name(self, request: Any) -> str | None:
        return self._handler.second_name(request)

    def error_codes(self, response: Any) -> Iterable[int]:
        return self._handler.error_codes(response)


class FailingHandler(WrappedHandler):
    def __init__(self, faults: NodeFaults, handler: Handler) -> None:
        super().__init__(handler)
        self._faults = faults

    def handle(self, request: Any, context: RequestContext) -> Response | None:
        if not is_of_replica(request):
            code = self._faults.take_failure(self.api_key)
            if code is not None:
                raise ApiError(code, f"{code.message} (a fault that was asked for)")
        return super().handle(request, context)


def is_of_replica(request: Any) -> bool:
    """Kafka's requests tell by a replica id of 0 and above; newer fetches have it elsewhere."""
    state = getattr(request, "replica_state", None)
    ids = (getattr(request, "replica_id", -1), getattr(state, "replica_id", -1))
    return any(each >= 0 for each in ids)
