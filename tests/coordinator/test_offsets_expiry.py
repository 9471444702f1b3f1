"""Offsets that nobody needs any more."""

from __future__ import annotations

import logging

import pytest
from api.image_cluster import image_of
from coordinator.classic_kit import ClassicRig, Member, rebalance, subscription
from coordinator.test_offsets_transactions import ONE
from coordinator.test_offsets_transactions import commit as commit_transactional

from kraftpy.coordinator.groups.offsets_table import TopicPartition
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.metadata import records as r
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import EMPTY_IMAGE
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid

RETENTION_MS = 3_600_000
CHECK_MS = 600_000
# Members need not send heartbeats in these tests.
LONG_MS = 10 * RETENTION_MS
SETTINGS = GroupSettings(
    offsets_retention_ms=RETENTION_MS,
    offsets_retention_check_interval_ms=CHECK_MS,
    max_session_timeout_ms=LONG_MS,
)


def partitions(rig: ClassicRig, group_id: str = "g") -> list[TopicPartition]:
    return rig.machine.offsets.state.partitions_of(group_id)


def pass_by(rig: ClassicRig, milliseconds: int) -> None:
    """Time passes in big steps."""
    rig.clock.now_ms += milliseconds - 100
    rig.advance(100)


def stable(rig: ClassicRig, topic: str, protocol_type: str = "consumer") -> Member:
    (member,) = rig.stable(
        session_ms=LONG_MS,
        protocol_type=protocol_type,
        protocols=[("range", subscription(topic))],
    )
    return member


class TestExpiry:
    def test_a_group_without_members(self, caplog: pytest.LogCaptureFixture) -> None:
        """GRP-66, GRP-70, GRP-72: since it became Empty, over a restart; the group goes too."""
        caplog.set_level(logging.INFO)
        rig = ClassicRig(SETTINGS)
        member = stable(rig, "t")
        member.commit(1)
        pass_by(rig, 2 * RETENTION_MS)
        assert partitions(rig) == [("t", 0)]
        member.leave()
        pass_by(rig, RETENTION_MS - CHECK_MS)
        rig.move()
        pass_by(rig, CHECK_MS - 1000)
        assert partitions(rig) == [("t", 0)]
        pass_by(rig, CHECK_MS + 1000)
        assert partitions(rig) == []
        assert rig.machine.directory.get("g") is None
        assert "removed 1 expired offsets in 0 ms" in caplog.text
        rig.move()
        assert rig.machine.directory.get("g") is None

    def test_an_active_group(self) -> None:
        """GRP-67: what it reads is kept, however old; the rest goes by the time of the commit."""
        rig = ClassicRig(SETTINGS)
        member = stable(rig, "t")
        member.commit(1)
        for topic in ("u", "v"):
            rig.commit_offset(topic, 0, 1, generation=1, member_id=member.member_id)
        pass_by(rig, RETENTION_MS - CHECK_MS)
        rig.commit_offset("v", 0, 2, generation=1, member_id=member.member_id)
        pass_by(rig, 2 * CHECK_MS)
        assert partitions(rig) == [("t", 0), ("v", 0)]
        assert rig.state == "Stable"

    def test_a_group_that_rebalances_loses_nothing(self) -> None:
        """GRP-67: what it will read is not known."""
        rig = ClassicRig(SETTINGS)
        member = stable(rig, "t")
        rig.commit_offset("u", 0, 1, generation=1, member_id=member.member_id)
        rig.member(version=3, session_ms=LONG_MS, rebalance_ms=LONG_MS).join()
        pass_by(rig, 2 * RETENTION_MS)
        assert rig.state == "PreparingRebalance"
        assert partitions(rig) == [("u", 0)]

    def test_nobody_is_in_a_group(self) -> None:
        """GRP-68: the time of the commit counts."""
        rig = ClassicRig(SETTINGS)
        rig.commit_offset("t", 0, 1)
        pass_by(rig, RETENTION_MS // 2)
        rig.commit_offset("t", 1, 1)
        pass_by(rig, RETENTION_MS // 2 + CHECK_MS)
        assert partitions(rig) == [("t", 1)]
        pass_by(rig, RETENTION_MS)
        assert rig.machine.directory.get("g") is None

    def test_just_before(self) -> None:
        """GRP-68: one below."""
        rig = ClassicRig(
            GroupSettings(
                offsets_retention_ms=CHECK_MS, offsets_retention_check_interval_ms=CHECK_MS
            )
        )
        rig.advance(50)
        rig.commit_offset("t", 0, 1)
        pass_by(rig, CHECK_MS)
        assert partitions(rig) == [("t", 0)]
        pass_by(rig, CHECK_MS)
        assert partitions(rig) == []

    def test_an_active_group_of_another_kind(self) -> None:
        """GRP-68: nobody knows what it reads."""
        rig = ClassicRig(SETTINGS)
        stable(rig, "t", "connect").commit(1)
        pass_by(rig, 2 * RETENTION_MS)
        assert partitions(rig) == [("t", 0)]

    def test_a_subscription_that_can_not_be_read(self) -> None:
        """GRP-67"""
        rig = ClassicRig(SETTINGS)
        (member,) = rig.stable(session_ms=LONG_MS, protocols=[("range", b"?")])
        member.commit(1)
        pass_by(rig, 2 * RETENTION_MS)
        assert partitions(rig) == [("t", 0)]

    def test_a_time_of_its_own(self) -> None:
        """GRP-69: an old client has said how long."""
        rig = ClassicRig(SETTINGS)
        rig.commit_offset("t", 0, 1, retention_ms=CHECK_MS, version=4)
        rig.commit_offset("t", 1, 1, retention_ms=2 * RETENTION_MS, version=4)
        pass_by(rig, 2 * CHECK_MS)
        assert partitions(rig) == [("t", 1)]
        pass_by(rig, RETENTION_MS + CHECK_MS)
        rig.move()
        assert partitions(rig) == [("t", 1)]
        pass_by(rig, RETENTION_MS)
        assert partitions(rig) == []

    def test_for_ever(self) -> None:
        """GRP-69: the longest time that a request can say, from now on."""
        rig = ClassicRig(SETTINGS)
        assert rig.commit_offset("t", 0, 1, retention_ms=2**63 - 1, version=4).answer is not None
        pass_by(rig, 2 * RETENTION_MS)
        assert partitions(rig) == [("t", 0)]

    def test_what_a_transaction_may_change(self) -> None:
        """GRP-69"""
        rig = ClassicRig(SETTINGS)
        rig.commit_offset("t", 0, 1)
        rig.commit_offset("t", 1, 1)
        commit_transactional(rig, 5)
        pass_by(rig, 2 * RETENTION_MS)
        assert partitions(rig) == [("t", 0)]
        assert rig.machine.directory.get("g") is not None
        rig.complete_transaction(ONE, is_commit=False)
        pass_by(rig, CHECK_MS)
        assert rig.machine.directory.get("g") is None

    def test_only_a_transaction_keeps_the_group(self) -> None:
        """GRP-70"""
        rig = ClassicRig(SETTINGS)
        commit_transactional(rig, 5)
        pass_by(rig, 2 * CHECK_MS)
        assert rig.machine.directory.get("g") is not None

    def test_a_group_without_offsets(self) -> None:
        """GRP-70"""
        rig = ClassicRig(SETTINGS)
        rig.member().join()
        pass_by(rig, CHECK_MS + 100)
        assert rig.machine.directory.get("g") is None
        # Another round comes, and does no harm.
        pass_by(rig, CHECK_MS + 100)

    def test_an_active_group_without_offsets(self) -> None:
        """GRP-70: stays, whatever it is about."""
        rig = ClassicRig(SETTINGS)
        stable(rig, "t")
        pass_by(rig, 2 * RETENTION_MS)
        assert rig.state == "Stable"

    def test_the_log_fails(self) -> None:
        """GRP-72: the next round does it."""
        rig = ClassicRig(SETTINGS)
        rig.commit_offset("t", 0, 1, retention_ms=1, version=4)
        rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
        pass_by(rig, CHECK_MS + 100)
        assert partitions(rig) == [("t", 0)]
        pass_by(rig, CHECK_MS + 100)
        assert partitions(rig) == []

    def test_many(self) -> None:
        """GRP-72: in parts, none of which takes long."""
        rig = ClassicRig(SETTINGS)
        for number in range(1200):
            rig.commit_offset("t", 0, 1, group_id=f"g{number}", retention_ms=1, version=4)
        assert rig.machine.offsets.state.count == 1200
        # A part is over at 500 offsets.
        rig.commits_at_once = False
        rig.clock.now_ms += CHECK_MS
        rig.commit()
        while rig.machine.offsets.state.count:
            rig.advance(50)
            rig.commit()
        assert rig.machine.directory.all() == []


class TestDeletedTopics:
    """GRP-71"""

    def delete(self, rig: ClassicRig, *names: str) -> None:
        topics = [
            r.TopicRecord(name=name, topic_id=Uuid(bytes([number + 1]) * 16))
            for number, name in enumerate(names)
        ]
        image = image_of(*topics)
        rig.shard.metadata_changed(ImageChanges(image, EMPTY_IMAGE), EMPTY_IMAGE)

    def test_in_all_groups(self) -> None:
        rig = ClassicRig()
        for group_id in ("g", "h"):
            rig.commit_offset("t", 0, 1, group_id=group_id)
            rig.commit_offset("t", 7, 1, group_id=group_id)
            rig.commit_offset("u", 0, 1, group_id=group_id)
        commit_transactional(rig, 5, partition=9)
        self.delete(rig, "t", "x")
        rig.advance(100)
        for group_id in ("g", "h"):
            assert partitions(rig, group_id) == [("u", 0)]
        rig.move()
        assert rig.machine.offsets.state.count == 2
        rig.complete_transaction(ONE, is_commit=True)
        assert rig.machine.offsets.state.count == 2

    def test_not_of_the_next_topic_of_that_name(self) -> None:
        rig = ClassicRig()
        rig.commit_offset("t", 0, 1)
        rig.commit_offset("t", 1, 1)
        self.delete(rig, "t")
        rig.commits_at_once = False
        rig.commit_offset("t", 0, 2)
        rig.advance(100)
        rig.commit()
        assert partitions(rig) == [("t", 0)]

    def test_also_those_that_are_not_in_the_log_yet(self) -> None:
        """CTL-99"""
        rig = ClassicRig(commits_at_once=False)
        rig.commit_offset("t", 0, 1)
        self.delete(rig, "t")
        rig.advance(100)
        rig.commit()
        assert partitions(rig) == []

    def test_the_log_fails(self) -> None:
        """Nobody would find them again, but the consumers of the next topic of that name."""
        rig = ClassicRig()
        for group_id in ("g", "h"):
            rig.commit_offset("t", 0, 1, group_id=group_id)
        self.delete(rig, "t")
        rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
        rig.advance(100)
        rig.commit_offset("t", 0, 2, group_id="h")
        rig.advance(1000)
        assert partitions(rig, "g") == []
        assert partitions(rig, "h") == [("t", 0)]

    def test_what_was_never_written_does_not_count(self) -> None:
        """A write that failed has moved nothing: what follows it belongs to the next topic."""
        rig = ClassicRig(commits_at_once=False)
        rig.commit_offset("u", 0, 1)
        rig.commit()
        rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
        for partition in range(5):
            rig.commit_offset("t", partition, 1)
        rig.commit()
        self.delete(rig, "t")
        rig.commit_offset("t", 0, 2)
        rig.advance(100)
        rig.commit()
        assert partitions(rig) == [("u", 0), ("t", 0)]

    def test_also_while_the_coordinator_is_loading(self) -> None:
        """Nobody else would: the coordinator before it was gone."""
        rig = ClassicRig()
        gone, kept = (image_of(r.TopicRecord(name, Uuid(name.encode() * 16))) for name in "tu")
        rig.commit_offset("t", 0, 1)
        rig.commit_offset("u", 0, 1)
        rig.image = gone
        rig.move(lambda shard: shard.metadata_changed(ImageChanges(gone, kept), kept))
        rig.advance(100)
        assert partitions(rig) == [("u", 0)]

    def test_a_topic_that_grows_is_not_deleted(self) -> None:
        rig = ClassicRig()
        rig.commit_offset("t", 0, 1)
        image = image_of(r.TopicRecord(name="t", topic_id=Uuid(bytes([1]) * 16)))
        rig.shard.metadata_changed(ImageChanges(EMPTY_IMAGE, image), image)
        rig.advance(100)
        assert partitions(rig) == [("t", 0)]


def test_members_and_offsets_do_not_get_into_each_others_way() -> None:
    rig = ClassicRig(SETTINGS)
    rig.commit_offset("t", 0, 1)
    members = rig.stable(2, session_ms=LONG_MS)
    pass_by(rig, 2 * RETENTION_MS)
    assert partitions(rig) == [("t", 0)]
    for member in members:
        member.join()
    rebalance(members)
