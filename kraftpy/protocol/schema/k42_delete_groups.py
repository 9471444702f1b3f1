"""DeleteGroups: delete groups."""

from __future__ import annotations

from kraftpy.protocol.tables import Request, Response, Struct, array, int16, int32, string


class DeleteGroupsRequest(Request, key=42, versions="0-2", flexible="2+"):
    """Delete groups."""

    groups_names: list[str] = array(string)


class DeletableGroupResult(Struct):
    group_id: str = string(key=True)
    error_code: int = int16()


class DeleteGroupsResponse(Response, key=42, versions="0-2", flexible="2+"):
    """What became of each group."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
