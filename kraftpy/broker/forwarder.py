"""Hands requests of clients on to the active controller, and brings the answers back.

A request is sent again after NOT_CONTROLLER and after a lost connection, as Kafka does it, so that
a failover goes unnoticed by clients. A lost connection may have carried the request out: who asked
for something to be created may then read that it exists already. Nothing is done twice by that,
since each of these requests either sets a state or is refused when that state is there; but for
IncrementalAlterConfigs, where an append to a list that has the value already changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import trio

from kraftpy.broker.controller_channel import ControllerChannel, ControllerUnreachable
from kraftpy.broker.envelope import Sender, seal
from kraftpy.client.core import VersionRange
from kraftpy.client.errors import UnsupportedVersion
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k58_envelope import EnvelopeRequest, EnvelopeResponse
from kraftpy.protocol.tables import Request
from kraftpy.world import Buffer, InternalInvariant

__all__ = ["FORWARDING_TIMEOUT_MS", "Forwarder", "ForwardingReply"]

log = logging.getLogger(__name__)

FORWARDING_TIMEOUT_MS: Final = 60_000

ForwardingReply: TypeAlias = Callable[[bytes | ErrorCode], None]
"""Takes the bytes of the controller's answer, header included, or why there is none."""


class Forwarder:
    """Its tasks live in `nursery`."""

    def __init__(self, channel: ControllerChannel, nursery: trio.Nursery) -> None:
        self._channel = channel
        self._nursery = nursery

    def forward(
        self, frame: Buffer, sender: Sender, reply: ForwardingReply, *, timeout_ms: int
    ) -> None:
        """Send a request's bytes, which are copied. `reply` is called once, by another task."""
        self._nursery.start_soon(self._carry, seal(frame, sender), reply, timeout_ms)

    def ask(
        self, request: Request, reply: Callable[[Any | ErrorCode], None], *, timeout_ms: int
    ) -> None:
        """Ask the controller for this broker itself. `reply` is called once, by another task."""
        self._nursery.start_soon(self._ask, request, reply, timeout_ms)

    def controller_versions(self) -> Mapping[int, VersionRange] | None:
        """Lowest and highest version of each API of the controller; None while unknown."""
        return self._channel.controller_versions()

    async def _carry(
        self, envelope: EnvelopeRequest, reply: ForwardingReply, timeout_ms: int
    ) -> None:
        def opened(answer: EnvelopeResponse | ErrorCode) -> None:
            if isinstance(answer, ErrorCode):
                reply(answer)
            elif answer.error_code == ErrorCode.NONE and answer.response_data is not None:
                reply(answer.response_data)
            elif answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
                reply(ErrorCode.UNSUPPORTED_VERSION)
            else:
                log.warning("the controller refuses an envelope: error code %d", answer.error_code)
                reply(ErrorCode.UNKNOWN_SERVER_ERROR)

        await self._ask(envelope, opened, timeout_ms)

    async def _ask(
        self, request: Request, reply: Callable[[Any | ErrorCode], None], timeout_ms: int
    ) -> None:
        try:
            answer = await self._channel.request(request, timeout_ms=timeout_ms)
        except ControllerUnreachable:
            reply(ErrorCode.REQUEST_TIMED_OUT)
        except UnsupportedVersion as error:
            log.warning("the controller takes no such requests: %s", error)
            reply(ErrorCode.UNKNOWN_SERVER_ERROR)
        except InternalInvariant:
            raise
        except Exception:
            # Whatever a client has sent, it must not end the node.
            log.exception("a request can't be forwarded")
            reply(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            reply(answer)
