"""ExpireDelegationToken: end a token."""

from __future__ import annotations

from kraftpy.protocol.tables import Request, Response, binary, int16, int32, int64


class ExpireDelegationTokenRequest(Request, key=40, versions="1-2", flexible="2+"):
    """Shorten or end a delegation token's life."""

    hmac: bytes = binary()
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Response, key=40, versions="1-2", flexible="2+"):
    """Its new expiry."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
