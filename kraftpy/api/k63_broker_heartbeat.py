"""BrokerHeartbeat (63): a broker lives, and says how far it is and what it wants.

The controller hears of it twice: that the broker lives, at once, and the heartbeat itself, when its
turn comes. And it hears when the connection ends that a broker's heartbeats came by, which is one
half of the evidence that the broker is dead (design, decision 14). Only heartbeats that were
accepted count for that: what others send proves nothing about a broker, and costs no memory here.
"""

from __future__ import annotations

from functools import partial

from kraftpy.api.controller_handler import ControllerHandler, ControllerMember
from kraftpy.api.handler import RequestContext
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.metadata.controller.effects import Answer, Refuse
from kraftpy.net.service import Channel
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k63_broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from kraftpy.world import Clock

__all__ = ["BrokerHeartbeatHandler"]


class BrokerHeartbeatHandler(ControllerHandler):
    is_exempt = True

    def __init__(self, controller: ControllerMember, clock: Clock, cluster: BrokerMetadata) -> None:
        super().__init__(63, controller, clock, cluster)
        # Which connection brought a broker's last heartbeat, and the brokers of each connection.
        self._carriers: dict[int, Channel] = {}
        self._brokers: dict[Channel, dict[int, None]] = {}

    def handle(self, request: BrokerHeartbeatRequest, context: RequestContext) -> None:
        self._controller.note_contact(request.broker_id, request.broker_epoch)
        super().handle(request, context)

    def reply(
        self, request: BrokerHeartbeatRequest, context: RequestContext, outcome: Answer | Refuse
    ) -> None:
        super().reply(request, context, outcome)
        if not isinstance(outcome, Answer):
            return
        response = outcome.response
        if isinstance(response, BrokerHeartbeatResponse) and response.error_code == ErrorCode.NONE:
            self._note_carrier(request.broker_id, context.channel)

    def _note_carrier(self, broker_id: int, channel: Channel) -> None:
        self._carriers[broker_id] = channel
        brokers = self._brokers.get(channel)
        if brokers is None:
            self._brokers[channel] = {broker_id: None}
            channel.on_end(partial(self._ended, channel))
        else:
            brokers[broker_id] = None

    def _ended(self, channel: Channel) -> None:
        """A broker that has come by another connection since then is not concerned."""
        for broker_id in self._brokers.pop(channel):
            if self._carriers.get(broker_id) is channel:
                del self._carriers[broker_id]
                self._controller.note_disconnected(broker_id)
