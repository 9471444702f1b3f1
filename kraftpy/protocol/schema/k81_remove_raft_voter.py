"""RemoveRaftVoter: one voter less."""

from __future__ import annotations

from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.tables import ALL, Request, Response, int16, int32, string, uuid


class RemoveRaftVoterRequest(Request, key=81, versions="0", flexible="0+"):
    """Remove a voter from the quorum."""

    cluster_id: str | None = string(nullable=ALL)
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()


class RemoveRaftVoterResponse(Response, key=81, versions="0", flexible="0+"):
    """Whether it was removed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)
