"""ConsumerGroupHeartbeat (68): all that a member of a consumer group says (KIP-848)."""

from __future__ import annotations

from functools import partial

from kraftpy.api.group_requests import GroupHandler, client_host, reply_to
from kraftpy.api.handler import ApiError, RequestContext
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["ConsumerGroupHeartbeatHandler"]


class ConsumerGroupHeartbeatHandler(GroupHandler):
    api_key = 68

    def handle(self, request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> None:
        context.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
        for name in dict.fromkeys(request.subscribed_topic_names or ()):
            context.require(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
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
                may_describe=partial(
                    context.access.may, AclOperation.DESCRIBE, ResourceType.TOPIC, is_probe=True
                ),
            ),
            reply_to(context),
        )
