"""Administrative APIs on a broker: the controller serves them, the broker carries them there.

The client's bytes go to the controller in an envelope and its answer comes back as bytes; it is
decoded once here, to be counted. A controller that doesn't know the request's version makes the
client negotiate anew, by closing its connection: what ApiVersions said was about another
controller. For the same reason ApiVersions shows what both sides know.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kraftpy.api.handler import RequestContext
from kraftpy.api.item_errors import AdministrativeHandler
from kraftpy.broker.envelope import Sender
from kraftpy.broker.forwarder import FORWARDING_TIMEOUT_MS, Forwarder
from kraftpy.protocol.codec import DecodeError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import decode_response
from kraftpy.protocol.registry import API
from kraftpy.world import Buffer

__all__ = ["ForwardingHandler"]

log = logging.getLogger(__name__)


class ForwardingHandler(AdministrativeHandler):
    """Any API that may travel in an envelope."""

    def __init__(self, api_key: int, forwarder: Forwarder) -> None:
        super().__init__(api_key)
        self._forwarder = forwarder

    def handle(self, request: Any, context: RequestContext) -> None:
        self.forward(context.frame, request, context)

    def forward(
        self,
        frame: Buffer,
        request: Any,
        context: RequestContext,
        finish: Callable[[Any], None] | None = None,
    ) -> None:
        """Carry these bytes to the controller; `finish` gets its answer in place of the client."""

        def reply(outcome: bytes | ErrorCode) -> None:
            self._reply(context, outcome, finish or context.respond)

        channel = context.channel
        self._forwarder.forward(
            frame,
            Sender(channel.principal, channel.client_host),
            reply,
            timeout_ms=_patience_ms(request),
        )

    def versions(self) -> tuple[int, int] | None:
        own = super().versions()
        theirs = self._forwarder.controller_versions()
        if own is None or theirs is None:
            return own
        if self.api_key not in theirs:
            return None
        low, high = theirs[self.api_key]
        common = max(own[0], low), min(own[1], high)
        return common if common[0] <= common[1] else None

    def _reply(
        self,
        context: RequestContext,
        outcome: bytes | ErrorCode,
        finish: Callable[[Any], None],
    ) -> None:
        if outcome is ErrorCode.UNSUPPORTED_VERSION:
            context.disconnect()
        elif isinstance(outcome, ErrorCode):
            context.respond_error(outcome)
        else:
            response_class = API[self.api_key].response_class
            try:
                _, response = decode_response(response_class, context.api_version, outcome)
            except DecodeError as error:
                log.error("the controller's answer is malformed %s: %s", context.describe(), error)
                context.respond_error(ErrorCode.UNKNOWN_SERVER_ERROR)
            else:
                # The controller's quotas; the client is here, so that it is here that it waits.
                delay_ms: int = getattr(response, "throttle_time_ms", 0)
                if delay_ms > 0:
                    context.throttle(delay_ms)
                finish(response)


def _patience_ms(request: Any) -> int:
    """As long as the client, where it says; whose time is up already is refused by the controller,
    which says so in the API's own words.
    """
    timeout_ms: int = getattr(request, "timeout_ms", FORWARDING_TIMEOUT_MS)
    return min(timeout_ms, FORWARDING_TIMEOUT_MS) if timeout_ms > 0 else FORWARDING_TIMEOUT_MS
