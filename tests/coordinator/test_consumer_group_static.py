"""Static members of consumer groups (CGP-36 to CGP-39)."""

from __future__ import annotations

import pytest
from coordinator.consumer_kit import (
    INTERVAL_MS,
    SESSION_MS,
    Client,
    ConsumerRig,
    assigned,
    settle,
    types,
)

from kraftpy.coordinator.groups.consumer_member import MemberState
from kraftpy.protocol.errors import ErrorCode


def pair(rig: ConsumerRig) -> tuple[Client, Client]:
    """Two static members that have settled."""
    first = Client(rig, "a", ["t"], instance="i")
    second = Client(rig, "b", ["t"], instance="j")
    first.join()
    second.join()
    settle([first, second])
    assert rig.group().state_name == "Stable"
    return first, second


class TestAbsence:
    def test_leaving_for_a_while_keeps_everything(self) -> None:
        """CGP-36: one record, no new epoch, and nobody else gets anything."""
        rig = ConsumerRig({"t": 4})
        first, second = pair(rig)
        epoch, held = rig.group().epoch.value, rig.held("a")
        assert types(rig.written(lambda: first.leave(-2))) == ["8"]
        assert rig.member("a").current.member_epoch == -2
        assert rig.held("a") == held
        settle([second], 2)
        assert rig.group().epoch.value == epoch
        assert second.owned == {"t": {0, 1, 2, 3} - held["t"]}

    def test_the_answer(self) -> None:
        rig = ConsumerRig({"t": 4})
        pair(rig)
        answer = rig.beat(member_id="a", instance_id="i", member_epoch=-2)
        assert (answer.member_id, answer.member_epoch) == ("a", -2)

    def test_what_was_to_be_given_up_is_given_up(self) -> None:
        rig = ConsumerRig({"t": 4})
        first = Client(rig, "a", ["t"], instance="i")
        first.join()
        rig.clock.now_ms += INTERVAL_MS
        second = Client(rig, "b", ["t"])
        second.join()
        first.beat()
        assert rig.member("a").current.state is MemberState.UNREVOKED_PARTITIONS
        first.leave(-2)
        assert not rig.member("a").current.pending_revocation
        second.beat()
        assert len(second.owned["t"]) == 2
        assert rig.group().members.keys() == {"a", "b"}

    def test_who_does_not_return_is_removed(self) -> None:
        """CGP-37."""
        rig = ConsumerRig({"t": 4})
        first, second = pair(rig)
        first.leave(-2)
        for _ in range(SESSION_MS // 5000 + 1):
            second.beat()
            rig.advance(5000)
        assert rig.group().members.keys() == {"b"}
        assert "i" not in rig.group().static_members
        settle([second], 2)
        assert second.owned == {"t": {0, 1, 2, 3}}


class TestReturn:
    def test_under_a_new_id_it_gets_the_same(self) -> None:
        """CGP-36: tombstones of the old id, records of the new one, no new epoch."""
        rig = ConsumerRig({"t": 4})
        first, second = pair(rig)
        epoch, owned = rig.group().epoch.value, first.owned
        first.leave(-2)
        again = Client(rig, "a2", ["t"], instance="i")
        written = rig.written(again.join)
        assert types(written) == ["-8", "-7", "-5", "5", "7", "8", "8"]
        assert again.owned == owned
        assert again.epoch == epoch == rig.group().epoch.value
        assert rig.group().members.keys() == {"a2", "b"}
        assert rig.group().static_members["i"] == "a2"
        assert rig.written(lambda: settle([again, second], 2)) == []

    def test_under_its_old_id(self) -> None:
        rig = ConsumerRig({"t": 4})
        first, _ = pair(rig)
        epoch, owned = rig.group().epoch.value, first.owned
        first.leave(-2)
        assert assigned(first.join()) == owned
        assert first.epoch == epoch == rig.group().epoch.value

    def test_with_another_subscription(self) -> None:
        """The group has a new epoch then."""
        rig = ConsumerRig({"t": 4, "u": 2})
        first, second = pair(rig)
        epoch = rig.group().epoch.value
        first.leave(-2)
        again = Client(rig, "a2", ["t", "u"], instance="i")
        again.join()
        assert rig.group().epoch.value == epoch + 1
        settle([again, second], 5)
        assert again.owned["u"] == {0, 1}

    def test_the_target_may_have_changed_meanwhile(self) -> None:
        rig = ConsumerRig({"t": 4})
        first, second = pair(rig)
        first.leave(-2)
        rig.change_topics(t=6)
        settle([second], 3)
        again = Client(rig, "a2", ["t"], instance="i")
        again.join()
        settle([again, second], 3)
        assert sorted([*again.owned["t"], *second.owned["t"]]) == list(range(6))
        assert rig.group().state_name == "Stable"

    def test_the_new_one_has_a_session_and_the_old_one_none(self) -> None:
        rig = ConsumerRig({"t": 4})
        first, second = pair(rig)
        first.leave(-2)
        rig.advance(SESSION_MS - 2500)
        second.beat()
        Client(rig, "a2", ["t"], instance="i").join()
        rig.advance(5000)
        assert rig.group().members.keys() == {"a2", "b"}
        rig.advance(SESSION_MS)
        assert rig.group().is_empty

    def test_to_another_coordinator(self) -> None:
        rig = ConsumerRig({"t": 4})
        first, _ = pair(rig)
        owned = first.owned
        first.leave(-2)
        rig.move()
        again = Client(rig, "a2", ["t"], instance="i")
        again.join()
        assert again.owned == owned

    def test_a_return_that_is_lost(self) -> None:
        rig = ConsumerRig({"t": 4})
        first, _ = pair(rig)
        owned = first.owned
        first.leave(-2)
        rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
        again = Client(rig, "a2", ["t"], instance="i")
        waiting = rig.heartbeat(**again.full_request())
        rig.commit()
        assert waiting.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert rig.group().static_members["i"] == "a"
        assert rig.held("a") == owned
        again.join()
        assert again.owned == owned


class TestConflicts:
    def test_an_instance_that_is_in_use(self) -> None:
        """CGP-38."""
        rig = ConsumerRig({"t": 4})
        pair(rig)
        other = Client(rig, "c", ["t"], instance="i")
        assert rig.refused(**other.full_request()) is ErrorCode.UNRELEASED_INSTANCE_ID

    @pytest.mark.parametrize("epoch", [-2, -1, 1])
    def test_another_member_has_the_instance(self, epoch: int) -> None:
        """CGP-39."""
        rig = ConsumerRig({"t": 4})
        pair(rig)
        request = {"member_id": "b", "instance_id": "i", "member_epoch": epoch}
        assert rig.refused(**request) is ErrorCode.FENCED_INSTANCE_ID

    @pytest.mark.parametrize("epoch", [-2, -1, 1])
    def test_nobody_has_it(self, epoch: int) -> None:
        """CGP-39."""
        rig = ConsumerRig({"t": 4})
        pair(rig)
        request = {"member_id": "a", "instance_id": "k", "member_epoch": epoch}
        assert rig.refused(**request) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_the_old_one_is_fenced_when_the_new_one_is_there(self) -> None:
        """CGP-39."""
        rig = ConsumerRig({"t": 4})
        first, _ = pair(rig)
        request = first.short_request()
        first.leave(-2)
        assert rig.refused(**request) is ErrorCode.FENCED_MEMBER_EPOCH
        Client(rig, "a2", ["t"], instance="i").join()
        assert rig.refused(**request) is ErrorCode.FENCED_INSTANCE_ID

    def test_leaving_for_good(self) -> None:
        """Like a dynamic member."""
        rig = ConsumerRig({"t": 4})
        first, _ = pair(rig)
        assert types(rig.written(first.leave)) == ["-8", "-7", "-5", "3"]
        assert rig.group().static_members.keys() == {"j"}
