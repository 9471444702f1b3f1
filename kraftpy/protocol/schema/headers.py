"""Headers of requests and responses. Which version goes with which message: the registry knows."""

from __future__ import annotations

from kraftpy.protocol.tables import ALL, Message, int16, int32, string


class RequestHeader(Message, versions="1-2", flexible="2+"):
    """Stands before every request.

    The client id keeps its old length prefix in flexible versions: an older node must be able to
    read the header of any ApiVersions request.
    """

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string(nullable=ALL, compact=False)


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    """Stands before every response."""

    correlation_id: int = int32()
