"""ConsumerGroupHeartbeat (68): all that a member of a consumer group says (KIP-848)."""

from __future__ import annotations

from kraftpy.api.group_requests import GroupHandler, client_host, reply_to
from kraftpy.api.handler import ApiError, RequestContext
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

__all__ = ["ConsumerGroupHeartbeatHandler"]


class ConsumerGroupHeartbeatHandler(GroupHandler):
    api_key = 68

    def handle(self, request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> None:
        if not request.group_id:
            # No coordinator would know it.
            raise ApiError(ErrorCode.INVALID_REQUEST)
        self.write(
            request.group_id,
            lambda machine: machine.consumers.heartbeat(
                request,
                api_version=context.api_version,
                client_id=context.client_id or "",
                client_host=client_host(context),
            ),
            reply_to(context),
        )
