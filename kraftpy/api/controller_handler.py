"""What the controller decides: every such request is handed to it, whatever it is about.

The controller answers when all that it says is committed, or refuses the request as a whole; then
the answer is the API's own way of reporting a failure. A node that isn't the active controller
refuses everything with NOT_CONTROLLER, so that this needs no check of its own.

The requests refer to no bytes of their frame, so there is nothing to copy, however long they wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from kraftpy.api.access import NO_AUTHORIZER
from kraftpy.api.api_keys import ASKED_BY_NODES
from kraftpy.api.controller_access import (
    CLUSTER_OPERATIONS,
    ITEM_CHECKS,
    NEED_AUTHORIZER,
    Screened,
)
from kraftpy.api.handler import ApiError, RequestContext
from kraftpy.api.item_errors import AdministrativeHandler
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.metadata.controller.effects import Answer, Refuse
from kraftpy.metadata.controller.result import Caller
from kraftpy.metadata.controller.runner import Reply
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.tables import Response
from kraftpy.security.mutation_quota import MutationPermit
from kraftpy.world import Clock

__all__ = ["ControllerHandler", "ControllerMember"]

# The first versions of CreateTopics, DeleteTopics and CreatePartitions whose clients know that a
# change may be refused for the sake of a quota; those of old are only made to wait (KIP-599).
_STRICT_SINCE: Final = {19: 6, 20: 5, 37: 3}


class ControllerMember(Protocol):
    """This node's controller, active or not; the runner is one."""

    def submit(self, request: Any, caller: Caller, reply: Reply) -> None: ...

    def note_contact(self, broker_id: int, broker_epoch: int) -> None: ...

    def note_disconnected(self, broker_id: int) -> None: ...


class ControllerHandler(AdministrativeHandler):
    """Any API that the controller serves."""

    def __init__(
        self, api_key: int, controller: ControllerMember, clock: Clock, cluster: BrokerMetadata
    ) -> None:
        super().__init__(api_key)
        self._controller = controller
        self._clock = clock
        self._cluster = cluster
        self.cluster_operation = CLUSTER_OPERATIONS.get(api_key)
        self.is_exempt = self.is_exempt or api_key in ASKED_BY_NODES

    def handle(self, request: Any, context: RequestContext) -> None:
        if self.api_key in NEED_AUTHORIZER and not context.access.is_limited:
            raise ApiError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        permit = self._permit(context)
        allowed = self._screen(request, context)

        def reply(outcome: Answer | Refuse) -> None:
            if isinstance(outcome, Answer):
                allowed.complete(outcome.response)
            if permit is not None:
                _delay(permit, context, outcome)
            self.reply(request, context, outcome)

        self.submit(allowed.request, context, reply, permit)

    def _screen(self, request: Any, context: RequestContext) -> Screened:
        """What of a request its sender may ask for."""
        check = ITEM_CHECKS.get(self.api_key) if context.access.is_limited else None
        if check is None:
            return Screened(request, lambda _response: None)
        return check(request, context.access, self._cluster.image)

    def submit(
        self,
        request: Any,
        context: RequestContext,
        reply: Reply,
        permit: MutationPermit | None = None,
    ) -> None:
        """Ask the controller for what may be a part of the client's request."""
        channel = context.channel
        timeout_ms = getattr(request, "timeout_ms", None)
        limits = {} if permit is None else {"may_change": self._changes(permit)}
        caller = Caller(
            **limits,
            api_version=context.api_version,
            principal=channel.principal,
            client_id=context.client_id,
            client_host=channel.client_host,
            deadline_ms=None if timeout_ms is None else self._clock.monotonic_ms() + timeout_ms,
        )
        self._controller.submit(request, caller, reply)

    def _permit(self, context: RequestContext) -> MutationPermit | None:
        """What the request may change, if that is limited."""
        strict_since = _STRICT_SINCE.get(self.api_key)
        if context.charge is None or strict_since is None:
            return None
        return context.charge.mutations(is_strict=context.api_version >= strict_since)

    def _changes(self, permit: MutationPermit) -> Callable[[int], bool]:
        return lambda count: permit.take(count, self._clock.monotonic_ms())

    def reply(self, request: Any, context: RequestContext, outcome: Answer | Refuse) -> None:
        """The controller has decided."""
        if isinstance(outcome, Refuse):
            context.respond_error(outcome.code, outcome.message)
            return
        assert isinstance(outcome.response, Response)
        context.respond(outcome.response)


def _delay(permit: MutationPermit, context: RequestContext, outcome: Answer | Refuse) -> None:
    if context.charge is not None and isinstance(outcome, Answer):
        response: Any = outcome.response
        response.throttle_time_ms = context.charge.mutated(permit)
