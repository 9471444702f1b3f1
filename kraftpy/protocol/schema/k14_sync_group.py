"""SyncGroup: a classic group's assignment."""

from __future__ import annotations

from kraftpy.protocol.tables import (
    ALL,
    Request,
    Response,
    Struct,
    array,
    binary,
    int16,
    int32,
    string,
)


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = binary()


class SyncGroupRequest(Request, key=14, versions="0-5", flexible="4+"):
    """Wait for the assignment; the leader brings everybody's."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable=ALL, default=None)
    protocol_type: str | None = string("5+", nullable=ALL, default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable=ALL, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    """The member's own assignment."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable=ALL, default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable=ALL, default=None, ignorable=True)
    assignment: bytes = binary()
