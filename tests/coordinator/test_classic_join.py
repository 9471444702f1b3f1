"""JoinGroup: who is let in, when a generation begins, and what its members are told."""

from __future__ import annotations

import re

import pytest
from coordinator.classic_kit import (
    DELAY_MS,
    NEW_MEMBER_MS,
    REBALANCE_MS,
    SESSION_MS,
    ClassicRig,
    rebalance,
    subscription,
)

from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.protocol.errors import ErrorCode

NOW = GroupSettings(initial_rebalance_delay_ms=0)


def test_a_dynamic_member_is_told_its_id_first() -> None:
    """GRP-8, GRP-9"""
    rig = ClassicRig()
    member = rig.member(client_id="app")
    answer = member.join().answer
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert re.fullmatch(
        r"app-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", answer.member_id
    )
    assert rig.group().pending_members == {answer.member_id}
    assert rig.state == "Empty"
    member.member_id = answer.member_id
    member.join()
    assert not rig.group().pending_members
    rig.advance(DELAY_MS)
    assert member.joined().generation_id == 1


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_an_older_client_is_let_in_at_once(version: int) -> None:
    """GRP-10"""
    rig = ClassicRig()
    member = rig.member(version=version)
    assert not member.join().is_answered
    rig.advance(DELAY_MS)
    assert member.joined().member_id.startswith("c-")


def test_the_first_version_has_one_timeout_for_both() -> None:
    rig = ClassicRig(NOW)
    rig.member(version=0, rebalance_ms=-1).join()
    assert rig.group().rebalance_timeout_ms == SESSION_MS


@pytest.mark.parametrize("timeout_ms", [-1, -(2**31), 0])
def test_a_member_that_leaves_no_time(timeout_ms: int) -> None:
    """GRP-23: it does not sync within that time, and nobody suffers from it."""
    rig = ClassicRig()
    member = rig.member(version=3, rebalance_ms=timeout_ms)
    member.join()
    assert rig.group().rebalance_timeout_ms == 0
    rig.advance(2 * DELAY_MS)
    assert member.joined().generation_id == 1
    assert rig.state == "Empty"
    rig.stable()


@pytest.mark.parametrize(
    "fields", [{"client_id": "c" * 32_767}, {"instance_id": "i" * 32_767}], ids=["client", "static"]
)
def test_a_name_as_long_as_a_name_can_be(fields: dict[str, str]) -> None:
    """The id that is made of it can be told, and written; the group lives on."""
    rig = ClassicRig()
    other = rig.member(version=3)
    member = rig.member(version=3, **fields)
    other.join()
    member.join()
    rig.advance(2 * DELAY_MS)
    rebalance([other, member])
    assert len(member.member_id.encode()) < 32_767
    rig.move()
    assert list(rig.group().members) == [other.member_id, member.member_id]


def test_an_id_that_is_not_used_is_forgotten() -> None:
    """GRP-11: and blocks nobody any longer."""
    rig = ClassicRig()
    (member,) = rig.stable()
    late = rig.member()
    late.join()
    member.join()
    assert rig.state == "PreparingRebalance"
    assert not member.joining.is_answered
    rig.advance(SESSION_MS - 100)
    assert not member.joining.is_answered
    rig.advance(200)
    assert member.joined().generation_id == 2


def test_an_id_of_nobody() -> None:
    """GRP-8, GRP-29"""
    rig = ClassicRig()
    member = rig.member()
    member.member_id = "somebody"
    assert member.join().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.machine.directory.get("g") is None
    rig.member().join()
    assert rig.state == "Empty"
    assert member.join().error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("", [("range", b"")]), ("consumer", [])],
)
def test_a_member_that_speaks_of_nothing(
    protocol_type: str, protocols: list[tuple[str, bytes]]
) -> None:
    """GRP-14: and no group is made for it."""
    rig = ClassicRig()
    member = rig.member(protocol_type=protocol_type, protocols=protocols)
    assert member.join().error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.machine.directory.get("g") is None
    assert rig.log.log_end_offset == 0


@pytest.mark.parametrize(
    ("protocol_type", "name"), [("connect", "range"), ("consumer", "roundrobin")]
)
def test_a_member_that_does_not_fit(protocol_type: str, name: str) -> None:
    """GRP-14"""
    rig = ClassicRig()
    rig.stable()
    member = rig.member(protocol_type=protocol_type, protocols=[(name, b"")])
    assert member.join().error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.state == "Stable"


def test_the_first_member_leads_and_says_what_the_group_is_about() -> None:
    """GRP-15, GRP-26, GRP-85"""
    rig = ClassicRig()
    members = [
        rig.member(protocol_type="connect", protocols=[("v1", b"own"), ("v0", b"old")]),
        rig.member(protocol_type="connect", protocols=[("v1", b"other")]),
    ]
    for member in members:
        member.enter()
    rig.advance(2 * DELAY_MS)
    first, second = (member.joined() for member in members)
    assert rig.group().protocol_type == "connect"
    assert first.leader == second.leader == members[0].member_id
    assert (first.protocol_type, first.protocol_name) == ("connect", "v1")
    assert [(each.member_id, each.metadata) for each in first.members] == [
        (members[0].member_id, b"own"),
        (members[1].member_id, b"other"),
    ]
    assert second.members == []


def test_the_first_rebalance_waits_for_more_members() -> None:
    """GRP-21, PUR-59: as long as some come, but no longer than the rebalance timeout."""
    rig = ClassicRig()
    first = rig.member(version=3, rebalance_ms=7000)
    first.join()
    rig.advance(DELAY_MS - 100)
    assert not first.joining.is_answered
    rig.member(version=3, rebalance_ms=7000).join()
    rig.advance(DELAY_MS)
    assert not first.joining.is_answered
    rig.member(version=3, rebalance_ms=7000).join()
    rig.advance(1000 - 100)
    assert not first.joining.is_answered
    # 3 s, 3 s and the last one of seven.
    rig.advance(200)
    assert len(first.joined().members) == 3


def test_an_id_that_is_not_used_does_not_end_the_first_rebalance() -> None:
    """GRP-11, GRP-21: more members may come until the delay is over, whoever does not."""
    rig = ClassicRig(GroupSettings(initial_rebalance_delay_ms=2 * SESSION_MS))
    first = rig.member(version=3)
    first.join()
    rig.member().join()
    rig.advance(SESSION_MS + 100)
    assert not rig.group().pending_members
    assert not first.joining.is_answered
    rig.advance(SESSION_MS)
    assert first.joined().generation_id == 1


def test_nobody_comes_within_the_delay() -> None:
    """GRP-21: one above."""
    rig = ClassicRig()
    first = rig.member(version=3)
    first.join()
    rig.advance(DELAY_MS)
    assert first.joining.is_answered


def test_a_later_rebalance_ends_when_all_are_there() -> None:
    """GRP-22, GRP-25, PUR-59"""
    rig = ClassicRig()
    members = rig.stable(2)
    late = rig.member(version=3)
    late.join()
    assert rig.state == "PreparingRebalance"
    members[0].join()
    assert not late.joining.is_answered
    members[1].join()
    rebalance([*members, late])
    assert rig.group().generation == 2
    assert rig.state == "Stable"


def test_whoever_does_not_join_again_is_out() -> None:
    """GRP-23, GRP-24, PUR-59: after the longest rebalance timeout, and not after the session."""
    rig = ClassicRig()
    slow = rig.member(version=3, rebalance_ms=90_000)
    quick = rig.member(version=3)
    slow.join()
    quick.join()
    rig.advance(2 * DELAY_MS)
    rebalance([slow, quick])
    late = rig.member(version=3)
    late.join()
    quick.join()
    for _ in range(9):
        rig.advance(9900)
        assert slow.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    assert not quick.joining.is_answered
    assert len(rig.group().members) == 3
    rig.advance(1000)
    assert rig.group().generation == 2
    assert [each.member_id for each in quick.joined().members] == [
        quick.member_id,
        late.joined().member_id,
    ]
    assert late.joined().leader == quick.member_id
    assert set(rig.group().members) == {quick.member_id, late.member_id}
    assert slow.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_does_not_hold_the_others_up() -> None:
    """GRP-38: its session ends during the rebalance."""
    rig = ClassicRig()
    members = rig.stable(2)
    late = rig.member(version=3)
    late.join()
    members[0].join()
    rig.advance(SESSION_MS + 100)
    assert len(members[0].joined().members) == 2


def test_a_new_member_waits_for_five_minutes() -> None:
    """GRP-30: nobody knows whether it is still there."""
    rig = ClassicRig()
    (member,) = rig.stable(rebalance_ms=2 * NEW_MEMBER_MS, session_ms=1_000_000)
    late = rig.member(version=3)
    late.join()
    rig.advance(NEW_MEMBER_MS - 100)
    assert not late.joining.is_answered
    rig.advance(200)
    assert late.joining.error is ErrorCode.UNKNOWN_MEMBER_ID
    member.join()
    assert len(member.joined().members) == 1


def test_once_it_is_in_a_generation_its_session_counts() -> None:
    """GRP-30"""
    rig = ClassicRig()
    rig.stable()
    rig.advance(SESSION_MS - 200)
    assert rig.state == "Stable"
    rig.advance(300)
    assert rig.state == "Empty"


def test_the_answer_got_lost() -> None:
    """GRP-27: a member that joins again as it is gets the answer again."""
    rig = ClassicRig()
    members = [rig.member(version=3), rig.member(version=3)]
    for member in members:
        member.join()
    rig.advance(2 * DELAY_MS)
    first = members[0].joined()
    second = members[1].joined()
    assert members[0].join().answer.members == first.members
    assert members[1].join().answer == second
    assert rig.state == "CompletingRebalance"


def test_a_member_changes_its_mind_while_the_leader_assigns() -> None:
    """GRP-27: those who wait for the assignment are told to join again."""
    rig = ClassicRig()
    members = [rig.member(version=3), rig.member(version=3)]
    for member in members:
        member.join()
    rig.advance(2 * DELAY_MS)
    for member in members:
        member.joined()
    waiting = members[1].sync()
    members[0].protocols = [("range", subscription("other"))]
    members[0].join()
    assert rig.state == "PreparingRebalance"
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    members[1].join()
    assert members[1].joined().generation_id == 2


def test_a_follower_joins_again_without_news() -> None:
    """GRP-28"""
    rig = ClassicRig()
    members = rig.stable(2)
    answer = members[1].join().answer
    assert (answer.generation_id, answer.members) == (1, [])
    assert rig.state == "Stable"


def test_a_follower_joins_again_with_news() -> None:
    """GRP-28"""
    rig = ClassicRig()
    members = rig.stable(2)
    members[1].protocols = [("range", subscription("t", "u"))]
    assert not members[1].join().is_answered
    assert rig.state == "PreparingRebalance"


def test_a_leader_joins_again() -> None:
    """GRP-28, GRP-81: it has seen something that we can't see."""
    rig = ClassicRig()
    members = rig.stable(2)
    assert not members[0].join().is_answered
    assert rig.state == "PreparingRebalance"
    members[1].join()
    rebalance(members)


def test_a_join_that_is_sent_again_takes_the_place_of_the_first() -> None:
    """GRP-86: the one that is not waited for any more is answered too."""
    rig = ClassicRig()
    members = rig.stable(2)
    old = members[0].join()
    new = members[0].join()
    assert old.error is ErrorCode.REBALANCE_IN_PROGRESS
    members[1].join()
    assert new.answer.generation_id == 2


def test_a_name_that_is_listed_twice_counts_once() -> None:
    """GRP-17"""
    rig = ClassicRig()
    (member,) = rig.stable(protocols=[("range", b"1"), ("range", b"2")])
    other = rig.member(version=3, protocols=[("range", b"3")])
    other.join()
    member.join()
    rebalance([member, other])


class TestMaxSize:
    """GRP-12"""

    SETTINGS = GroupSettings(max_size=2)

    def test_a_full_group_takes_nobody(self) -> None:
        rig = ClassicRig(self.SETTINGS)
        rig.stable(2)
        answer = rig.member(version=3).join().answer
        assert (answer.error_code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        assert rig.state == "Stable"

    def test_one_below_it_takes_one(self) -> None:
        rig = ClassicRig(self.SETTINGS)
        rig.stable(1)
        assert not rig.member(version=3).join().is_answered

    def test_its_members_may_come_back(self) -> None:
        rig = ClassicRig(self.SETTINGS)
        members = rig.stable(2)
        for member in members:
            member.join()
        rebalance(members)

    def test_while_it_gathers_those_who_have_come_count(self) -> None:
        rig = ClassicRig(self.SETTINGS)
        for _ in range(2):
            rig.member(version=3).join()
        answer = rig.member(version=3).join().answer
        assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert len(rig.group().members) == 2

    def test_an_old_member_that_is_late_is_out_and_does_not_block(self) -> None:
        """Its place was taken; the group goes on without waiting for it."""
        rig = ClassicRig(self.SETTINGS)
        members = rig.stable(2)
        members[0].join()
        new = rig.member(version=3)
        new.join()
        assert members[1].join().answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        rebalance([members[0], new])


def test_the_group_is_lost_with_its_first_record() -> None:
    """CRT-6: nobody waits for a group that has never been."""
    rig = ClassicRig(commits_at_once=False)
    first, second = rig.member(version=3), rig.member(version=3)
    first.join()
    second.join()
    rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
    rig.commit()
    assert rig.machine.directory.get("g") is None
    assert first.joining.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert second.joining.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.commits_at_once = True
    rig.stable()


def test_an_id_is_told_when_the_group_is_committed() -> None:
    """CRT-2"""
    rig = ClassicRig(commits_at_once=False)
    waiting = rig.member().join()
    assert not waiting.is_answered
    rig.commit()
    assert waiting.answer.error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_only_what_is_waited_for_is_answered() -> None:
    """GRP-20: a rebalance is not begun twice."""
    rig = ClassicRig()
    members = rig.stable(3)
    members[0].join()
    rig.advance(1000)
    members[1].join()
    # The time runs since the rebalance began.
    for _ in range(6):
        rig.advance(9500)
        members[2].heartbeat()
    rig.advance(REBALANCE_MS - 1000 - 6 * 9500 + 100)
    assert len(members[0].joined().members) == 2
