"""OffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

from typing import Any

import pytest
from coordinator.classic_kit import DELAY_MS, ClassicRig
from coordinator.shard_kit import START_MS

from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.outcome import CoordinatorRecord, Outcome
from kraftpy.protocol.coordinator_records import GROUP_RECORDS, encode_key, encode_value
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.protocol.schema.group_records import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kraftpy.protocol.schema.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kraftpy.protocol.schema.k09_offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kraftpy.protocol.schema.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

ID = Uuid(bytes(range(16)))
OTHER_ID = Uuid(bytes(range(1, 17)))


def fetched(
    rig: ClassicRig, *partitions: tuple[str, int], group_id: str = "g", **fields: Any
) -> list[tuple[int, int, str, int]]:
    """Offset, leader epoch, metadata and error of partitions, as they are committed."""
    request = _fetch_request(partitions, group_id, **fields)
    answer = rig.machine.offsets.fetch(request, is_stable=False)
    assert answer.group_id == group_id
    return _rows(answer)


def _fetch_request(
    partitions: tuple[tuple[str, int], ...], group_id: str = "g", **fields: Any
) -> OffsetFetchRequestGroup:
    return OffsetFetchRequestGroup(
        group_id=group_id,
        topics=[
            OffsetFetchRequestTopics(name=topic, partition_indexes=[partition], **fields)
            for topic, partition in partitions
        ],
    )


def _rows(answer: Any) -> list[tuple[int, int, str, int]]:
    return [
        (each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    ]


def code_of(answer: Any) -> int:
    (topic,) = answer.topics
    (partition,) = topic.partitions
    code: int = partition.error_code
    return code


class TestCommit:
    def test_without_a_group(self) -> None:
        """GRP-53: a group is made that nobody is a member of."""
        rig = ClassicRig()
        assert code_of(rig.commit_offset("t", 3, 42, metadata="note").answer) == 0
        assert rig.state == "Empty"
        assert rig.group().protocol_type == ""
        assert fetched(rig, ("t", 3)) == [(42, -1, "note", 0)]

    @pytest.mark.parametrize(
        ("version", "code"),
        [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
    )
    def test_with_a_generation_of_no_group(self, version: int, code: ErrorCode) -> None:
        """GRP-54"""
        rig = ClassicRig()
        waiting = rig.commit_offset("t", 0, 1, generation=0, member_id="m", version=version)
        assert waiting.error is code
        assert rig.machine.directory.get("g") is None

    def test_a_stranger(self) -> None:
        """GRP-53: an active group is for its members."""
        rig = ClassicRig()
        rig.stable()
        assert rig.commit_offset("t", 0, 1).error is ErrorCode.UNKNOWN_MEMBER_ID
        assert fetched(rig, ("t", 0)) == [(-1, -1, "", 0)]

    def test_a_stranger_to_an_empty_group(self) -> None:
        """GRP-53"""
        rig = ClassicRig()
        (member,) = rig.stable()
        member.leave()
        assert code_of(rig.commit_offset("t", 0, 1).answer) == 0
        # Who says that it is a member must be one.
        assert member.commit().error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_each_state(self) -> None:
        """GRP-54"""
        rig = ClassicRig()
        first = rig.member(version=3)
        first.join()
        rig.advance(DELAY_MS)
        first.joined()
        assert first.commit().error is ErrorCode.REBALANCE_IN_PROGRESS
        first.sync({first.member_id: b""})
        assert code_of(first.commit(1).answer) == 0
        rig.member(version=3).join()
        assert rig.state == "PreparingRebalance"
        assert code_of(first.commit(2).answer) == 0
        assert fetched(rig, ("t", 0))[0][0] == 2

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
            ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
            ({"generation": -1}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "", "generation": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_what_is_refused(self, fields: dict[str, Any], code: ErrorCode) -> None:
        """GRP-54: and leaves everything as it was."""
        rig = ClassicRig()
        (member,) = rig.stable()
        member.commit(7)
        end = rig.log.log_end_offset
        assert member.commit(8, **fields).error is code
        assert rig.log.log_end_offset == end
        assert fetched(rig, ("t", 0))[0][0] == 7

    @pytest.mark.parametrize("character", ["x", "ä", "\N{GRINNING FACE}"])
    def test_the_longest_remark(self, character: str) -> None:
        """GRP-52: by the characters of Java; one more is too long, for its partition alone."""
        rig = ClassicRig()
        units = len(character.encode("utf-16-le")) // 2
        longest = character * (4096 // units)
        request = OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        _partition(0, 1, longest),
                        _partition(1, 2, longest + "y"),
                        _partition(2, 3, None),
                    ],
                )
            ],
        )
        answer = rig.call(lambda machine: machine.offsets.commit(request, 9))
        codes = [each.error_code for each in answer.topics[0].partitions]
        assert codes == [0, ErrorCode.OFFSET_METADATA_TOO_LARGE, 0]
        assert fetched(rig, ("t", 0), ("t", 1), ("t", 2)) == [
            (1, -1, longest, 0),
            (-1, -1, "", 0),
            (3, -1, "", 0),
        ]

    def test_only_remarks_that_are_too_long(self) -> None:
        """GRP-52: nothing is written, and no group is made."""
        rig = ClassicRig(GroupSettings(offset_metadata_max_length=3))
        answer = rig.commit_offset("t", 0, 1, metadata="long").answer
        assert code_of(answer) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert rig.log.log_end_offset == 0
        assert rig.machine.directory.get("g") is None

    def test_an_offset_may_go_back(self) -> None:
        """GRP-56: the last one wins."""
        rig = ClassicRig()
        rig.commit_offset("t", 0, 9)
        rig.commit_offset("t", 0, 3)
        assert fetched(rig, ("t", 0))[0][0] == 3

    def test_several_at_once(self) -> None:
        """GRP-56: none is seen before it is committed, and the last one wins."""
        rig = ClassicRig(commits_at_once=False)
        first = rig.commit_offset("t", 0, 1)
        rig.flush()
        second = rig.commit_offset("t", 0, 2)
        rig.flush()
        assert not first.is_answered
        assert fetched(rig, ("t", 0))[0][0] == -1
        rig.commit(1)
        assert first.is_answered
        assert not second.is_answered
        assert fetched(rig, ("t", 0))[0][0] == 1
        rig.commit()
        assert second.is_answered
        assert fetched(rig, ("t", 0))[0][0] == 2

    def test_the_log_fails(self) -> None:
        """GRP-55, GRP-57: what was committed before is."""
        rig = ClassicRig()
        rig.commit_offset("t", 0, 1)
        rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert rig.commit_offset("t", 0, 2).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert fetched(rig, ("t", 0))[0][0] == 1
        rig.fail_next(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert rig.commit_offset("t", 1, 2, group_id="new").error is ErrorCode.NOT_COORDINATOR
        assert rig.machine.directory.get("new") is None
        assert rig.machine.offsets.state.count == 1

    def test_it_survives(self) -> None:
        """GRP-60, GRP-61, GRP-65"""
        rig = ClassicRig()
        (member,) = rig.stable()
        member.commit(7, metadata="x")
        rig.commit_offset("u", 1, 8, group_id="simple")
        rig.move()
        assert fetched(rig, ("t", 0)) == [(7, -1, "x", 0)]
        assert fetched(rig, ("u", 1), group_id="simple")[0][0] == 8
        assert rig.group("simple").state_name == "Empty"
        assert rig.machine.offsets.state.count == 2


def _partition(index: int, offset: int, metadata: str | None) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset,
        committed_metadata=metadata,
        committed_leader_epoch=-1,
    )


def records_of(outcome: Outcome[Any]) -> list[tuple[bytes, bytes | None]]:
    return [
        (
            encode_key(record.key),
            None if record.value is None else encode_value(record.value, record.value_version),
        )
        for record in outcome.records
    ]


class TestRecords:
    """GRP-49, GRP-50"""

    KEY = OffsetCommitKey(group="g", topic="t", partition=5)
    KEY_BYTES = bytes.fromhex("0001 0001 67 0001 74 00000005")

    def commit(self, **fields: Any) -> list[tuple[bytes, bytes | None]]:
        topic_id = fields.pop("topic_id", ZERO_UUID)
        given = OffsetCommitRequestPartition(
            partition_index=5,
            committed_offset=258,
            committed_leader_epoch=3,
            committed_metadata="m",
        )
        topic = OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=[given])
        request = OffsetCommitRequest(group_id="g", topics=[topic], **fields)
        return records_of(ClassicRig().machine.offsets.commit(request, 10))

    def test_byte_for_byte(self) -> None:
        """As a broker of Apache Kafka 4.3 writes it."""
        time = START_MS.to_bytes(8, "big").hex()
        assert self.commit() == [
            (
                self.KEY_BYTES,
                bytes.fromhex(f"0004 0000000000000102 00000003 02 6d {time} 00"),
            )
        ]

    def test_with_a_topic_id(self) -> None:
        time = START_MS.to_bytes(8, "big").hex()
        ((_, data),) = self.commit(topic_id=ID)
        assert data == bytes.fromhex(
            f"0004 0000000000000102 00000003 02 6d {time} 01 00 10 {ID.hex()}"
        )

    def test_with_a_retention_of_its_own(self) -> None:
        """Versions 2 to 4 of the request can say so."""
        time = START_MS.to_bytes(8, "big").hex()
        end = (START_MS + 1000).to_bytes(8, "big").hex()
        ((_, data),) = self.commit(retention_time_ms=1000)
        assert data == bytes.fromhex(f"0001 0000000000000102 0001 6d {time} {end}")

    @pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
    def test_every_version_is_read(self, version: int) -> None:
        written = OffsetCommitValue(
            offset=9,
            leader_epoch=4,
            metadata="m",
            commit_timestamp=55,
            expire_timestamp=66,
            topic_id=ID,
        )
        value, _ = GROUP_RECORDS.decode_value(self.KEY, encode_value(written, version))
        rig = ClassicRig()
        rig.machine.replay(11, -1, -1, CoordinatorRecord(self.KEY, value, version))
        stored = rig.machine.offsets.state.committed.get("g", ("t", 5))
        assert stored is not None
        assert (stored.record_offset, stored.offset, stored.metadata) == (11, 9, "m")
        assert stored.commit_timestamp_ms == 55
        assert stored.leader_epoch == (4 if version >= 3 else -1)
        assert stored.expire_timestamp_ms == (66 if version == 1 else -1)
        assert stored.topic_id == (ID if version == 4 else ZERO_UUID)

    def test_the_oldest_key_is_read(self) -> None:
        key = LegacyOffsetCommitKey(group="g", topic="t", partition=5)
        value = LegacyOffsetCommitValue(offset=9, metadata="m", commit_timestamp=55)
        rig = ClassicRig()
        rig.machine.replay(0, -1, -1, CoordinatorRecord(key, value))
        assert rig.machine.offsets.fetch(_fetch_request((("t", 5),)), is_stable=True)
        assert rig.machine.offsets.state.committed.get("g", ("t", 5)) is not None
        rig.machine.replay(1, -1, -1, CoordinatorRecord(key))
        assert rig.machine.offsets.state.committed.get("g", ("t", 5)) is None

    def test_tombstones_of_what_is_not_there(self) -> None:
        """GRP-62: compaction leaves them."""
        rig = ClassicRig()
        rig.machine.replay(0, -1, -1, CoordinatorRecord(self.KEY))
        rig.machine.replay(1, -1, -1, CoordinatorRecord(GroupMetadataKey(group="g")))
        assert rig.machine.offsets.state.count == 0


class TestFetch:
    def test_what_nobody_committed(self) -> None:
        """GRP-58"""
        rig = ClassicRig()
        assert fetched(rig, ("t", 0)) == [(-1, -1, "", 0)]
        rig.commit_offset("t", 1, 5)
        assert fetched(rig, ("t", 0), ("u", 1), ("t", 1)) == [
            (-1, -1, "", 0),
            (-1, -1, "", 0),
            (5, -1, "", 0),
        ]

    def test_everything(self) -> None:
        """GRP-58"""
        rig = ClassicRig()
        for topic, partition in (("t", 0), ("u", 4), ("t", 1)):
            rig.commit_offset(topic, partition, partition + 10)
        rig.commit_offset("v", 0, 1, group_id="other")
        request = OffsetFetchRequestGroup(group_id="g", topics=None)
        for is_stable in (False, True):
            answer = rig.machine.offsets.fetch(request, is_stable=is_stable)
            found = {
                (topic.name, each.partition_index): each.committed_offset
                for topic in answer.topics
                for each in topic.partitions
            }
            assert found == {("t", 0): 10, ("t", 1): 11, ("u", 4): 14}
        nothing = OffsetFetchRequestGroup(group_id="none", topics=None)
        assert rig.machine.offsets.fetch(nothing, is_stable=False).topics == []

    def test_of_another_topic_of_that_name(self) -> None:
        """Who asks by id does not get the offset of a topic that is gone."""
        rig = ClassicRig()
        topic = OffsetCommitRequestTopic(name="t", topic_id=ID, partitions=[_partition(0, 7, "")])
        request = OffsetCommitRequest(group_id="g", topics=[topic])
        rig.call(lambda machine: machine.offsets.commit(request, 10))
        rig.move()
        assert fetched(rig, ("t", 0), topic_id=ID)[0][0] == 7
        assert fetched(rig, ("t", 0), topic_id=OTHER_ID)[0][0] == -1
        # Who does not say is believed.
        assert fetched(rig, ("t", 0))[0][0] == 7

    def test_a_stable_one_waits_for_the_log(self) -> None:
        """GRP-59: it has what was committed before it, and is answered when that is."""
        rig = ClassicRig(commits_at_once=False)
        rig.commit_offset("t", 0, 1)
        request = _fetch_request((("t", 0),))
        waiting = rig.write(
            lambda machine: Outcome(answer=machine.offsets.fetch(request, is_stable=True))
        )
        rig.flush()
        assert not waiting.is_answered
        rig.commit()
        assert _rows(waiting.answer) == [(1, -1, "", 0)]


class TestDelete:
    def delete(self, rig: ClassicRig, *partitions: tuple[str, int]) -> list[int]:
        request = OffsetDeleteRequest(
            group_id="g",
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index)]
                )
                for topic, index in partitions
            ],
        )
        answer = rig.call(lambda machine: machine.offsets.delete(request))
        return [each.error_code for topic in answer.topics for each in topic.partitions]

    def test_of_a_subscribed_topic(self) -> None:
        rig = ClassicRig()
        (member,) = rig.stable()
        member.commit(1)
        rig.commit_offset("u", 0, 2, generation=1, member_id=member.member_id)
        end = rig.log.log_end_offset
        subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert self.delete(rig, ("t", 0), ("u", 0), ("u", 1)) == [subscribed, 0, 0]
        # There was nothing to delete for the last one.
        assert rig.log.log_end_offset == end + 1
        assert [row[0] for row in fetched(rig, ("t", 0), ("u", 0))] == [1, -1]
        member.leave()
        assert self.delete(rig, ("t", 0)) == [0]
        assert rig.machine.offsets.state.count == 0

    def test_of_a_group_that_can_not_be_read(self) -> None:
        rig = ClassicRig()
        rig.stable(protocol_type="connect")
        request = OffsetDeleteRequest(group_id="g")
        code = rig.refusal(lambda machine: machine.offsets.delete(request))
        assert code is ErrorCode.NON_EMPTY_GROUP

    def test_of_no_group(self) -> None:
        request = OffsetDeleteRequest(group_id="g")
        code = ClassicRig().refusal(lambda machine: machine.offsets.delete(request))
        assert code is ErrorCode.GROUP_ID_NOT_FOUND
