"""Envelope: forwarded requests."""

from __future__ import annotations

from kraftpy.protocol.tables import ALL, Request, Response, binary, int16


class EnvelopeRequest(Request, key=58, versions="0", flexible="0+"):
    """A broker hands a client's request on to the controller."""

    request_data: bytes = binary()
    request_principal: bytes | None = binary(nullable=ALL)
    client_host_address: bytes = binary()


class EnvelopeResponse(Response, key=58, versions="0", flexible="0+"):
    """The controller's answer, to be handed back."""

    response_data: bytes | None = binary(nullable=ALL, default=None)
    error_code: int = int16()
