"""Heartbeat: a classic group's member is alive."""

from __future__ import annotations

from kraftpy.protocol.tables import ALL, Request, Response, int16, int32, string


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
    """Tell a classic group's coordinator that the member is alive."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable=ALL, default=None)


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+"):
    """Whether the member is still in step."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
