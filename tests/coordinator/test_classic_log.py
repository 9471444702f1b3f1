"""Classic groups in the log: their records, loading, unloading, and administration."""

from __future__ import annotations

import logging
from random import Random

import pytest
from coordinator.classic_kit import SESSION_MS, ClassicRig, assignment_of, rebalance, subscription
from coordinator.shard_kit import ShardRig

from kraftpy.coordinator.groups.classic_group import ClassicGroup
from kraftpy.coordinator.groups.classic_records import (
    group_of_record,
    new_group_record,
    registration,
)
from kraftpy.coordinator.groups.machine import GroupMachine
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.outcome import CoordinatorRecord, Outcome
from kraftpy.coordinator.shard_writing import ShardSettings
from kraftpy.protocol.coordinator_records import GROUP_RECORDS, encode_key, encode_value
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kraftpy.records.batch import RecordBatch
from kraftpy.records.compression import Codec
from kraftpy.world import InternalInvariant


def value(**fields: object) -> GroupMetadataValue:
    member = MemberMetadata(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/h",
        rebalance_timeout=300,
        session_timeout=100,
        subscription=subscription("t"),
        assignment=b"mine",
    )
    written = GroupMetadataValue(
        protocol_type="consumer",
        generation=7,
        protocol="range",
        leader="m",
        current_state_timestamp=1234,
        members=[member],
    )
    for name, given in fields.items():
        setattr(written, name, given)
    return written


class TestRecords:
    def test_byte_for_byte(self) -> None:
        """GRP-49: what a broker of Apache Kafka writes for the same group."""
        group = group_of_record("g", value())
        record = registration(group, {"m": b"mine"})
        assert encode_key(record.key) == bytes.fromhex("0002 0001 67")
        assert encode_value(record.value, record.value_version) == bytes.fromhex(
            "0003"
            "0008 636f6e73756d6572"
            "00000007"
            "0005 72616e6765"
            "0001 6d"
            "00000000000004d2"
            "00000001"
            "0001 6d"
            "0001 69"
            "0001 63"
            "0002 2f68"
            "0000012c"
            "00000064"
            "00000017 0001 00000001 0001 74 ffffffff 00000000"
            "00000004 6d696e65".replace("00000017", f"{len(subscription('t')):08x}")
        )

    def test_of_a_new_group(self) -> None:
        """GRP-49"""
        record = new_group_record(ClassicGroup("g", 5))
        assert encode_value(record.value, record.value_version) == bytes.fromhex(
            "0003 0000 00000000 ffff ffff 0000000000000005 00000000"
        )

    @pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
    def test_every_version_is_read(self, version: int) -> None:
        """GRP-50: what an older one does not say is what it was then."""
        key = GroupMetadataKey(group="g")
        decoded, _ = GROUP_RECORDS.decode_value(key, encode_value(value(), version))
        assert isinstance(decoded, GroupMetadataValue)
        group = group_of_record("g", decoded)
        member = group.members["m"]
        assert (group.state_name, group.generation, group.leader_id) == ("Stable", 7, "m")
        assert (group.protocol_type, group.protocol_name) == ("consumer", "range")
        assert (member.session_timeout_ms, member.assignment) == (100, b"mine")
        assert member.rebalance_timeout_ms == (300 if version >= 1 else 100)
        assert group.state_timestamp_ms == (1234 if version >= 2 else -1)
        assert member.instance_id == ("i" if version >= 3 else None)
        assert group.subscribed_topics == {"t"}

    @pytest.mark.parametrize(("member_id", "instance_id"), [("m", "j"), ("n", "i")])
    def test_two_members_of_one_name(self, member_id: str, instance_id: str) -> None:
        """GRP-62: the first one is taken, and no node stops for it."""
        written = value(protocol_type="", protocol=None, leader="nobody")
        written.members.append(
            MemberMetadata(
                member_id=member_id,
                group_instance_id=instance_id,
                client_id="c",
                client_host="/h",
            )
        )
        group = group_of_record("g", written)
        assert list(group.members) == ["m"]
        assert (group.static_members, group.leader_id) == ({"i": "m"}, "m")
        rig = ClassicRig()
        rig.machine.directory.put(group)
        rig.machine.classic.loaded()
        rig.advance(200)
        assert rig.state == "Empty"

    def test_members_without_a_protocol_can_not_be_written(self) -> None:
        """GRP-51"""
        group = group_of_record("g", value())
        group.protocol_name = None
        with pytest.raises(InternalInvariant):
            registration(group, {"m": b""})


class TestLoading:
    def test_a_group_survives(self) -> None:
        """GRP-60, GRP-63: with new sessions."""
        rig = ClassicRig()
        members = rig.stable(2)
        rig.advance(SESSION_MS - 500)
        rig.move()
        assert (rig.state, rig.group().generation) == ("Stable", 1)
        rig.advance(SESSION_MS - 500)
        assert members[0].heartbeat().answer is not None
        assert members[1].sync().answer.assignment == assignment_of(members[1])
        rig.advance(SESSION_MS - 500)
        for member in members:
            member.join()
        rebalance(members)
        assert rig.group().generation == 2

    def test_the_leader_is_known(self) -> None:
        """GRP-60: also if it was not the first one."""
        both = value()
        second = MemberMetadata(
            member_id="n", client_id="c", client_host="/h", subscription=subscription("t")
        )
        both.members.append(second)
        both.leader = "n"
        assert group_of_record("g", both).leader_id == "n"

    def test_the_last_record_wins(self) -> None:
        """GRP-60"""
        rig = ClassicRig()
        (member,) = rig.stable()
        member.join()
        rebalance([member])
        rig.move()
        assert rig.group().generation == 2

    def test_a_rebalance_that_was_under_way(self) -> None:
        """GRP-60, GRP-64: those who waited look elsewhere, and find the old generation."""
        rig = ClassicRig()
        members = rig.stable(2)
        waiting = members[0].join()
        rig.move()
        assert waiting.error is ErrorCode.NOT_COORDINATOR
        assert (rig.state, rig.group().generation) == ("Stable", 1)

    def test_those_who_wait_for_the_assignment(self) -> None:
        """GRP-64"""
        rig = ClassicRig()
        members = rig.stable(2)
        for member in members:
            member.join()
        for member in members:
            member.joined()
        waiting = members[1].sync()
        rig.move()
        assert waiting.error is ErrorCode.NOT_COORDINATOR

    def test_the_leader_whose_assignment_is_on_its_way(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """GRP-64, CRT-19: answered once."""
        caplog.set_level(logging.WARNING)
        rig = ClassicRig()
        (member,) = rig.stable()
        member.join()
        member.joined()
        rig.commits_at_once = False
        waiting = member.sync({member.member_id: b"x"})
        rig.flush()
        old = rig.shard
        rig.move()
        assert waiting.error is ErrorCode.NOT_COORDINATOR
        # Nothing rings for a coordinator that is no more, and nothing is tried in vain.
        assert not old._timers._by_key
        assert caplog.text == ""
        # It was written, and the next coordinator goes on with it.
        assert rig.group().generation == 2

    def test_too_many_members(self) -> None:
        """GRP-13: those who come back first may stay."""
        rig = ClassicRig()
        members = rig.stable(3)
        rig.group_settings = GroupSettings(max_size=2)
        rig.move()
        assert rig.state == "PreparingRebalance"
        members[2].join()
        members[0].join()
        answer = members[1].join().answer
        assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        rebalance([members[0], members[2]])

    def test_just_enough_members(self) -> None:
        """GRP-13: one below."""
        rig = ClassicRig()
        rig.stable(2)
        rig.group_settings = GroupSettings(max_size=2)
        rig.move()
        assert rig.state == "Stable"

    def test_a_deleted_group(self) -> None:
        """GRP-60"""
        rig = ClassicRig()
        (member,) = rig.stable()
        member.leave()
        rig.call(lambda machine: machine.listing.delete(["g"]))
        assert rig.machine.directory.get("g") is None
        rig.move()
        assert rig.machine.directory.get("g") is None


def test_the_codec_of_the_topic() -> None:
    """GRP-73"""
    settings = ShardSettings(codec=Codec.LZ4)
    rig = ShardRig(
        lambda context: GroupMachine(context, GroupSettings(), Random(1)),
        GROUP_RECORDS,
        settings=settings,
    )
    value = OffsetCommitValue(offset=7, metadata="x" * 1000)
    record = CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=0), value, 4)
    rig.call(lambda machine: Outcome([record], "done"))
    (batch,) = rig.log.batches
    assert len(batch) < 300
    assert RecordBatch(bytearray(batch)).codec is Codec.LZ4
    rig.move()
    assert rig.machine.offsets.state.count == 1


class TestAdministration:
    def test_a_list(self) -> None:
        """GRP-46, CGP-58"""
        rig = ClassicRig()
        rig.stable()
        rig.member(group_id="e").join()
        rig.commit_offset("t", 0, 1, group_id="s")

        def listed(states: list[str], types: list[str]) -> list[tuple[str, str, str, str]]:
            return sorted(
                (each.group_id, each.protocol_type, each.group_state, each.group_type)
                for each in rig.machine.listing.listed(states, types)
            )

        stable = ("g", "consumer", "Stable", "classic")
        empty = [("e", "", "Empty", "classic"), ("s", "", "Empty", "classic")]
        assert listed([], []) == [empty[0], stable, empty[1]]
        assert listed(["sTaBlE"], []) == [stable]
        assert listed(["stable", "Empty"], ["classic"]) == [empty[0], stable, empty[1]]
        assert listed(["Empty"], []) == empty
        assert listed([], ["consumer"]) == []
        assert listed(["Dead"], []) == []

    def test_a_list_has_what_is_committed(self) -> None:
        """CRT-4"""
        rig = ClassicRig(commits_at_once=False)
        rig.member().join()
        assert rig.machine.listing.listed([], []) == []
        rig.commit()
        assert len(rig.machine.listing.listed([], [])) == 1

    def test_a_description(self) -> None:
        """GRP-47"""
        rig = ClassicRig()
        (member,) = rig.stable(instance_id="i", protocols=[("range", b"meta"), ("x", b"")])
        (group,) = rig.machine.listing.describe(["g"], 6)
        assert (group.error_code, group.group_state) == (0, "Stable")
        assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
        (described,) = group.members
        assert described.member_id == member.member_id
        assert described.group_instance_id == "i"
        assert (described.client_id, described.client_host) == ("c", "/10.0.0.1")
        assert described.member_metadata == b"meta"
        assert described.member_assignment == assignment_of(member)

    def test_a_description_while_it_rebalances(self) -> None:
        """GRP-47: there is no protocol that all agree on."""
        rig = ClassicRig()
        rig.stable()[0].join()
        (group,) = rig.machine.listing.describe(["g"], 6)
        assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
        assert group.members[0].member_metadata == b""

    @pytest.mark.parametrize(("version", "code"), [(5, 0), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
    def test_a_description_of_nothing(self, version: int, code: int) -> None:
        """GRP-47"""
        (group,) = ClassicRig().machine.listing.describe(["none"], version)
        assert (group.group_id, group.group_state) == ("none", "Dead")
        assert group.error_code == code

    def test_deletion(self) -> None:
        """GRP-48, CGP-59: with all offsets; the group last."""
        rig = ClassicRig()
        (member,) = rig.stable()
        member.commit(5)
        assert _delete(rig, "g") == ErrorCode.NON_EMPTY_GROUP
        member.leave()
        assert _delete(rig, "none") == ErrorCode.GROUP_ID_NOT_FOUND
        end = rig.log.log_end_offset
        assert _delete(rig, "g") == 0
        assert rig.log.log_end_offset == end + 2
        assert rig.machine.directory.get("g") is None
        assert rig.machine.offsets.state.count == 0
        assert _delete(rig, "g") == ErrorCode.GROUP_ID_NOT_FOUND

    def test_one_group_named_twice(self) -> None:
        rig = ClassicRig()
        rig.member().join()
        results = rig.call(lambda machine: machine.listing.delete(["g", "g"]))
        assert [each.error_code for each in results] == [0]


def _delete(rig: ClassicRig, group_id: str) -> int:
    (result,) = rig.call(lambda machine: machine.listing.delete([group_id]))
    assert result.group_id == group_id
    code: int = result.error_code
    return code
