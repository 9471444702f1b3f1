"""ElectLeaders (43) on a broker: the controller elects, and the broker answers when it knows.

A client that asks for leaders and then for metadata must not be told of the old ones, so the answer
waits in the purgatory until the broker's own image shows what was elected, or the time is over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from kraftpy.api.forwarding import ForwardingHandler
from kraftpy.api.handler import RequestContext
from kraftpy.broker.delayed_elect_leaders import DelayedElectLeaders, PendingElection
from kraftpy.broker.forwarder import Forwarder
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k43_elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from kraftpy.purgatory.operation import DelayedOperation
from kraftpy.purgatory.purgatory import Purgatory

__all__ = ["ElectLeadersHandler"]

_PREFERRED: Final = 0


class ElectLeadersHandler(ForwardingHandler):
    def __init__(
        self,
        forwarder: Forwarder,
        cluster: BrokerMetadata,
        purgatory: Purgatory[DelayedOperation],
    ) -> None:
        super().__init__(ElectLeadersRequest.KEY, forwarder)
        self._cluster = cluster
        self._purgatory = purgatory

    def handle(self, request: ElectLeadersRequest, context: RequestContext) -> None:
        is_preferred = request.election_type == _PREFERRED
        wait = partial(self._wait_until_shown, request.timeout_ms, is_preferred, context.respond)
        self.forward(context.frame, request, context, wait)

    def _wait_until_shown(
        self,
        timeout_ms: int,
        is_preferred: bool,
        respond: Callable[[ElectLeadersResponse], None],
        response: ElectLeadersResponse,
    ) -> None:
        pending = [
            PendingElection((topic.topic, each.partition_id), each, is_preferred=is_preferred)
            for topic in response.replica_election_results
            for each in topic.partition_result
            if each.error_code == ErrorCode.NONE
        ]
        if not pending:
            respond(response)
            return
        operation = DelayedElectLeaders(
            timeout_ms,
            pending,
            lambda: self._cluster.image,
            respond=partial(respond, response),
        )
        keys = [each.topic_partition for each in pending]
        self._purgatory.try_complete_else_watch(operation, keys)
