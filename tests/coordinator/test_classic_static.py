"""Static members: they come back under another id, and nobody has to rebalance for it."""

from __future__ import annotations

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


def two_statics(rig: ClassicRig, **fields: object) -> tuple[Member, Member]:
    members = rig.member(instance_id="a", **fields), rig.member(instance_id="b", **fields)
    for member in members:
        member.enter()
    rig.advance(2 * DELAY_MS)
    rebalance(members)
    return members


def test_a_static_member_is_let_in_at_once() -> None:
    """GRP-9: it needs no id to be recognized by."""
    rig = ClassicRig()
    member = rig.member(instance_id="a")
    assert not member.join().is_answered
    rig.advance(DELAY_MS)
    assert member.joined().member_id.startswith("a-")


def test_a_restart() -> None:
    """GRP-41: another id, the same assignment, no rebalance, and the log knows."""
    rig = ClassicRig()
    leader, follower = two_statics(rig)
    again = rig.member(instance_id="b")
    answer = again.join().answer
    assert answer.error_code == 0
    assert answer.member_id != follower.member_id
    assert (answer.generation_id, answer.leader, answer.members) == (1, leader.member_id, [])
    assert (answer.protocol_name, answer.skip_assignment) == ("range", False)
    again.joined()
    assert again.sync().answer.assignment == assignment_of(follower)
    assert rig.state == "Stable"
    rig.move()
    assert list(rig.group().members) == [leader.member_id, again.member_id]
    assert again.heartbeat().answer is not None


def test_the_new_id_is_told_when_it_is_stored() -> None:
    """GRP-41"""
    rig = ClassicRig()
    two_statics(rig)
    rig.commits_at_once = False
    again = rig.member(instance_id="b")
    again.join()
    rig.flush()
    assert not again.joining.is_answered
    rig.commit()
    again.joined()


def test_a_session_begins_when_the_new_id_is_stored_however_long_that_takes() -> None:
    """GRP-24, GRP-38: its client has gone meanwhile, and must not stay a member for ever."""
    rig = ClassicRig()
    leader, _ = two_statics(rig)
    rig.commits_at_once = False
    again = rig.member(instance_id="b")
    again.join()
    for _ in range(3):
        leader.heartbeat()
        rig.advance(SESSION_MS - 1000)
    assert not again.joining.is_answered
    rig.commit()
    again.joined()
    assert again.member_id in rig.group().members
    leader.heartbeat()
    rig.commits_at_once = True
    rig.advance(SESSION_MS - 1000)
    leader.heartbeat()
    rig.advance(2000)
    assert again.member_id not in rig.group().members


def test_the_new_id_can_not_be_stored() -> None:
    """GRP-41: the old one holds."""
    rig = ClassicRig()
    leader, follower = two_statics(rig)
    rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
    again = rig.member(instance_id="b", session_ms=77_000, protocols=[("range", b"other")])
    assert again.join().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    group = rig.group()
    assert list(group.members) == [leader.member_id, follower.member_id]
    assert group.static_members["b"] == follower.member_id
    assert group.members[follower.member_id].session_timeout_ms == SESSION_MS
    assert follower.heartbeat().answer is not None
    rig.advance(SESSION_MS + 100)
    assert rig.state == "Empty"


def test_the_old_one_is_fenced() -> None:
    """GRP-42: by whatever it sends."""
    rig = ClassicRig()
    _, follower = two_statics(rig)
    rig.member(instance_id="b").join()
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert follower.heartbeat().error is fenced
    assert follower.sync().error is fenced
    assert follower.join().error is fenced
    assert follower.commit().error is fenced
    assert follower.leave().answer.members[0].error_code == fenced


def test_the_old_one_is_fenced_while_it_waits() -> None:
    """GRP-42: for others to join, or for the assignment."""
    rig = ClassicRig()
    leader, follower = two_statics(rig)
    leader.join()
    follower.join()
    leader.joined()
    follower.joined()
    waiting = follower.sync()
    again = rig.member(instance_id="b")
    again.join()
    assert waiting.error is ErrorCode.FENCED_INSTANCE_ID
    # The leader assigns to an id that is no more, so all meet again.
    assert rig.state == "PreparingRebalance"
    third = rig.member(instance_id="b")
    third.join()
    assert again.joining.error is ErrorCode.FENCED_INSTANCE_ID
    leader.join()
    rebalance([leader, third])


@pytest.mark.parametrize("version", [5, 8])
def test_a_leader_that_comes_back_must_not_assign(version: int) -> None:
    """GRP-44: an older one is told the leader's old id."""
    rig = ClassicRig()
    leader, _ = two_statics(rig, version=version)
    again = rig.member(instance_id="a", version=version)
    answer = again.join().answer
    assert answer.leader == leader.member_id != answer.member_id
    assert answer.members == []
    assert rig.group().leader_id == answer.member_id


def test_a_newer_leader_that_comes_back_is_told_not_to_assign() -> None:
    """GRP-44"""
    rig = ClassicRig()
    _, follower = two_statics(rig)
    again = rig.member(instance_id="a")
    answer = again.join().answer
    assert answer.leader == answer.member_id
    assert answer.skip_assignment
    assert [each.member_id for each in answer.members] == [answer.member_id, follower.member_id]


def test_it_comes_back_with_another_protocol() -> None:
    """GRP-41: then the members have to agree anew."""
    rig = ClassicRig()
    both = [("range", b""), ("sticky", b"")]
    leader, _ = two_statics(rig, protocols=both)
    again = rig.member(instance_id="b", protocols=[("sticky", b"")])
    assert not again.join().is_answered
    assert rig.state == "PreparingRebalance"
    leader.join()
    rebalance([leader, again])
    assert rig.group().protocol_name == "sticky"


def test_it_comes_back_while_others_join() -> None:
    """GRP-42: as a member that joins."""
    rig = ClassicRig()
    leader, _ = two_statics(rig)
    leader.join()
    again = rig.member(instance_id="b")
    again.join()
    rebalance([leader, again])
    assert rig.group().generation == 2


def test_a_rebalance_begins_while_the_new_id_is_stored() -> None:
    """GRP-41: then the member has joined already."""
    rig = ClassicRig()
    leader, _ = two_statics(rig)
    rig.commits_at_once = False
    again = rig.member(instance_id="b")
    again.join()
    rig.flush()
    leader.join()
    assert rig.group().generation == 2
    assert again.joined().generation_id == 2
    rig.commit()
    assert rig.state == "CompletingRebalance"


def test_a_rebalance_waits_for_others_while_the_new_id_is_stored() -> None:
    """GRP-41: then the member waits for them too."""
    rig = ClassicRig()
    leader, _ = two_statics(rig)
    late = rig.member(version=3)
    late.join()
    leader.join()
    again = rig.member(instance_id="b")
    again.join()
    rebalance([leader, late, again])
    rig.commits_at_once = False
    third = rig.member(instance_id="b")
    third.join()
    rig.flush()
    leader.join()
    rig.commit()
    assert rig.state == "PreparingRebalance"
    assert not third.joining.is_answered
    late.join()
    assert third.joined().generation_id == 3


def test_it_is_replaced_twice_while_the_first_id_is_stored() -> None:
    """GRP-42: each is answered once, and the last one is told when its own id is stored."""
    rig = ClassicRig()
    two_statics(rig)
    rig.commits_at_once = False
    first, second = rig.member(instance_id="b"), rig.member(instance_id="b")
    first.join()
    rig.flush()
    end = rig.log.log_end_offset
    second.join()
    assert first.joining.error is ErrorCode.FENCED_INSTANCE_ID
    rig.flush()
    rig.commit(end)
    assert not second.joining.is_answered
    rig.commit()
    assert second.joined().member_id in rig.group().members


def test_it_does_not_join_again_and_is_kept() -> None:
    """GRP-43: until its session is over."""
    rig = ClassicRig()
    leader, follower = two_statics(rig, session_ms=REBALANCE_MS + 20_000)
    late = rig.member(version=3)
    late.join()
    leader.join()
    rig.advance(REBALANCE_MS + 100)
    assert len(leader.joined().members) == 3
    assert follower.member_id in rig.group().members


def test_nobody_joins_again_but_all_are_static() -> None:
    """GRP-43: the group waits on, until their sessions are over."""
    rig = ClassicRig()
    leader, follower = two_statics(rig, session_ms=REBALANCE_MS + 20_000)
    dynamic = rig.member(version=3)
    dynamic.join()
    dynamic.member_id = next(each for each in rig.group().members if each.startswith("c-"))
    dynamic.leave()
    rig.advance(REBALANCE_MS + 100)
    assert (rig.state, rig.group().generation) == ("PreparingRebalance", 1)
    leader.join()
    rig.advance(20_000)
    # The session of the other one is over, and nobody is missing.
    assert leader.joined().generation_id == 2
    assert follower.member_id not in rig.group().members


def test_an_unknown_instance_id_with_a_member_id() -> None:
    """GRP-29"""
    rig = ClassicRig()
    (member,) = rig.stable()
    member.instance_id = "x"
    assert member.join().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_id_is_not_for_a_static_member() -> None:
    """GRP-9"""
    rig = ClassicRig()
    member = rig.member()
    member.member_id = member.join().answer.member_id
    member.instance_id = "x"
    assert member.join().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.state == "Empty"
