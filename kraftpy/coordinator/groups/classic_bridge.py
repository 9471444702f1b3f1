"""What classic groups ask of consumer groups: to serve the members that speak the classic protocol.

A group that is moved from one protocol to the other, member by member, is a consumer group as long
as anybody in it speaks the new protocol. Its classic members go on sending JoinGroup and the rest.
"""

from __future__ import annotations

from typing import Protocol

from kraftpy.coordinator.groups.classic_member import JoinCall, SyncReply
from kraftpy.coordinator.groups.group import Group
from kraftpy.coordinator.outcome import Outcome
from kraftpy.protocol.schema.k11_join_group import JoinGroupResponse
from kraftpy.protocol.schema.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kraftpy.protocol.schema.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse
from kraftpy.protocol.schema.k14_sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ["ClassicMembers"]


class ClassicMembers(Protocol):
    """Those in consumer groups. `group` is one that is not empty."""

    def join(self, group: Group, call: JoinCall) -> Outcome[JoinGroupResponse]: ...

    def sync(
        self, group: Group, request: SyncGroupRequest, reply: SyncReply
    ) -> Outcome[SyncGroupResponse]: ...

    def classic_heartbeat(
        self, group: Group, request: HeartbeatRequest
    ) -> Outcome[HeartbeatResponse]: ...

    def leave(self, group: Group, request: LeaveGroupRequest) -> Outcome[LeaveGroupResponse]:
        """`request` names its members as version 3 does, in every version."""
        ...
