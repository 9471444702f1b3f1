"""Offsets that are committed within transactions."""

from __future__ import annotations

from typing import Any

import pytest
from coordinator.classic_kit import ClassicRig, Member
from coordinator.shard_kit import Waiting

from kraftpy.coordinator.batch import Producer
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k09_offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kraftpy.protocol.schema.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kraftpy.records.batch import RecordBatch

ONE = Producer(1000, 0)
TWO = Producer(2000, 0)


def commit(
    rig: ClassicRig,
    offset: int,
    producer: Producer = ONE,
    *,
    topic: str = "t",
    partition: int = 0,
    metadata: str = "",
    **fields: Any,
) -> Waiting:
    given = TxnOffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    request = TxnOffsetCommitRequest(
        group_id=fields.pop("group_id", "g"),
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[given])],
        **fields,
    )
    return rig.write_transactional(
        lambda machine: machine.offsets.commit_transactional(request, 5), producer
    )


def offset_of(rig: ClassicRig, *, is_stable: bool = False) -> tuple[int, int]:
    """Of partition 0 of topic t, and the error."""
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    request = OffsetFetchRequestGroup(group_id="g", topics=[topic])
    (found,) = rig.machine.offsets.fetch(request, is_stable=is_stable).topics[0].partitions
    return found.committed_offset, found.error_code


UNSTABLE = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)


@pytest.mark.parametrize("moves", [False, True])
def test_it_is_seen_when_the_transaction_is_committed(moves: bool) -> None:
    """TXN-20, GRP-59: also if the coordinator moves in between."""
    rig = ClassicRig()
    rig.commit_offset("t", 0, 1)
    assert commit(rig, 5).answer.topics[0].partitions[0].error_code == 0
    if moves:
        rig.move()
    assert offset_of(rig) == (1, 0)
    assert offset_of(rig, is_stable=True) == UNSTABLE
    rig.complete_transaction(ONE, is_commit=True)
    assert offset_of(rig) == offset_of(rig, is_stable=True) == (5, 0)
    if moves:
        rig.move()
    assert offset_of(rig) == (5, 0)


@pytest.mark.parametrize("moves", [False, True])
def test_it_is_forgotten_when_the_transaction_is_aborted(moves: bool) -> None:
    """TXN-20, F2: the group's offset is where the reader has to go back to."""
    rig = ClassicRig()
    rig.commit_offset("t", 0, 1)
    commit(rig, 5)
    if moves:
        rig.move()
    rig.complete_transaction(ONE, is_commit=False)
    if moves:
        rig.move()
    assert offset_of(rig) == offset_of(rig, is_stable=True) == (1, 0)


def test_it_is_written_in_the_one_format_that_has_transactions() -> None:
    """TXN-40: no setting leads to another since Kafka 4.0, so that nobody has to be refused."""
    rig = ClassicRig()
    rig.commit_offset("t", 0, 1)
    commit(rig, 5, Producer(1000, 3))
    rig.complete_transaction(Producer(1000, 3), is_commit=True)
    plain, data, marker = [RecordBatch(each) for each in rig.log.batches]
    assert {each.magic for each in (plain, data, marker)} == {2}
    assert [each.is_transactional for each in (plain, data, marker)] == [False, True, True]
    assert [each.is_control for each in (plain, data, marker)] == [False, False, True]
    assert (data.producer_id, data.producer_epoch, data.base_sequence) == (1000, 3, -1)


def test_of_everything_the_unstable_is_unstable() -> None:
    """GRP-59"""
    rig = ClassicRig()
    rig.commit_offset("t", 0, 1)
    rig.commit_offset("t", 1, 2)
    commit(rig, 5)
    request = OffsetFetchRequestGroup(group_id="g", topics=None)
    (topic,) = rig.machine.offsets.fetch(request, is_stable=True).topics
    assert [each.error_code for each in topic.partitions] == [UNSTABLE[1], 0]


def test_the_later_record_wins() -> None:
    """GRP-56: not the one that becomes visible later."""
    rig = ClassicRig()
    commit(rig, 5)
    rig.commit_offset("t", 0, 7)
    rig.complete_transaction(ONE, is_commit=True)
    assert offset_of(rig) == (7, 0)
    commit(rig, 9)
    rig.complete_transaction(ONE, is_commit=True)
    assert offset_of(rig) == (9, 0)
    rig.move()
    assert offset_of(rig) == (9, 0)


def test_two_producers() -> None:
    """GRP-59: stable when neither may change it."""
    rig = ClassicRig()
    commit(rig, 5, ONE)
    commit(rig, 6, TWO)
    commit(rig, 7, ONE)
    rig.complete_transaction(TWO, is_commit=True)
    assert offset_of(rig) == (6, 0)
    assert offset_of(rig, is_stable=True) == UNSTABLE
    rig.complete_transaction(ONE, is_commit=True)
    assert offset_of(rig, is_stable=True) == (7, 0)
    assert rig.machine.offsets.state.count == 1


def test_a_marker_for_nothing() -> None:
    rig = ClassicRig()
    assert rig.complete_transaction(ONE, is_commit=True).is_answered


def test_a_group_is_made() -> None:
    """TXN-20: as for any commit without one."""
    rig = ClassicRig()
    commit(rig, 5)
    assert rig.state == "Empty"
    assert rig.machine.offsets.state.count == 0


def test_the_log_fails() -> None:
    """GRP-57"""
    rig = ClassicRig()
    rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert commit(rig, 5).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert offset_of(rig, is_stable=True) == (-1, 0)
    assert rig.machine.directory.get("g") is None


def test_the_marker_fails() -> None:
    """CRT-6: the transaction is open still."""
    rig = ClassicRig()
    commit(rig, 5)
    rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
    rig.complete_transaction(ONE, is_commit=True)
    assert offset_of(rig) == (-1, 0)
    assert offset_of(rig, is_stable=True) == UNSTABLE
    rig.complete_transaction(ONE, is_commit=True)
    assert offset_of(rig) == (5, 0)


class TestFencing:
    """TXN-21"""

    def stable(self) -> tuple[ClassicRig, Member]:
        rig = ClassicRig()
        (member,) = rig.stable(instance_id="i")
        return rig, member

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
            ({"generation_id": -1}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "nobody", "group_instance_id": None}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "nobody"}, ErrorCode.FENCED_INSTANCE_ID),
            ({"group_instance_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_what_is_refused(self, fields: dict[str, Any], code: ErrorCode) -> None:
        rig, member = self.stable()
        given = {"generation_id": 1, "member_id": member.member_id, "group_instance_id": "i"}
        assert commit(rig, 5, **(given | fields)).error is code
        assert offset_of(rig, is_stable=True) == (-1, 0)

    def test_a_member(self) -> None:
        rig, member = self.stable()
        waiting = commit(rig, 5, generation_id=1, member_id=member.member_id)
        assert waiting.answer is not None

    def test_who_does_not_say_is_believed(self) -> None:
        """Older producers can't."""
        rig, _ = self.stable()
        assert commit(rig, 5).answer is not None

    def test_a_generation_of_no_group(self) -> None:
        waiting = commit(ClassicRig(), 5, generation_id=1, member_id="m")
        assert waiting.error is ErrorCode.ILLEGAL_GENERATION

    def test_while_the_leader_assigns(self) -> None:
        """The state of the group is not enforced for producers."""
        rig, member = self.stable()
        member.join()
        member.joined()
        assert rig.state == "CompletingRebalance"
        waiting = commit(rig, 5, generation_id=2, member_id=member.member_id)
        assert waiting.answer is not None


def test_a_remark_that_is_too_long() -> None:
    """GRP-52"""
    rig = ClassicRig()
    answer = commit(rig, 5, metadata="x" * 4097).answer
    assert answer.topics[0].partitions[0].error_code == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert offset_of(rig, is_stable=True) == (-1, 0)


def test_deletion_takes_the_pending_ones_along() -> None:
    """GRP-48"""
    rig = ClassicRig()
    commit(rig, 5)
    commit(rig, 6, TWO, partition=1)
    commit(rig, 7, TWO, topic="u", group_id="other")
    rig.call(lambda machine: machine.listing.delete(["g"]))
    rig.complete_transaction(ONE, is_commit=True)
    rig.complete_transaction(TWO, is_commit=True)
    assert rig.machine.directory.get("g") is None
    assert rig.machine.offsets.state.count == 1
    rig.move()
    assert rig.machine.offsets.state.count == 1
    assert rig.machine.directory.get("g") is None
