"""A hosted replica becomes leader and follower as metadata says, whatever order it comes in."""

from __future__ import annotations

import pytest
from core_rig import LAG_MS, Hosted, batch, batches_in, record, values_in

from kraftpy.broker.partition import ReplicaError
from kraftpy.protocol.errors import ErrorCode


def test_a_new_leader_begins_its_epoch_at_the_log_end() -> None:
    """REP-90, REP-98: epochs know where it began, and its batches are stamped."""
    hosted = Hosted()
    hosted.partition.follow(record(2, leader_epoch=4, partition_epoch=9))
    hosted.log.append_as_follower(batch(b"a", b"b", leader_epoch=4), 4)
    hosted.events.take()
    assert hosted.lead()
    assert hosted.partition.is_leader
    assert hosted.log.epochs.entries == ((4, 0), (5, 2))
    hosted.append()
    assert [each.leader_epoch for each in batches_in(hosted.log)] == [4, 5]
    assert hosted.events.take() == ["role", "appended"]


def test_a_new_leader_knows_nothing_of_its_followers() -> None:
    """REP-7, REP-98: what it knew under an earlier leadership of its own is not taken for true."""
    hosted = Hosted()
    hosted.lead()
    hosted.append()
    hosted.fetch(2, 1)
    hosted.partition.follow(record(2, leader_epoch=6, partition_epoch=11))
    assert hosted.partition.follower(2) is None
    hosted.lead(epoch=7, partition_epoch=12)
    follower = hosted.partition.follower(2)
    assert follower is not None
    assert (follower.end.offset, follower.log_start_offset, follower.broker_epoch) == (-1, -1, -1)
    hosted.fetch(3, 1)
    assert hosted.high_watermark == 0


def test_the_same_assignment_again_resets_nothing() -> None:
    """REP-99."""
    hosted = Hosted()
    hosted.lead()
    hosted.append(3)
    hosted.fetch(2, 2)
    assert not hosted.lead()
    follower = hosted.partition.follower(2)
    assert follower is not None
    assert follower.end.offset == 2
    assert hosted.log.epochs.entries == ((5, 0),)


def test_the_same_leader_in_a_new_epoch_keeps_what_it_knows() -> None:
    """REP-99: its followers' logs are not others for that."""
    hosted = Hosted()
    hosted.lead()
    hosted.append(3)
    hosted.fetch(2, 3)
    assert not hosted.lead(epoch=6, partition_epoch=11)
    follower = hosted.partition.follower(2)
    assert follower is not None
    assert follower.end.offset == 3
    assert hosted.log.epochs.entries == ((5, 0), (6, 3))
    hosted.fetch(3, 3)
    assert hosted.high_watermark == 3


def test_a_leadership_in_between_may_have_truncated_the_followers() -> None:
    """REP-98: images may be skipped, so that a leader never hears of one between two of its own.

    Follower 3 had everything in epoch 5, lost it under the leader of epoch 6, who is dead now.
    """
    hosted = Hosted()
    hosted.lead()
    hosted.append(3)
    hosted.fetch(3, 3)
    assert not hosted.lead(isr=(1, 3), epoch=7, partition_epoch=12)
    assert hosted.high_watermark == 0
    follower = hosted.partition.follower(3)
    assert follower is not None
    assert (follower.end.offset, follower.log_start_offset, follower.broker_epoch) == (-1, -1, -1)
    hosted.fetch(3, 1)
    assert hosted.high_watermark == 1


@pytest.mark.parametrize("partition_epoch", [9, 0])
def test_old_metadata_changes_nothing(partition_epoch: int) -> None:
    """REP-13: neither towards following nor towards leading."""
    hosted = Hosted()
    hosted.lead(isr=(1, 2))
    hosted.events.take()
    old = record(2, isr=(2, 3), leader_epoch=4, partition_epoch=partition_epoch)
    assert not hosted.partition.follow(old)
    assert not hosted.lead(isr=(1,), epoch=4, partition_epoch=partition_epoch)
    assert hosted.partition.is_leader
    assert hosted.partition.isr == (1, 2)
    assert (hosted.partition.leader_epoch, hosted.partition.partition_epoch) == (5, 10)
    assert hosted.events.take() == []
    follower = Hosted()
    follower.partition.follow(record(2))
    assert not follower.lead(epoch=4, partition_epoch=partition_epoch)
    assert follower.partition.leader_id == 2


def test_a_newer_partition_epoch_of_the_same_leadership_updates_the_isr() -> None:
    """REP-103, CTL-44: and it is no news for fetchers, on the leader or on a follower."""
    hosted = Hosted()
    hosted.lead()
    hosted.append(2)
    hosted.fetch(2, 2)
    hosted.events.take()
    hosted.now_ms = LAG_MS + 1
    assert not hosted.lead(isr=(1, 2), partition_epoch=11)
    assert hosted.partition.isr == (1, 2)
    assert hosted.events.take() == ["high watermark"]
    follower = Hosted()
    assert follower.partition.follow(record(2))
    assert not follower.partition.follow(record(2, isr=(2, 3), partition_epoch=11))
    assert follower.partition.partition_epoch == 11
    assert follower.events.take() == ["role"]


def test_a_follower_has_no_isr_and_no_followers() -> None:
    """REP-7, REP-100, REP-102: whoever waits at the former leader is told."""
    hosted = Hosted()
    hosted.lead()
    hosted.append()
    hosted.events.take()
    assert hosted.partition.follow(record(3, leader_epoch=6, partition_epoch=11))
    partition = hosted.partition
    assert (partition.leader_id, partition.leader_epoch, partition.isr) == (3, 6, ())
    assert not hosted.fetch(2, 1)
    assert hosted.events.take() == ["role"]
    hosted.partition.shrink_isr(1 << 40)
    assert partition.proposal is None


def test_a_follower_of_nobody() -> None:
    """REP-101: no leader is a leader like any other, whose end is news."""
    hosted = Hosted()
    assert hosted.partition.follow(record(-1))
    assert hosted.partition.leader_id == -1
    assert not hosted.partition.is_leader
    assert hosted.partition.follow(record(2, leader_epoch=6, partition_epoch=11))


def test_the_same_leader_elected_again_is_news_to_a_follower() -> None:
    """REP-100: fetchers begin again with the new epoch."""
    hosted = Hosted()
    hosted.partition.follow(record(2))
    assert hosted.partition.follow(record(2, leader_epoch=6, partition_epoch=11))


def test_epochs_are_checked() -> None:
    """REP-37."""
    hosted = Hosted()
    hosted.lead()
    partition = hosted.partition
    assert partition.check_epoch(4) is ErrorCode.FENCED_LEADER_EPOCH
    assert partition.check_epoch(6) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert partition.check_epoch(5) is ErrorCode.NONE
    assert partition.check_epoch(-1) is ErrorCode.NONE
    # As Kafka has it: no negative number is an epoch.
    assert partition.check_epoch(-7) is ErrorCode.NONE


def test_a_follower_appends_what_its_leader_answers() -> None:
    """REP-40, REP-74: the high watermark is the leader's as far as the log goes."""
    hosted = Hosted()
    hosted.partition.follow(record(2))
    _replicate(hosted, batch(b"a", b"b", leader_epoch=5), 0, high_watermark=1)
    assert values_in(hosted.log) == {0: (5, b"a"), 1: (5, b"b")}
    assert hosted.high_watermark == 1
    _replicate(hosted, batch(b"c", base_offset=2, leader_epoch=5), 2, high_watermark=9)
    assert hosted.high_watermark == 3
    assert hosted.events.take() == ["role", "high watermark", "high watermark"]
    hosted.partition.follow_watermarks(5, 2, 0)
    assert hosted.high_watermark == 2


def test_the_log_start_follows_the_leader_up_to_the_high_watermark() -> None:
    """REP-76: a DeleteRecords that races with replication does not fail it."""
    hosted = Hosted()
    hosted.partition.follow(record(2))
    data = batch(*[b"v"] * 5, leader_epoch=5)
    _replicate(hosted, data, 0, high_watermark=3, log_start=4)
    assert hosted.log.log_start_offset == 3
    hosted.partition.follow_watermarks(5, 5, 4)
    assert hosted.log.log_start_offset == 4
    hosted.partition.follow_watermarks(5, 1, 0)
    assert (hosted.log.log_start_offset, hosted.high_watermark) == (4, 4)


def test_a_fetch_at_another_offset_than_the_end_is_refused() -> None:
    """REP-75."""
    hosted = Hosted()
    hosted.partition.follow(record(2))
    with pytest.raises(ReplicaError):
        _replicate(hosted, batch(b"c", base_offset=2, leader_epoch=5), 2)
    assert hosted.log.log_end_offset == 0


def test_an_answer_of_another_leadership_is_refused() -> None:
    """REP-62: neither a leader's log nor a new follower's takes it."""
    hosted = Hosted()
    hosted.partition.follow(record(2, leader_epoch=6))
    with pytest.raises(ReplicaError):
        _replicate(hosted, batch(b"a", leader_epoch=5), 0)
    hosted.lead(epoch=7, partition_epoch=11)
    with pytest.raises(ReplicaError):
        _replicate(hosted, batch(b"a", leader_epoch=5), 0, epoch=7)
    with pytest.raises(ReplicaError):
        hosted.partition.follow_watermarks(7, 0, 0)
    assert hosted.log.log_end_offset == 0


def _replicate(
    hosted: Hosted,
    data: bytearray,
    fetch_offset: int,
    *,
    high_watermark: int = 0,
    log_start: int = 0,
    epoch: int = 5,
) -> None:
    hosted.partition.append_replicated(
        data,
        leader_epoch=epoch,
        fetch_offset=fetch_offset,
        leader_high_watermark=high_watermark,
        leader_log_start=log_start,
    )


def test_where_a_followers_log_diverges() -> None:
    """REP-82, REP-96: the epoch that both know, and its end here; None where all is well."""
    hosted = Hosted()
    partition = hosted.partition
    partition.follow(record(2, leader_epoch=2, partition_epoch=1))
    hosted.log.append_as_follower(batch(b"a", b"b", leader_epoch=2), 2)
    hosted.lead()
    hosted.append(2)
    assert partition.divergence(5, 4) is None
    assert partition.divergence(5, 3) is None
    assert partition.divergence(2, 2) is None
    # It has more of an epoch than there is, or an epoch that nobody here has heard of.
    assert partition.divergence(2, 3) == (2, 2)
    assert partition.divergence(3, 2) == (2, 2)
    with pytest.raises(ReplicaError) as caught:
        partition.divergence(6, 4)
    assert caught.value.error_code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_below_the_log_start_nothing_diverges() -> None:
    """REP-91: what is to be compared is gone, and the follower must begin anew."""
    hosted = Hosted()
    hosted.lead(isr=(1,))
    hosted.append(6)
    hosted.partition.raise_log_start(4)
    with pytest.raises(ReplicaError) as caught:
        hosted.partition.divergence(3, 2)
    assert caught.value.error_code is ErrorCode.OFFSET_OUT_OF_RANGE
