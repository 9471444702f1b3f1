"""SyncGroup, Heartbeat and LeaveGroup of classic groups."""

from __future__ import annotations

from typing import Any

import pytest
from coordinator.classic_kit import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    ClassicRig,
    Member,
    assignment_of,
    rebalance,
)

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k13_leave_group import MemberIdentity


def joined(rig: ClassicRig, count: int, **fields: Any) -> list[Member]:
    """Members of a group that waits for its leader's assignment."""
    members = [rig.member(**fields) for _ in range(count)]
    for member in members:
        member.enter()
    rig.advance(2 * DELAY_MS)
    for member in members:
        member.joined()
    return members


class TestSync:
    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"group_id": "none"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"group_instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
            ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
            ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            # Who is wrong in several ways is told of the first one.
            ({"member_id": "nobody", "generation_id": 2}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"generation_id": 2, "protocol_name": "x"}, ErrorCode.ILLEGAL_GENERATION),
        ],
    )
    def test_what_is_refused(self, fields: dict[str, Any], code: ErrorCode) -> None:
        """GRP-31: and changes nothing."""
        rig = ClassicRig()
        (member,) = joined(rig, 1)
        end = rig.log.log_end_offset
        assert member.sync({member.member_id: b"x"}, **fields).error is code
        assert (rig.state, rig.log.log_end_offset) == ("CompletingRebalance", end)

    def test_a_fenced_member(self) -> None:
        """GRP-31, GRP-42: told so before anything else."""
        rig = ClassicRig()
        (member,) = joined(rig, 1, instance_id="i")
        fields = {"member_id": "other", "generation_id": 7}
        assert member.sync(**fields).error is ErrorCode.FENCED_INSTANCE_ID

    @pytest.mark.parametrize("fields", [{"protocol_type": "consumer"}, {"protocol_name": "range"}])
    def test_what_is_said_and_right(self, fields: dict[str, str]) -> None:
        rig = ClassicRig()
        (member,) = joined(rig, 1)
        assert member.sync({member.member_id: b"x"}, **fields).answer.assignment == b"x"

    def test_an_empty_group(self) -> None:
        rig = ClassicRig()
        (member,) = rig.stable()
        member.leave()
        assert member.sync().error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_while_members_join(self) -> None:
        rig = ClassicRig()
        members = rig.stable(2)
        members[0].join()
        assert members[1].sync().error is ErrorCode.REBALANCE_IN_PROGRESS

    def test_everybody_waits_for_the_log(self) -> None:
        """GRP-32"""
        rig = ClassicRig()
        leader, follower = joined(rig, 2)
        rig.commits_at_once = False
        follower.sync()
        leader.sync({leader.member_id: b"1", follower.member_id: b"2"})
        rig.flush()
        assert not leader.syncing.is_answered
        assert not follower.syncing.is_answered
        assert rig.state == "CompletingRebalance"
        rig.commit()
        assert leader.syncing.answer.assignment == b"1"
        answer = follower.syncing.answer
        assert (answer.assignment, answer.protocol_type, answer.protocol_name) == (
            b"2",
            "consumer",
            "range",
        )
        assert rig.state == "Stable"

    def test_a_member_that_the_leader_forgot(self) -> None:
        """GRP-33"""
        rig = ClassicRig()
        leader, follower = joined(rig, 2)
        follower.sync()
        leader.sync({leader.member_id: b"1", "stranger": b"3"})
        assert follower.syncing.answer.assignment == b""
        assert set(rig.group().members) == {leader.member_id, follower.member_id}

    def test_the_log_fails(self) -> None:
        """GRP-34: all join again."""
        rig = ClassicRig()
        leader, follower = joined(rig, 2)
        follower.sync()
        rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
        leader.sync({leader.member_id: b"1", follower.member_id: b"2"})
        assert leader.syncing.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert follower.syncing.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert rig.state == "PreparingRebalance"
        leader.join()
        follower.join()
        rebalance([leader, follower])
        assert rig.group().generation == 2

    def test_the_log_is_late(self) -> None:
        """GRP-35: another rebalance has begun meanwhile."""
        rig = ClassicRig()
        leader, follower = joined(rig, 2)
        rig.commits_at_once = False
        leader.sync({leader.member_id: b"1", follower.member_id: b"2"})
        rig.flush()
        late = rig.member(version=3)
        late.join()
        assert leader.syncing.error is ErrorCode.REBALANCE_IN_PROGRESS
        rig.commit()
        assert rig.state == "PreparingRebalance"
        assert rig.group().members[leader.member_id].assignment == b""

    def test_the_late_log_is_not_that_of_the_next_generation(self) -> None:
        """GRP-35"""
        rig = ClassicRig()
        leader, follower = joined(rig, 2)
        rig.commits_at_once = False
        leader.sync({leader.member_id: b"old", follower.member_id: b"old"})
        rig.flush()
        members = [leader, follower, rig.member(version=3)]
        for member in reversed(members):
            member.join()
        assert rig.state == "CompletingRebalance"
        for member in members:
            member.joined()
        follower.sync()
        rig.commit()
        assert rig.state == "CompletingRebalance"
        assert not follower.syncing.is_answered

    def test_the_leader_asks_again_while_it_is_stored(self) -> None:
        """GRP-86: what is in the log is what members get."""
        rig = ClassicRig()
        (leader,) = joined(rig, 1)
        rig.commits_at_once = False
        first = leader.sync({leader.member_id: b"1"})
        second = leader.sync({leader.member_id: b"2"})
        rig.commit()
        assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
        assert second.answer.assignment == b"1"
        rig.move()
        assert rig.group().members[leader.member_id].assignment == b"1"

    def test_a_stable_group_gives_the_assignment_again(self) -> None:
        """GRP-36: only the member's own, and its session begins anew."""
        rig = ClassicRig()
        leader, follower = rig.stable(2)
        rig.advance(SESSION_MS - 500)
        assert follower.sync().answer.assignment == assignment_of(follower)
        assert leader.sync({}).answer.assignment == assignment_of(leader)
        rig.advance(1000)
        assert rig.state == "Stable"

    def test_a_member_that_never_syncs_is_out(self) -> None:
        """GRP-45: after the rebalance timeout; the others join again."""
        rig = ClassicRig()
        leader, follower = joined(rig, 2)
        leader.sync({leader.member_id: b"1", follower.member_id: b"2"})
        assert rig.state == "Stable"
        for _ in range(6):
            rig.advance(REBALANCE_MS // 6 - 100)
            leader.heartbeat()
            follower.heartbeat()
        assert rig.state == "Stable"
        rig.advance(1000)
        assert rig.state == "PreparingRebalance"
        assert list(rig.group().members) == [leader.member_id]

    def test_the_leader_never_syncs(self) -> None:
        """GRP-45: another one leads."""
        rig = ClassicRig()
        leader, follower = joined(rig, 2)
        waiting = follower.sync()
        for _ in range(6):
            rig.advance(REBALANCE_MS // 6 - 100)
            leader.heartbeat()
        assert not waiting.is_answered
        rig.advance(1000)
        assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
        follower.join()
        assert follower.joined().leader == follower.member_id

    def test_whoever_waits_for_the_leader_is_not_dropped(self) -> None:
        """GRP-24"""
        rig = ClassicRig()
        leader, follower = joined(rig, 2)
        follower.sync()
        for _ in range(3):
            rig.advance(SESSION_MS - 500)
            leader.heartbeat()
        assert follower.member_id in rig.group().members
        leader.sync({leader.member_id: b"1", follower.member_id: b"2"})
        # Its session begins with the answer.
        rig.advance(SESSION_MS - 500)
        assert follower.heartbeat().answer is not None


class TestHeartbeat:
    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"group_id": "none"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
            ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
            ({"group_instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_what_is_refused(self, fields: dict[str, Any], code: ErrorCode) -> None:
        """GRP-37"""
        rig = ClassicRig()
        (member,) = rig.stable()
        assert member.heartbeat(**fields).error is code

    def test_a_fenced_member(self) -> None:
        """GRP-37, GRP-42"""
        rig = ClassicRig()
        (member,) = rig.stable(instance_id="i")
        assert member.heartbeat(member_id="other").error is ErrorCode.FENCED_INSTANCE_ID

    def test_each_state(self) -> None:
        """GRP-37"""
        rig = ClassicRig()
        (member,) = joined(rig, 1)
        assert member.heartbeat().answer.error_code == 0
        member.sync({member.member_id: b""})
        assert member.heartbeat().answer.error_code == 0
        rig.member(version=3).join()
        assert member.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
        member.leave()
        assert member.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_silence(self) -> None:
        """GRP-38, GRP-16, PUR-60: the leader is gone, and the other one leads."""
        rig = ClassicRig()
        leader, follower = rig.stable(2)
        for _ in range(2):
            rig.advance(SESSION_MS // 2 + 100)
            follower.heartbeat()
        assert rig.state == "PreparingRebalance"
        follower.join()
        answer = follower.joined()
        assert answer.leader == follower.member_id
        assert [each.member_id for each in answer.members] == [follower.member_id]
        assert leader.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_commit_is_a_sign_of_life(self) -> None:
        """PUR-60"""
        rig = ClassicRig()
        (member,) = rig.stable()
        for _ in range(3):
            rig.advance(SESSION_MS - 500)
            assert member.commit().answer is not None
        assert rig.state == "Stable"

    def test_all_fall_silent(self) -> None:
        """GRP-40"""
        rig = ClassicRig()
        rig.stable(3)
        rig.advance(SESSION_MS + 100)
        # Nobody is left to be waited for.
        assert rig.state == "Empty"
        assert rig.group().generation == 2
        assert rig.group().leader_id is None


class TestLeave:
    def test_the_last_one_leaves(self) -> None:
        """GRP-40: the group is Empty, in the log too."""
        rig = ClassicRig()
        (member,) = rig.stable()
        end = rig.log.log_end_offset
        assert member.leave().answer.members[0].error_code == 0
        assert rig.log.log_end_offset == end + 1
        assert (rig.state, rig.group().generation) == ("Empty", 2)
        rig.move()
        assert (rig.state, rig.group().generation) == ("Empty", 2)
        assert rig.group().protocol_type == "consumer"

    def test_one_of_two_leaves(self) -> None:
        """GRP-39"""
        rig = ClassicRig()
        leader, follower = rig.stable(2)
        leader.leave()
        assert rig.state == "PreparingRebalance"
        follower.join()
        rebalance([follower])

    def test_one_who_was_missing_leaves(self) -> None:
        """GRP-39: then nobody is missing."""
        rig = ClassicRig()
        leader, follower = rig.stable(2)
        leader.join()
        follower.leave()
        assert leader.joined().generation_id == 2

    def test_one_who_waits_leaves(self) -> None:
        """GRP-39: its request is answered."""
        rig = ClassicRig()
        leader, follower = rig.stable(2)
        waiting = leader.join()
        leader.leave()
        assert waiting.error is ErrorCode.UNKNOWN_MEMBER_ID
        assert rig.state == "PreparingRebalance"
        follower.join()
        rebalance([follower])

    def test_one_who_waits_for_its_assignment_leaves(self) -> None:
        """GRP-86"""
        rig = ClassicRig()
        _, follower = joined(rig, 2)
        waiting = follower.sync()
        follower.leave()
        assert waiting.error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_several_at_once(self) -> None:
        """GRP-39: each gets its own answer."""
        rig = ClassicRig()
        static = rig.member(instance_id="i")
        dynamic = rig.member()
        static.enter()
        dynamic.enter()
        rig.advance(2 * DELAY_MS)
        rebalance([static, dynamic])
        pending = rig.member().join().answer.member_id
        answer = dynamic.leave(
            MemberIdentity(member_id="", group_instance_id="i"),
            MemberIdentity(member_id="", group_instance_id="nobody"),
            MemberIdentity(member_id=""),
            MemberIdentity(member_id="nobody"),
            MemberIdentity(member_id=pending),
            MemberIdentity(member_id=dynamic.member_id, group_instance_id="nobody"),
            MemberIdentity(member_id=dynamic.member_id),
        ).answer
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        codes = [each.error_code for each in answer.members]
        assert codes == [0, unknown, unknown, unknown, 0, unknown, 0]
        assert rig.state == "Empty"

    def test_a_fenced_one(self) -> None:
        """GRP-39, GRP-42"""
        rig = ClassicRig()
        (member,) = rig.stable(instance_id="i")
        fenced = MemberIdentity(member_id="other", group_instance_id="i")
        assert member.leave(fenced).answer.members[0].error_code == ErrorCode.FENCED_INSTANCE_ID
        assert rig.state == "Stable"

    def test_of_no_group(self) -> None:
        assert ClassicRig().member().leave().error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_nobody_is_there(self) -> None:
        rig = ClassicRig()
        (member,) = rig.stable()
        member.leave()
        assert member.leave().answer.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
