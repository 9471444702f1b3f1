"""What the controller decides: every such request is handed to it, whatever it is about.

The controller answers when all that it says is committed, or refuses the request as a whole; then
the answer is the API's own way of reporting a failure. A node that isn't the active controller
refuses everything with NOT_CONTROLLER, so that this needs no check of its own.

The requests refer to no bytes of their frame, so there is nothing to copy, however long they wait.
"""

from __future__ import annotations

from typing import Any, Protocol

from kraftpy.api.handler import RequestContext
from kraftpy.api.item_errors import AdministrativeHandler
from kraftpy.metadata.controller.effects import Answer, Refuse
from kraftpy.metadata.controller.result import Caller
from kraftpy.metadata.controller.runner import Reply
from kraftpy.protocol.tables import Response
from kraftpy.world import Clock

__all__ = ["ControllerHandler", "ControllerMember"]


class ControllerMember(Protocol):
    """This node's controller, active or not; the runner is one."""

    def submit(self, request: Any, caller: Caller, reply: Reply) -> None: ...

    def note_contact(self, broker_id: int, broker_epoch: int) -> None: ...

    def note_disconnected(self, broker_id: int) -> None: ...


class ControllerHandler(AdministrativeHandler):
    """Any API that the controller serves."""

    def __init__(self, api_key: int, controller: ControllerMember, clock: Clock) -> None:
        super().__init__(api_key)
        self._controller = controller
        self._clock = clock

    def handle(self, request: Any, context: RequestContext) -> None:
        def reply(outcome: Answer | Refuse) -> None:
            self.reply(request, context, outcome)

        self.submit(request, context, reply)

    def submit(self, request: Any, context: RequestContext, reply: Reply) -> None:
        """Ask the controller for what may be a part of the client's request."""
        channel = context.channel
        timeout_ms = getattr(request, "timeout_ms", None)
        caller = Caller(
            api_version=context.api_version,
            principal=channel.principal,
            client_id=context.client_id,
            client_host=channel.client_host,
            deadline_ms=None if timeout_ms is None else self._clock.monotonic_ms() + timeout_ms,
        )
        self._controller.submit(request, caller, reply)

    def reply(self, request: Any, context: RequestContext, outcome: Answer | Refuse) -> None:
        """The controller has decided."""
        if isinstance(outcome, Refuse):
            context.respond_error(outcome.code, outcome.message)
            return
        assert isinstance(outcome.response, Response)
        context.respond(outcome.response)
