"""Consumer groups in the log: formats, loading, compaction, deletion (CGP-59 to CGP-62)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from coordinator.consumer_kit import INTERVAL_MS, Client, ConsumerRig, settle, topic_id, types

from kraftpy.coordinator.groups.consumer_group import ConsumerGroup, HolderConflictError
from kraftpy.coordinator.groups.consumer_member import (
    ClassicProfile,
    CurrentAssignment,
    MemberProfile,
    MemberState,
)
from kraftpy.coordinator.groups.consumer_records import (
    ResolvedRegex,
    current_record,
    current_tombstone,
    epoch_record,
    group_tombstone,
    legacy_metadata_tombstone,
    profile_record,
    profile_tombstone,
    read_current,
    read_profile,
    regex_record,
    regex_tombstone,
    target_epoch_record,
    target_epoch_tombstone,
    target_record,
    target_tombstone,
)
from kraftpy.coordinator.groups.consumer_replay import ConsumerReplay, ReplayError
from kraftpy.coordinator.groups.consumer_topics import ConsumerTopics
from kraftpy.coordinator.groups.directory import GroupDirectory
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.outcome import CoordinatorRecord, Outcome
from kraftpy.coordinator.timeline import Timeline
from kraftpy.metadata.image import EMPTY_IMAGE
from kraftpy.protocol.coordinator_records import GROUP_RECORDS, encode_key, encode_value
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    CurrentTopicPartitions,
)

T = topic_id("t")
TOMBSTONES = [
    current_tombstone("g", "m"),
    target_tombstone("g", "m"),
    target_epoch_tombstone("g"),
    profile_tombstone("g", "m"),
    regex_tombstone("g", "r"),
    legacy_metadata_tombstone("g"),
    group_tombstone("g"),
]


class Replayed:
    """A directory that records are replayed into, without a shard."""

    def __init__(self, records: Sequence[CoordinatorRecord] = (), *, is_loading: bool = True):
        self.timeline = Timeline()
        self.directory = GroupDirectory(self.timeline)
        self.replay = ConsumerReplay(
            self.directory, self.timeline, ConsumerTopics(lambda: EMPTY_IMAGE)
        )
        self.replay.is_loading = is_loading
        for record in records:
            self.replay.replay(record)

    def group(self) -> ConsumerGroup:
        group = self.directory.get("g")
        assert isinstance(group, ConsumerGroup)
        return group

    def state(self) -> dict[str, Any]:
        """All that is replayed, of all groups."""
        state: dict[str, Any] = {}
        for group in self.directory.all():
            assert isinstance(group, ConsumerGroup)
            maps = ("members", "static_members", "targets", "holders", "topic_readers")
            maps += ("regex_readers", "resolved_regexes")
            values = ("epoch", "metadata_hash", "assignment_epoch", "assignment_timestamp_ms")
            values += ("has_legacy_metadata", "classic_count")
            state[group.group_id] = {
                **{name: dict(getattr(group, name).items()) for name in maps},
                **{name: getattr(group, name).value for name in values},
            }
        return state


def busy_log(seed: int) -> list[CoordinatorRecord]:
    """Two groups with members that come, go, return and change what they want."""
    random = Random(seed)
    settings = GroupSettings(consumer_session_timeout_ms=10_000_000)
    rig = ConsumerRig({"t": 4, "u": 2, "v": 1}, settings=settings, seed=seed)
    clients = [
        Client(rig, "a", ["t"], instance="i"),
        Client(rig, "b", ["t", "u"]),
        Client(rig, "c", regex="[uv]"),
        Client(rig, "d", ["t", "v"], group_id="h", instance="i"),
    ]
    for _ in range(32):
        rig.clock.now_ms += random.choice([100, 1000, 11_000])
        client = random.choice(clients)
        if client.epoch == 0:
            client.join()
        elif random.random() < 0.25:
            client.leave(-2 if client.instance else -1)
            client.member_id += "x"
        elif random.random() < 0.2:
            client.topics = random.choice([["t"], ["u", "v"], []])
            client.beat(subscribed_topic_names=client.topics)
        else:
            client.beat()
    return rig.records()


def compacted(
    records: Sequence[CoordinatorRecord], end: int, *, keeps_tombstones: bool
) -> list[CoordinatorRecord]:
    """What the cleaner leaves of a log that it has cleaned up to a record."""
    newest = {encode_key(record.key): index for index, record in enumerate(records[:end])}
    kept = [
        record
        for index, record in enumerate(records[:end])
        if newest[encode_key(record.key)] == index
        and (keeps_tombstones or record.value is not None)
    ]
    return [*kept, *records[end:]]


class TestLoading:
    @pytest.mark.parametrize("seed", range(6))
    @pytest.mark.parametrize("keeps_tombstones", [True, False])
    def test_a_log_compacted_up_to_any_record(self, seed: int, keeps_tombstones: bool) -> None:
        """CGP-61."""
        records = busy_log(seed)
        assert len(records) > 50
        expected = Replayed(records).state()
        assert expected
        for end in range(len(records) + 1):
            thinned = compacted(records, end, keeps_tombstones=keeps_tombstones)
            assert Replayed(thinned).state() == expected, f"compacted up to record {end}"

    @pytest.mark.parametrize("seed", range(3))
    def test_loaded_state_is_the_state_that_was(self, seed: int) -> None:
        """The same replay serves both."""
        records = busy_log(seed)
        assert Replayed(records).state() == Replayed(records, is_loading=False).state()

    @pytest.mark.parametrize("record", TOMBSTONES, ids=types(TOMBSTONES))
    @pytest.mark.parametrize("is_loading", [True, False])
    def test_tombstones_of_what_is_not_there(
        self, record: CoordinatorRecord, is_loading: bool
    ) -> None:
        """CGP-62: neither the group nor the member."""
        replayed = Replayed([record], is_loading=is_loading)
        assert replayed.state() == {}
        other = [epoch_record("g", 3, 0), profile_record("g", "other", MemberProfile())]
        before = Replayed(other, is_loading=is_loading).state()
        if record.key != group_tombstone("g").key:
            assert Replayed([*other, record], is_loading=is_loading).state() == before

    def test_the_last_word_counts_while_loading(self) -> None:
        """A record that gives a partition to a second member, and what the first one loses."""
        current = CurrentAssignment(2, 1, MemberState.STABLE, {T: {0: 2}})
        replayed = Replayed(
            [
                current_record("g", "a", current),
                current_record("g", "b", current),
                current_tombstone("g", "a"),
            ]
        )
        assert dict(replayed.group().holders.items()) == {(T, 0): "b"}
        replayed.replay.replay(profile_tombstone("g", "b"))
        assert not dict(replayed.group().holders.items())

    def test_an_instance_belongs_to_who_came_last(self) -> None:
        profile = MemberProfile(instance_id="i")
        replayed = Replayed(
            [
                profile_record("g", "a", profile),
                profile_record("g", "b", profile),
                profile_tombstone("g", "a"),
            ]
        )
        assert dict(replayed.group().static_members.items()) == {"i": "b"}

    def test_a_new_coordinator_goes_on(self) -> None:
        rig = ConsumerRig({"t": 4})
        clients = [Client(rig, name, ["t"]) for name in "ab"]
        for client in clients:
            client.join()
        rig.clock.now_ms += INTERVAL_MS
        clients[0].beat()
        rig.move()
        settle(clients, 4)
        assert rig.group().state_name == "Stable"
        assert sorted([*clients[0].owned["t"], *clients[1].owned["t"]]) == [0, 1, 2, 3]


class TestLiveReplay:
    """What would be a mistake of ours is refused."""

    def test_a_partition_that_another_member_holds(self) -> None:
        current = CurrentAssignment(2, 1, MemberState.STABLE, {T: {0: 2}})
        replayed = Replayed([current_record("g", "a", current)], is_loading=False)
        with pytest.raises(HolderConflictError):
            replayed.replay.replay(current_record("g", "b", current))

    def test_a_member_that_goes_too_soon(self) -> None:
        current = CurrentAssignment(2, 1)
        for record in (current_record("g", "a", current), target_record("g", "a", {})):
            records = [profile_record("g", "a", MemberProfile()), record]
            replayed = Replayed(records, is_loading=False)
            with pytest.raises(ReplayError):
                replayed.replay.replay(profile_tombstone("g", "a"))

    def test_a_group_that_goes_with_members(self) -> None:
        replayed = Replayed([profile_record("g", "a", MemberProfile())], is_loading=False)
        with pytest.raises(ReplayError):
            replayed.replay.replay(group_tombstone("g"))

    def test_such_a_write_leaves_nothing_behind(self) -> None:
        rig = ConsumerRig({"t": 4})
        Client(rig, "a", ["t"]).join()
        before, end = dict(rig.group().holders.items()), rig.log.log_end_offset
        current = CurrentAssignment(9, 9, MemberState.STABLE, {T: {0: 9}})
        waiting = rig.write(lambda machine: Outcome([current_record("g", "b", current)], "done"))
        rig.commit()
        assert waiting.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert dict(rig.group().holders.items()) == before
        assert rig.log.log_end_offset == end


class TestFormats:
    def test_bytes(self) -> None:
        """CGP-60: types and versions before keys and values, tags left out at their defaults."""
        record = epoch_record("g", 7, 0)
        assert encode_key(record.key) == b"\x00\x03\x00\x01g"
        assert record.value is not None
        assert encode_value(record.value, 0) == b"\x00\x00\x00\x00\x00\x07\x00"
        hashed = epoch_record("g", 7, -1).value
        assert hashed is not None
        assert encode_value(hashed, 0) == b"\x00\x00\x00\x00\x00\x07\x01\x00\x08" + b"\xff" * 8

    def test_bytes_of_an_assignment(self) -> None:
        """CGP-60."""
        current = CurrentAssignment(3, 2, MemberState.UNREVOKED_PARTITIONS, {T: {4: 1, 0: 3}})
        record = current_record("g", "m", current)
        assert record.value is not None
        assert encode_key(record.key) == b"\x00\x08\x00\x01g\x00\x01m"
        assert encode_value(record.value, 0) == (
            b"\x00\x00"
            b"\x00\x00\x00\x03\x00\x00\x00\x02\x01"
            b"\x02" + T + b"\x03\x00\x00\x00\x00\x00\x00\x00\x04"
            b"\x01\x00\x09\x03\x00\x00\x00\x03\x00\x00\x00\x01"
            b"\x01\x00"
        )

    @pytest.mark.parametrize(
        "profile",
        [
            MemberProfile(),
            MemberProfile("c", "/h", "i", "r", 5, ("a", "b"), "x.*", "range"),
            MemberProfile(classic=ClassicProfile(7, (("range", b"1"), ("sticky", b"")))),
        ],
    )
    def test_a_profile_comes_back(self, profile: MemberProfile) -> None:
        assert read_profile(_reread(profile_record("g", "m", profile))) == profile

    def test_a_profile_without_the_tag_is_of_no_classic_member(self) -> None:
        assert read_profile(ConsumerGroupMemberMetadataValue()).classic is None

    @pytest.mark.parametrize("state", list(MemberState))
    def test_an_assignment_comes_back(self, state: MemberState) -> None:
        current = CurrentAssignment(3, 2, state, {T: {0: 1, 4: 3}}, {T: {7: 2}})
        assert read_current(_reread(current_record("g", "m", current))) == current

    def test_a_state_of_a_newer_release(self) -> None:
        """CGP-26."""
        value = ConsumerGroupCurrentMemberAssignmentValue(member_epoch=3, state=9)
        assert read_current(value).state is MemberState.UNKNOWN

    def test_partitions_without_epochs_have_the_members(self) -> None:
        """As Kafka wrote before 4.3."""
        topic = CurrentTopicPartitions(topic_id=T, partitions=[0, 2])
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=3, assigned_partitions=[topic]
        )
        assert read_current(value).assigned == {T: {0: 3, 2: 3}}

    def test_the_others_come_back(self) -> None:
        records = [
            target_epoch_record("g", 4, 99),
            target_record("g", "m", {T: frozenset({0, 2})}),
            regex_record("g", "x.*", ResolvedRegex(("xa", "xb"), 5, 6)),
        ]
        rewritten = []
        for record in records:
            assert record.value is not None
            data = encode_key(record.key), encode_value(record.value, record.value_version)
            key = GROUP_RECORDS.decode_key(data[0])
            rewritten.append(CoordinatorRecord(key, GROUP_RECORDS.decode_value(key, data[1])[0]))
        assert Replayed(rewritten).state() == Replayed(records).state()
        group = Replayed(rewritten).group()
        assert group.target("m") == {T: frozenset({0, 2})}
        assert group.assignment_timestamp_ms.value == 99
        assert group.resolved_regexes["x.*"] == ResolvedRegex(("xa", "xb"), 5, 6)


def _reread(record: CoordinatorRecord) -> Any:
    assert record.value is not None
    data = encode_value(record.value, record.value_version)
    return GROUP_RECORDS.decode_value(GROUP_RECORDS.decode_key(encode_key(record.key)), data)[0]


class TestDeletion:
    def test_a_group_with_members_stays(self) -> None:
        """CGP-59."""
        rig = ConsumerRig({"t": 4})
        Client(rig, "a", ["t"]).join()
        [result] = rig.call(lambda machine: machine.listing.delete(["g"]))
        assert result.error_code == ErrorCode.NON_EMPTY_GROUP

    def test_an_empty_one_goes(self) -> None:
        """CGP-59: each thing before what it belongs to."""
        rig = ConsumerRig({"t": 4})
        client = Client(rig, "a", ["t"])
        client.join()
        client.leave()
        written = rig.written(lambda: rig.call(lambda machine: machine.listing.delete(["g"])))
        assert types(written) == ["-6", "-3"]
        assert rig.machine.directory.get("g") is None
        rig.move()
        assert rig.machine.directory.get("g") is None

    def test_the_order_of_tombstones(self) -> None:
        """CGP-59: also of what an empty group does not have, but a converted one does."""
        rig = ConsumerRig({"t": 4})
        clients = [Client(rig, name, ["t"], regex="u") for name in "ab"]
        for client in clients:
            client.join()
        settle(clients, 3)
        tombstones = rig.group().tombstones()
        assert types(tombstones) == ["-8", "-8", "-7", "-7", "-6", "-5", "-5", "-16", "-3"]
        rig.write(lambda machine: Outcome(tombstones))
        rig.commit()
        assert rig.machine.directory.get("g") is None


def test_a_current_record_of_somebody_unknown_makes_a_member() -> None:
    """Compaction may have left it first."""
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m")
    value = ConsumerGroupCurrentMemberAssignmentValue(member_epoch=3)
    group = Replayed([CoordinatorRecord(key, value)]).group()
    assert group.members["m"].current.member_epoch == 3
