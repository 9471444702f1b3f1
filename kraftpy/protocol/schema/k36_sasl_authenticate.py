"""SaslAuthenticate: SASL tokens."""

from __future__ import annotations

from kraftpy.protocol.tables import ALL, Request, Response, binary, int16, int64, string


class SaslAuthenticateRequest(Request, key=36, versions="0-2", flexible="2+"):
    """Carry one token of a SASL exchange."""

    auth_bytes: bytes = binary()


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible="2+"):
    """The server's token, or the failure."""

    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)
    auth_bytes: bytes = binary()
    session_lifetime_ms: int = int64("1+", ignorable=True)
