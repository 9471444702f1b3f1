"""IncrementalAlterConfigs (44) on a controller: its loggers are its own, the rest is decided."""

from __future__ import annotations

from functools import partial

from kraftpy.api.controller_handler import ControllerHandler, ControllerMember
from kraftpy.api.handler import RequestContext
from kraftpy.api.logger_levels import alter_loggers
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.metadata.controller.effects import Answer, Refuse
from kraftpy.protocol.schema.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kraftpy.security.acl_terms import AclOperation
from kraftpy.world import Clock

__all__ = ["IncrementalAlterConfigsHandler"]


class IncrementalAlterConfigsHandler(ControllerHandler):
    def __init__(
        self, controller: ControllerMember, clock: Clock, cluster: BrokerMetadata, node_id: int
    ) -> None:
        super().__init__(44, controller, clock, cluster)
        self._node_id = node_id

    def handle(self, request: IncrementalAlterConfigsRequest, context: RequestContext) -> None:
        may_alter = partial(context.access.may_cluster, AclOperation.CLUSTER_ACTION)
        answered, others = alter_loggers(request, self._node_id, may_alter)
        if not answered:
            super().handle(request, context)
            return
        if not others:
            context.respond(IncrementalAlterConfigsResponse(responses=answered))
            return

        def reply(outcome: Answer | Refuse) -> None:
            if isinstance(outcome, Answer):
                assert isinstance(outcome.response, IncrementalAlterConfigsResponse)
                allowed.complete(outcome.response)
                outcome.response.responses += answered
            self.reply(request, context, outcome)

        rest = IncrementalAlterConfigsRequest(resources=others, validate_only=request.validate_only)
        allowed = self._screen(rest, context)
        self.submit(allowed.request, context, reply)
