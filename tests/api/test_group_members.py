"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup as clients of every version see them."""

from __future__ import annotations

from typing import Any

import pytest
from api.group_rig import GroupRig

from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kraftpy.protocol.schema.k12_heartbeat import HeartbeatRequest
from kraftpy.protocol.schema.k13_leave_group import LeaveGroupRequest, MemberIdentity
from kraftpy.protocol.schema.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment


def versions(key: int) -> range:
    return range(API[key].min_version, API[key].max_version + 1)


def join_request(version: int, **fields: Any) -> JoinGroupRequest:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"meta")],
    )
    if version >= 1:
        request.rebalance_timeout_ms = 60_000
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def joined(rig: GroupRig, version: int = 9, **fields: Any) -> Any:
    """A member of a new generation."""
    answer = rig.ask(join_request(version, **fields), version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = rig.ask(join_request(version, member_id=answer.member_id, **fields), version)
    assert answer.error_code == 0
    return answer


def stable(rig: GroupRig) -> Any:
    member = joined(rig)
    assignment = SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"mine")
    request = SyncGroupRequest(
        group_id="g", generation_id=1, member_id=member.member_id, assignments=[assignment]
    )
    assert rig.ask(request, 4).assignment == b"mine"
    return member


@pytest.mark.parametrize("version", versions(11))
def test_joining(version: int) -> None:
    """GRP-9, GRP-10, GRP-26"""
    rig = GroupRig()
    answer = joined(rig, version)
    assert answer.generation_id == 1
    assert answer.protocol_name == "range"
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert answer.leader == answer.member_id
    assert answer.member_id.startswith("test-")
    assert [each.metadata for each in answer.members] == [b"meta"]


@pytest.mark.parametrize("version", versions(11))
def test_joining_badly(version: int) -> None:
    """GRP-4, GRP-14: answered in the shape of the version."""
    rig = GroupRig()
    for fields, code in (
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ):
        answer = rig.ask(join_request(version, **fields), version)
        assert answer.error_code == code
        assert (answer.generation_id, answer.leader, answer.members) == (-1, "", [])
        assert answer.protocol_name == (None if version >= 7 else "")
        assert answer.member_id == fields.get("member_id", "")


@pytest.mark.parametrize(
    ("timeout_ms", "is_allowed"),
    [(5999, False), (6000, True), (1_800_000, True), (1_800_001, False), (-1, False)],
)
def test_the_bounds_of_a_session(timeout_ms: int, is_allowed: bool) -> None:
    """GRP-7"""
    answer = GroupRig().ask(join_request(3, session_timeout_ms=timeout_ms), 3)
    expected = ErrorCode.NONE if is_allowed else ErrorCode.INVALID_SESSION_TIMEOUT
    assert answer.error_code == expected


def test_a_full_group() -> None:
    """GRP-12"""
    rig = GroupRig(GroupSettings(initial_rebalance_delay_ms=0, max_size=1))
    joined(rig)
    answer = rig.ask(join_request(9), 9)
    assert (answer.error_code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


def test_a_join_waits_for_others_and_for_nobody_who_is_gone() -> None:
    """GRP-86: the connection may close meanwhile."""
    rig = GroupRig()
    first = stable(rig)
    pending = rig.send(join_request(3), 3)
    rig.commit()
    assert not pending.is_answered
    rig.bench.channel.end()
    again = rig.ask(join_request(9, member_id=first.member_id), 9)
    assert again.generation_id == 2
    assert pending.response.generation_id == 2


@pytest.mark.parametrize("version", versions(14))
def test_syncing(version: int) -> None:
    """GRP-36"""
    rig = GroupRig()
    member = stable(rig)
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=member.member_id)
    if version >= 5:
        request.protocol_type, request.protocol_name = "consumer", "range"
    answer = rig.ask(request, version)
    assert (answer.error_code, answer.assignment) == (0, b"mine")
    request.generation_id = 7
    answer = rig.ask(request, version)
    assert (answer.error_code, answer.assignment) == (ErrorCode.ILLEGAL_GENERATION, b"")
    request.group_id = ""
    assert rig.ask(request, version).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("field", ["protocol_type", "protocol_name"])
def test_a_protocol_must_be_said(field: str) -> None:
    """GRP-31: from version 5 on."""
    rig = GroupRig()
    member = stable(rig)
    request = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=member.member_id,
        protocol_type="consumer",
        protocol_name="range",
    )
    assert rig.ask(request, 5).error_code == 0
    setattr(request, field, None)
    assert rig.ask(request, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", versions(12))
def test_heartbeats(version: int) -> None:
    """GRP-37"""
    rig = GroupRig()
    member = stable(rig)
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member.member_id)
    assert rig.ask(request, version).error_code == 0
    request.generation_id = 0
    assert rig.ask(request, version).error_code == ErrorCode.ILLEGAL_GENERATION
    request.group_id = ""
    assert rig.ask(request, version).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", versions(13))
def test_leaving(version: int) -> None:
    """GRP-39"""
    rig = GroupRig()
    member = stable(rig)

    def leave(member_id: str, group_id: str = "g") -> tuple[int, list[int]]:
        request = LeaveGroupRequest(group_id=group_id)
        if version < 3:
            request.member_id = member_id
        else:
            request.members = [MemberIdentity(member_id=member_id)]
        answer = rig.ask(request, version)
        return answer.error_code, [each.error_code for each in answer.members]

    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    failed = (unknown, []) if version < 3 else (0, [unknown])
    assert leave("nobody") == failed
    assert leave("nobody", "none") == failed
    assert leave("x", "") == (ErrorCode.INVALID_GROUP_ID, [])
    assert leave(member.member_id) == ((0, []) if version < 3 else (0, [0]))
    assert leave(member.member_id) == failed


def test_a_static_member_by_its_instance() -> None:
    """GRP-39"""
    rig = GroupRig()
    joined(rig, group_instance_id="i")
    identity = MemberIdentity(member_id="", group_instance_id="i")
    answer = rig.ask(LeaveGroupRequest(group_id="g", members=[identity]), 5)
    assert [(each.group_instance_id, each.error_code) for each in answer.members] == [("i", 0)]


class TestWhereItIsNot:
    """GRP-5, GRP-6"""

    REQUESTS = (
        (join_request(9), 9),
        (SyncGroupRequest(group_id="g", protocol_type="c", protocol_name="r"), 5),
        (HeartbeatRequest(group_id="g"), 4),
        (LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")]), 5),
    )

    def test_elsewhere(self) -> None:
        rig = GroupRig()
        rig.runtime.resigned(rig.partition_of("g"), 1)
        codes = [rig.ask(request, version).error_code for request, version in self.REQUESTS]
        assert codes == [ErrorCode.NOT_COORDINATOR] * 4

    def test_while_it_is_loaded(self) -> None:
        rig = GroupRig(is_loaded=False)
        codes = [rig.ask(request, version).error_code for request, version in self.REQUESTS]
        assert codes == [
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.NONE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ]

    def test_those_who_wait_are_told(self) -> None:
        """GRP-64: of that partition only."""
        rig = GroupRig()
        stable(rig)
        pending = rig.send(join_request(3), 3)
        for partition in range(len(rig.logs)):
            if partition != rig.partition_of("g"):
                rig.runtime.resigned(partition, 1)
        assert not pending.is_answered
        rig.runtime.resigned(rig.partition_of("g"), 1)
        assert pending.response.error_code == ErrorCode.NOT_COORDINATOR
