"""SaslHandshake: choose a mechanism."""

from __future__ import annotations

from kraftpy.protocol.tables import Request, Response, array, int16, string


class SaslHandshakeRequest(Request, key=17, versions="0-1", flexible="none"):
    """Choose a SASL mechanism."""

    mechanism: str = string()


class SaslHandshakeResponse(Response, key=17, versions="0-1", flexible="none"):
    """Whether the mechanism is enabled, and which ones are."""

    error_code: int = int16()
    mechanisms: list[str] = array(string)
