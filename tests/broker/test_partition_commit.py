"""What a leader's high watermark waits for, and what an append needs."""

from __future__ import annotations

import pytest
from core_rig import LAG_MS, Hosted, batch, record

from kraftpy.broker.partition import ALL_IN_SYNC, ReplicaError
from kraftpy.log.errors import OffsetOutOfRangeError
from kraftpy.protocol.errors import ErrorCode


def test_the_walk_through() -> None:
    """REP-43: a leader learns with the next fetch what a follower has."""
    hosted = Hosted()
    hosted.lead()
    hosted.append(5)
    hosted.fetch(2, 0)
    hosted.fetch(3, 0)
    assert (hosted.log.log_end_offset, hosted.high_watermark) == (5, 0)
    hosted.append(10)
    hosted.fetch(2, 3)
    assert hosted.high_watermark == 0
    hosted.fetch(3, 4)
    assert (hosted.log.log_end_offset, hosted.high_watermark) == (15, 3)


def test_nine_seven_six() -> None:
    """REP-44, REP-48, REP-114: the slowest leaves, which counts when the metadata says so."""
    hosted = Hosted()
    hosted.lead()
    hosted.append(9)
    hosted.fetch(2, 7)
    hosted.fetch(3, 6)
    assert hosted.high_watermark == 6
    hosted.now_ms = LAG_MS
    hosted.fetch(2, 7, leader_end=7)
    hosted.now_ms = LAG_MS + 1
    hosted.partition.shrink_isr(hosted.now_ms)
    assert hosted.partition.proposal is not None
    assert hosted.partition.proposal.isr == (1, 2)
    hosted.fetch(2, 7)
    assert hosted.partition.maximal_isr == (1, 2, 3)
    assert hosted.high_watermark == 6
    hosted.events.take()
    hosted.answer(isr=(1, 2))
    assert (hosted.partition.isr, hosted.high_watermark) == ((1, 2), 6)
    hosted.lead(isr=(1, 2), partition_epoch=11)
    assert hosted.high_watermark == 7
    assert hosted.events.take() == ["high watermark"]


def test_the_high_watermark_only_grows() -> None:
    """REP-41: a follower that comes back with less does not lower it."""
    hosted = Hosted()
    hosted.lead()
    hosted.append(5)
    hosted.fetch(2, 5)
    hosted.fetch(3, 5)
    assert hosted.high_watermark == 5
    hosted.fetch(3, 2)
    assert hosted.high_watermark == 5


def test_alone_a_leader_commits_with_the_append() -> None:
    """REP-45: and when it begins to lead."""
    hosted = Hosted()
    hosted.partition.follow(record(2, leader_epoch=4, partition_epoch=9))
    hosted.log.append_as_follower(batch(b"a", leader_epoch=4), 4)
    hosted.lead(isr=(1,))
    assert hosted.high_watermark == 1
    assert hosted.events.take() == ["role", "role", "high watermark"]
    hosted.append(2, acks=ALL_IN_SYNC)
    assert hosted.high_watermark == 3
    assert hosted.events.told == [("appended", 3), ("high watermark", 3)]


def test_whoever_is_told_sees_the_whole_state() -> None:
    """REP-46: with the fetch that moves the high watermark, and the joining that it allows."""
    hosted = Hosted()
    hosted.lead(isr=(1, 2))
    hosted.append(1)
    hosted.fetch(2, 1)
    hosted.events.take()
    hosted.append(1)
    hosted.fetch(3, 2, log_start=1)
    hosted.fetch(2, 2)
    assert hosted.events.told == [
        ("appended", 1),
        ("isr", 1),
        ("log start", 1),
        ("high watermark", 2),
    ]


def test_a_pending_expansion_holds_the_high_watermark_back() -> None:
    """REP-47: the controller may elect the newcomer before this leader hears that it agreed."""
    hosted = Hosted()
    hosted.lead(isr=(1, 2))
    hosted.append(2)
    hosted.fetch(2, 2)
    hosted.fetch(3, 2)
    assert hosted.partition.proposal is not None
    assert hosted.partition.isr == (1, 2)
    assert hosted.partition.maximal_isr == (1, 2, 3)
    hosted.append(1)
    # So long that nobody waits for it as for one that keeps up.
    hosted.now_ms = 10 * LAG_MS
    hosted.fetch(2, 3)
    assert hosted.high_watermark == 2
    hosted.answer(isr=(1, 2, 3))
    assert hosted.high_watermark == 2
    hosted.fetch(3, 3)
    assert hosted.high_watermark == 3


def test_an_expansion_that_was_not_done_releases_it() -> None:
    """REP-117: nobody has to wait for a replica that has not joined."""
    hosted = Hosted()
    hosted.lead(isr=(1,))
    hosted.append(2)
    hosted.fetch(3, 2)
    hosted.append(1)
    assert hosted.high_watermark == 2
    hosted.now_ms = 10 * LAG_MS
    hosted.answer(ErrorCode.INELIGIBLE_REPLICA)
    assert hosted.partition.maximal_isr == (1,)
    assert hosted.high_watermark == 3


def test_a_replica_that_keeps_up_is_waited_for() -> None:
    """REP-49: else it would chase the end of a leader that is alone for ever."""
    hosted = Hosted()
    hosted.brokers.leaving.append(3)
    hosted.lead(isr=(1,))
    hosted.append(2)
    assert hosted.high_watermark == 2
    hosted.fetch(3, 2)
    hosted.brokers.leaving.clear()
    hosted.append(1)
    assert hosted.partition.proposal is None
    assert hosted.high_watermark == 2
    # No longer than it may lag.
    hosted.now_ms = LAG_MS
    hosted.append(1)
    assert hosted.high_watermark == 2
    hosted.now_ms = LAG_MS + 1
    hosted.append(1)
    assert hosted.high_watermark == 5


def test_nobody_has_to_fetch_or_append_for_a_late_replica_to_be_given_up() -> None:
    """REP-49: the check of the ISR looks at those outside of it, too."""
    hosted = Hosted()
    hosted.brokers.leaving.append(3)
    hosted.lead(isr=(1,))
    hosted.append(2)
    hosted.fetch(3, 2)
    hosted.brokers.leaving.clear()
    hosted.append(1)
    hosted.now_ms = LAG_MS
    hosted.partition.shrink_isr(hosted.now_ms)
    assert hosted.high_watermark == 2
    hosted.now_ms += 1
    hosted.events.take()
    hosted.partition.shrink_isr(hosted.now_ms)
    assert hosted.high_watermark == 3
    assert hosted.events.take() == ["high watermark"]


@pytest.mark.parametrize("reason", ["never fetched", "leaving", "dead", "another process"])
def test_a_replica_that_can_not_join_is_not_waited_for(reason: str) -> None:
    """REP-49, also right after the clock has begun."""
    hosted = Hosted()
    hosted.lead(isr=(1,))
    hosted.append(2)
    if reason != "never fetched":
        hosted.brokers.leaving.append(3)
        hosted.fetch(3, 2)
        hosted.brokers.leaving.clear()
    if reason == "leaving":
        hosted.brokers.leaving.append(3)
    if reason == "dead":
        hosted.brokers.dead.append(3)
    if reason == "another process":
        hosted.brokers.epochs[3] = 200
    hosted.append(1)
    assert hosted.high_watermark == 3


def test_under_min_isr_nothing_is_committed() -> None:
    """REP-50: and what was proposed does not count for it before it is committed."""
    hosted = Hosted(min_isr=2)
    hosted.lead(isr=(1,))
    hosted.append(2)
    hosted.fetch(3, 2)
    assert hosted.partition.maximal_isr == (1, 3)
    assert hosted.high_watermark == 0
    hosted.answer(isr=(1, 3))
    assert hosted.high_watermark == 0
    hosted.lead(isr=(1, 3), partition_epoch=11)
    assert hosted.high_watermark == 2


def late_by_its_answer(min_isr: int) -> Hosted:
    """Broker 3 has left the ISR, as the leader knows from the answer to its proposal alone."""
    hosted = Hosted(min_isr=min_isr)
    hosted.lead()
    hosted.append(2)
    for each in (2, 3):
        hosted.fetch(each, 2)
    hosted.append()
    hosted.now_ms = 2 * LAG_MS
    hosted.fetch(2, 3)
    hosted.partition.shrink_isr(hosted.now_ms)
    hosted.answer(isr=(1, 2))
    assert (hosted.partition.isr, hosted.high_watermark) == ((1, 2), 2)
    return hosted


@pytest.mark.parametrize(("raised", "high_watermark"), [(2, 3), (3, 2)])
def test_an_answer_says_nothing_of_the_min_isr_by_which_it_was_made(
    raised: int, high_watermark: int
) -> None:
    """REP-48, REP-50: with three replicas wanted, the one that left is an eligible leader. The
    leader hears of that setting with the metadata of the change, or before.
    """
    hosted = late_by_its_answer(min_isr=2)
    assert sorted(hosted.partition.maximal_isr) == [1, 2, 3]
    hosted.fetch(2, 3)
    assert hosted.high_watermark == 2
    hosted.partition.min_insync_replicas = raised
    hosted.lead(isr=(1, 2), partition_epoch=11)
    assert hosted.high_watermark == high_watermark


def test_an_isr_that_grows_by_an_answer_is_not_large_enough_yet() -> None:
    """REP-50: broker 3 was an eligible leader beside too small an ISR, and by a setting that this
    leader has not heard of it still is.
    """
    hosted = Hosted(min_isr=2)
    hosted.lead(isr=(1,))
    hosted.append(2)
    hosted.now_ms = 2 * LAG_MS
    hosted.fetch(2, 2)
    hosted.answer(isr=(1, 2))
    assert not hosted.partition.is_under_min_isr
    assert hosted.high_watermark == 0
    hosted.partition.min_insync_replicas = 3
    hosted.lead(isr=(1, 2), partition_epoch=11)
    assert hosted.high_watermark == 0
    hosted.partition.min_insync_replicas = 2
    hosted.partition.commit_further(hosted.now_ms)
    assert hosted.high_watermark == 2


def test_metadata_between_two_answers_is_old_news() -> None:
    """REP-48: whoever was in the ISR since the last metadata that counted is waited for."""
    hosted = late_by_its_answer(min_isr=1)
    hosted.now_ms = 5 * LAG_MS
    hosted.append()
    hosted.partition.shrink_isr(hosted.now_ms)
    hosted.answer(isr=(1,), partition_epoch=12)
    hosted.lead(isr=(1, 2), partition_epoch=11)
    assert sorted(hosted.partition.maximal_isr) == [1, 2, 3]
    assert hosted.high_watermark == 2
    hosted.lead(isr=(1,), partition_epoch=12)
    assert hosted.partition.maximal_isr == (1,)
    assert hosted.high_watermark == 4


def test_acks_all_needs_min_isr() -> None:
    """REP-21, REP-23: refused before anything is written; other acks don't care."""
    hosted = Hosted(min_isr=2)
    hosted.lead(isr=(1,))
    with pytest.raises(ReplicaError) as caught:
        hosted.append(acks=ALL_IN_SYNC)
    assert caught.value.error_code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert hosted.log.log_end_offset == 0
    hosted.append(acks=1)
    hosted.append(acks=0)
    assert hosted.log.log_end_offset == 2
    hosted.lead(isr=(1, 2), partition_epoch=11)
    hosted.append(acks=ALL_IN_SYNC)
    assert not hosted.partition.is_under_min_isr


def test_an_isr_that_shrinks_after_the_append_is_seen() -> None:
    """REP-22: whoever waits for the append asks `is_under_min_isr` when it is committed."""
    hosted = Hosted(min_isr=2)
    hosted.lead(isr=(1, 2))
    hosted.append(acks=ALL_IN_SYNC)
    hosted.lead(isr=(1,), partition_epoch=11)
    assert hosted.partition.is_under_min_isr
    assert hosted.high_watermark == 0


def test_min_isr_is_at_most_the_number_of_replicas() -> None:
    """REP-21: a topic with one replica and a cluster-wide min.insync.replicas of 2 can write."""
    hosted = Hosted(min_isr=2)
    hosted.partition.lead(record(1, isr=(1,), replicas=(1,)), 0)
    hosted.append(acks=ALL_IN_SYNC)
    assert hosted.high_watermark == 1


def test_only_a_leader_appends() -> None:
    """REP-19."""
    hosted = Hosted()
    hosted.partition.follow(record(2))
    with pytest.raises(ReplicaError) as caught:
        hosted.append()
    assert caught.value.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert hosted.log.log_end_offset == 0


def test_a_stranger_changes_nothing() -> None:
    """REP-38."""
    hosted = Hosted()
    hosted.lead(isr=(1,))
    hosted.append(2)
    hosted.events.take()
    assert not hosted.fetch(9, 2)
    assert hosted.partition.proposal is None
    assert hosted.events.take() == []


def test_a_fetch_of_a_replaced_process_does_not_count() -> None:
    """REP-38, REP-120: it may have had more than its successor found after the crash."""
    hosted = Hosted()
    hosted.lead(isr=(1, 2))
    hosted.append(5)
    hosted.brokers.epochs[2] = 300
    assert not hosted.fetch(2, 5, epoch=102)
    assert hosted.high_watermark == 0
    assert hosted.fetch(2, 3, epoch=300)
    assert hosted.high_watermark == 3


def test_what_must_be_flushed_counts_after_the_flush() -> None:
    """Invariant 15: with flush.messages=1 what is committed is on this leader's disk."""
    hosted = Hosted(flush_messages=1)
    hosted.lead(isr=(1, 2))
    assert hosted.append(2).must_flush
    assert hosted.partition.awaits_flush
    hosted.fetch(2, 2)
    assert hosted.high_watermark == 0
    hosted.append(1)
    hosted.fetch(2, 3)
    hosted.log.flush(2)
    hosted.partition.flushed(hosted.log.recovery_point, 0)
    assert hosted.high_watermark == 2
    hosted.log.flush()
    hosted.partition.flushed(hosted.log.recovery_point, 0)
    assert hosted.high_watermark == 3
    assert not hosted.partition.awaits_flush
    hosted.partition.flushed(hosted.log.recovery_point, 0)
    assert hosted.high_watermark == 3


def test_what_asks_for_no_flush_does_not_wait_for_the_next_one() -> None:
    """It came between the flush and its being told."""
    hosted = Hosted(flush_messages=2)
    hosted.lead(isr=(1,))
    hosted.append(2)
    hosted.log.flush()
    assert not hosted.append(1).must_flush
    hosted.partition.flushed(2, 0)
    assert hosted.high_watermark == 3


def test_a_repeated_batch_holds_nothing_back() -> None:
    hosted = Hosted(flush_messages=1)
    hosted.lead(isr=(1,))
    for _ in range(2):
        info = hosted.partition.append(
            batch(b"v", producer_id=7, sequence=0), required_acks=1, now_ms=0
        )
        hosted.log.flush()
        hosted.partition.flushed(1, 0)
    assert info.is_duplicate
    assert not hosted.partition.awaits_flush
    assert hosted.events.take() == ["role", "appended", "high watermark"]


def test_a_repeated_batch_does_not_shorten_the_wait() -> None:
    hosted = Hosted(flush_messages=1)
    hosted.lead(isr=(1,))
    for sequence in (0, 1, 0):
        data = batch(b"v", producer_id=7, sequence=sequence)
        hosted.partition.append(data, required_acks=1, now_ms=0)
    hosted.log.flush(1)
    hosted.partition.flushed(1, 0)
    assert hosted.high_watermark == 1


def test_a_new_leader_flushes_what_it_had_replicated() -> None:
    """Its leader may have been gone before the flush, and the fetch that would have told of it."""
    hosted = Hosted(flush_messages=1)
    hosted.partition.follow(record(2, leader_epoch=4, partition_epoch=9))
    hosted.log.append_as_follower(batch(b"a", leader_epoch=4), 4)
    hosted.lead(isr=(1,))
    assert hosted.partition.awaits_flush
    assert hosted.high_watermark == 0
    hosted.log.flush()
    hosted.partition.flushed(1, 0)
    assert hosted.high_watermark == 1


def test_the_low_watermark_is_the_lowest_log_start_of_those_alive() -> None:
    """REP-8."""
    hosted = Hosted()
    hosted.lead()
    hosted.append(5)
    hosted.fetch(2, 5)
    assert hosted.partition.low_watermark == -1
    hosted.fetch(3, 5, log_start=1)
    assert hosted.high_watermark == 5
    hosted.events.take()
    assert hosted.partition.raise_log_start(3) == 0
    assert hosted.events.take() == ["log start"]
    hosted.fetch(2, 5, log_start=3)
    assert hosted.partition.low_watermark == 1
    assert hosted.events.take() == ["log start"]
    hosted.brokers.dead.append(3)
    assert hosted.partition.low_watermark == 3


def test_records_are_deleted_up_to_the_high_watermark_by_the_leader() -> None:
    hosted = Hosted()
    hosted.lead()
    hosted.append(5)
    with pytest.raises(OffsetOutOfRangeError):
        hosted.partition.raise_log_start(1)
    hosted.partition.follow(record(2, leader_epoch=6, partition_epoch=11))
    with pytest.raises(ReplicaError):
        hosted.partition.raise_log_start(0)
